// Runs inside the page of one view: keys, tokens and paper, and what is shown.

const seen = [...byId("panels").children].filter(panel => !panel.hidden);
window.dispatchEvent(new Event("beforeprint"));
const printed = [...byId("panels").children].filter(panel => !panel.hidden).map(panel => panel.id);
window.dispatchEvent(new Event("afterprint"));
for (const name of ["m", "1", "l", "j", "?", "t", "[", "]", "Escape"]) {
  document.body.dispatchEvent(new KeyboardEvent("keydown", { key: name, bubbles: true, cancelable: true }));
}
for (const chip of document.querySelectorAll(".chip")) {
  chip.dispatchEvent(new PointerEvent("pointerenter"));
  chip.click();
  chip.dispatchEvent(new PointerEvent("pointerleave"));
}
for (const row of document.querySelectorAll("[data-position]")) row.dispatchEvent(new PointerEvent("pointerenter"));
const alone = { seen: seen.map(panel => panel.id), length: seen[0].innerText.length, printed, tabs: byId("tabs").hidden,
  wide: document.documentElement.scrollWidth - innerWidth, scripts: document.scripts.length,
  blanks: document.querySelectorAll("td.blank input").length, answers: seen[0].textContent.includes("Answers"),
  injected: document.querySelectorAll("img, iframe, object, embed, form, link, [onerror], [onload], [src], [href]").length };
document.body.append(make("pre", { id: "selftest" }, encodeURIComponent(JSON.stringify(alone))));
