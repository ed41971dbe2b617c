"""`tformer benchmark`: how fast a model translates on this machine."""

import json
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from tformer_cli.cli.format_choice import text_or_json
from tformer_cli.cli.options import (
    REQUIRED,
    DeviceOption,
    ModelArgument,
    QuietOption,
    SourceLanguageOption,
    TargetLanguageOption,
    ThreadsOption,
    option_field,
    prepare_torch,
)
from tformer_cli.cli.progress import line_progress
from tformer_cli.cli.streams import (
    check_stdin_is_read_once,
    note,
    prompt_at_terminal,
    stdout_console,
    write_line,
)
from tformer_cli.search.config import Engine, PrecisionChoice
from tformer_cli.text.lines import LineCounts, read_lines
from tformer_cli.wording import count_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rich.console import Console

    from tformer_cli.plugins.corpora_tools.benchmark import Setting, Speed

SCHEMA = "tformer.benchmark/1"


@dataclass(frozen=True, kw_only=True)
class MeasuringOptions:
    """Settings to measure, and how often."""

    lines: int = option_field(1000, "Translate at most the first N lines.", min=1)
    beam_size: list[int] | None = option_field(
        None, "Beam size to measure. Repeat to compare.", shown="1 and 5", metavar="N", min=1
    )
    precision: list[PrecisionChoice] | None = option_field(
        None,
        "Precision to measure. Repeat to compare.",
        panel="Machine",
        shown="float32; int8 if MODEL is stored in it",
    )
    engine: list[Engine] | None = option_field(
        None, "Decoding engine to measure. Repeat to compare.", panel="Machine", shown="tformer"
    )
    shortlist: list[str] | None = option_field(
        None,
        "Lexical shortlist to use; none: no shortlist. Repeat to compare.",
        panel="Search",
        shown="MODEL's, if it has one",
        metavar="FILE|none",
        role="reads_file",
    )
    rounds: int = option_field(3, "Measure every setting N times, in turns.", min=1)

    def texts(self, file: Path) -> list[str]:
        return list(islice(read_lines(file, LineCounts()), self.lines))

    def settings(self, model: Path) -> "list[Setting]":
        """Returns every combination of beam size, engine, precision and shortlist for a model."""
        from tformer_cli.plugins.corpora_tools.benchmark import Setting, stored_precision

        shortlists: Sequence[str | None] = self.shortlist or [None]
        return [
            Setting(engine=engine, precision=precision, beam_size=beam_size, shortlist=shortlist)
            for beam_size in self.beam_size or [1, 5]
            for engine in self.engine or ["tformer"]
            for precision in self.precision or [stored_precision(model)]
            for shortlist in shortlists
        ]


def benchmark(
    model: ModelArgument,
    *,
    source: Path = option_field(
        REQUIRED, "Sentences to translate; - is stdin.", "-i", role="reads_file"
    ),
    reference: list[Path] | None = option_field(
        None,
        "Reference translation, to measure BLEU as well. Repeat for several references.",
        role="reads_file",
    ),
    measuring: MeasuringOptions,
    report_format: str = text_or_json("A table, or one JSON object per setting and line."),
    source_language: SourceLanguageOption = None,
    target_language: TargetLanguageOption = None,
    device: DeviceOption = "auto",
    threads: ThreadsOption = 0,
    quiet: QuietOption = False,
) -> None:
    """Measure translation speed, latency and memory.

    Each measurement runs in its own process, and the settings take turns; the table shows medians.
    Lines/s is measured on all lines at once, the percentiles on lines translated one by one. With
    --reference, BLEU shows what int8, a smaller beam or a shortlist costs.

    Examples:
        tformer benchmark runs/quickstart -i corpus/test.en --lines 200
        tformer benchmark runs/quickstart -i a.en --precision float32 --precision int8
        tformer benchmark runs/quickstart -i a.en --reference a.fr --shortlist lex --shortlist none
    """
    from tformer_cli.plugins.corpora_tools.benchmark import benchmark as workflow

    settings = measuring.settings(model)
    files = [source, *(reference or ())]
    check_stdin_is_read_once(files)
    prompt_at_terminal(files=files, quiet=quiet)
    texts, *references = map(measuring.texts, files)
    total = len(texts) * len(settings) * measuring.rounds
    with line_progress(total, "measuring", quiet=quiet) as progress:
        speeds = workflow(
            model,
            texts,
            settings,
            references=references,
            rounds=measuring.rounds,
            threads=threads,
            before_torch=partial(prepare_torch, threads),
            device=device,
            source_language=source_language,
            target_language=target_language,
            progress=progress.update,
        )
    for line in _notes(speeds, measuring.rounds):
        note(line, quiet=quiet)
    if report_format != "json":
        show_speeds(stdout_console(), speeds)
        return
    for speed in speeds:
        write_line(json.dumps({"schema": SCHEMA, **speed.record()}))


def _notes(speeds: "list[Speed]", rounds: int) -> "Iterator[str]":
    """Describes how often each setting was measured, and what the numbers depend on."""
    yield f"{count_of(speeds[0].n_lines, 'line')}, {count_of(rounds, 'round')}"
    for reason in sorted({speed.refusal for speed in speeds if speed.refusal}):
        yield f"without compiled kernels: {reason}"
    for signature in {speed.bleu.signature for speed in speeds if speed.bleu is not None}:
        yield f"BLEU: {signature}"
    yield from _shortlist_costs(speeds)


def show_speeds(console: "Console", speeds: "list[Speed]") -> None:
    """Prints a line for each setting; where columns do not fit they are continued below."""
    from tformer_cli.show.document import Table
    from tformer_cli.show.terminal import show_blocks

    columns: dict[str, Callable[[Speed], str]] = {
        "engine": _engine_name,
        "precision": lambda speed: speed.setting.precision,
        "beam": lambda speed: str(speed.setting.beam_size),
        "shortlist": _shortlist_name,
        "lines/s": lambda speed: f"{speed.lines_per_second:,.1f}",
        "tokens/s": lambda speed: f"{speed.tokens_per_second:,.0f}",
        "p50 ms": lambda speed: f"{1000 * speed.latency_p50:.1f}",
        "p95 ms": lambda speed: f"{1000 * speed.latency_p95:.1f}",
        "p99 ms": lambda speed: f"{1000 * speed.latency_p99:.1f}",
        "MB": lambda speed: f"{speed.peak_memory / 1e6:,.0f}",
        "BLEU": lambda speed: f"{speed.bleu.value:.2f}" if speed.bleu is not None else "",
    }
    has_shortlists = any(speed.setting.shortlist for speed in speeds)
    # Columns that say nothing only take up width
    if not has_shortlists:
        del columns["shortlist"]
    if speeds[0].bleu is None:
        del columns["BLEU"]
    table = Table(
        head=tuple(columns),
        rows=[[write(speed) for write in columns.values()] for speed in speeds],
        labels=(3,) if has_shortlists else (),
        texts=(0, 1),
        n_repeated=3 + has_shortlists,
        gap=1,  # usually 80 columns fit
    )
    show_blocks(console, [table])


def _engine_name(speed: "Speed") -> str:
    """Names the engine, and for tformer's own its kernels: compiled or torch's."""
    engine = speed.setting.engine
    return engine if speed.kernels == engine else f"{engine} {speed.kernels}"


def _shortlist_name(speed: "Speed") -> str:
    return Path(speed.setting.shortlist or "MODEL's").name


def _shortlist_costs(speeds: "list[Speed]") -> "Iterator[str]":
    """Compares each shortlist with none in speed and BLEU, where both were measured."""
    from tformer_cli.kinds.translate import NO_SHORTLIST

    unlisted = {speed.setting: speed for speed in speeds if speed.setting.shortlist == NO_SHORTLIST}
    for speed in speeds:
        without = unlisted.get(replace(speed.setting, shortlist=NO_SHORTLIST))
        if without is None or without is speed:
            continue
        gain = speed.lines_per_second / without.lines_per_second
        label = f"shortlist {_shortlist_name(speed)}, beam {speed.setting.beam_size}"
        cost = ""
        if speed.bleu is not None and without.bleu is not None:
            cost = f", BLEU {speed.bleu.value - without.bleu.value:+.2f}"
        yield f"{label}: {gain:.2f} times the lines/s{cost}"
