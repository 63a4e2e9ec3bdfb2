"use strict";
// The page's side of MCP Apps, version 2026-01-26: JSON-RPC with the host by messages between windows.
const app = (() => {
  const PROTOCOL = "2026-01-26";
  const waiting = new Map();
  let last = 0;
  let capabilities = {};
  let given = {};

  const send = (message) => parent.postMessage({ jsonrpc: "2.0", ...message }, "*");
  const tell = (method, params = {}) => send({ method, params });
  const ask = (method, params) => new Promise((resolve, reject) => {
    waiting.set(++last, { resolve, reject });
    send({ id: last, method, params });
  });

  const element = (tag, content = [], attributes = {}) => {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
      else made.setAttribute(name, value);
    }
    made.append(...[content].flat());  // texts become text nodes
    return made;
  };

  const dress = (context) => {
    if (context.theme) document.documentElement.dataset.theme = context.theme;
  };

  const say = (view, text) => view.replaceChildren(element("p", text, { class: "note", role: "status" }));

  const textOf = (result) => (result.content ?? []).filter((one) => one.type === "text").map((one) => one.text).join("\n");

  const start = ({ show }) => {
    const view = document.querySelector("main");
    const receive = (result) => {
      if (result.isError || !result.structuredContent) say(view, textOf(result) || "The tool returned nothing to show.");
      else show(result.structuredContent, view);
    };
    const told = {
      "ui/notifications/tool-input": (params) => { given = params.arguments ?? {}; },
      "ui/notifications/tool-result": receive,
      "ui/notifications/tool-cancelled": (params) => say(view, `The call was cancelled. ${params.reason ?? ""}`),
      "ui/notifications/host-context-changed": dress,
    };
    const answered = ["ping", "ui/resource-teardown"];
    addEventListener("message", ({ source, data }) => {
      if (source !== parent || data?.jsonrpc !== "2.0") return;
      if (data.method === undefined) {
        const { resolve, reject } = waiting.get(data.id) ?? {};
        waiting.delete(data.id);
        if (data.error) reject?.(new Error(data.error.message));
        else resolve?.(data.result);
      } else if (data.id === undefined) {
        told[data.method]?.(data.params ?? {});
      } else if (answered.includes(data.method)) {
        send({ id: data.id, result: {} });
      } else {
        send({ id: data.id, error: { code: -32601, message: `This app has no method ${data.method}.` } });
      }
    });
    new ResizeObserver(() => {
      const { width, height } = document.body.getBoundingClientRect();
      tell("ui/notifications/size-changed", { width: Math.ceil(width), height: Math.ceil(height) });
    }).observe(document.body);
    ask("ui/initialize", { appInfo: { name: document.title, version: "1" }, appCapabilities: {}, protocolVersion: PROTOCOL })
      .then((host) => {
        capabilities = host.hostCapabilities ?? {};
        dress(host.hostContext ?? {});
        tell("ui/notifications/initialized");
      })
      .catch((error) => say(view, `The host refused this app: ${error.message}`));
    return receive;
  };

  return {
    start,
    element,
    textOf,
    get given() { return given; },  // the arguments of the call that is shown
    get canCall() { return Boolean(capabilities.serverTools); },
    call: (name, args) => ask("tools/call", { name, arguments: args }),
    open: (url) => ask("ui/open-link", { url }),
  };
})();
