// Runs beside the packages named below: Cloudflare's MCP client for x402, from its package agents, pays for every tool that it is given.
// In:  {"key": "0x…", "url": "http://…/mcp", "tools": {"name": {…arguments}, …}} as JSON.
// Out: [{"tool": "…", "status": 200, "says": "…", "transaction": "0x…"} or {"tool": "…", "thrown": "…"}, …]
import { withX402Client } from "agents/x402";
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { privateKeyToAccount } from "viem/accounts";

const { key, url, tools } = JSON.parse(process.argv[2]);
const client = withX402Client(new Client({ name: "conformance", version: "1" }), { account: privateKeyToAccount(key), network: "base" });
await client.connect(new StreamableHTTPClientTransport(new URL(url)));
const found = [];
for (const [tool, given] of Object.entries(tools)) {
  try {
    const _meta = { "idempotency-key": crypto.randomUUID() };
    const result = await client.callTool(null, { name: tool, arguments: given, _meta }, { timeout: 90_000 });
    const says = result.structuredContent?.day ?? null;
    found.push({ tool, status: result.isError ? 402 : 200, says, transaction: result._meta?.["x402/payment-response"]?.transaction ?? null });
  } catch (error) {
    found.push({ tool, thrown: String(error) });
  }
}
console.log(JSON.stringify(found));
process.exit(0);
