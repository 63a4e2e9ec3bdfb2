// What pages do when scripts run.
"use strict";
(() => {
  const root = document.documentElement;
  const stored = () => { try { return localStorage.getItem("theme"); } catch { return null; } };
  const show = (theme) => { if (theme === "light" || theme === "dark") root.dataset.theme = theme; else delete root.dataset.theme; };
  show(stored()); // before the first paint: this file is loaded in the head
  addEventListener("storage", (event) => { if (event.key === "theme") { show(event.newValue); label(); } });

  const label = () => {
    for (const button of document.querySelectorAll("[data-theme-switch]")) {
      button.hidden = false;
      button.querySelector("span").textContent = root.dataset.theme || "auto";
    }
  };
  const nextTheme = () => {
    const themes = ["auto", "light", "dark"];
    const next = themes[(themes.indexOf(root.dataset.theme || "auto") + 1) % themes.length];
    try { if (next === "auto") localStorage.removeItem("theme"); else localStorage.setItem("theme", next); } catch { /* this page only */ }
    show(next);
    label();
  };

  const copy = async (button) => {
    const code = button.closest(".code").querySelector("code");
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "Copied";
    } catch { // no clipboard on plain http: select the text instead
      getSelection().selectAllChildren(code);
      button.textContent = "Selected";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  };

  const reveal = (part) => { for (const button of part.querySelectorAll("[data-copy], [data-print]")) button.hidden = false; };

  // Make one element like another of the same id. What is alike in both is left alone, with its focus, selection and place. An element
  // with another id or address is replaced: a click or a key must not reach what was something else a moment before.
  const kept = ["open", "data-sent-at"]; // what the visitor opened, and when a form was sent
  const isSame = (one, other) => one.nodeName === other.nodeName
    && (!one.getAttribute || ["id", "href", "action"].every((name) => one.getAttribute(name) === other.getAttribute(name)));
  const renew = (old, found) => {
    if (old.isEqualNode(found)) return;
    if (!isSame(old, found)) { old.replaceWith(found); return; }
    if (!old.getAttribute) { old.data = found.data; return; }
    for (const { name } of [...old.attributes]) if (!found.hasAttribute(name) && !kept.includes(name)) old.removeAttribute(name);
    for (const { name, value } of found.attributes) if (!kept.includes(name)) old.setAttribute(name, value);
    const before = [...old.childNodes], after = [...found.childNodes];
    after.forEach((node, place) => { if (before[place]) renew(before[place], node); else old.append(node); });
    for (const node of before.slice(after.length)) node.remove();
  };

  // Show what another document has in the element with this id.
  const swap = (text, id) => {
    const found = new DOMParser().parseFromString(text, "text/html").getElementById(id);
    const old = document.getElementById(id);
    if (!found || !old) return false;
    const open = [...old.querySelectorAll("details[open][id]")].map((one) => one.id);
    const focused = old.contains(document.activeElement) ? document.activeElement.id : "";
    reveal(found);
    renew(old, found);
    for (const name of open) document.getElementById(name)?.setAttribute("open", "");
    if (focused && document.activeElement === document.body) document.getElementById(focused)?.focus();
    return true;
  };
  const fetched = (url, options) => fetch(url, { headers: { Accept: "text/html" }, ...options });

  const note = (text) => {
    const made = document.createElement("p");
    made.className = "note warn";
    made.setAttribute("role", "alert"); // a status is read aloud only if it was there before its text
    made.textContent = text;
    return made;
  };

  // No form is sent twice: a double click would issue two keys, and a call whose answer was lost may have been made.
  const submit = async (event) => {
    const form = event.target, button = event.submitter;
    if (!form.dataset.live) {
      if ("downloads" in form.dataset) return;
      if (Date.now() - Number(form.dataset.sentAt || 0) < 5000) event.preventDefault();
      else form.dataset.sentAt = Date.now();
      return;
    }
    event.preventDefault();
    if (form.ariaBusy) return; // a disabled button would lose the focus
    const shown = document.getElementById(form.dataset.live);
    const body = new URLSearchParams(new FormData(form, button));
    form.ariaBusy = "true";
    try {
      const answer = await fetched(form.getAttribute("action"), { method: "POST", body });
      const text = await answer.text();
      const next = new DOMParser().parseFromString(text, "text/html").querySelector(`form[data-live] [name="form_token"]`);
      if (next) form.elements.form_token.value = next.value; // the sent one works once
      if (answer.redirected) history.replaceState(null, "", answer.url);
      if (swap(text, form.dataset.live)) document.getElementById(form.dataset.live).scrollIntoView({ block: "nearest" });
      else if (!swap(text, "main")) shown.replaceChildren(note(`The answer cannot be shown: its status is ${answer.status}.`));
    } catch {
      shown.replaceChildren(note("The answer did not arrive. The call may have been made: look before you send it again."));
    } finally {
      form.ariaBusy = null;
    }
  };

  // What is shown may be old once the stream has broken off. The browser opens the next one by itself, unless it was refused. A page
  // that nobody sees has no stream: a browser opens six connections to a host, and a seventh page would wait for one for ever.
  const follow = (id) => {
    const lost = note("There is no connection: what is shown here may be old.");
    const { source: part } = document.getElementById(id).dataset; // where the part is, if not on this page, which may have a secret to lose
    let source, running = false, again = false, later = 0, loss = 0, retry = 0;
    const stop = () => {
      source?.close();
      for (const timer of [later, loss, retry]) clearTimeout(timer);
      loss = 0;
      lost.remove();
    };
    const isTyped = () => [...document.querySelectorAll("main input")].some((one) => one.value !== one.defaultValue);
    const leave = () => { stop(); if (part || isTyped()) document.getElementById(id)?.before(lost); else location.reload(); };
    const update = async () => {
      clearTimeout(later);
      if (running) { again = true; return; }
      running = true;
      try {
        const answer = await fetched(part || location.href);
        if (answer.status >= 500) throw new Error("not available");
        if (!answer.ok || answer.redirected) { leave(); return; }
        swap(await answer.text(), id);
      } catch { later = setTimeout(update, 5000); }
      running = false;
      if (again) { again = false; update(); }
    };
    const start = () => {
      source = new EventSource(document.getElementById(id).dataset.events);
      source.addEventListener("open", () => { clearTimeout(loss); loss = 0; lost.remove(); });
      source.addEventListener("error", () => {
        loss ||= setTimeout(() => document.getElementById(id)?.before(lost), 6000);
        if (source.readyState !== EventSource.CLOSED) return;
        update(); // such as 401 after a restart: the page leads to where one signs in
        retry = setTimeout(() => { stop(); start(); }, 30000);
      });
      source.addEventListener("changed", update);
      source.addEventListener("ended", leave);
    };
    document.addEventListener("visibilitychange", () => {
      stop();
      if (!document.hidden) { update(); start(); }
    });
    if (!document.hidden) start();
  };

  // A part without a stream: public, so that a cache may answer, and seen only if the page is.
  const refresh = async (id) => {
    if (document.hidden) return;
    try { swap(await (await fetched(location.href)).text(), id); } catch { /* the next time */ }
  };

  // Relative times grow while the page is open; campus.layout.renderer says the same.
  const inWords = (span) => {
    const minutes = Math.floor(span / 60), hours = Math.floor(minutes / 60), days = Math.floor(hours / 24);
    if (days) return `${days} day${days > 1 ? "s" : ""} ${hours % 24} h`;
    return hours ? `${hours} h ${minutes % 60} min` : minutes ? `${minutes} min` : `${Math.floor(span)} s`;
  };
  const age = () => {
    for (const one of document.querySelectorAll("time[data-ago]")) {
      const away = (Date.parse(one.dateTime) - Date.now()) / 1000;
      one.textContent = away > 0 ? `in ${inWords(away)}` : `${inWords(-away)} ago`;
    }
  };

  // The language in which examples are read, on every page.
  const choose = () => {
    for (const one of document.querySelectorAll(".tabs input")) {
      try { if (one.value === localStorage.getItem(one.name)) one.checked = true; } catch { /* the first one */ }
    }
  };
  addEventListener("change", ({ target }) => {
    if (target.closest(".tabs")) try { localStorage.setItem(target.name, target.value); } catch { /* this page only */ }
  });

  addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button?.matches("[data-theme-switch]")) nextTheme();
    if (button?.matches("[data-copy]")) copy(button);
    if (button?.matches("[data-print]")) print();
  });
  addEventListener("submit", submit);
  addEventListener("DOMContentLoaded", () => {
    label();
    reveal(document);
    choose();
    setInterval(age, 10000);
    const own = location.pathname.startsWith("/answers/") ? "[data-source]" : ""; // an answer stays as it is
    for (const part of document.querySelectorAll(`[data-events][id]${own}`)) follow(part.id);
    for (const { id, dataset } of document.querySelectorAll("[data-refresh][id]")) setInterval(refresh, dataset.refresh * 1000, id);
  });
})();
