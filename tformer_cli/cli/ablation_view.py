"""An ablation on a terminal: every head's Δ loss in a grid, the heads that matter, the curve."""

from typing import TYPE_CHECKING

from rich.console import Console
from rich.style import Style
from rich.text import Text

from tformer_cli.cli.fitted_table import Column, table_lines
from tformer_cli.cli.labels import is_ascii_only, shown
from tformer_cli.cli.role_grid import head_grids
from tformer_cli.wording import count_of

if TYPE_CHECKING:
    from tformer_cli.evaluation.significance import PairedDifference
    from tformer_cli.inspection.ablation.record import Ablation, HeadEffect, ModelCost, Pruning
    from tformer_cli.inspection.capture.heads import Kind

LISTED = 10
"""Heads in the list, the largest Δ loss first; the grid shows all."""
CURVE_POINTS = 9
"""Points of the curve that are shown."""
SIGNIFICANT = 0.01
"""Below this p-value a difference gets a star (Koehn 2004 uses 0.05 and 0.01)."""


def show_ablation(console: Console, ablation: "Ablation") -> None:
    """Prints the effect of every head, the list of those that matter most, and the curve."""
    console.print(_heading(console, ablation))
    console.print()
    largest = max((effect.loss.difference for effect in ablation.effects), default=0.0)
    cells = {effect.head: _cell(console, effect, largest) for effect in ablation.effects}
    console.print(head_grids(console, cells))
    console.print(Text(_LEGEND, style="dim"))
    console.print()
    _print_lines(console, _list(ablation, console.width))
    if ablation.curve:
        console.print()
        _print_lines(console, _curve(ablation, console.width))


_LEGEND = (
    "number: change of the loss per target token with the head off, in hundredths of a nat; "
    f"*: p < {SIGNIFICANT}"
)


def show_pruning(console: Console, pruning: "Pruning") -> None:
    """Prints what a pruned model saves and costs."""
    heads = ("heads", "parameters", "MB", "lines/s", "loss", "BLEU", "chrF2")
    costs = _costs(pruning.before), _costs(pruning.after)
    columns = [Column(head="", cells=["all heads", "pruned"], at_left=True)]
    columns += [
        Column(head=head, cells=cells)
        for head, cells in zip(heads, zip(*costs, strict=True), strict=False)
    ]
    console.print()
    removed = count_of(len(pruning.removed), "head")
    directory = shown(str(pruning.directory), is_ascii=is_ascii_only(console))
    console.print(Text(f"{directory}: without {removed}", style="bold"))
    _print_lines(console, table_lines(columns, console.width))
    against = ", ".join(
        f"Δ{score.name} {_signed(score)} (p = {score.p_value:.2g})" for score in pruning.scores
    )
    ratio = pruning.after.lines_per_second / pruning.before.lines_per_second
    size = pruning.after.n_parameters / pruning.before.n_parameters
    console.print(Text(f"{size:.2f} × the size, {ratio:.2f} × the speed; {against}", style="dim"))


def _print_lines(console: Console, lines: list[Text]) -> None:
    for line in lines:
        console.print(line)


def _heading(console: Console, ablation: "Ablation") -> Text:
    facts = Text.assemble((shown(ablation.model, is_ascii=is_ascii_only(console)), "bold"))
    facts.append(f"  {count_of(len(ablation.effects), 'head')}, one switched off at a time")
    tokens = count_of(ablation.n_tokens, "target token")
    facts.append(f"   {count_of(ablation.n_lines, 'line')}, {tokens}")
    facts.append(f"   loss {ablation.loss:.4f} nats per token")
    for name, value in ablation.scores.items():
        facts.append(f"   {name} {value:.2f}")
    return facts


def _cell(console: Console, effect: "HeadEffect", largest: float) -> Text:
    star = "*" if effect.loss.p_value < SIGNIFICANT else " "
    text = f"{100 * effect.loss.difference:.1f}{star}"
    if console.color_system is None or console.no_color:
        return Text(text)
    share = effect.loss.difference / largest if largest > 0 else 0.0
    return Text(text, style=_shade(effect.head.kind, share))


def _shade(kind: "Kind", share: float) -> Style:
    from tformer_cli.inspection.figures.palette import color

    red, green, blue = color(kind, share, on_dark=True)
    is_bright = 0.3 * red + 0.59 * green + 0.11 * blue > 140
    return Style(
        color="#0c0f16" if is_bright else "#ffffff", bgcolor=f"#{red:02x}{green:02x}{blue:02x}"
    )


def _list(ablation: "Ablation", width: int) -> list[Text]:
    """The heads with the largest Δ loss, and all that were scored, with their importance."""
    rows = [effect for effect in ablation.by_loss if effect.loss_rank < LISTED or effect.scores]
    most_important = sorted(ablation.effects, key=lambda effect: -effect.importance)
    by_importance = {effect.head: number for number, effect in enumerate(most_important, 1)}
    columns = [
        Column(head="head", cells=[str(row.head) for row in rows], at_left=True),
        Column(head="Δ loss", cells=[f"{row.loss.difference:+.4f}" for row in rows]),
        Column(head="p", cells=[f"{row.loss.p_value:.2g}" for row in rows]),
        Column(
            head="importance (rank)",
            cells=[f"{row.importance:.4f} ({by_importance[row.head]})" for row in rows],
        ),
    ]
    if not ablation.scores:
        draws = [f"{row.loss.low:+.4f} … {row.loss.high:+.4f}" for row in rows]
        columns.append(Column(head="95 % interval", cells=draws))
    for place, name in enumerate(ablation.scores):
        scores = [row.scores[place] if row.scores else None for row in rows]
        deltas = ["" if score is None else _signed(score) for score in scores]
        columns.append(Column(head=f"Δ{name}", cells=deltas))
        p_values = ["" if score is None else f"{score.p_value:.2g}" for score in scores]
        columns.append(Column(head="p", cells=p_values))
    return table_lines(columns, width)


def _curve(ablation: "Ablation", width: int) -> list[Text]:
    """Loss, and scores if there are, at some points from no head removed to all."""
    last = len(ablation.curve) - 1
    n_shown = min(CURVE_POINTS, last + 1)
    chosen = sorted({round(i * last / max(1, n_shown - 1)) for i in range(n_shown)})
    points = [ablation.curve[i] for i in chosen]
    names = ["loss", *(score.name for score in points[0].scores)]
    columns = [
        Column(
            head="heads removed", cells=[Text(name, style="dim") for name in names], at_left=True
        )
    ]
    columns += [
        Column(
            head=str(point.n_removed),
            cells=[f"{point.loss:.3f}", *(f"{score.value:.1f}" for score in point.scores)],
        )
        for point in points
    ]
    return table_lines(columns, width)


def _costs(cost: "ModelCost") -> list[str]:
    return [
        str(cost.n_heads),
        f"{cost.n_parameters:,}",
        f"{cost.n_bytes / 1e6:.2f}",
        f"{cost.lines_per_second:.1f}",
        f"{cost.loss:.4f}",
        *(f"{value:.2f}" for value in cost.scores.values()),
    ]


def _signed(score: "PairedDifference") -> str:
    return f"{score.difference:+.2f}"
