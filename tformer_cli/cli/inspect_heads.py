"""`tformer inspect-heads`: where every attention head looks."""

import sys
from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tformer_cli.cli.console import stdout_console, utf8_line
from tformer_cli.cli.decoding_options import BeamSizeOption, LengthPenaltyOption
from tformer_cli.cli.options import (
    DeviceOption,
    ModelArgument,
    QuietOption,
    SeedOption,
    ThreadsOption,
)
from tformer_cli.cli.text_io import (
    STANDARD_STREAM,
    argument_lines,
    check_stdin_is_read_once,
    file_lines,
    input_lines,
    results,
    say_choices,
    warn_of_bytes,
)
from tformer_cli.data.lines import LineCounts
from tformer_cli.errors import TformerError, UsageError

if TYPE_CHECKING:
    from tformer_cli.inspection.heads import HeadId
    from tformer_cli.inspection.record import HeadsRecord


class HeadsFormat(StrEnum):
    """Values of `--format`."""

    tty = "tty"
    jsonl = "jsonl"
    safetensors = "safetensors"
    npz = "npz"
    html = "html"
    svg = "svg"
    png = "png"


BINARY = (HeadsFormat.safetensors, HeadsFormat.npz, HeadsFormat.png)
FOR_ONE_SENTENCE = (*BINARY, HeadsFormat.svg)
MAPS_SHOWN = 12
"""Most heads whose maps a terminal shows; of more only the clearest is shown."""


def inspect_heads(
    model: ModelArgument,
    text: Annotated[
        list[str] | None,
        typer.Argument(metavar="TEXT", help="Sentences; without any, --source or stdin."),
    ] = None,
    *,
    source: Annotated[
        str | None, typer.Option(metavar="FILE", help="File of sentences (-: stdin).")
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Look at this target instead of the translation."),
    ] = None,
    target_file: Annotated[
        str | None, typer.Option(metavar="FILE", help="File of targets, one for each sentence.")
    ] = None,
    heads: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SELECTION",
            help="KIND[.LAYER[.HEAD]], separated by commas; KIND: enc, dec, cross, self or *; "
            "LAYER and HEAD: n, a-b, a-, last, ^k, {list} or *; ! takes away. "
            "Such as enc.0.3, cross.5.0-3, cross.last, '!enc.0'. Repeatable [all heads].",
        ),
    ] = None,
    output_format: Annotated[
        HeadsFormat | None,
        typer.Option(
            "--format",
            help="[tty on a terminal, jsonl elsewhere; by FILE's name].",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="Where to write (-: stdout).")
    ] = STANDARD_STREAM,
    weights: Annotated[
        bool, typer.Option("--weights", help="Put each head's weights into jsonl.")
    ] = False,
    verify: Annotated[
        float | None,
        typer.Option(
            metavar="TOLERANCE",
            min=0.0,
            help="Fail (status 1) if weights explain the model's output less exactly than this.",
        ),
    ] = None,
    beam_size: BeamSizeOption = None,
    length_penalty: LengthPenaltyOption = None,
    device: DeviceOption = "auto",
    seed: SeedOption = 1,
    threads: ThreadsOption = 0,
    quiet: QuietOption = False,
) -> None:
    """Show where every attention head looks while a sentence is translated.

    Row i of a map is the query, column j the key; in cross and dec, row i is the position that
    predicts target token i+1. Rows sum to 1. The translation is the one `tformer translate` gives.
    """
    chosen = _format(output_format, output)
    _check_usage(chosen, output, with_weights=weights)
    if not text:
        check_stdin_is_read_once([source or STANDARD_STREAM, target_file])
    counts = LineCounts()
    lines = input_lines(text, source, counts, "--source")
    targets = _targets(target, target_file, counts)

    from tformer_cli.workflows.inspect_heads import HeadInspector
    from tformer_cli.workflows.translate import open_translator

    opened = open_translator(
        model,
        device=device,
        precision="float32",
        threads=threads,
        seed=seed,
        beam_size=beam_size,
        length_penalty=length_penalty,
        n_best=1,
    )
    inspector = HeadInspector(opened, heads or ())
    say_choices(opened, quiet=quiet)
    records = _verified(inspector.inspect(lines, targets), verify)
    _write(records, chosen, output, with_weights=weights, selected=bool(heads))
    warn_of_bytes(counts)


def _format(given: HeadsFormat | None, output: str) -> HeadsFormat:
    """Chooses a format where none is given: by the file's name, else by who reads stdout."""
    if given is not None:
        return given
    if output != STANDARD_STREAM:
        suffix = Path(output).suffix.removeprefix(".")
        return HeadsFormat(suffix) if suffix in list(HeadsFormat) else HeadsFormat.jsonl
    return HeadsFormat.tty if sys.stdout.isatty() else HeadsFormat.jsonl


def _check_usage(chosen: HeadsFormat, output: str, *, with_weights: bool) -> None:
    if chosen in BINARY and output == STANDARD_STREAM and sys.stdout.isatty():
        raise UsageError(f"--format {chosen}: is not text for a terminal; name a file with -o FILE")
    if with_weights and chosen != HeadsFormat.jsonl:
        raise UsageError(f"--weights: is for jsonl; --format {chosen} leaves it no meaning")


def _targets(
    target: str | None, target_file: str | None, counts: LineCounts
) -> Iterator[str] | None:
    if target is not None and target_file is not None:
        raise UsageError("--target: --target-file gives the targets already; leave one of them out")
    if target is not None:
        return argument_lines([target], counts)
    return None if target_file is None else file_lines(target_file, counts)


def _verified(records: Iterable["HeadsRecord"], tolerance: float | None) -> Iterator["HeadsRecord"]:
    """Passes records on and stops at one whose residual is above the tolerance."""
    for record in records:
        if tolerance is not None and record.maps is not None:
            residual = record.captured.residual
            if not residual <= tolerance:
                raise TformerError(
                    f"residual {residual:.2g} is above {tolerance:.2g} (line {record.index + 1}): "
                    "the maps do not explain the model's output so exactly"
                )
        yield record


def _write(
    records: Iterator["HeadsRecord"],
    chosen: HeadsFormat,
    output: str,
    *,
    with_weights: bool,
    selected: bool,
) -> None:
    """Renders records to stdout, or to a file that is there whole in the end or not at all."""
    if chosen == HeadsFormat.tty and output == STANDARD_STREAM:
        for record in records:
            _show(record, selected=selected)
        return
    with results(output) as stream:
        for part in _rendered(records, chosen, with_weights=with_weights, selected=selected):
            stream.write(part)
            stream.flush()


def _rendered(
    records: Iterator["HeadsRecord"], chosen: HeadsFormat, *, with_weights: bool, selected: bool
) -> Iterator[bytes]:
    """Renders records as the bytes of a format: as they come, or all together."""
    if chosen == HeadsFormat.jsonl:
        from tformer_cli.inspection.render_json import render_json

        for record in records:
            yield utf8_line(render_json(record, with_weights=with_weights))
    elif chosen == HeadsFormat.tty:
        for record in records:
            yield _plain_text(record, selected=selected)
    elif chosen == HeadsFormat.html:
        from tformer_cli.inspection.render_html import render_html

        yield render_html(list(records)).encode("utf-8")
    else:
        yield _picture(_only(records, chosen), chosen)


def _picture(record: "HeadsRecord", chosen: HeadsFormat) -> bytes:
    """Renders a sentence in one of the formats that hold one."""
    from tformer_cli.inspection.render_png import render_png
    from tformer_cli.inspection.render_svg import render_svg
    from tformer_cli.inspection.render_tensors import render_npz, render_safetensors

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
    if next(records, None) is not None:
        raise UsageError(
            f"--format {chosen}: holds one sentence, but there are several; use jsonl or html"
        )
    return record


def _show(record: "HeadsRecord", *, selected: bool) -> None:
    from tformer_cli.cli.heat_map import show_record

    if record.index:
        stdout_console().print()
    show_record(stdout_console(), record, _maps_shown(record, selected=selected))


def _plain_text(record: "HeadsRecord", *, selected: bool) -> bytes:
    """Renders what a terminal would show as text without colours."""
    from io import StringIO

    from rich.console import Console

    from tformer_cli.cli.heat_map import show_record

    file = StringIO()
    console = Console(file=file, no_color=True, width=stdout_console().width, highlight=False)
    show_record(console, record, _maps_shown(record, selected=selected))
    gap = "\n" if record.index else ""
    return (gap + file.getvalue()).encode("utf-8", errors="replace")


def _maps_shown(record: "HeadsRecord", *, selected: bool) -> "list[HeadId]":
    """The heads whose maps are drawn: those asked for, or the clearest one."""
    if record.maps is None:
        return []
    if selected and len(record.heads) <= MAPS_SHOWN:
        return list(record.heads)
    return [record.clearest_head()]
