"""An ablation on a terminal: every head's Δ loss in a grid, the heads that matter, the curve."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.columns import Columns
from rich.console import Console, Group
from rich.style import Style
from rich.table import Table
from rich.text import Text

from tformer_cli.wording import count_of

if TYPE_CHECKING:
    from tformer_cli.evaluation.significance import PairedDifference
    from tformer_cli.inspection.ablation_record import Ablation, HeadEffect, ModelCost, Pruning
    from tformer_cli.inspection.heads import Kind

LISTED = 10
"""Heads in the list, the largest Δ loss first; the grid shows all."""
CURVE_POINTS = 9
"""Points of the curve that are shown."""
SIGNIFICANT = 0.01
"""Below this p-value a difference gets a star (Koehn 2004 uses 0.05 and 0.01)."""


def show_ablation(console: Console, ablation: "Ablation") -> None:
    """Prints what an ablation found."""
    console.print(_heading(ablation))
    console.print()
    console.print(Columns(_grids(console, ablation), padding=(1, 4, 0, 0)))
    console.print(Text(_LEGEND, style="dim"))
    console.print()
    console.print(_list(ablation))
    if ablation.curve:
        console.print()
        console.print(_curve(ablation))


_LEGEND = (
    "number: Δ loss per target token in hundredths of a nat with the head off; "
    f"*: p < {SIGNIFICANT}"
)


def show_pruning(console: Console, pruning: "Pruning") -> None:
    """Prints what a pruned model saves and costs."""
    table = Table(box=None, padding=(0, 3, 0, 0), header_style="dim")
    for name in ("", "heads", "parameters", "MB", "lines/s", "loss", "BLEU", "chrF2"):
        table.add_column(name, justify="left" if not name else "right", no_wrap=True)
    table.add_row("all heads", *_costs(pruning.before))
    table.add_row("pruned", *_costs(pruning.after))
    console.print()
    removed = count_of(len(pruning.removed), "head")
    console.print(Text(f"{pruning.directory}: without {removed}", style="bold"))
    console.print(table)
    against = ", ".join(
        f"Δ{score.name} {_signed(score)} (p = {score.p_value:.2g})" for score in pruning.scores
    )
    ratio = pruning.after.lines_per_second / pruning.before.lines_per_second
    size = pruning.after.n_parameters / pruning.before.n_parameters
    console.print(Text(f"{size:.2f} × the size, {ratio:.2f} × the speed; {against}", style="dim"))


def _heading(ablation: "Ablation") -> Text:
    facts = Text.assemble((ablation.model, "bold"))
    facts.append(f"  {count_of(len(ablation.effects), 'head')}, one off at a time")
    tokens = count_of(ablation.n_tokens, "target token")
    facts.append(f"   {count_of(ablation.n_lines, 'line')}, {tokens}")
    facts.append(f"   loss {ablation.loss:.4f}")
    for name, value in ablation.scores.items():
        facts.append(f"   {name} {value:.2f}")
    return facts


def _grids(console: Console, ablation: "Ablation") -> list[Group]:
    from tformer_cli.inspection.heads import KIND_NAMES, KINDS

    largest = max((effect.loss.difference for effect in ablation.effects), default=0.0)
    grids = []
    for kind in KINDS:
        effects = [effect for effect in ablation.effects if effect.head.kind == kind]
        if effects:
            title = Text(KIND_NAMES[kind], style="bold")
            grids.append(Group(title, _grid(console, effects, largest)))
    return grids


def _grid(console: Console, effects: Sequence["HeadEffect"], largest: float) -> Table:
    """Layers below each other, heads beside each other."""
    numbers = sorted({effect.head.head for effect in effects})
    table = Table(box=None, padding=(0, 1, 0, 0))
    table.add_column("", style="dim", no_wrap=True)
    for number in numbers:
        table.add_column(str(number), header_style="dim", justify="right", no_wrap=True)
    by_place = {(effect.head.layer, effect.head.head): effect for effect in effects}
    for layer in sorted({effect.head.layer for effect in effects}):
        cells = [_cell(console, by_place.get((layer, number)), largest) for number in numbers]
        table.add_row(f"L{layer}", *cells)
    return table


def _cell(console: Console, effect: "HeadEffect | None", largest: float) -> Text:
    if effect is None:
        return Text("")
    star = "*" if effect.loss.p_value < SIGNIFICANT else " "
    text = f"{100 * effect.loss.difference:.1f}{star}"
    if console.color_system is None or console.no_color:
        return Text(text)
    share = effect.loss.difference / largest if largest > 0 else 0.0
    return Text(text, style=_shade(effect.head.kind, share))


def _shade(kind: "Kind", share: float) -> Style:
    from tformer_cli.inspection.palette import colour

    red, green, blue = colour(kind, share, on_dark=True)
    is_bright = 0.3 * red + 0.59 * green + 0.11 * blue > 140
    return Style(
        color="#0c0f16" if is_bright else "#ffffff", bgcolor=f"#{red:02x}{green:02x}{blue:02x}"
    )


def _list(ablation: "Ablation") -> Table:
    """The heads with the largest Δ loss, and all that were scored, with their importance."""
    shown = [effect for effect in ablation.by_loss if effect.loss_rank < LISTED or effect.scores]
    most_important = sorted(ablation.effects, key=lambda effect: -effect.importance)
    by_importance = {effect.head: number for number, effect in enumerate(most_important, 1)}
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    columns = ["head", "Δ loss", "p", "importance (rank)"]
    # What fits 80 columns: the interval where there are no scores; JSON Lines hold everything.
    columns += ["ΔBLEU", "p", "ΔchrF2", "p"] if ablation.scores else ["95 % of the draws"]
    for name in columns:
        table.add_column(name, justify="left" if name == "head" else "right", no_wrap=True)
    for effect in shown:
        loss = effect.loss
        cells = [str(effect.head), f"{loss.difference:+.4f}", f"{loss.p_value:.2g}"]
        cells.append(f"{effect.importance:.4f} ({by_importance[effect.head]})")
        if not ablation.scores:
            cells.append(f"{loss.low:+.4f} … {loss.high:+.4f}")
        for score in effect.scores:
            cells += [_signed(score), f"{score.p_value:.2g}"]
        table.add_row(*cells)
    return table


def _curve(ablation: "Ablation") -> Table:
    """Loss, and scores if there are, at some points from no head removed to all."""
    last = len(ablation.curve) - 1
    n_shown = min(CURVE_POINTS, last + 1)
    chosen = sorted({round(i * last / max(1, n_shown - 1)) for i in range(n_shown)})
    points = [ablation.curve[i] for i in chosen]
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    table.add_row(Text("heads removed", style="dim"), *(str(p.n_removed) for p in points))
    table.add_row(Text("loss", style="dim"), *(f"{p.loss:.3f}" for p in points))
    for i, score in enumerate(points[0].scores):
        table.add_row(Text(score.name, style="dim"), *(f"{p.scores[i].value:.1f}" for p in points))
    return table


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
