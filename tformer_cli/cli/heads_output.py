"""Inspected sentences in the formats of `tformer inspect-heads`."""

from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING

from tformer_cli.cli.console import utf8_line
from tformer_cli.cli.text_io import results, text_console
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
    with results(output) as stream:
        if chosen == HeadsFormat.text:
            _show(text_console(output, stream), records, selected=selected)
            return
        for part in _rendered(records, chosen, with_weights=with_weights):
            stream.write(part)
            stream.flush()


def _rendered(
    records: Iterator["HeadsRecord"], chosen: HeadsFormat, *, with_weights: bool
) -> Iterator[bytes]:
    """Renders records as the bytes of a format: as they come, or all together."""
    if chosen == HeadsFormat.jsonl:
        from tformer_cli.inspection.views.render_json import render_json

        for record in records:
            yield utf8_line(render_json(record, with_weights=with_weights))
    elif chosen == HeadsFormat.html:
        from tformer_cli.inspection.page.heads_data import render_html

        yield render_html(list(records)).encode("utf-8")
    else:
        yield _picture(_only(records, chosen), chosen)


def _picture(record: "HeadsRecord", chosen: HeadsFormat) -> bytes:
    """Renders a sentence in one of the formats that hold one."""
    from tformer_cli.inspection.figures.heads_png import render_png
    from tformer_cli.inspection.figures.heads_svg import render_svg
    from tformer_cli.inspection.views.render_tensors import render_npz, render_safetensors

    if chosen == HeadsFormat.svg:
        return render_svg(record).encode("utf-8")
    if chosen == HeadsFormat.png:
        return render_png(record)
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
    from tformer_cli.cli.heads_screen import show_record

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
