// A report that is dropped on the start page's form, or chosen there, is sent at once; without scripts its button does it.
"use strict";
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
    if (files.length) file.files = files;
    else report.value = text;
    send();
  });
  file.addEventListener("change", () => {
    report.value = "";
    if (file.files.length) send();
    else file.setCustomValidity("");
  });
  report.addEventListener("input", () => {
    file.value = "";
    file.setCustomValidity("");
  });
}
