"""Inspected sentences in the formats of `tformer inspect-heads`."""

from collections.abc import Iterator
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING

from tformer_cli.cli.emit import emit, page_bytes
from tformer_cli.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from tformer_cli.inspection.capture.heads import HeadId
    from tformer_cli.inspection.record import HeadsRecord


class HeadsFormat(StrEnum):
    """Values of `--format`."""

    text = "text"
    jsonl = "jsonl"
    safetensors = "safetensors"
    npz = "npz"
    html = "html"
    svg = "svg"
    png = "png"


BINARY = (HeadsFormat.safetensors, HeadsFormat.npz, HeadsFormat.png)
MAPS_SHOWN = 12
"""Most heads whose maps a terminal shows; of more only the clearest is shown."""


def write_records(
    records: Iterator["HeadsRecord"],
    chosen: HeadsFormat,
    output: str,
    *,
    with_weights: bool,
    selected: bool,
) -> None:
    """Renders records to stdout, or to a file that is there whole in the end or not at all."""

    def lines() -> Iterator[str]:
        from tformer_cli.inspection.json_lines import render_json

        return (render_json(record, with_weights=with_weights) for record in records)

    def page() -> Iterator[bytes]:
        from tformer_cli.inspection.page.heads_data import render_html

        yield page_bytes(render_html(list(records)))

    def picture() -> Iterator[bytes]:
        yield _picture(_only(records, chosen), chosen)

    emit(
        output,
        chosen,
        show=partial(_show, records=records, selected=selected),
        others=dict.fromkeys(HeadsFormat, picture)
        | {HeadsFormat.jsonl: lines, HeadsFormat.html: page},
    )


def _picture(record: "HeadsRecord", chosen: HeadsFormat) -> bytes:
    """Renders a sentence in one of the formats that hold one."""
    from tformer_cli.figures.png import render_png
    from tformer_cli.inspection.figures.heads_svg import render_svg
    from tformer_cli.inspection.figures.heads_tensors import render_npz, render_safetensors

    if chosen == HeadsFormat.svg:
        return render_svg(record).encode("utf-8")
    if chosen == HeadsFormat.png:
        return render_png(render_svg(record))
    return render_npz(record) if chosen == HeadsFormat.npz else render_safetensors(record)


def _only(records: Iterator["HeadsRecord"], chosen: HeadsFormat) -> "HeadsRecord":
    """Takes the one sentence that a format holds."""
    record = next(records, None)
    if record is None or record.maps is None:
        raise UsageError(f"--format {chosen}: there is no sentence to show; give one that is text")
    if not record.heads:
        raise UsageError(
            f"--heads: no head meets the conditions; select others for --format {chosen}"
        )
    if next(records, None) is not None:
        raise UsageError(
            f"--format {chosen}: holds one sentence, but there are several; use jsonl or html"
        )
    return record


def _show(console: "Console", records: Iterator["HeadsRecord"], *, selected: bool) -> None:
    """Prints records; on a terminal a single map leaves room for the prompt."""
    from tformer_cli.cli.inspection.heads_screen import show_record

    for record in records:
        if record.index:
            console.print()
        maps = _maps_shown(record, selected=selected)
        show_record(console, record, maps, fits_screen=console.is_terminal and not selected)


def _maps_shown(record: "HeadsRecord", *, selected: bool) -> "list[HeadId]":
    """The heads whose maps are drawn: those asked for, or the clearest one."""
    if not record.heads:
        return []
    if selected and len(record.heads) <= MAPS_SHOWN:
        return list(record.heads)
    return [record.clearest_head()]
