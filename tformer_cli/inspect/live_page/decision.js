// The decision tab of the live page: a form for the request; the tab of stored pages shows the answer.

import { answerOf } from "./client.js";
import { viewData } from "./adopt.js";
import { card, causingHead, elements, isPrinting, make, readsImages, showHead, state, tabs } from "./parts.js";

const FIELDS = { other: ["Other sentence", "… because it was too wide."], target: ["This word", "the model's"], foil: ["or that one", "the second best"] };

/** Adds the form to the tab; current() returns the inspected side and sentence, keepingFocus(does) redraws. */
export function letDecide(current, keepingFocus) {
  const tab = tabs.find(each => each.id === "decision"), { holds, show } = tab;
  const inputs = Object.fromEntries(Object.entries(FIELDS).map(([name, [, hint]]) => [name, make("input", { id: `decision-${name}`, type: "text", placeholder: hint, dir: "auto", autocomplete: "off", spellcheck: "false" })]));
  const go = make("button", { type: "button", id: "decide" }, "Find the causes (Enter)"), status = make("p", { class: "status", id: "decision-status", role: "status" });
  const labels = Object.entries(FIELDS).map(([name, [label]]) => make("label", { class: name }, `${label} `, inputs[name]));
  const form = card("Why this word?", make("p", { class: "says" }, "With two sentences, the decision is where their translations diverge; with one, where the model is least sure, or at the words that you name. Every head is then changed in turn."),
    make("div", { class: "pick deciding" }, ...labels, go), status);
  let controller = new AbortController();

  async function decide() {
    const { side, sentence } = current(), { signal } = controller = (controller.abort(), new AbortController());
    const given = Object.entries(inputs).map(([name, { value }]) => [name, value.trim()]).filter(([name, value]) => value && !(name === "other" && readsImages()));
    tell("Computing …");
    try {
      const found = await answerOf("api/decision", { ...side.asked(), ...Object.fromEntries(given) }, signal);
      if (current().sentence !== sentence) return tell("The sentence has changed; try again.");
      sentence.views.decision = viewData(found);
      state.head = causingHead(sentence)?.id ?? state.head;
      keepingFocus(showHead);
      tell("");
    } catch (error) {
      if (!signal.aborted) tell(error.message, true);
    }
  }

  function tell(text, isWrong = false) {
    status.classList.toggle("wrong", isWrong);
    status.textContent = text;
  }

  go.addEventListener("click", decide);
  for (const input of Object.values(inputs)) input.addEventListener("keydown", event => event.key === "Enter" && decide());
  // Without next tokens there is no decision; keep the tab while they are on their way. Print only answers
  tab.holds = one => holds(one) || !isPrinting && Boolean(one.next || one.awaits?.has(tab.id));
  tab.show = (panel, one) => {
    elements(".other", form)[0].hidden = readsImages();
    if (!isPrinting) panel.append(form);
    if (holds(one)) show(panel, one);
  };
}
