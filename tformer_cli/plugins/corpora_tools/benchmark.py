"""Translation speed of a model on this machine: batches, single lines and memory, by setting."""

import multiprocessing
import os
import re
import resource
import signal
import statistics
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from multiprocessing import connection
from pathlib import Path
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Any

from tformer_cli.errors import DataError, TformerError
from tformer_cli.search.config import Engine, PrecisionChoice
from tformer_cli.search.keywords import TranslatorOptions
from tformer_cli.wording import is_blank

if TYPE_CHECKING:
    from tformer_cli.metrics.scores import Score

MOST_SINGLE_LINES = 100
"""Lines translated one by one for the latency, after a few to warm up."""
WARM_UP_LINES = 8
_KIB = 1024


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One way of translating."""

    engine: Engine
    precision: PrecisionChoice
    beam_size: int
    """Hypotheses kept for each line; 1 is greedy."""
    shortlist: str | None = None
    """File of a shortlist, or "none"; None: the model's own, if it has one."""


@dataclass(frozen=True, kw_only=True)
class System:
    """A model, and how it is opened to be measured."""

    model: str
    options: TranslatorOptions
    """Options of `open_model`, which another process must be able to read."""


@dataclass(frozen=True, kw_only=True)
class Speed:
    """Measurements of one setting: medians over the rounds."""

    setting: Setting
    n_lines: int
    lines_per_second: float
    """Lines a second, all lines at hand, reading the model not counted."""
    tokens_per_second: float
    """Output tokens a second, the end of sentence counted."""
    processor_seconds: float
    """Seconds of processor time of the batch measurement, of all threads: on a machine that others
    use, too, a better basis of ratios than the clock."""
    latency_p50: float
    """Median seconds of a line that is translated by itself."""
    latency_p95: float
    """95th percentile, nearest rank, over the single lines of all rounds."""
    latency_p99: float
    peak_memory: int
    """Bytes: the largest resident memory of a process that does nothing else."""
    load_seconds: float
    """Seconds to read the model, after the imports."""
    kernels: str
    """Engine that computes: "native", the compiled kernels, or "torch"."""
    refusal: str | None
    bleu: "Score | None" = None

    def record(self) -> dict[str, Any]:
        values = asdict(self)
        values["bleu"], signature = (
            (None, None) if self.bleu is None else (self.bleu.value, self.bleu.signature)
        )
        return {**values.pop("setting"), **values, "bleu_signature": signature}


def benchmark(
    model: Path | str,
    lines: Sequence[str],
    settings: Sequence[Setting],
    *,
    references: Sequence[Sequence[str]] = (),
    rounds: int = 3,
    threads: int = 0,
    device: str = "auto",
    source_language: str | None = None,
    target_language: str | None = None,
    before_torch: Callable[[], None] | None = None,
    progress: Callable[[int], None] | None = None,
) -> list[Speed]:
    """Measures settings in turns (A B A B …), each time in a new process."""
    kept = [line for line in lines if not is_blank(line)]
    if not kept:
        raise DataError("--source: no lines to translate; give a text with sentences")
    expected = _references_of(lines, references)
    # a setting that is named twice would be measured twice for the same row
    settings = list(dict.fromkeys(settings))
    systems = [
        System(
            model=str(model),
            options=TranslatorOptions(
                engine=setting.engine,
                precision=setting.precision,
                beam_size=setting.beam_size,
                threads=threads,
                device=device,
                shortlist=setting.shortlist,
                source_language=source_language,
                target_language=target_language,
                before_torch=before_torch,
            ),
        )
        for setting in settings
    ]
    tell = None if progress is None else lambda n_measured: progress(n_measured * len(lines))
    runs = measure_in_turns(systems, kept, rounds=rounds, progress=tell)
    return [_speed(*pair, expected) for pair in zip(settings, runs, strict=True)]


def measure_in_turns(
    systems: Sequence[System],
    lines: Sequence[str],
    *,
    rounds: int,
    progress: Callable[[int], None] | None = None,
) -> list[list[dict[str, Any]]]:
    """Measures systems in turns (A B A B …), each time in a new process."""
    # Returns the measurements of each system: `lines`, `texts`, `tokens`, `seconds`,
    # `processor_seconds`, `latencies`, `peak_memory`, `load_seconds`, `kernels`, `refusal`.
    measured: list[list[dict[str, Any]]] = [[] for _ in systems]
    # in turns, a machine that slows down slows all; the peak of memory is that of one system only
    # where each starts in a new process
    for number in range(rounds * len(systems)):
        place = number % len(systems)
        outcome = in_new_process(
            _try_to_measure, systems[place].model, list(lines), systems[place].options
        )
        measured[place].append(outcome)
        if progress is not None:
            progress(number + 1)
    return measured


def in_new_process(function: Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401
    """Calls a function in a process of its own, which ends with this one."""
    context = multiprocessing.get_context("spawn")
    receiving, sending = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(sending, function, arguments), daemon=True)
    process.start()
    sending.close()  # else its end would not be seen
    try:
        outcome = receiving.recv()
        process.join()
    except EOFError:
        process.join()
        raise TformerError(
            f"the process that measures has ended with status {process.exitcode}; it may have been "
            "killed for its memory"
        ) from None
    finally:
        process.kill()
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def _answer(
    sending: connection.Connection, function: Callable[..., Any], arguments: Sequence[object]
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of the terminal: the parent ends this process
    parent = multiprocessing.parent_process()

    def end_with_parent() -> None:
        if parent is not None:
            connection.wait([parent.sentinel])
            os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()
    try:
        outcome: Any = function(*arguments)
    except Exception as error:  # noqa: BLE001 - the parent raises it
        outcome = error
    with suppress(BrokenPipeError):
        sending.send(outcome)


def stored_precision(model: Path | str) -> PrecisionChoice:
    """Returns the precision that a model's weights are stored in, of integers "int8"."""
    from tformer_cli.artifacts.config_file import read_config
    from tformer_cli.foreign.import_model import resolve_model

    return read_config(resolve_model(model)).weight_type


def _references_of(lines: Sequence[str], references: Sequence[Sequence[str]]) -> list[list[str]]:
    if not references:
        return []
    from tformer_cli.metrics.scores import check_counts  # not in the processes that measure

    counts = [(f"--reference {i}", len(texts)) for i, texts in enumerate(references, 1)]
    check_counts([("--source", len(lines)), *counts])
    return [
        [text for text, line in zip(texts, lines, strict=True) if not is_blank(line)]
        for texts in references
    ]


def _bleu(texts: Sequence[str], references: Sequence[Sequence[str]]) -> "Score | None":
    if not references:
        return None
    from tformer_cli.metrics.scores import bleu

    return bleu(texts, references)


def _speed(
    setting: Setting, runs: list[dict[str, Any]], references: Sequence[Sequence[str]]
) -> Speed:
    latencies = sorted(latency for run in runs for latency in run["latencies"])
    return Speed(
        setting=setting,
        n_lines=runs[0]["lines"],
        lines_per_second=statistics.median(run["lines"] / run["seconds"] for run in runs),
        tokens_per_second=statistics.median(run["tokens"] / run["seconds"] for run in runs),
        processor_seconds=statistics.median(run["processor_seconds"] for run in runs),
        latency_p50=percentile(latencies, 50),
        latency_p95=percentile(latencies, 95),
        latency_p99=percentile(latencies, 99),
        peak_memory=max(run["peak_memory"] for run in runs),
        load_seconds=statistics.median(run["load_seconds"] for run in runs),
        kernels=runs[0]["kernels"],
        refusal=runs[0]["refusal"],
        bleu=_bleu(runs[0]["texts"], references),
    )


def percentile(ordered: Sequence[float], percent: int) -> float:
    """Returns the nearest-rank percentile: the smallest value that covers this percentage."""
    return ordered[-(-len(ordered) * percent // 100) - 1]


def _try_to_measure(
    model: str, lines: list[str], options: TranslatorOptions
) -> dict[str, Any] | TformerError:
    """Measures one setting in this process; errors travel back as values."""
    try:
        return _measure(model, lines, options)
    except TformerError as error:
        return error


def _measure(model: str, lines: list[str], options: TranslatorOptions) -> dict[str, Any]:
    from tformer_cli.kinds.opening import open_model
    from tformer_cli.runtime import keep_freed_pages

    keep_freed_pages()  # this process is the measurement's own
    start = perf_counter()
    translator = open_model(model, **options).translator
    load_seconds = perf_counter() - start
    # The first lines pay for packing weights and for the allocator's memory
    translator.translate(lines[:WARM_UP_LINES])
    name, reasons = translator.engine()
    start, processor_start = perf_counter(), process_time()
    translations = translator.translate(lines)
    seconds, processor_seconds = perf_counter() - start, process_time() - processor_start
    # One by one, as an interactive user sees them; batches hide the latency
    latencies = []
    for line in lines[:MOST_SINGLE_LINES]:
        start = perf_counter()
        translator.translate([line])
        latencies.append(perf_counter() - start)
    return {
        "lines": len(lines),
        "texts": [translation.text for translation in translations],
        # `</s>` counts as generated, once for every part of a line that was split
        "tokens": sum(len(t.hypotheses[0].token_ids) + max(t.n_parts, 1) for t in translations),
        "seconds": seconds,
        "processor_seconds": processor_seconds,
        "latencies": latencies,
        "peak_memory": _peak_memory(),
        "load_seconds": load_seconds,
        "kernels": "native" if name == "compiled" else name,
        "refusal": reasons.get("compiled"),
    }


def _peak_memory() -> int:
    # Linux's `ru_maxrss` begins with that of the process that started this one, which may hold much
    # more; the high-water mark of `/proc` is this program's own.
    status = Path("/proc/self/status")
    if status.exists():
        match = re.search(r"^VmHWM:\s+(\d+) kB$", status.read_text(encoding="utf-8"), re.MULTILINE)
        if match is not None:
            return int(match[1]) * _KIB
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * _KIB
