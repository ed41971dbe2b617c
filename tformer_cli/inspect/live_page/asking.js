// Tabs of the live page that ask for their data when they are opened: step by step, and positions. The tabs of stored pages show them.

import { viewData } from "./adopt.js";
import { OFFERS } from "./client.js";
import { card, chosenHead, clean, data, elements, isPrinting, KINDS, kindName, make, pinnedRow, rowsOf, showTabs, tabs, update } from "./parts.js";

/** Lets these tabs ask; current() returns the inspected side and sentence, keepingFocus(does) redraws. */
export function letAsk(current, keepingFocus) {
  const positions = new Map(); // by model
  connect("steps", "step", {
    formOf: one => stepForm(one, keepingFocus),
    fieldsOf() {
      const row = pinnedRow(rowsOf(chosenHead()).length);
      return { head: chosenHead().id, ...(row === null ? {} : { token: row }) };
    },
    isThere: (one, { head, token }) => one.views.step?.some(walk => walk.head === head && (token === undefined || walk.row === token)),
    problemOf: one => one.off.size ? "The steps are those of the model with all its heads on." : "",
  });
  if (OFFERS.includes("positions")) {
    connect("positions", "positions", {
      isThere(one) {
        one.views.positions ??= positions.get(one.model.name);
        return Boolean(one.views.positions);
      },
      keep: one => positions.set(one.model.name, one.views.positions),
    });
  }

  function connect(id, name, { formOf = null, fieldsOf = () => ({}), isThere, problemOf = _ => "", keep = _ => {} }) {
    const tab = tabs.find(each => each.id === id), { show } = tab, status = make("p", { class: "status", role: "status" });
    let asked = null, controller = new AbortController();

    async function ask(one, fields) {
      const { signal } = controller = (controller.abort(), new AbortController());
      tell("Computing …");
      try {
        await current().side.look([name], fields, { signal, onEvent: event => event.event === name && (one.views[name] = viewData(event.data)) });
        keep(one);
        if (current().sentence === one) keepingFocus(showTabs);
      } catch (error) {
        if (!signal.aborted) tell(error.message, true);
      }
    }

    function tell(text, isWrong = false) {
      status.classList.toggle("wrong", isWrong);
      status.textContent = text;
    }

    tab.holds = one => one.heads.length > 0 && (!isPrinting || Boolean(one.views[name]));
    tab.show = (panel, one) => {
      const fields = fieldsOf(), problem = problemOf(one), before = asked;
      if (formOf && !isPrinting) panel.append(formOf(one));
      for (const token of elements(".strip .query")) token.classList.remove("query"); // that of other steps
      if (!problem && (isPrinting || isThere(one, fields))) return show(panel, one);
      asked = { one, key: JSON.stringify([fields, problem]) };
      panel.append(status);
      if (problem) tell(problem);
      else if (before?.one !== one || before.key !== asked.key) ask(one, fields); // not again what was refused
    };
  }
}

/** The choice of a head and a token. */
function stepForm(one, keepingFocus) {
  const head = chosenHead(), row = pinnedRow(rowsOf(head).length) ?? one.views.step?.find(walk => walk.head === head.id)?.row ?? null;
  const heads = make("select", { id: "steps-head" }, ...KINDS.map(kind => [kind, one.heads.filter(each => each.kind === kind)]).filter(([, each]) => each.length)
    .map(([kind, each]) => make("optgroup", { label: kindName(kind) }, ...each.map(({ id }) => make("option", { value: id }, id)))));
  const tokens = make("select", { id: "steps-token" }, ...row === null ? [make("option", { value: "" }, "…")] : [], ...rowsOf(head).map((piece, n) => make("option", { value: String(n) }, `${n}  ${clean(piece)}`)));
  heads.value = head.id;
  tokens.value = row === null ? "" : String(row);
  heads.addEventListener("change", () => keepingFocus(() => update({ head: heads.value, row: "", key: "" })));
  tokens.addEventListener("change", () => keepingFocus(() => {
    update({ row: tokens.value, key: "" });
    showTabs();
  }));
  return card("", make("p", { class: "says" }, "Every number of one head for one token, from the input to the word, as ", make("code", {}, "tformer inspect-step"), " has them. Choose both:"),
    make("div", { class: "pick" }, make("label", {}, "Head ", heads), make("label", {}, `${head.kind === "enc" ? data.model.reads_images ? "Patch" : "Token" : "Token that is written"} `, tokens)));
}
