"""Translating a shard in whatever process; each opens the model once for all its shards."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tformer_cli import errors
from tformer_cli.errors import ArtifactError, DataError, TformerError, UsageError
from tformer_cli.files.atomic import written_aside
from tformer_cli.files.regular_file import hash_file
from tformer_cli.kinds.lines.job import COUNTS_OF_TRANSLATIONS, ResultCounts
from tformer_cli.kinds.opening import open_model
from tformer_cli.plugins.corpora_tools.bulk.line_files import header_of, read_rows, write_row
from tformer_cli.plugins.corpora_tools.bulk.shards import LINE_KINDS, Task
from tformer_cli.runtime import (
    Stopwatch,
    is_out_of_memory,
    keep_freed_pages,
    prepare_cpu,
    set_threads,
)
from tformer_cli.search.constraints import LineConstraints, Term
from tformer_cli.text.lines import LineCounts, without_surrogates
from tformer_cli.version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tformer_cli.artifacts.corpus_directory import ShardFacts
    from tformer_cli.kinds.stored_model import Opened
    from tformer_cli.search.translator import Translation, Translator

TIMES = "times"
"""Key of an answer: seconds by part of the work. They are no facts about the shard."""
Advance = Callable[[dict[str, Any]], None]
"""Receives the rows translated of a shard, and the time spent on it."""
_one_at_a_time = threading.Lock()
"""A cluster's worker may have several threads; engines have buffers of their own."""


def opening(model: Path, options: Mapping[str, Any], glossary: Sequence[Term]) -> str:
    """Describes a model and how it is opened, as text."""
    named = {name: value for name, value in options.items() if value is not None}
    for name in ("tell", "before_torch"):
        named.pop(name, None)  # functions cannot become JSON
    for name in ("adapter", "shortlist"):
        if name in named and Path(named[name]).exists():
            named[name] = str(Path(named[name]).absolute())  # workers may run elsewhere
    if "ensemble" in named:
        named["ensemble"] = [str(Path(member).absolute()) for member in named["ensemble"]]
    terms = [(term.source, term.target, term.is_banned) for term in glossary]
    about = {
        "version": __version__,
        "model": str(model.absolute()),
        "options": named,
        "glossary": terms,
    }
    return json.dumps(about, sort_keys=True)  # `_open_translator` keeps the model of an equal text


def describe(opening: str) -> dict[str, Any]:
    """Opens the model and says where and how it computes, or what is wrong."""
    try:
        with _one_at_a_time:
            opened, notes = _open_translator(opening)
    except Exception as error:  # noqa: BLE001 - whatever it is, the asking process says it
        return _failure(error)
    facts = {"place": opened.place, "precision": opened.precision, "engine": opened.engine}
    return {**facts, "notes": notes, "n_gpus": _count_gpus(opened.place)}


def _count_gpus(place: str) -> int:
    """Counts the GPUs that this process sees, if it computes on one; else 0."""
    if not place.startswith("cuda"):
        return 0
    import torch

    return torch.cuda.device_count()


def translate_shard(
    opening: str, task: dict[str, Any], advance: Advance | None = None
) -> dict[str, Any]:
    """Translates a shard into its file, which is there whole or not at all."""
    try:
        with _one_at_a_time:
            return _translate(opening, Task.from_json(task), advance or (lambda _: None))
    except Exception as error:  # noqa: BLE001 - whatever it is, the asking process says it
        return _failure(error)


def check_answer(answer: Mapping[str, Any]) -> None:
    """Raises the error that another process met, if it did."""
    if "error" in answer:
        raise getattr(errors, answer["kind"], TformerError)(answer["error"])


def _failure(error: Exception) -> dict[str, Any]:
    if isinstance(error, TformerError):  # between processes only JSON is sent, errors included
        return {"error": str(error), "kind": type(error).__name__}
    if isinstance(error, MemoryError) or is_out_of_memory(error):
        message = "there is not enough memory; use fewer workers, smaller batches or a smaller beam"
        return {"error": message, "kind": "TformerError"}
    reason = next(iter(str(error).splitlines()), "no message")
    return {"error": f"{type(error).__name__}: {reason}", "kind": "TformerError"}


@lru_cache(maxsize=1)
def _open_translator(opening: str) -> tuple[Opened, list[str]]:
    about = json.loads(opening)
    if about["version"] != __version__:
        raise UsageError(
            f"--cluster: a worker has tformer {__version__}, not {about['version']}; install the "
            "same for every worker"
        )
    options: dict[str, Any] = about["options"]
    if "adapter" in options:
        options["adapter"] = Path(options["adapter"])
    keep_freed_pages()
    notes: list[str] = []

    def prepare() -> None:
        try:
            set_threads(options.get("threads", 0))
        except ValueError as error:
            raise UsageError(f"--threads: {error}") from None
        prepare_cpu()

    opened = open_model(about["model"], **options, tell=notes.append, before_torch=prepare)
    return opened, notes


class _Buffers:
    """Translates the rows of a shard, some at a time, and counts them."""

    def __init__(self, translator: Translator, advance: Advance, watch: Stopwatch) -> None:
        self._translator, self._advance = translator, advance
        self.counts, self.watch = ResultCounts(), watch
        self.rows = translator.usual_buffer
        """Rows to translate at a time."""

    def translate(
        self, texts: Sequence[str], first: int, demands: Sequence[LineConstraints] | None = None
    ) -> list[Translation]:
        """Translates rows, of which `first` is the number of the first one."""
        translations = self._translator.translate(texts, first, demands)
        for translation in translations:
            self.counts.add(translation)
        self._advance({"rows": self.counts.lines, TIMES: self.watch.seconds})
        return translations


def _translate(opening: str, task: Task, advance: Advance) -> dict[str, Any]:
    opened, _ = _open_translator(opening)
    terms = [Term(*term) for term in json.loads(opening)["glossary"]]
    watch, read = Stopwatch(), LineCounts()
    buffers = _Buffers(opened.translator.with_glossary(terms).timed_by(watch), advance, watch)
    directory, name = Path(task.directory), task.source.name
    if not directory.is_dir():
        raise ArtifactError(
            f"{directory}: is not there; every worker must see the same directory, on a file "
            "system that they share"
        )
    task.source.check()
    # Processes of two machines may have one number
    with written_aside(directory / task.shard.file, among_machines=True) as aside:
        try:
            if task.source.kind in LINE_KINDS:
                _translate_lines(task, aside, buffers, read)
            else:
                _translate_tables(task, aside, buffers)
        except DataError as error:
            is_of_line = str(error).startswith("line ")  # the translator knows no files
            raise DataError(f"{name}, {error}" if is_of_line else str(error)) from None
        task.source.check()  # it may have changed while it was read
        if buffers.counts.lines != task.shard.rows:
            raise DataError(f"{name}: has changed; run the command again")
        sha256, n_bytes = hash_file(aside), aside.stat().st_size
    totals = {name: getattr(buffers.counts, name) for name in COUNTS_OF_TRANSLATIONS}
    counts = {**totals, "not_utf8": read.not_utf8}
    watch.lap("writing")
    facts: ShardFacts = {"sha256": sha256, "bytes": n_bytes, "counts": counts}
    return {**facts, TIMES: watch.seconds}


def _translate_lines(task: Task, path: Path, buffers: _Buffers, read: LineCounts) -> None:
    rows, kind = read_rows(task, read), task.source.kind
    first = task.shard.first
    with path.open("wb") as file:
        file.write(header_of(task))
        while buffer := list(islice(rows, buffers.rows)):
            # Rows without a text keep their place, and their translation is dropped
            lines = [(line, row.demands) for row in buffer for line in row.lines[::2]]
            texts, demands = [line for line, _ in lines], [demand for _, demand in lines]
            translated = iter(buffers.translate(texts, first, demands))
            buffers.counts.lines -= len(lines) - len(buffer)  # a row counts once
            for row in buffer:
                translations = list(islice(translated, len(row.lines[::2])))
                line = without_surrogates(write_row(row, translations, kind, task.fields))
                file.write(line.encode() + b"\n")
            buffers.watch.lap("writing")
            first += len(buffer)


def _translate_tables(task: Task, path: Path, buffers: _Buffers) -> None:
    from tformer_cli.plugins.corpora_tools.bulk import tables

    first, translated = task.shard.first, []
    for table in tables.read_tables(task, buffers.rows):
        texts = tables.texts_of(table, task.fields)
        best = [
            None if text is None else translation.hypotheses[0]
            for text, translation in zip(
                texts, buffers.translate([text or "" for text in texts], first), strict=True
            )
        ]
        translations = [None if hypothesis is None else hypothesis.text for hypothesis in best]
        scores = [None if hypothesis is None else hypothesis.score for hypothesis in best]
        translated.append(tables.with_translations(table, translations, scores, task.fields))
        buffers.watch.lap("writing")
        first += len(texts)
    tables.write_tables(path, translated, task.source)
