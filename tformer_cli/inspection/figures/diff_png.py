"""Two models compared as PNG: the maps of A, of B and B − A, of the pairs that changed most."""

from collections.abc import Sequence

from torch import Tensor

from tformer_cli.figures import new_figure, png_bytes
from tformer_cli.inspection.comparison.diff import HeadChange, HeadDiff, drawn, summary_of
from tformer_cli.inspection.figures.palette import LIGHT_RAMPS, SIGNED_RAMP
from tformer_cli.inspection.figures.png_figure import draw_map, label_map

Panel = tuple[str, Tensor, Sequence[str], float]
LABELLED_TOKENS = 40
"""Longer sides than this have no tokens beside their maps, which no one could read."""


def render_diff_png(diff: HeadDiff) -> bytes:
    """Renders a line of three maps for each pair.

    Raises:
        UsageError: if matplotlib is not installed.
    """
    sentence = diff.shown[0]
    changes = drawn(diff)
    longest = max(len(sentence.source_pieces), len(sentence.target_pieces))
    n_rows, n_keys = (
        max((len(labels(change.kind)) for change in changes), default=0)
        for labels in (sentence.row_labels, sentence.column_labels)
    )
    width, height = (min(7.0, max(1.6, 0.17 * n + 1.2)) for n in (n_keys, n_rows))
    figure = new_figure(3 * width, max(1, len(changes)) * height + 0.7)
    title = f"{sentence.source}\n{sentence.target}\n{summary_of(diff)}"
    figure.suptitle(title, fontsize=9, parse_math=False)
    for line, change in enumerate(changes):
        for column, (caption, values, colors, low) in enumerate(_panels(diff, change)):
            axes = figure.add_subplot(len(changes), 3, 3 * line + column + 1)
            draw_map(axes, values, colors, low, caption)
            if longest <= LABELLED_TOKENS:
                label_map(
                    axes, sentence.row_labels(change.kind), sentence.column_labels(change.kind)
                )
    return png_bytes(figure, f"Attention of A, of B and B − A. {summary_of(diff)}")


def _panels(diff: HeadDiff, change: HeadChange) -> list[Panel]:
    """The three maps of a pair: a title, numbers, colors and what the first color stands for."""
    before, after = diff.shown
    match = change.match
    if match.first is None or match.second is None:
        raise ValueError("a head without a counterpart has no difference")
    difference = diff.difference(change)
    largest = max(difference.abs().max().item(), 1e-30)
    ramp = LIGHT_RAMPS[change.kind]
    return [
        (f"A: {match.first}", before.captured.weights(match.first), ramp, 0.0),
        (f"B: {match.second}", after.captured.weights(match.second), ramp, 0.0),
        (
            f"B − A, orange more, up to {largest:.2f}\ndivergence {match.divergence:.4f}",
            difference / largest,
            SIGNED_RAMP,
            -1.0,
        ),
    ]
