// Calls every tool of cve that needs a key of its own, for feed addresses and watches, by the types that openapi-typescript made.
import createClient from "openapi-fetch";
import type { paths } from "./document.js";

const [url, key] = process.argv.slice(2) as [string, string, string];
const client = createClient<paths>({ baseUrl: url, headers: { Authorization: `Bearer ${key}` } });
const read = async <T extends { ok?: boolean }>(
  name: string,
  call: Promise<{ data?: T | string; response: Response }>,
  holds: (data: T) => boolean,
): Promise<T> => {
  const { data, response } = await call;
  console.log(JSON.stringify({ name, status: response.status, ok: typeof data === "object" && data.ok === true && holds(data) }));
  if (typeof data !== "object") throw new Error(`${name} answered ${response.status}`);
  return data;
};
const refused = async (name: string, call: Promise<{ error?: { code: string }; response: Response }>, wanted: string) => {
  const { error, response } = await call;
  console.log(JSON.stringify({ name, status: response.status, ok: error?.code === wanted }));
};
// @ts-expect-error a watch has a name
const nameless: paths["/v1/watches"]["post"]["requestBody"]["content"]["application/json"] = { vendors: ["Apache"] };
void nameless;
const cve_id = "CVE-2021-44228";
await read("cve_verdicts_post", client.POST("/v1/cve/verdicts", { body: { report: `fix ${cve_id}` } }), ({ verdicts: [first] }) => first?.cve_id === cve_id);

const { feed_id } = await read("create_feed_url", client.POST("/v1/feed-urls", { body: { label: "generated" } }), ({ urls }) => urls.atom.startsWith(url));
await read("list_feed_urls", client.GET("/v1/feed-urls"), ({ feeds }) => feeds.some((one) => one.feed_id === feed_id));
const feed = { params: { path: { feed_id } } };
await read("keep_feed_url", client.POST("/v1/feed-urls/{feed_id}/keep", feed), (kept) => kept.feed_id === feed_id);
await read("revoke_feed_url", client.DELETE("/v1/feed-urls/{feed_id}", feed), (revoked) => revoked.feed_id === feed_id);
await refused("revoke_feed_url", client.DELETE("/v1/feed-urls/{feed_id}", feed), "no_such_feed");

const body = { name: "generated", vendors: ["Apache"], cve_ids: [cve_id] };
const { watch_id } = await read("create_watch", client.POST("/v1/watches", { body }), ({ vendors, targets }) => vendors[0] === "Apache" && targets.length === 0);
const watch = { params: { path: { watch_id } } };
await read("update_watch", client.PATCH("/v1/watches/{watch_id}", { ...watch, body: { least_score: 50 } }), ({ least_score }) => least_score === 50);
await read("list_watches", client.GET("/v1/watches"), ({ watches }) => watches.some((one) => one.watch_id === watch_id && one.name === "generated"));
await read("watch_news", client.GET("/v1/watches/news", { params: { query: { since: 0, watch_id } } }), ({ count, next }) => count === 0 && next === 0);
await read("delete_watch", client.DELETE("/v1/watches/{watch_id}", watch), (deleted) => deleted.watch_id === watch_id);
await refused("delete_watch", client.DELETE("/v1/watches/{watch_id}", watch), "no_such_watch");
await refused("watch_news", client.GET("/v1/watches/news", { params: { query: { watch_id } } }), "no_such_watch");
