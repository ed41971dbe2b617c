"""A report of doubtful examples in corpora, and commands that mend them."""

import shlex
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tformer_cli.errors import DataError
from tformer_cli.plugins.corpora_tools.quality.checks import (
    CHECKS,
    DEFAULT,
    DROPPING,
    DUPLICATE,
    HELD_OUT,
    NEAR_DUPLICATE,
    checks_for,
    written_out,
)
from tformer_cli.plugins.corpora_tools.quality.doubts import doubts_about
from tformer_cli.plugins.corpora_tools.quality.examine import Judged, Progress, judge, survey
from tformer_cli.plugins.corpora_tools.quality.facts import PAIRS, CorpusFacts, CorpusKind
from tformer_cli.plugins.corpora_tools.quality.given import GivenData, files_of, options_of_fields
from tformer_cli.show.document import Cell, Document, Note, Section, Sentence, Sentences, Table
from tformer_cli.text.config import CorpusConfig
from tformer_cli.text.corpora import corpus_name, text_files
from tformer_cli.wording import count_of

SCHEMA = "tformer.datacheck/1"


@dataclass
class CheckCount:
    """Examples that a check finds."""

    pairs: int = 0
    examples: list[Judged] = field(default_factory=list)
    """The first of them."""


@dataclass(frozen=True, kw_only=True)
class DataReport:
    """Findings in corpora."""

    corpora: Sequence[str]
    facts: CorpusFacts
    pairs: int
    """Examples of all corpora."""
    dropped: int
    """Examples that `tformer data clean` would drop."""
    not_utf8: int
    """Lines with bytes that are not UTF-8."""
    check_counts: dict[str, CheckCount]
    doubts: Sequence[str]
    """About corpora as a whole."""
    commands: Sequence[str]
    """Commands that mend them."""

    def summary(self) -> dict[str, Any]:
        """The report as an object for JSON; formats.md describes its fields."""
        facts = self.facts
        return {
            "schema": SCHEMA,
            "corpora": list(self.corpora),
            "kind": self.facts.kind.name,
            "pairs": self.pairs,
            "dropped": self.dropped,
            "not_utf8": self.not_utf8,
            "languages": list(facts.languages),
            "scripts": [sorted(side) for side in facts.scripts],
            "length_ratio": facts.ratio,
            "checks": [
                {
                    "check": name,
                    "meaning": CHECKS[name].means(facts.kind),
                    "drops": name in DROPPING,
                    "pairs": count.pairs,
                    "examples": [self._example(name, example) for example in count.examples],
                }
                for name, count in self.check_counts.items()
            ],
            "doubts": list(self.doubts),
            "commands": list(self.commands),
        }

    def _example(self, name: str, example: Judged) -> dict[str, Any]:
        return {
            "corpus": self.corpora[example.corpus],
            "line": example.record.number,
            **self.facts.kind.sides_by_name(example.record.pair),
            "why": example.reasons[name],
        }


def check_data(
    inputs: GivenData,
    *,
    wanted: frozenset[str] = DEFAULT,
    n_examples: int = 3,
    options: Sequence[tuple[str, str]] = (),
    progress: Progress | None = None,
) -> DataReport:
    """Reads corpora twice and reports doubtful examples."""
    data = inputs.data
    dropping = DROPPING & wanted
    counts = {name: CheckCount() for name in CHECKS if name in wanted}
    n_dropped = 0
    with survey(inputs, wanted, progress) as surveyed:
        for example in judge(inputs, surveyed, wanted, dropping, progress):
            n_dropped += not dropping.isdisjoint(example.reasons)
            for name in example.reasons:
                counts[name].pairs += 1
                if len(counts[name].examples) < n_examples:
                    counts[name].examples.append(example)
    if not surveyed.n_pairs:
        names = ", ".join(map(corpus_name, data.train))
        raise DataError(f"{names}: has no lines; give a text with some")
    # commands and doubts name files, which a corpus on the hub lacks
    files = [corpus for corpus in data.train if files_of(corpus, data.directory)]
    return DataReport(
        corpora=[corpus_name(corpus) for corpus in data.train],
        facts=surveyed.facts,
        pairs=surveyed.n_pairs,
        dropped=n_dropped,
        not_utf8=inputs.counts.not_utf8,
        check_counts=counts,
        doubts=[
            doubt
            for corpus in files
            if inputs.kind is PAIRS and text_files(corpus)
            for doubt in doubts_about(corpus, data)
        ],
        commands=list(_commands(files, inputs, counts, options)) if n_dropped else [],
    )


def _commands(
    files: Sequence[CorpusConfig],
    inputs: GivenData,
    counts: dict[str, CheckCount],
    options: Sequence[tuple[str, str]],
) -> Iterator[str]:
    dropping = {name for name, count in counts.items() if count.pairs and name in DROPPING}
    if inputs.is_recipe:
        options = [*options, *_options_of_recipe(inputs, counts)]
    # the shorter command, which a user can read at a glance
    if dropping <= {DUPLICATE, NEAR_DUPLICATE, HELD_OUT}:
        command = "dedupe"
        options = [option for option in options if option[0] in ("--near", "--held-out")]
    else:
        command = "clean"
        options = [*options, *_checks_of_clean(inputs.kind, counts)]
    written = [shlex.join(filter(None, option)) for option in options]
    for number, corpus in enumerate(files, start=1):
        names = [shlex.quote(inputs.path_of(f)) for f in files_of(corpus, inputs.data.directory)]
        fields = [shlex.join(pair) for pair in options_of_fields(corpus, inputs.kind) if pair[1]]
        output = "cleaned" if len(files) == 1 else f"cleaned-{number}"
        yield " ".join(["tformer data", command, *names, *fields, *written, "-o", output])


def _options_of_recipe(inputs: GivenData, wanted: Collection[str]) -> Iterator[tuple[str, str]]:
    """Options for the validation sentences and languages of a recipe."""
    if HELD_OUT in wanted:
        for corpus in inputs.data.valid:
            yield from (
                ("--held-out", inputs.path_of(f)) for f in files_of(corpus, inputs.data.directory)
            )
    if inputs.data.source_language:
        yield "--source-language", inputs.data.source_language
    if inputs.data.target_language and inputs.kind is PAIRS:
        yield "--target-language", inputs.data.target_language


def _checks_of_clean(kind: CorpusKind, wanted: Collection[str]) -> Iterator[tuple[str, str]]:
    """The option that makes `clean` drop for the wanted checks, where they are not its own."""
    usual = [name for name in CHECKS if name in DEFAULT & DROPPING & checks_for(kind)]
    chosen = [name for name in usual if name in wanted]
    others = [name for name in usual if name not in wanted]
    if len(others) > len(chosen):
        yield "--only", ",".join(chosen)
    elif others:
        yield "--without", ",".join(others)


LONGEST = 1000
"""Characters of a text that are shown."""


def report_document(report: DataReport) -> Document:
    """Counts of each check, examples under the name of their check, doubts, and commands."""
    kind = report.facts.kind
    doubtful = {name: count for name, count in report.check_counts.items() if count.pairs}
    counts = Table(
        title="Found",
        head=("check", f"{kind.noun}s", "share", "dropped", "meaning"),
        rows=tuple(
            (
                Cell(name, anchor=name if count.examples else ""),
                f"{count.pairs:,}",
                f"{count.pairs / report.pairs:.2%}",
                "yes" if name in DROPPING else "no",
                CHECKS[name].means(kind),
            )
            for name, count in doubtful.items()
        ),
        labels=(4,),
        texts=(0, 4),
    )
    # named, so that a reader sees which checks were made
    nothing = ", ".join(name for name in report.check_counts if name not in doubtful)
    notes = [
        Note(title="Nothing found by", lines=(nothing,) if nothing else ()),
        Note(title="Doubts", lines=tuple(map(_shorten, report.doubts))),
        Note(title="How to fix it", lines=tuple(map(_shorten, report.commands)), is_code=True),
    ]
    kept = report.pairs - report.dropped
    section = Section(
        title=", ".join(report.corpora),
        summary=f"{count_of(report.pairs, kind.noun)}; {kept:,} raise no doubt",
        tables=(counts,) if doubtful else (),
        notes=tuple(note for note in notes if note.lines),
        sentences=tuple(
            _examples(name, count, report) for name, count in doubtful.items() if count.examples
        ),
    )
    return Document(title="Checks", sections=[section])


def _examples(name: str, count: CheckCount, report: DataReport) -> Sentences:
    kind = report.facts.kind
    sentences = []
    for example in count.examples:
        # each corpus of a recipe counts its own lines
        where = f"{report.corpora[example.corpus]}, " if len(report.corpora) > 1 else ""
        texts = kind.sides_by_name(example.record.pair).items()
        sentences.append(
            Sentence(
                heading=f"{where}line {example.record.number:,}: {_shorten(example.reasons[name])}",
                texts=tuple((side, _shorten(text)) for side, text in texts),
            )
        )
    return Sentences(
        heading=name, text=CHECKS[name].means(kind), anchor=name, sentences=tuple(sentences)
    )


def _shorten(text: str) -> str:
    """A text of bounded length, its invisible characters written out."""
    # a line of a damaged file may have megabytes
    kept = text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
    return "\n".join(written_out(line) for line in kept.split("\n"))
