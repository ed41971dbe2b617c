"""`tformer benchmark`: how fast a model translates on this machine."""

import json
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tformer_cli.cli.console import note, stdout_console, write_line
from tformer_cli.cli.decoding_options import ShortlistOption
from tformer_cli.cli.format_choice import TextOrJson, format_option
from tformer_cli.cli.help_screen import MACHINE
from tformer_cli.cli.line_progress import line_progress
from tformer_cli.cli.option_groups import takes_groups
from tformer_cli.cli.options import (
    DecodingPrecision,
    DeviceOption,
    Engine,
    ModelArgument,
    QuietOption,
    ThreadsOption,
    option,
)
from tformer_cli.cli.path_roles import PathRole
from tformer_cli.cli.process import prepare_torch
from tformer_cli.cli.text_io import prompt_at_terminal
from tformer_cli.data.lines import LineCounts, read_lines
from tformer_cli.wording import count_of

if TYPE_CHECKING:
    from rich.console import Console

    from tformer_cli.workflows.benchmark import Setting, Speed

COLUMNS = (
    *("engine", "precision", "beam"),
    *("lines/s", "tokens/s", "p50 ms", "p95 ms", "p99 ms", "MB"),
)


@dataclass(frozen=True, kw_only=True)
class MeasuringOptions:
    """Settings to measure, and how often."""

    lines: Annotated[int, option("Translate at most the first N lines.", min=1)] = 1000
    beam_size: Annotated[
        list[int] | None,
        option("Beam size to measure. Repeat to compare.", shown="1 and 5", metavar="N", min=1),
    ] = None
    precision: Annotated[
        list[DecodingPrecision] | None,
        option("Precision to measure. Repeat to compare.", panel=MACHINE, shown="float32"),
    ] = None
    engine: Annotated[
        list[Engine] | None,
        option("Decoding engine to measure. Repeat to compare.", panel=MACHINE, shown="tformer"),
    ] = None
    rounds: Annotated[int, option("Measure every setting N times, in turns.", min=1)] = 3

    def settings(self) -> "list[Setting]":
        """Returns every combination of beam size, engine and precision."""
        from tformer_cli.workflows.benchmark import Setting

        return [
            Setting(engine=engine.value, precision=precision.value, beam_size=beam_size)
            for beam_size in self.beam_size or [1, 5]
            for engine in self.engine or [Engine.tformer]
            for precision in self.precision or [DecodingPrecision.float32]
        ]


@takes_groups
def benchmark(
    model: ModelArgument,
    *,
    source: Annotated[
        Path,
        option("Sentences to translate; - is stdin.", "--source", "-i", metavar="FILE"),
        PathRole.reads_file,
    ],
    measuring: MeasuringOptions,
    report_format: Annotated[
        TextOrJson,
        format_option(TextOrJson, what="A table, or one JSON object per setting and line."),
    ] = TextOrJson.text,
    shortlist: ShortlistOption = None,
    device: DeviceOption = "auto",
    threads: ThreadsOption = 0,
    quiet: QuietOption = False,
) -> None:
    """Measure translation speed, latency and memory.

    Every measurement runs in a process of its own, the settings in turns; medians are shown.
    Lines/s is for all lines at once; the percentiles are of lines translated one by one.

    Examples:
        tformer benchmark runs/quickstart -i corpus/test.en --lines 200
        tformer benchmark runs/quickstart -i a.en --precision float32 --precision int8
    """
    from tformer_cli.workflows.benchmark import benchmark as workflow

    settings = measuring.settings()
    prompt_at_terminal(files=[source], quiet=quiet)
    texts = list(islice(read_lines(source, LineCounts()), measuring.lines))
    total = len(texts) * len(settings) * measuring.rounds
    with line_progress(total, "measuring", quiet=quiet) as progress:
        speeds = workflow(
            model,
            texts,
            settings,
            rounds=measuring.rounds,
            threads=threads,
            before_torch=partial(prepare_torch, threads),
            device=device,
            shortlist=shortlist,
            progress=progress.update,
        )
    done = count_of(speeds[0].n_lines, "line"), count_of(measuring.rounds, "round")
    note(", ".join(done), quiet=quiet)
    for reason in sorted({speed.refusal for speed in speeds if speed.refusal}):
        note(f"without compiled kernels: {reason}", quiet=quiet)
    if report_format == TextOrJson.json:
        for speed in speeds:
            write_line(json.dumps(speed.record()))
    else:
        show_speeds(stdout_console(), speeds)


def show_speeds(console: "Console", speeds: "list[Speed]") -> None:
    """Prints a line for each setting; where columns do not fit they are continued below."""
    from tformer_cli.terminal.fitted_table import Column, table_lines

    rows = [
        (
            _engine_name(speed),
            speed.setting.precision,
            str(speed.setting.beam_size),
            f"{speed.lines_per_second:,.1f}",
            f"{speed.tokens_per_second:,.0f}",
            *(
                f"{1000 * latency:.1f}"
                for latency in (speed.latency_p50, speed.latency_p95, speed.latency_p99)
            ),
            f"{speed.peak_memory / 1e6:,.0f}",
        )
        for speed in speeds
    ]
    columns = [
        Column(head, cells, at_left=number < 2)
        for number, (head, cells) in enumerate(zip(COLUMNS, zip(*rows, strict=True), strict=True))
    ]
    for line in table_lines(columns, console.width, n_repeated=3, gap=1):  # in 80 columns all fit
        console.print(line)


def _engine_name(speed: "Speed") -> str:
    """Names the engine, and for tformer's own its kernels: compiled or torch's."""
    engine = speed.setting.engine
    return engine if speed.kernels == engine else f"{engine} {speed.kernels}"
