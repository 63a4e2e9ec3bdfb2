// Calls every tool of the gateway and the checkout by the types that openapi-typescript made.
import createClient from "openapi-fetch";
import type { paths } from "./document.js";

const [url] = process.argv.slice(2) as [string];
const client = createClient<paths>({ baseUrl: url });
const read = async (name: string, call: Promise<{ data?: { ok?: boolean }; response: Response }>) => {
  const { data, response } = await call;
  console.log(JSON.stringify({ name, status: response.status, ok: data?.ok === true }));
};
await read("list_buildings", client.GET("/v1/gateway/list_buildings"));
await read("how_to_pay", client.GET("/v1/gateway/how_to_pay"));
await read("how_to_connect", client.GET("/v1/gateway/how_to_connect", { params: { query: { client: "cursor" } } }));
await read("about_service", client.GET("/v1/gateway/about_service"));
await read("list_products", client.GET("/v1/checkout/products"));
const { error, response } = await client.POST("/v1/checkout/keys", { body: { product: "cve" } });
console.log(JSON.stringify({ name: "buy_key", status: response.status, ok: error !== undefined && "code" in error && error.code === "access_required" }));
