// Runs beside the packages sdk1 and sdk2: each client goes by OAuth from a bare URL to a tool's answer, refreshes, and calls again.
// In:  the URL of an MCP endpoint, a key, a tool without arguments
// Out: [{"client": "…", "tools": 3, "is_error": false, "refreshed": true} or {"client": "…", "thrown": "…"}, …]
import { Client as First } from "sdk1/client/index.js";
import { StreamableHTTPClientTransport as FirstTransport } from "sdk1/client/streamableHttp.js";
import { Client as Second, StreamableHTTPClientTransport as SecondTransport } from "sdk2";

const [url, key, tool] = process.argv.slice(2);
const CALLBACK = "http://localhost:26902/callback";
const clients = [
  ["sdk 1", First, FirstTransport, {}, (answer) => answer.get("code")],
  ["client 2", Second, SecondTransport, {}, (answer) => answer],
  ["client 2 auto", Second, SecondTransport, { versionNegotiation: { mode: "auto" } }, (answer) => answer],
];

// The user and the browser: opens the page, types the key, and returns what the client is sent.
async function allow(start) {
  const accept = { accept: "text/html" };
  const asked = await fetch(start, { redirect: "manual", headers: accept });
  const page = await fetch(new URL(asked.headers.get("location"), start), { headers: accept });
  const token = /name="form_token" value="(\w+)"/.exec(await page.text())[1];
  const cookie = page.headers.getSetCookie().map((one) => one.split(";")[0]).join("; ");
  const body = new URLSearchParams({ form_token: token, key, answer: "allow" });
  const answer = await fetch(page.url, { method: "POST", redirect: "manual", headers: { ...accept, cookie }, body });
  return new URL(answer.headers.get("location")).searchParams;
}

class Provider {
  redirectUrl = CALLBACK;
  clientMetadata = { client_name: "TypeScript", redirect_uris: [CALLBACK], grant_types: ["authorization_code", "refresh_token"], response_types: ["code"] };
  saved = {};
  clientInformation() { return this.saved.client; }
  saveClientInformation(client) { this.saved.client = client; }
  tokens() { return this.saved.tokens; }
  saveTokens(tokens) { this.saved.tokens = tokens; }
  codeVerifier() { return this.saved.verifier; }
  saveCodeVerifier(verifier) { this.saved.verifier = verifier; }
  redirectToAuthorization(address) { this.address = address; }
}

const found = [];
for (const [name, Client, Transport, options, answerOf] of clients) {
  try {
    const provider = new Provider();
    const connected = async () => {
      const transport = new Transport(new URL(url), { authProvider: provider });
      const client = new Client({ name: "conformance", version: "1" }, options);
      try {
        await client.connect(transport);
      } catch (error) {
        if (!provider.address) throw error;
        const answer = await allow(provider.address);
        provider.address = undefined;
        await transport.finishAuth(answerOf(answer));
        return connected();
      }
      return client;
    };
    const client = await connected();
    const { tools } = await client.listTools();
    const first = provider.saved.tokens.access_token;
    provider.saved.tokens = { ...provider.saved.tokens, access_token: `${first.slice(0, -1)}x` };
    const result = await client.callTool({ name: tool, arguments: {} });
    found.push({ client: name, tools: tools.length, is_error: result.isError === true, refreshed: provider.saved.tokens.access_token !== first });
    await client.close();
  } catch (error) {
    found.push({ client: name, thrown: String(error) });
  }
}
console.log(JSON.stringify(found));
