// Calls every tool of the recorder by the types that openapi-typescript made.
import createClient from "openapi-fetch";
import type { paths } from "./document.js";

const [url, key] = process.argv.slice(2) as [string, string, string];
const client = createClient<paths>({ baseUrl: url, headers: { Authorization: `Bearer ${key}` } });
const read = async <T extends { ok?: boolean }>(name: string, call: Promise<{ data?: T; response: Response }>): Promise<T> => {
  const { data, response } = await call;
  console.log(JSON.stringify({ name, status: response.status, ok: data?.ok === true }));
  if (data === undefined) throw new Error(`${name} answered ${response.status}`);
  return data;
};
// @ts-expect-error a monitor wants somewhere to send its alerts
const nowhere: paths["/v1/recorder/monitors"]["post"]["requestBody"]["content"]["application/json"] = { name: "nowhere" };
void nowhere;
const body = { name: "generated", period_minutes: 30, grace_minutes: 5, alert_webhook: "http://127.0.0.1:9/alerts" };
const { monitor_id, secret } = await read("register_monitor", client.POST("/v1/recorder/monitors", { body }));
const path = { monitor_id };
const beat = { path: { monitor_id, secret } };
await read("heartbeat", client.POST("/v1/recorder/beat/{monitor_id}/{secret}", { params: beat, body: { status: "ok", capsule: { step: 7 }, seq: 1 } }));
await read("heartbeat_get", client.GET("/v1/recorder/beat/{monitor_id}/{secret}", { params: { ...beat, query: { capsule: "a text", seq: 2 } } }));
await read("update_monitor", client.PATCH("/v1/recorder/monitors/{monitor_id}", { params: { path }, body: { period_minutes: 45 } }));
await read("claim_monitor", client.POST("/v1/recorder/monitors/{monitor_id}/claim", { params: { path }, body: { secret } }));
await read("pause_monitor", client.POST("/v1/recorder/monitors/{monitor_id}/pause", { params: { path } }));
await read("resume_monitor", client.POST("/v1/recorder/monitors/{monitor_id}/resume", { params: { path } }));
await read("send_test_alert", client.POST("/v1/recorder/monitors/{monitor_id}/test", { params: { path } }));
await read("fetch_capsule", client.GET("/v1/recorder/capsule/{monitor_id}", { params: { path, query: { s: secret } } }));
await read("fleet_status", client.GET("/v1/recorder/fleet", { params: { query: { limit: 20 } } }));
await read("heartbeat_get", client.GET("/v1/recorder/beat/{monitor_id}/{secret}", { params: { ...beat, query: { status: "fail" } } }));
await read("takeover", client.POST("/v1/recorder/monitors/{monitor_id}/takeover", { params: { path } }));
await read("delete_monitor", client.DELETE("/v1/recorder/monitors/{monitor_id}", { params: { path } }));
