// Runs beside the packages named below: each of x402's stock clients pays for every URL that it is given.
// In:  {"client name": {"key": "0x…", "urls": ["http://…", …]}, …} as JSON.
// Out: [{"client": "…", "url": "…", "status": 200, "day": "…", "receipt": "…"} or {…, "thrown": "…"}, …]
import { wrapFetchWithPayment as wrapFetch1, createSigner } from "x402-fetch";
import { withPaymentInterceptor as wrapAxios1 } from "x402-axios";
import { wrapFetchWithPayment as wrapFetch2, x402Client as ClientOfFetch } from "@x402/fetch";
import { wrapAxiosWithPayment as wrapAxios2, x402Client as ClientOfAxios } from "@x402/axios";
import { registerExactEvmScheme } from "@x402/evm/exact/client";
import { appendPaymentIdentifierToExtensions, generatePaymentId } from "@x402/extensions/payment-identifier";
import axios from "axios";
import { privateKeyToAccount } from "viem/accounts";

const NETWORK = "base";
const ready = (client, key) => {
  registerExactEvmScheme(client, { signer: privateKeyToAccount(key) });
  return client;
};
const byFetch = (pay) => async (url) => {
  const answer = await pay(url);
  return { status: answer.status, body: await answer.json(), header: (name) => answer.headers.get(name) };
};
const byAxios = (pay) => async (url) => {
  const answer = await pay.get(url);
  return { status: answer.status, body: answer.data, header: (name) => answer.headers[name] };
};
const CLIENTS = {
  "x402-fetch": async (key) => byFetch(wrapFetch1(fetch, await createSigner(NETWORK, key))),
  "x402-axios": async (key) => byAxios(wrapAxios1(axios.create(), await createSigner(NETWORK, key))),
  "@x402/fetch": async (key) => byFetch(wrapFetch2(fetch, ready(new ClientOfFetch(), key))),
  "@x402/fetch, payment-identifier": async (key) => {
    let id;
    const client = ready(new ClientOfFetch(), key);
    client.onBeforePaymentCreation(async ({ paymentRequired }) => {
      appendPaymentIdentifierToExtensions(paymentRequired.extensions, id);
    });
    const pay = byFetch(wrapFetch2(fetch, client));
    return async (url) => {
      id = generatePaymentId();
      const first = await pay(url);
      const again = await pay(url);  // as if the first answer had been lost: a new payment, the same id
      if (first.header("payment-response") !== again.header("payment-response")) throw new Error("charged twice");
      return again;
    };
  },
  "@x402/axios": async (key) => byAxios(wrapAxios2(axios.create(), ready(new ClientOfAxios(), key))),
};
const found = [];
for (const [client, { key, urls }] of Object.entries(JSON.parse(process.argv[2]))) {
  const call = await CLIENTS[client](key);
  for (const url of urls) {
    try {
      const { status, body, header } = await call(url);
      found.push({ client, url, status, day: body.day ?? null, receipt: header("payment-response") ?? null });
    } catch (error) {
      found.push({ client, url, thrown: String(error) });
    }
  }
}
console.log(JSON.stringify(found));
process.exit(0);
