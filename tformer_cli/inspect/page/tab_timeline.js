// Training: the role of each head at each step.

addTab({
  id: "timeline",
  title: "Heads over the training",
  holds: one => Boolean(viewOf(one, "timeline")),
  show(panel, one) {
    const { run, steps, n_sentences: nSentences, rare_reason: reason, courses, figure } = viewOf(one, "timeline");
    const count = number => number.toLocaleString("en");
    const rows = courses.map(course => [course.id, course.role, count(course.last_change ?? steps[0]),
      Object.entries(course.first_steps).map(([role, step]) => `${role} ${count(step)}`).join(", ")]);
    panel.append(
      card(`Heads of ${clean(run)}`, make("p", { class: "says" }, `${steps.length} snapshot${steps.length === 1 ? "" : "s"}, steps ${count(steps[0])} to ${count(steps.at(-1))}, on `
        + `${nSentences} sentence pair${nSentences === 1 ? "" : "s"}${reason ? `; rare-word heads are not classified: ${reason}` : ""}.`), drawnFigure(figure, "Roles of the heads over the steps")),
      card("Roles", plainTable(["head", "role", "since step", "steps of first appearance"], rows, "Roles of the heads")));
  },
});
