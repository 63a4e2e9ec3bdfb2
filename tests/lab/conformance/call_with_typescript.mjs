// Runs beside the packages sdk1 and sdk2: calls every tool of a server by both TypeScript clients, prints what they show.
// In:  the server's URL, a key or nothing, and the arguments of each tool as JSON.
// Out: [{"client": "…", "protocol": "…", "tool": "…", "is_error": false, "code": "…", "text": "…"} or {…, "thrown": "…"}, …]
import { Client as First } from "sdk1/client/index.js";
import { StreamableHTTPClientTransport as FirstTransport } from "sdk1/client/streamableHttp.js";
import { Client as Second, StreamableHTTPClientTransport as SecondTransport } from "sdk2";

const [url, key, given] = process.argv.slice(2);
const clients = [
  ["sdk 1", First, FirstTransport, {}],
  ["client 2", Second, SecondTransport, {}],
  ["client 2 auto", Second, SecondTransport, { versionNegotiation: { mode: "auto" } }],
];
const found = [];
for (const [name, Client, Transport, options] of clients) {
  const headers = key ? { Authorization: `Bearer ${key}` } : {};
  const client = new Client({ name: "conformance", version: "1" }, options);
  await client.connect(new Transport(new URL(url), { requestInit: { headers } }));
  const { tools } = await client.listTools();
  for (const { name: tool } of tools) {
    const line = { client: name, tool };
    try {
      const result = await client.callTool({ name: tool, arguments: JSON.parse(given)[tool] ?? {} });
      found.push({ ...line, is_error: result.isError === true, code: result.structuredContent?.code ?? null, text: result.content[0].text });
    } catch (error) {
      found.push({ ...line, thrown: String(error) });
    }
  }
  await client.close();
}
console.log(JSON.stringify(found));
