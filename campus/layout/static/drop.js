// A report that is dropped on the start page's form, or chosen there, is sent at once; without scripts its button does it.
// This tab alone remembers it, so that who buys a key or signs in goes on with it.
"use strict";
const LAST = "campus report";
const remember = (text) => {
  try {
    sessionStorage.setItem(LAST, text);
  } catch {} // too long, or not allowed: it is chosen again
};
const remembered = () => {
  try {
    return sessionStorage.getItem(LAST) ?? "";
  } catch {
    return "";
  }
};
for (const form of document.querySelectorAll("form.drop")) {
  const { file, report } = form.elements;
  const send = () => {
    const large = [...file.files].some((one) => one.size > 1_000_000);
    file.setCustomValidity(large ? "This file has over 1 MB. With a key, a command sends up to 20 MB." : "");
    form.requestSubmit(); // which says so instead of sending it
  };
  const mark = (is) => form.classList.toggle("over", is);
  form.addEventListener("dragover", (event) => { event.preventDefault(); mark(true); });
  form.addEventListener("dragleave", (event) => { if (!form.contains(event.relatedTarget)) mark(false); });
  form.addEventListener("drop", (event) => {
    event.preventDefault();
    mark(false);
    const { files } = event.dataTransfer, text = event.dataTransfer.getData("text");
    if (!files.length && !text) return;
    file.value = report.value = "";
    if (!files.length) {
      report.value = text;
      return send();
    }
    file.files = files;
    file.dispatchEvent(new Event("change"));
  });
  file.addEventListener("change", async () => {
    report.value = "";
    if (file.files.length === 1 && file.files[0].size <= 1_000_000) remember(await file.files[0].text());
    if (file.files.length) send();
    else file.setCustomValidity("");
  });
  form.addEventListener("submit", () => report.value && remember(report.value));
  if ("again" in report.dataset && !report.value && (report.value = remembered())) {
    report.closest("details").open = true;
    document.getElementById(report.dataset.again).hidden = false;
  }
  report.addEventListener("input", () => {
    file.value = "";
    file.setCustomValidity("");
  });
}
