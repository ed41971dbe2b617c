// Runs inside the page: the projector by its key and its button, and on paper.

const key = name => document.body.dispatchEvent(new KeyboardEvent("keydown", { key: name, bubbles: true }));
const shown = () => [...elements("header *, main *")].filter(one => one.getClientRects().length
  && one.textContent.trim() && !one.closest("svg") && ![...one.children].some(child => child.getClientRects().length));
const sizes = () => [...new Set(shown().filter(one => one.offsetWidth > 1).map(one => parseFloat(getComputedStyle(one).fontSize)))];
const letters = () => [...new Set([...byId("one").querySelectorAll("svg text")].map(one => Number(one.getAttribute("font-size"))))];
const look = () => ({ hash: location.hash, pressed: byId("projector").getAttribute("aria-pressed"),
  says: byId("guide-says").textContent, figures: ["one", "all"].filter(id => byId(id).getClientRects().length),
  panels: [...elements("header > *, main > *, .heads > *")].filter(one => one.offsetWidth > 1).map(one => one.id || one.className),
  letters: letters(), least: Math.min(...sizes()), below: document.documentElement.scrollHeight - innerHeight });
const seen = { listed: byId("keys").textContent.includes("projector"), before: look() };
update({ tab: "ablation" });
key("p");
seen.large = look();
key("m");
seen.lines = letters();
key("m");
window.dispatchEvent(new Event("beforeprint"));
seen.paper = { letters: letters(), isLarge: document.documentElement.matches(".projector, .map-only") };
window.dispatchEvent(new Event("afterprint"));
byId("projector").click();
seen.after = look();
document.body.append(make("pre", { id: "selftest" }, encodeURIComponent(JSON.stringify(seen))));
