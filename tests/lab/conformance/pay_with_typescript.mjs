// Runs beside the packages named below: each of x402's stock clients pays for every URL that it is given, and then buys a key.
// At last it asks for what only a key opens: clients of v2 tell a hook the sentence of the refusal.
// In:  {"client name": {"key": "0x…", "urls": ["http://…", …], "shop": "http://…", "vault": "http://…"}, …} as JSON.
// Out: [{"client": "…", "url": "…", "status": 200, "says": "…", "receipt": "…"} or {…, "thrown": "…"}, …]
import { wrapFetchWithPayment as wrapFetch1, createSigner } from "x402-fetch";
import { withPaymentInterceptor as wrapAxios1 } from "x402-axios";
import { wrapFetchWithPayment as wrapFetch2, x402Client as ClientOfFetch, x402HTTPClient as HttpOfFetch } from "@x402/fetch";
import { wrapAxiosWithPayment as wrapAxios2, x402Client as ClientOfAxios, x402HTTPClient as HttpOfAxios } from "@x402/axios";
import { registerExactEvmScheme } from "@x402/evm/exact/client";
import { appendPaymentIdentifierToExtensions, generatePaymentId } from "@x402/extensions/payment-identifier";
import axios from "axios";
import { privateKeyToAccount } from "viem/accounts";

const NETWORK = "base";
const LIMIT = 25;  // US dollars per payment, more than any key that is sold costs
const ready = (client, key) => {
  registerExactEvmScheme(client, { signer: privateKeyToAccount(key) });
  return client;
};
let told = null;
const hooked = (http) => http.onPaymentRequired(async ({ paymentRequired }) => { told = paymentRequired.error; });
const limited = (client) => client.setSpendControls({ maxAmountPerPayment: `$${LIMIT}` }) ?? client;
const byFetch = (pay) => async (url, { body, headers } = {}) => {
  const sent = body ? { method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json", ...headers } } : undefined;
  const answer = await pay(url, sent);
  return { status: answer.status, body: await answer.json(), header: (name) => answer.headers.get(name) };
};
const byAxios = (pay) => async (url, { body, headers } = {}) => {
  const answer = await pay.request({ url, method: body ? "post" : "get", data: body, headers });
  return { status: answer.status, body: answer.data, header: (name) => answer.headers[name] };
};
const CLIENTS = {
  "x402-fetch": async (key) => byFetch(wrapFetch1(fetch, await createSigner(NETWORK, key), BigInt(LIMIT * 10 ** 6))),
  "x402-axios": async (key) => byAxios(wrapAxios1(axios.create(), await createSigner(NETWORK, key))),
  "@x402/fetch": async (key) => byFetch(wrapFetch2(fetch, hooked(new HttpOfFetch(limited(ready(new ClientOfFetch(), key)))))),
  "@x402/axios": async (key) => byAxios(wrapAxios2(axios.create(), hooked(new HttpOfAxios(ready(new ClientOfAxios(), key))))),
  "@x402/fetch, payment-identifier": async (key) => {
    let id;
    const client = limited(ready(new ClientOfFetch(), key));
    client.onBeforePaymentCreation(async ({ paymentRequired }) => {
      appendPaymentIdentifierToExtensions(paymentRequired.extensions, id);
    });
    const pay = byFetch(wrapFetch2(fetch, client));
    return async (url, { body } = {}) => {
      id = generatePaymentId();
      const first = await pay(url, { body });
      const again = await pay(url, { body });  // as if the first answer had been lost: a new payment, the same id
      if (first.header("payment-response") !== again.header("payment-response")) throw new Error("charged twice");
      if (JSON.stringify(first.body) !== JSON.stringify(again.body)) throw new Error("another answer");
      return again;
    };
  },
};
const found = [];
for (const [client, { key, urls, shop, vault }] of Object.entries(JSON.parse(process.argv[2]))) {
  const call = await CLIENTS[client](key);
  const purchase = { body: { product: "cve" }, headers: { "Idempotency-Key": crypto.randomUUID() } };
  for (const [url, sent] of [...urls.map((one) => [one]), [shop, purchase]]) {
    try {
      const { status, body, header } = await call(url, sent);
      found.push({ client, url, status, says: body.day ?? body.action ?? null, receipt: header("payment-response") ?? null });
    } catch (error) {
      found.push({ client, url, thrown: String(error) });
    }
  }
  told = null;
  const thrown = await call(vault).then(() => null, String);
  found.push({ client, url: vault, says: told, thrown });
}
console.log(JSON.stringify(found));
process.exit(0);
