// Buys a key with a browser's wallet: signs the payment that the seller asks for (x402, EIP-3009), sends it, and shows the key.
"use strict";
(() => {
  const page = document.getElementById("pay"), bought = document.getElementById("bought");
  const wallets = document.getElementById("wallets"), progress = document.getElementById("progress");
  const { action, argument, product, renew, amount } = page.dataset;
  const way = () => (document.querySelector("#network option:checked") ?? document.getElementById("network")).dataset;
  const place = `campus purchase ${product}${renew && ` for ${renew}`}`;

  let slow;
  const tell = (text, tone, whenSlow) => {
    clearTimeout(slow);
    progress.textContent = text;
    progress.className = tone ? `note ${tone}` : "muted";
    if (whenSlow) slow = setTimeout(() => tell(`${text} ${whenSlow}`), 15000);
  };
  const ASKED = "If it shows nothing, open it: its window may be behind this one. Nothing was charged so far.";
  const stored = () => { try { return JSON.parse(sessionStorage.getItem(place)); } catch { return null; } };
  const forget = () => { try { sessionStorage.removeItem(place); } catch { /* nothing is stored */ } };
  const bytes = (count) => crypto.getRandomValues(new Uint8Array(count));
  const hex = (array) => Array.from(array, (one) => one.toString(16).padStart(2, "0")).join("");
  const send = (headers) => fetch(action, {
    method: "POST", cache: "no-store", body: JSON.stringify({ [argument]: product, ...(renew && { renew }) }),
    headers: { "Content-Type": "application/json", Accept: "application/json", ...headers },
  });
  const button = (label, act) => {
    const made = document.createElement("button");
    made.textContent = label;
    made.addEventListener("click", async () => {
      if (wallets.ariaBusy) return;
      wallets.ariaBusy = "true";
      try { await act(); } catch (error) { tell(why(error), "bad"); }
      wallets.ariaBusy = null;
    });
    return made;
  };
  const why = (error) => {
    if (error?.code === 4001) return "You refused in your wallet. Nothing was charged.";
    if (error?.code === 4902) return `Your wallet does not know ${way().title}. Add that network to it, and try again. Nothing was charged.`;
    if (error?.code === -32002) return "Your wallet has a question open already: answer it there, and try again. Nothing was charged.";
    return `${error?.message || "Your wallet failed without a reason."} ${stored() ? "Reload this page to ask again." : "Nothing was charged."}`;
  };

  const show = (answer, transaction) => {
    if (renew) forget(); // there is no secret to lose
    else bought.querySelector("[name=key]").value = answer.key;
    for (const code of bought.querySelectorAll("pre code")) code.textContent = code.textContent.replaceAll("KEY", answer.key);
    const facts = { ...answer, transaction, valid_until: new Date(answer.valid_until).toUTCString() };
    for (const one of bought.querySelectorAll("[data-answer]")) one.textContent = facts[one.dataset.answer];
    page.hidden = true;
    bought.hidden = false;
    bought.querySelector("h1").focus();
  };

  // The same payment buys the same key, so it may be sent again until the key is here; it is dropped only where nothing was charged.
  const collect = async (purchase) => {
    tell("The payment is on its way. It takes some seconds.", "",
      "It takes longer than usual: keep this page, or come back in this tab. It is charged once at most.");
    const answer = await send({ "PAYMENT-SIGNATURE": purchase.payment, "Idempotency-Key": purchase.secret }).catch(() => null);
    const body = await answer?.json().catch(() => null);
    if (answer?.ok && body?.key_id) {
      const receipt = answer.headers.get("PAYMENT-RESPONSE");
      show(body, receipt ? JSON.parse(atob(receipt)).transaction : "");
      return;
    }
    const isRefused = body?.code && [400, 402, 403, 409, 422].includes(answer.status) && !answer.headers.has("Retry-After")
      && (answer.status !== 409 || body.code === "key_not_sold");
    if (isRefused) {
      forget();
      offer();
      tell(body.detail, "bad");
      wallets.querySelector("button")?.focus();
    } else {
      wallets.replaceChildren(button(renew ? "Ask again" : "Ask again for the key", () => collect(purchase)));
      tell(`${body?.detail || "The answer did not arrive."} What you signed is kept in this tab. Asking again costs nothing more.`, "warn");
      wallets.querySelector("button").focus();
    }
  };

  const pay = async (wallet) => {
    const { network, title, asset, to } = way(), chain = Number(network.split(":")[1]);
    const ask = (method, ...params) => wallet.request({ method, params });
    forget(); // fails here, and not after the payment, where a browser lets pages store nothing
    sessionStorage.setItem(place, "null");
    const unpaid = await send({}), header = unpaid.headers.get("PAYMENT-REQUIRED");
    const terms = header && JSON.parse(atob(header));
    const accepted = terms?.accepts.find((one) => one.network === network && one.amount === amount && one.asset === asset && one.payTo === to);
    if (!accepted) throw new Error(unpaid.status === 402 ? "The price has changed: reload this page." : (await unpaid.json()).detail);
    tell("Your wallet asks to connect.", "", ASKED);
    const [payer] = await ask("eth_requestAccounts");
    if (Number(await ask("eth_chainId")) !== chain) {
      tell(`Your wallet asks to change to ${title}.`, "", ASKED);
      await ask("wallet_switchEthereumChain", { chainId: `0x${chain.toString(16)}` });
    }
    const balance = await ask("eth_call", { to: asset, data: `0x70a08231${payer.slice(2).padStart(64, "0")}` }, "latest");
    if (BigInt(balance) < BigInt(amount)) throw new Error(`This wallet has $${(Number(balance) / 1e6).toFixed(2)} in USDC on ${title}, which is too little.`);
    tell("Your wallet asks you to sign the payment.", "", ASKED);
    const until = Math.floor((Date.parse(unpaid.headers.get("Date")) || Date.now()) / 1000) + accepted.maxTimeoutSeconds;
    const authorization = { from: payer, to, value: amount, validAfter: "0", validBefore: String(until), nonce: `0x${hex(bytes(32))}` };
    const kinds = { from: "address", to: "address", value: "uint256", validAfter: "uint256", validBefore: "uint256", nonce: "bytes32" };
    const domain = { name: "string", version: "string", chainId: "uint256", verifyingContract: "address" };
    const listed = (fields) => Object.entries(fields).map(([name, type]) => ({ name, type }));
    const { name, version } = accepted.extra;
    const signature = await ask("eth_signTypedData_v4", payer, JSON.stringify({
      types: { EIP712Domain: listed(domain), TransferWithAuthorization: listed(kinds) }, primaryType: "TransferWithAuthorization",
      domain: { name, version, chainId: chain, verifyingContract: asset }, message: authorization,
    }));
    const payment = { x402Version: 2, accepted, resource: { url: terms.resource.url }, payload: { signature, authorization } };
    const purchase = { payment: btoa(JSON.stringify(payment)), secret: hex(bytes(32)) };
    sessionStorage.setItem(place, JSON.stringify(purchase));
    await collect(purchase);
  };

  // Wallets announce themselves by EIP-6963; older ones are window.ethereum.
  const found = new Map();
  const offered = ([name, wallet]) => button(`Pay with ${name}`, () => pay(wallet));
  const offer = () => wallets.replaceChildren(...Array.from(found, offered));
  const add = (name, wallet) => { // a button that is there stays: it may have the focus
    if (!found.has(name) && !stored()) wallets.append(offered([name, wallet]));
    found.set(name, wallet);
  };
  addEventListener("eip6963:announceProvider", ({ detail }) => add(detail.info.name, detail.provider));
  dispatchEvent(new Event("eip6963:requestProvider"));
  setTimeout(() => {
    if (!found.size && window.ethereum) add("your wallet", window.ethereum);
    if (!found.size && !stored()) tell("There is no wallet in this browser. Install one that holds USDC, or open this page in your wallet's own browser.", "warn");
  }, 300);
  bought.addEventListener("click", ({ target }) => { if (target.closest("[data-copy], [name=next]")) forget(); });
  if (stored()) collect(stored());
})();
