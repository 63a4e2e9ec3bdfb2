// Bundled for a browser: the host of MCP Apps that the protocol's own SDK provides, in one function.
// openApp({url, key, tool, args, policy}) calls the tool, opens its app in a sandboxed frame below the policy, and hands it the result.
// Returns the tool's result. window.opened has the addresses that the app asked to open, window.height its last height.
import { AppBridge, PostMessageTransport, getToolUiResourceUri } from "@modelcontextprotocol/ext-apps/app-bridge";
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";

const INFO = { name: "host", version: "1" };

window.opened = [];
window.openApp = async ({ url, key, tool, args, policy, theme }) => {
  const client = new Client(INFO, { capabilities: { extensions: { "io.modelcontextprotocol/ui": { mimeTypes: ["text/html;profile=mcp-app"] } } } });
  const headers = key ? { Authorization: `Bearer ${key}` } : {};
  await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } }));
  const { tools } = await client.listTools();
  const uri = getToolUiResourceUri(tools.find((one) => one.name === tool));
  const [{ text, mimeType }] = (await client.readResource({ uri })).contents;
  if (mimeType !== "text/html;profile=mcp-app") throw new Error(`the app is ${mimeType}`);
  const result = await client.callTool({ name: tool, arguments: args });

  document.querySelector("iframe")?.remove();
  const frame = document.body.appendChild(document.createElement("iframe"));
  frame.sandbox = "allow-scripts";
  frame.style.width = "100%";
  const bridge = new AppBridge(client, INFO, { openLinks: {}, serverTools: {} }, { hostContext: { theme } });
  bridge.onopenlink = async ({ url: wanted }) => { window.opened.push(wanted); return {}; };
  bridge.onsizechange = ({ height }) => { window.height = height; frame.style.height = `${height}px`; };
  const ready = new Promise((resolve) => { bridge.oninitialized = resolve; });
  await bridge.connect(new PostMessageTransport(frame.contentWindow, frame.contentWindow));
  frame.srcdoc = `<meta http-equiv="Content-Security-Policy" content="${policy}">${text}`;
  await ready;
  await bridge.sendToolInput({ arguments: args });
  await bridge.sendToolResult(result);
  return result;
};
