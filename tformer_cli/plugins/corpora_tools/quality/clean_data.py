"""A corpus without its doubtful pairs, and a record of each that was dropped."""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

from tformer_cli.artifacts.resumable import ResumableFiles, resumable_directory
from tformer_cli.errors import ArtifactError, UsageError
from tformer_cli.files.regular_file import MIB, read_regular
from tformer_cli.plugins.corpora_tools.quality.checks import CHECKS, DEFAULT, DROPPING
from tformer_cli.plugins.corpora_tools.quality.examine import (
    Earlier,
    Judged,
    Progress,
    judge,
    survey,
)
from tformer_cli.plugins.corpora_tools.quality.given import GivenData, options_of_fields
from tformer_cli.text.config import CorpusConfig
from tformer_cli.text.corpora import format_of, text_files
from tformer_cli.text.lines import plain_name
from tformer_cli.version import __version__

SCHEMA = "tformer.dataclean/1"
# Next to the files of kept pairs: counts, and a line for each dropped pair.
REPORT, DROPPED = "report.json", "dropped.jsonl"
# Pairs after which the output is marked: some seconds of work.
MARK_EVERY = 1 << 16


@dataclass(frozen=True, kw_only=True)
class CleanReport:
    """Counts of kept and dropped pairs."""

    kind: str
    """Kind of examples: "pairs", "labeled" texts or "texts"."""
    pairs: int
    kept: int
    checks: dict[str, int]
    """Pairs that each check found; a pair may have several."""
    files: Sequence[str]
    not_utf8: int = 0
    """Lines with bytes that are not UTF-8, which U+FFFD stands for in what is written."""

    def summary(self) -> dict[str, Any]:
        return {"schema": SCHEMA, **vars(self), "dropped": self.pairs - self.kept}


def clean_data(
    inputs: GivenData,
    output: Path,
    *,
    dropping: frozenset[str] = DEFAULT & DROPPING,
    progress: Progress | None = None,
    on_resume: Callable[[int], None] | None = None,
) -> CleanReport:
    """Writes the pairs that no check finds doubtful, whole or not at all, as their lines were."""
    corpus = corpus_of_files(inputs)
    check_output(output, SCHEMA)
    names = output_names(corpus)
    origin = _origin(corpus, inputs, dropping)
    with resumable_directory(output, [*names, DROPPED, REPORT], origin) as files:
        if files.done and on_resume is not None:
            on_resume(files.done)
        report = _clean(inputs, files, dropping, progress)
        files.streams[-1].write(report_text(report.summary()))
    return report


def _clean(
    inputs: GivenData,
    files: ResumableFiles,
    dropping: frozenset[str],
    progress: Progress | None,
) -> CleanReport:
    """Writes the rest of the kept pairs, and of the reasons why others were dropped."""
    corpora, n_kept = replace(inputs, keeps_rows=True), 0
    counts: Counter[str] = Counter()
    *kept, dropped, _ = files.streams
    n_before = files.done
    with survey(corpora, dropping, progress) as surveyed:
        earlier = Earlier(n_before, _findings_in(dropped)) if n_before else None
        judged = judge(corpora, surveyed, dropping, dropping, progress, earlier)
        for number, example in enumerate(judged, start=1):
            counts.update(example.reasons.keys())
            n_kept += not example.reasons
            if number <= n_before:
                continue
            if example.reasons:
                dropped.write(_dropped_line(example, inputs))
            else:
                for stream, line in zip(kept, example.record.lines, strict=True):
                    stream.write(line.encode() + b"\n")
            # waiting for the disk after each pair would take most of the time
            if number % MARK_EVERY == 0:
                files.mark(number)
        return CleanReport(
            kind=inputs.kind.name,
            pairs=surveyed.n_pairs,
            kept=n_kept,
            checks={name: counts[name] for name in CHECKS if name in dropping},
            files=output_names(corpora.configs[0]),
            not_utf8=corpora.counts.not_utf8,
        )


def _origin(corpus: CorpusConfig, inputs: GivenData, dropping: frozenset[str]) -> dict[str, str]:
    """Inputs and settings that decide which pairs are kept, by name."""
    # by content: a file that was renamed is the same, one that was changed is not
    held_out = hashlib.sha256(repr(sorted(inputs.held_out.keys)).encode()).hexdigest()
    settings = inputs.settings
    scores = b"" if inputs.scores is None else inputs.scores.values.tobytes()
    return {
        "corpus": " ".join(format_of(corpus).content(corpus, inputs.data.directory)),
        "fields": str(options_of_fields(corpus, inputs.kind)),
        "languages": f"{inputs.languages} {inputs.detector is not None}",
        "held-out": held_out,
        "scores": hashlib.sha256(scores).hexdigest(),
        "checks": f"{sorted(dropping)} {settings.max_characters} {settings.max_deviation}",
        "version": __version__,
    }


def _findings_in(dropped: BinaryIO) -> Iterator[tuple[int, dict[str, str]]]:
    """Reads the record of dropped pairs: their lines, and why."""
    with Path(dropped.name).open("rb") as stream:
        # behind it lies what this run writes
        end = dropped.tell()
        while stream.tell() < end:
            try:
                record = json.loads(stream.readline())
                finding = int(record["line"]), dict(record["checks"])
            except (ValueError, KeyError, TypeError, RecursionError):
                part = Path(dropped.name).parent
                raise ArtifactError(f"{part}: is damaged; remove it to start over") from None
            yield finding


def corpus_of_files(inputs: GivenData) -> CorpusConfig:
    if inputs.is_recipe:
        raise UsageError("FILE…: is a recipe; name the files of one of its corpora")
    return inputs.data.train[0]


def output_names(corpus: CorpusConfig) -> list[str]:
    """Names of the files that the pairs of a corpus are written to: those of its files."""
    if corpus.dataset:
        return [f"{Path(plain_name(corpus.dataset)).stem}.jsonl"]
    names = [plain_name(file) for file in text_files(corpus)]
    # two files of one name, or one named like the report, would replace each other
    if len(set(names)) < len(names) or {REPORT, DROPPED} & set(names):
        return [f"{side}.{name}" for side, name in zip(("source", "target"), names, strict=False)]
    return names


def check_output(output: Path, schema: str) -> None:
    """Checks that a directory holds nothing that would be lost."""
    if not output.is_dir() or not any(output.iterdir()):
        return
    try:
        report = json.loads(read_regular(output / REPORT, MIB))
        is_ours = report["schema"] == schema and {path.name for path in output.iterdir()} <= {
            *report["files"], REPORT, DROPPED
        }  # fmt: skip
    except (OSError, ValueError, RecursionError, KeyError, TypeError):
        is_ours = False
    if not is_ours:
        raise UsageError(f"--output: {output} holds other files; name a new directory")


def report_text(summary: dict[str, Any]) -> bytes:
    return json.dumps(summary, ensure_ascii=False, indent=2).encode() + b"\n"


def _dropped_line(example: Judged, inputs: GivenData) -> bytes:
    pair = inputs.kind.sides_by_name(example.record.pair)
    record = {"line": example.record.number, "checks": example.reasons, **pair}
    corpus = inputs.data.train[0]
    # so that a dropped example can be taken back as it was
    if not (corpus.source or corpus.text):  # a table may have more than the texts
        (record["row"],) = example.record.lines
    return json.dumps(record, ensure_ascii=False).encode() + b"\n"
