// Two models: pairs of heads that correspond, and how far apart they are.

addTab({
  id: "diff",
  title: "Heads of two models",
  holds: one => Boolean(viewOf(one, "diff")),
  show(panel, one) {
    const { models: { a, b }, summary, largest, changes, figure } = viewOf(one, "diff");
    const rows = changes.map(change => [change.a ?? "–", change.b ?? "–", change.divergence === null ? "–" : decimal(change.divergence, 4),
      make("span", { class: "share", style: `width:${(110 * (change.divergence ?? 0) / largest).toFixed(1)}px` }), change.role_a ?? "–", change.role_b ?? "–",
      [change.has_moved && "moved", change.has_changed_role && "another role"].filter(Boolean).join(", ")]);
    panel.append(
      card("", make("p", { class: "says" }, "A: ", bidi(a.name), `, step ${a.step}. B: `, bidi(b.name), `, step ${b.step}. `, summary, "."),
        make("p", { class: "says" }, `Divergence: mean Jensen–Shannon divergence of rows in nats, 0 to ${decimal(largest)}.`),
        plainTable(["A", "B", "divergence", "", "role in A", "role in B", ""], rows, "Pairs of heads")),
      card("The maps that changed most", drawnFigure(figure, "Maps of A, of B, and B − A")));
  },
});
