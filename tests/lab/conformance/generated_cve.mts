// Calls every tool of cve that needs no key of its own by the types that openapi-typescript made.
import createClient from "openapi-fetch";
import type { paths } from "./document.js";

const [url, key, date] = process.argv.slice(2) as [string, string, string];
const client = createClient<paths>({ baseUrl: url, headers: { Authorization: `Bearer ${key}` } });
// a tool with CSV or Markdown too has `string` among its types; openapi-fetch asks for none of them, so that it gets JSON
const read = async <T extends { ok?: boolean }>(name: string, call: Promise<{ data?: T | string; response: Response }>, holds: (data: T) => boolean) => {
  const { data, response } = await call;
  console.log(JSON.stringify({ name, status: response.status, ok: typeof data === "object" && data.ok === true && holds(data) }));
};
const cve_id = "CVE-2021-44228";
await read("brief_teaser", client.GET("/v1/brief/teaser"), ({ teaser }) => teaser.length > 0);
await read("top_cves_today", client.GET("/v1/brief/today"), ({ entries: [first] }) => {
  const source: "nvd" | "cna" | "cisa-adp" | null | undefined = first?.severity_source;
  const score: number | undefined = first?.cvss?.score;
  return source !== undefined && score !== undefined;
});
await read("kev_fresh", client.GET("/v1/kev/fresh"), ({ day }) => day === date);
await read("cve_verdict", client.GET("/v1/cve/{cve_id}", { params: { path: { cve_id } } }), (verdict) => verdict.cve_id === cve_id);
await read("cve_history", client.GET("/v1/cve/{cve_id}/history", { params: { path: { cve_id } } }), ({ epss, days }) => epss.length === days);
await read("archived_brief", client.GET("/v1/archive/{date}", { params: { path: { date } } }), ({ day }) => day === date);
await read("brief_change_counts", client.GET("/v1/brief/changes/counts"), ({ after, entered, left }) => after === date && entered === 1 && left === 1);
await read("brief_changes", client.GET("/v1/brief/changes", { params: { query: { to: date } } }), ({ entered: [first] }) => {
  const rank: number | null | undefined = first?.rank_after;
  return typeof rank === "number" && first?.rank_before === null;
});
await read("next_teaser", client.GET("/v1/next/teaser"), ({ teaser }) => teaser.length > 0);
await read("next_in_kev", client.GET("/v1/next", { params: { query: {} } }), ({ entries: [first] }) => {
  const rise: number | undefined = first?.factors.rise;
  return rise !== undefined;
});
await read("next_record", client.GET("/v1/next/record"), ({ day }) => day === date);
await read("cve_verdicts", client.GET("/v1/cve/verdicts", { params: { query: { cve_ids: [cve_id] } } }), ({ verdicts: [first] }) => first?.cve_id === cve_id);
