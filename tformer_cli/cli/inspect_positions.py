"""`tformer inspect-positions`: the position vectors as a heat map, and their similarity."""

import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from tformer_cli.cli.console import utf8_line
from tformer_cli.cli.format_choice import chosen_format, format_option
from tformer_cli.cli.options import ModelArgument, OutputOption, QuietOption
from tformer_cli.cli.text_io import STANDARD_STREAM, results, text_console
from tformer_cli.errors import UsageError

if TYPE_CHECKING:
    from tformer_cli.inspection.views.positions import PositionsRecord


class PositionsFormat(StrEnum):
    """Values of `--format`."""

    text = "text"
    json = "json"
    npz = "npz"
    svg = "svg"
    html = "html"


def inspect_positions(
    model: ModelArgument,
    *,
    positions: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=2, help="Number of positions, from the first.", show_default="64"
        ),
    ] = None,
    output_format: Annotated[PositionsFormat | None, format_option(PositionsFormat, "json")] = None,
    output: OutputOption = STANDARD_STREAM,
    quiet: QuietOption = False,  # noqa: ARG001 - every command takes it; this one is quiet
) -> None:
    """Show the position vectors and how similar they are.

    Similarity is shown at each offset. For sinusoids the similarity depends on the offset alone and
    the squared norm is d/2; for learned vectors, how far they are from that is measured.

    Examples:
        tformer inspect-positions runs/quickstart
        tformer inspect-positions runs/quickstart --positions 32 -o positions.html
    """
    chosen = chosen_format(output_format, output, PositionsFormat, PositionsFormat.json)
    if chosen == PositionsFormat.npz and output == STANDARD_STREAM and sys.stdout.isatty():
        raise UsageError("--format npz: is not text for a terminal; name a file with -o FILE")

    from tformer_cli.workflows.inspect_positions import inspect_positions as read

    record = read(model, n_positions=positions)
    with results(output) as stream:
        if chosen == PositionsFormat.text:
            from tformer_cli.cli.positions_view import show_positions

            show_positions(text_console(output, stream), record)
        else:
            stream.write(_rendered(record, chosen))


def _rendered(record: "PositionsRecord", chosen: PositionsFormat) -> bytes:
    from tformer_cli.inspection.views import render_positions as render

    if chosen == PositionsFormat.json:
        return utf8_line(render.render_positions_json(record))
    if chosen == PositionsFormat.npz:
        return render.render_positions_npz(record)
    if chosen == PositionsFormat.svg:
        return render.render_positions_svg(record).encode("utf-8")
    return render.render_positions_html(record).encode("utf-8")
