"""Two passes over corpora: one learns their facts, the other judges each pair."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

import numpy as np

from tformer_cli.errors import DataError
from tformer_cli.plugins.corpora_tools.quality.checks import (
    DUPLICATE,
    EMPTY,
    HELD_OUT,
    MALFORMED,
    NEAR_DUPLICATE,
    OTHER_LABEL,
    REPEATED_SOURCE,
    REPEATED_TARGET,
    SCORE,
    checks_for,
    findings_of,
)
from tformer_cli.plugins.corpora_tools.quality.facts import (
    LABELED,
    PAIRS,
    CorpusFacts,
    CorpusKind,
    Detector,
    Sample,
    estimate_facts,
)
from tformer_cli.plugins.corpora_tools.quality.minhash import HeldOut, NearDuplicates
from tformer_cli.plugins.corpora_tools.quality.model_scores import ModelScores
from tformer_cli.plugins.corpora_tools.quality.repeats import (
    NEVER,
    KeyFiles,
    Keys,
    Repeated,
    keys_of_pair,
)
from tformer_cli.plugins.corpora_tools.quality.settings import CheckSettings
from tformer_cli.text.config import CorpusConfig
from tformer_cli.text.corpora import CorpusRecord, read_records
from tformer_cli.text.lines import LineCounts

CHUNK = 4096
"""Pairs that are read together."""
REPEATS = (DUPLICATE, REPEATED_SOURCE, REPEATED_TARGET)
"""Checks of repeats, in the order of the keys of a pair."""
# Bits of a place that hold the line; those above hold the corpus.
CORPUS_BITS = 40

Progress = Callable[[int], None]


@dataclass(frozen=True, kw_only=True)
class Corpora:
    """Corpora that are examined together, one after another."""

    configs: Sequence[CorpusConfig]
    directory: str = ""
    languages: tuple[str, str] = ("", "")
    """Codes of source and target language; empty: unknown."""
    kind: CorpusKind = PAIRS
    held_out: HeldOut = field(default_factory=HeldOut)
    settings: CheckSettings = field(default_factory=CheckSettings)
    detector: Detector | None = None
    """Detects languages; None: scripts and common words decide."""
    scores: ModelScores | None = None
    keeps_rows: bool = False
    """True if the examples of datasets have their rows as lines, as those of text files do."""
    counts: LineCounts = field(default_factory=LineCounts)
    """Counts of the last pass."""

    def chunks(
        self, progress: Progress | None = None, n_read: int = 0, *, with_faults: bool = False
    ) -> Iterator[tuple[int, list[CorpusRecord]]]:
        """Yields examples of all corpora, some thousands together, with the corpus's number."""
        # each pass reads all lines anew; counts are those of one
        self.counts.lines = self.counts.not_utf8 = 0
        for number, config in enumerate(self.configs):
            records = read_records(
                config,
                self.directory,
                self.counts,
                whole_rows=self.keeps_rows,
                with_faults=with_faults,
            )
            is_first = True
            with closing(records):
                while chunk := list(islice(records, CHUNK)):
                    if is_first and all(record.fault for record in chunk):
                        raise DataError(
                            chunk[0].fault
                        )  # the options are wrong, not this many lines
                    is_first = False
                    yield number, chunk
                    n_read += len(chunk)
                    if progress is not None:
                        progress(n_read)


class Judged(NamedTuple):
    """An example with the findings of checks."""

    corpus: int
    """Number of its corpus, from 0."""
    record: CorpusRecord
    reasons: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class Survey:
    """Result of a first pass."""

    facts: CorpusFacts
    repeated: Sequence[Repeated]
    """Keys of pairs, sources and targets that occur more than once."""
    n_pairs: int
    near: NearDuplicates | None = None
    """Pairs that are nearly the same; None: they are not looked for."""


class Earlier:
    """Findings of an earlier run in the first pairs of a corpus."""

    def __init__(self, n_pairs: int, findings: Iterator[tuple[int, dict[str, str]]]) -> None:
        self.n_pairs = n_pairs
        self._findings = findings
        self._next = next(findings, None)

    def of(self, line: int) -> dict[str, str]:
        """Returns the findings in a line; callers ask for lines in order."""
        if self._next is None or self._next[0] != line:
            return {}
        checks = self._next[1]
        self._next = next(self._findings, None)
        return checks


@contextmanager
def survey(
    corpora: Corpora, wanted: frozenset[str], progress: Progress | None = None
) -> Iterator[Survey]:
    """Reads corpora once, and holds what was learned until they have been judged."""
    sample, n_pairs = Sample(), 0
    with ExitStack() as stack:
        files = stack.enter_context(closing(KeyFiles(len(REPEATS))))
        near = None
        if NEAR_DUPLICATE in wanted:
            near = stack.enter_context(closing(NearDuplicates()))
        for _, chunk in corpora.chunks(progress, with_faults=MALFORMED in wanted):
            # before hours of work: scores of another corpus show in its first pairs
            if n_pairs == 0 and corpora.scores is not None:
                corpora.scores.check_pairs([record.pair for record in chunk])
            n_pairs += len(chunk)
            for record in chunk:
                if not record.fault:
                    sample.add(record.pair)
            if not wanted.isdisjoint({*REPEATS, OTHER_LABEL}):
                files.add(_keys(chunk))
            if near is not None:
                near.add([record.pair for record in chunk])
        # only keys that recur stay in memory, sixteen bytes each, for the second pass to look up
        repeated = files.find_repeats()
        if near is not None:
            near.finish()
        if corpora.scores is not None:
            corpora.scores.check_length(n_pairs)
        facts = estimate_facts(
            sample.pairs, corpora.languages, corpora.kind, corpora.detector, corpora.settings
        )
        yield Survey(facts=facts, repeated=repeated, n_pairs=n_pairs, near=near)


def judge(
    corpora: Corpora,
    surveyed: Survey,
    wanted: frozenset[str],
    dropping: frozenset[str],
    progress: Progress | None = None,
    earlier: Earlier | None = None,
) -> Iterator[Judged]:
    """Yields every example with the findings of checks."""
    # Only examples that no other check would drop count as the first of equal ones, so that one of
    # them is kept.
    held_out, kind, several = corpora.held_out, corpora.kind, len(corpora.configs) > 1
    compared = {*REPEATS, OTHER_LABEL, NEAR_DUPLICATE}
    needs_keys = bool(held_out.keys) or not wanted.isdisjoint(compared)
    of_texts = [1 + place for place in kind.texts]
    names = " or the ".join(kind.sides[place] for place in kind.texts)
    exact = f"a held-out file has the {names}" if HELD_OUT in wanted else ""
    repeats = (DUPLICATE, OTHER_LABEL, "") if kind is LABELED else REPEATS
    named = wanted.intersection(repeats) & checks_for(kind)
    n_judged = 0
    n_before, with_faults = surveyed.n_pairs, MALFORMED in wanted
    for number, chunk in corpora.chunks(progress, n_before, with_faults=with_faults):
        places = [number << CORPUS_BITS | record.number for record in chunk]
        if surveyed.near is not None:
            surveyed.near.look_up(places)
        keys = _keys(chunk) if needs_keys else None
        slots = None if keys is None else _slots(surveyed.repeated, keys)
        texts = ([record.pair[place] for record in chunk] for place in kind.texts)
        like = [*map(held_out.nearly, texts)] if HELD_OUT in wanted else []
        for row, record in enumerate(chunk):
            if earlier is not None and n_judged + row < earlier.n_pairs:
                # an earlier run has judged it; only what it kept must be seen again, for those that
                # follow
                reasons = earlier.of(record.number)
                if slots is not None and EMPTY not in reasons and dropping.isdisjoint(reasons):
                    _see(surveyed, slots[row], row, places[row])
                yield Judged(number, record, reasons)
                continue
            if record.fault:
                # the report names file and line itself
                why = record.fault.partition(f" {record.number}: ")[2]
                yield Judged(number, record, {MALFORMED: why or record.fault})
                continue
            reasons = dict(findings_of(record.pair, surveyed.facts, wanted))
            if SCORE in wanted and EMPTY not in reasons and corpora.scores is not None:
                reasons |= corpora.scores.find(n_judged + row)
            if keys is not None and slots is not None and EMPTY not in reasons:
                if not held_out.keys.isdisjoint(keys[of_texts, row].tolist()):
                    reasons |= {HELD_OUT: exact} if exact else {}
                elif like and (why := _nearly_held_out([side[row] for side in like], kind)):
                    reasons[HELD_OUT] = why
                # a pair that is dropped anyway must not make an equal good one a repeat
                if dropping.isdisjoint(reasons):
                    reasons |= _before(slots[row], surveyed.repeated, repeats, named, several)
                    if surveyed.near is not None and dropping.isdisjoint(reasons):
                        reasons |= _nearly(surveyed.near, row, several=several)
                    if dropping.isdisjoint(reasons):
                        _see(surveyed, slots[row], row, places[row])
            yield Judged(number, record, reasons)
        n_judged += len(chunk)


def _keys(chunk: Sequence[CorpusRecord]) -> Keys:
    """Keys of pairs, sources and targets: (3, pairs)."""
    return np.array([keys_of_pair(*record.pair) for record in chunk], dtype=np.uint64).T


def _slots(repeated: Sequence[Repeated], keys: Keys) -> list[list[int]]:
    rows = [table.slots(row) for table, row in zip(repeated, keys, strict=True)]
    slots: list[list[int]] = np.stack(rows, axis=1).tolist()
    return slots


def _before(
    slots: Sequence[int],
    repeated: Sequence[Repeated],
    names: Sequence[str],
    wanted: frozenset[str],
    several: bool,
) -> dict[str, str]:
    """Compares an example with those before it; an equal pair gets no other finding."""
    reasons = {}
    for name, slot, table in zip(names, slots, repeated, strict=True):
        first = NEVER if slot < 0 or name not in wanted else table.first(slot)
        if first != NEVER:
            reasons[name] = f"as {_name_line(first, several=several)}"
            # the same pair has the same sides: saying so again would count them as repeats
            if name == DUPLICATE:
                break
    return reasons


def _nearly(near: NearDuplicates, row: int, *, several: bool) -> dict[str, str]:
    before = near.before(row)
    if before is None:
        return {}
    place, similarity = before
    return {NEAR_DUPLICATE: f"{similarity:.0%} like {_name_line(place, several=several)}"}


def _nearly_held_out(similarities: Sequence[float], kind: CorpusKind) -> str:
    """Names the text of an example that is most like a held-out one, if one is."""
    place, most = max(zip(kind.texts, similarities, strict=True), key=lambda pair: pair[1])
    return f"{kind.sides[place]} is {most:.0%} like a held-out sentence" if most else ""


def _see(surveyed: Survey, slots: Sequence[int], row: int, place: int) -> None:
    """Remembers a kept example, for those that follow."""
    for slot, table in zip(slots, surveyed.repeated, strict=True):
        if slot >= 0:
            table.see(slot, place)
    if surveyed.near is not None:
        surveyed.near.see(row)


def _name_line(place: int, *, several: bool) -> str:
    of = f" of corpus {(place >> CORPUS_BITS) + 1}" if several else ""
    return f"line {place & ((1 << CORPUS_BITS) - 1):,}{of}"
