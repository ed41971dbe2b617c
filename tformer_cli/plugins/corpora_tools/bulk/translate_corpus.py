"""A whole corpus in numbered shards: each line once, in order, whoever is killed on the way."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Unpack

from tformer_cli.artifacts.config_file import CONFIG, SHORTLIST, TOKENIZER, WEIGHTS
from tformer_cli.artifacts.corpus_directory import CorpusDirectory, begun_corpus, corpus_directory
from tformer_cli.artifacts.job_file import Job, record_job
from tformer_cli.errors import TformerError
from tformer_cli.files.regular_file import hash_file, hash_tree
from tformer_cli.foreign.import_model import resolve_model
from tformer_cli.plugins.corpora_tools.bulk.line_files import unpack_source, unpacked_path
from tformer_cli.plugins.corpora_tools.bulk.plan import CorpusPlan, check_sources, plan_corpus
from tformer_cli.plugins.corpora_tools.bulk.processes import LocalProcesses
from tformer_cli.plugins.corpora_tools.bulk.shards import LINE_KINDS, Shard, Task
from tformer_cli.plugins.corpora_tools.bulk.translate_shard import TIMES, check_answer, opening
from tformer_cli.runtime import Stopwatch
from tformer_cli.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tformer_cli.artifacts.job_file import Spent
    from tformer_cli.plugins.corpora_tools.bulk.plan import GivenCorpus
    from tformer_cli.plugins.corpora_tools.bulk.shards import BulkEngine, Event, Running
    from tformer_cli.search.constraints import Term
    from tformer_cli.search.keywords import TranslatorOptions

WITHOUT_EFFECT = frozenset(
    {"device", "precision", "threads", "batch_tokens", "tell", "before_torch"}
)
"""Options that leave the results as they are, or of which what they came to is record_job."""


def origin_of(
    model: Path,
    corpus: GivenCorpus,
    plan: CorpusPlan,
    glossary: Sequence[Term],
    options: Mapping[str, Any],
    facts: Mapping[str, Any],
) -> dict[str, str]:
    """Returns the inputs and settings by their names, files by their content."""
    settings = {name: value for name, value in options.items() if name not in WITHOUT_EFFECT}
    origin = {name: json.dumps(value, default=str) for name, value in settings.items() if value}
    for name in ("adapter", "shortlist"):  # a path may have other content in the next run
        path = Path(str(options.get(name) or "none"))
        if path.exists():
            origin[name] = hash_tree(path, "*") if path.is_dir() else hash_file(path)
    if options.get("ensemble"):
        origin["ensemble"] = " ".join(_hash_model(Path(member)) for member in options["ensemble"])
    if corpus.part is not None:
        origin["shard"] = "{}/{}".format(*corpus.part)
    terms = [(term.source, term.target, term.is_banned) for term in glossary]
    return {
        **origin,
        "MODEL": _hash_model(model),
        "SOURCE": " ".join(source.content for source in plan.sources),
        "glossary": hashlib.sha256(json.dumps(terms).encode()).hexdigest() if terms else "",
        "source_field": corpus.fields.source,
        "target_field": corpus.fields.translation,
        "score_field": corpus.fields.score,
        "lines_per_shard": str(corpus.lines_per_shard),
        "precision": str(facts["precision"]),
        "device": str(facts["place"]).partition(":")[0],
    }


def _hash_model(model: Path) -> str:
    """Hashes the files of a model that translations depend on."""
    model = resolve_model(model)
    names = (CONFIG, TOKENIZER, WEIGHTS, SHORTLIST)
    hashes = [f"{name} {hash_file(model / name)}" for name in names if (model / name).is_file()]
    return hashlib.sha256("\n".join(hashes).encode()).hexdigest()


SCHEMA, COMMAND = "tformer.corpus/1", "translate-corpus"


@dataclass
class BulkState:
    """How far a corpus is; it changes as the work goes on."""

    total: int
    """Rows of the corpus."""
    begun: int
    """Rows that earlier runs have translated."""
    done: int = 0
    """Rows in shards that this run has finished."""
    running: dict[int, int] = field(default_factory=dict)
    """Rows that are translated of the shards that are not finished."""
    workers: dict[str, tuple[float, int]] = field(default_factory=dict)
    """Start time of each worker, and the rows that it has translated in whole shards."""
    at_work: dict[str, int] = field(default_factory=dict)
    """Rows of the shard that each worker has begun."""

    shard_times: dict[str, Mapping[str, float]] = field(default_factory=dict)
    """Time that each worker has spent on the shard that it has begun, by part."""
    free_since: dict[str, float] = field(default_factory=dict)
    """Time at which each worker was ready, or has finished its last shard."""

    def waiting(self, event: Event | None = None) -> float:
        """Returns the time since a worker's shard before, or of all workers at the end."""
        current = monotonic()
        if event is None:
            return sum(current - since for since in self.free_since.values())
        if event.kind in ("lost", "given up"):
            self.free_since.pop(event.worker, None)
        if event.kind == "rows":
            return 0.0
        before = self.free_since.get(event.worker, current - event.seconds)
        if event.kind in ("ready", "done"):
            self.free_since[event.worker] = current
        return current - before

    def new_times(self, event: Event, times: Mapping[str, float]) -> dict[str, float]:
        """Returns the time that a worker has spent on its shard since it was last heard of."""
        before = self.shard_times.pop(event.worker, {})
        if event.kind == "rows":
            self.shard_times[event.worker] = times
        return {part: seconds - before.get(part, 0.0) for part, seconds in times.items()}

    @property
    def rows(self) -> int:
        """Rows that are translated, with those of shards that are not finished."""
        return self.begun + self.done + sum(self.running.values())

    def rates(self) -> dict[str, float]:
        """Rows a second of each worker, since it was ready."""
        now = monotonic()
        return {
            name: (rows + self.at_work.get(name, 0)) / max(now - since, 1e-9)
            for name, (since, rows) in self.workers.items()
        }


@dataclass(frozen=True, kw_only=True)
class CorpusReport:
    """A corpus that is translated, or would be."""

    plan: CorpusPlan
    counts: Counter[str]
    """Lines that are translated, and those of them that were not UTF-8, split, truncated, or miss
    a phrase."""
    begun: int
    """Lines that were translated before."""
    facts: dict[str, Any]
    """Where and how the model computes."""
    seconds: float = 0.0
    """Time of the translation."""
    times: tuple[Spent, ...] = ()
    """Where the time of all workers went, with that of earlier runs."""


@dataclass(frozen=True, kw_only=True)
class BulkOptions:
    """How a corpus is translated, apart from the options of the translator."""

    workers: BulkEngine | None = None
    """The workers that translate the shards; None: processes of this machine."""
    glossary: Sequence[Term] = ()
    """Phrases that translations must or must not hold."""
    progress: Callable[[BulkState], None] | None = None
    """Called after each step of a worker."""
    scanned: Callable[[int], None] | None = None
    """Called with the lines read, while the sources are divided into shards."""


def translate_corpus(
    model: Path | str,
    corpus: GivenCorpus,
    output: Path,
    bulk: BulkOptions | None = None,
    **options: Unpack[TranslatorOptions],
) -> CorpusReport:
    """Translates sources into numbered shards of the same kind, all columns kept.

    A directory that an earlier run has begun with the same model, sources and options is continued.
    """
    bulk, tell = bulk or BulkOptions(), options.get("tell") or (lambda _: None)
    watch = Stopwatch()
    with _prepare_run(model, corpus, output, bulk, options, watch) as (running, plan, origin):
        files = [shard.file for shard in plan.shards]
        with corpus_directory(output, _about(plan), origin, files) as directory:
            for name in directory.damaged:
                tell(f"{output / name}: is missing or damaged; it is translated again")
            began, n_before = monotonic(), _totals(directory)["lines"]
            if n_before:
                tell(f"{output}: {n_before:,} of {plan.rows:,} lines done; resuming after them")
            job = Job(output, COMMAND, "lines", total=plan.rows, begun_at=n_before)
            with record_job(job):
                _run(running, plan, corpus, directory, bulk, tell, job, watch)
                directory.finish([_entry(shard, plan) for shard in plan.shards])
                for number in range(len(plan.sources)):
                    unpacked_path(output, number).unlink(missing_ok=True)
            return CorpusReport(
                plan=plan,
                counts=_totals(directory),
                begun=n_before,
                facts=running.facts,
                seconds=monotonic() - began,
                times=job.list_times(),
            )


def preview_corpus(
    model: Path | str,
    corpus: GivenCorpus,
    output: Path,
    bulk: BulkOptions | None = None,
    **options: Unpack[TranslatorOptions],
) -> CorpusReport:
    """Opens the model, reads the sources and looks into the directory; writes nothing.

    For arguments and errors see `translate_corpus`.
    """
    with _prepare_run(model, corpus, output, bulk or BulkOptions(), options, Stopwatch()) as (
        running,
        plan,
        origin,
    ):
        files = [shard.file for shard in plan.shards]
        totals = _totals(begun_corpus(output, _about(plan), origin, files))
        return CorpusReport(plan=plan, counts=totals, begun=totals["lines"], facts=running.facts)


@contextmanager
def _prepare_run(
    model: Path | str,
    corpus: GivenCorpus,
    output: Path,
    bulk: BulkOptions,
    options: TranslatorOptions,
    watch: Stopwatch,
) -> Iterator[tuple[Running, CorpusPlan, dict[str, str]]]:
    """Opens the model in a worker, and divides the sources."""
    tell = options.get("tell") or (lambda _: None)
    path = resolve_model(model, tell)
    check_sources(corpus, output)
    workers = bulk.workers or LocalProcesses(threads=options.get("threads", 0))
    with workers.start(opening(path, options, bulk.glossary)) as running:
        facts = running.facts
        by = "" if facts["engine"] == "tformer" else f" by {facts['engine']}"
        for note in [*facts["notes"], f"computing on {facts['place']} in {facts['precision']}{by}"]:
            tell(note)
        watch.lap("opening")
        plan = plan_corpus(corpus, bulk.scanned)
        watch.lap("reading")
        yield running, plan, origin_of(path, corpus, plan, bulk.glossary, options, running.facts)


def _totals(directory: CorpusDirectory) -> Counter[str]:
    totals: Counter[str] = Counter()
    for shard in directory.done.values():
        totals.update(shard["counts"])
    return totals


def _run(
    running: Running,
    plan: CorpusPlan,
    corpus: GivenCorpus,
    directory: CorpusDirectory,
    bulk: BulkOptions,
    tell: Callable[[str], None],
    job: Job,
    watch: Stopwatch,
) -> None:
    """Has the shards translated that are not done."""
    progress = bulk.progress or (lambda _: None)
    state = BulkState(total=plan.rows, begun=_totals(directory)["lines"])
    progress(state)
    given_up: list[str] = []
    tasks = list(_tasks(plan, corpus, directory))
    watch.lap("reading")
    job.add(watch.seconds)
    job.report(state.rows, "translating")
    # An error in the loop must stop the workers, too
    with closing(running.run(tasks)) as events:  # type: ignore[type-var]
        for event in events:
            _follow(event, state, plan)
            waited, times = state.waiting(event), event.times
            if event.answer is not None:
                check_answer(event.answer)
                times = event.answer.pop(TIMES, {})
                job.add({"waiting": max(0.0, waited - sum(times.values()))})
                _check_shared(directory.path / plan.shards[event.number].file, event)
                directory.add(event.number, event.answer)  # type: ignore[arg-type]
            elif event.kind == "lost":
                file = plan.shards[event.number].file
                tell(f"worker {event.worker}: ended ({event.reason}); {file} is begun again")
            elif event.kind == "given up":
                given_up.append(f"{plan.shards[event.number].file} ({event.reason})")
            job.add(state.new_times(event, times))
            job.report(state.rows)
            progress(state)
    job.add({"waiting": state.waiting()})
    if given_up:
        raise TformerError(
            f"{directory.path}: every worker that began {', '.join(given_up)} has died; all other "
            "shards are done; run the command again, with fewer workers or a smaller batch"
        )


def _check_shared(file: Path, event: Event) -> None:
    """Checks that what a worker has written is here."""
    if not file.is_file():
        raise TformerError(
            f"{file}: worker {event.worker} has written it, but it is not here; name a directory "
            "on a file system that all workers share"
        )


def _follow(event: Event, state: BulkState, plan: CorpusPlan) -> None:
    """Counts what a worker has done."""
    # A cluster's worker is first heard of when a shard is done
    since, rows = state.workers.get(event.worker, (monotonic() - event.seconds, 0))
    if event.kind == "rows":
        state.running[event.number] = state.at_work[event.worker] = event.rows
    else:
        state.running.pop(event.number, None)
        state.at_work.pop(event.worker, None)
    if event.kind == "done":
        n_rows = plan.shards[event.number].rows
        state.done += n_rows
        rows += n_rows
    state.workers[event.worker] = since, rows
    if event.kind in ("lost", "given up"):
        del state.workers[event.worker]  # the rate of a dead worker would only fall


def _tasks(
    plan: CorpusPlan, corpus: GivenCorpus, directory: CorpusDirectory
) -> Iterator[tuple[int, Task]]:
    """The shards that are not done, from sources that can be read from their middle."""
    left = [number for number in range(len(plan.shards)) if number not in directory.done]
    needed = sorted({plan.shards[number].source for number in left})  # those done need no copy
    sources = {
        number: unpack_source(plan.sources[number], directory.path, number)
        if plan.sources[number].kind in LINE_KINDS
        else plan.sources[number]
        for number in needed
    }
    for number in left:
        shard = plan.shards[number]
        yield (
            number,
            Task(
                directory=str(directory.path.absolute()),
                shard=shard,
                source=sources[shard.source],
                fields=corpus.fields,
            ),
        )


def _about(plan: CorpusPlan) -> dict[str, Any]:
    """Head of the manifest."""
    return {
        "schema": SCHEMA,
        "tformer_version": __version__,
        "lines": plan.rows,
        "sources": [
            {"name": source.name, "kind": source.kind, "lines": source.rows}
            for source in plan.sources
        ],
    }


def _entry(shard: Shard, plan: CorpusPlan) -> dict[str, Any]:
    """The manifest's entry of a shard before it is done."""
    return {
        "file": shard.file,
        "source": plan.sources[shard.source].name,
        "first_line": shard.first,
        "lines": shard.rows,
    }
