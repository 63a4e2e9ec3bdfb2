// Calls every tool of cve by the types that openapi-typescript made; a status that is none of the document's is a fault.
import createClient from "openapi-fetch";
import type { paths } from "./document.js";

const [url, key, date] = process.argv.slice(2) as [string, string, string];
const client = createClient<paths>({ baseUrl: url, headers: { Authorization: `Bearer ${key}` } });
const read = async (name: string, call: Promise<{ data?: { ok?: boolean }; response: Response }>) => {
  const { data, response } = await call;
  console.log(JSON.stringify({ name, status: response.status, ok: data?.ok === true }));
};
await read("brief_teaser", client.GET("/v1/brief/teaser"));
const { data: brief } = await client.GET("/v1/brief/today");
const source: "nvd" | "cna" | "cisa-adp" | null | undefined = brief?.entries[0]?.severity_source;
const score: number | undefined = brief?.entries[0]?.cvss?.score;
console.log(JSON.stringify({ name: "top_cves_today", status: 200, ok: source !== undefined && score !== undefined }));
await read("kev_fresh", client.GET("/v1/kev/fresh"));
await read("cve_verdict", client.GET("/v1/cve/{cve_id}", { params: { path: { cve_id: "CVE-2021-44228" } } }));
await read("cve_history", client.GET("/v1/cve/{cve_id}/history", { params: { path: { cve_id: "CVE-2021-44228" } } }));
await read("archived_brief", client.GET("/v1/archive/{date}", { params: { path: { date } } }));
await read("next_teaser", client.GET("/v1/next/teaser"));
const { data: forecast } = await client.GET("/v1/next", { params: { query: {} } });
const rise: number | undefined = forecast?.entries[0]?.factors.rise;
console.log(JSON.stringify({ name: "next_in_kev", status: 200, ok: rise !== undefined }));
await read("next_record", client.GET("/v1/next/record"));
await read("cve_verdicts", client.GET("/v1/cve/verdicts", { params: { query: { cve_ids: ["CVE-2021-44228"] } } }));
