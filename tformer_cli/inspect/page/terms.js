// Names of measures that explain themselves to the pointer, the keyboard and screen readers.

/** A name in plain words with what it means; `code`, if given, is its short name for the filter. */
function term({ label, meaning }, code = "") {
  const button = make("button", { type: "button", class: "term", "aria-description": `${meaning}.` }, label);
  const show = () => {
    const tip = byId("tip"), box = button.getBoundingClientRect();
    tip.replaceChildren(`${meaning}.`, ...(code ? [make("small", {}, `In the filter: ${code}`)] : []));
    tip.style.display = "block";
    tip.style.left = `${Math.max(8, Math.min(box.left, innerWidth - tip.offsetWidth - 8))}px`;
    const below = box.bottom + 6;
    tip.style.top = `${below + tip.offsetHeight < innerHeight ? below : Math.max(8, box.top - tip.offsetHeight - 6)}px`;
  };
  const hide = () => byId("tip").style.display = "none";
  for (const event of ["pointerenter", "focus", "click"]) button.addEventListener(event, show);
  for (const event of ["pointerleave", "blur"]) button.addEventListener(event, hide);
  return button;
}

/** What is known of a measure of the page by its short name. */
function termNamed(name) {
  return term(data.terms[name]);
}
