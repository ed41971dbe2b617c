"""A corpus without its doubtful pairs, and a record of each that was dropped."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from tformer_cli.data.config import CorpusConfig
from tformer_cli.data.corpora import text_files
from tformer_cli.data.quality.checks import CHECKS, DEFAULT, DROPPING
from tformer_cli.data.quality.examine import (
    Judged,
    Progress,
    judge,
    progress_after,
    survey,
)
from tformer_cli.data.quality.facts import Limits
from tformer_cli.data.quality.kinds import CorpusKind
from tformer_cli.errors import UsageError
from tformer_cli.files.atomic import directory_aside
from tformer_cli.files.regular_file import MIB, read_regular
from tformer_cli.workflows.quality.given import GivenData, plain_name

SCHEMA = "tformer.dataclean/1"
REPORT, DROPPED = "report.json", "dropped.jsonl"
"""Files beside the kept pairs: counts, and a line for each dropped pair."""


@dataclass(frozen=True, kw_only=True)
class CleanReport:
    """What was kept and dropped."""

    kind: str
    """What examples are: "pairs", "labeled" texts or "texts"."""
    pairs: int
    kept: int
    checks: dict[str, int]
    """Pairs that each check found; a pair may have several."""
    files: Sequence[str]
    """Names of the files with the kept pairs."""
    not_utf8: int = 0
    """Lines with bytes that are not UTF-8, which U+FFFD stands for in what is written."""

    def summary(self) -> dict[str, Any]:
        """The report as an object for JSON."""
        return {"schema": SCHEMA, **vars(self), "dropped": self.pairs - self.kept}


def clean_data(
    given: GivenData,
    output: Path,
    *,
    dropping: frozenset[str] = DEFAULT & DROPPING,
    limits: Limits | None = None,
    progress: Progress | None = None,
) -> CleanReport:
    """Writes the pairs that no check finds doubtful, whole or not at all.

    Lines are kept as they are, all columns and fields included, in their order. The directory
    also holds `dropped.jsonl`, an object for each dropped pair with its line and the reasons, and
    `report.json`.

    Args:
        given: a corpus of text files.
        output: directory to write; it must not exist, be empty or be an earlier output.
        dropping: checks for which a pair is dropped.
        limits: of lengths.
        progress: called with the number of pairs read, of both passes.

    Raises:
        UsageError: if the directory holds other files, or the corpus has no text files.
        DataError: if the corpus cannot be read.
        ArtifactError: if the directory cannot be written.
    """
    corpus = corpus_of_files(given)
    check_output(output)
    corpora = given.corpora()
    counts: Counter[str] = Counter()
    names, n_kept = output_names(corpus), 0
    with (
        directory_aside(output) as aside,
        survey(corpora, dropping, limits or Limits(), progress) as surveyed,
    ):
        second = progress_after(surveyed.n_pairs, progress)
        with text_outputs([*(aside / name for name in names), aside / DROPPED]) as files:
            for one in judge(corpora, surveyed, dropping, dropping, given.held_out, second):
                counts.update(one.found.keys())
                n_kept += not one.found
                if one.found:
                    files[-1].write(_dropped_line(one, given.kind))
                    continue
                for file, line in zip(files[:-1], one.record.lines, strict=True):
                    file.write(line + "\n")
        found = CleanReport(
            kind=given.kind.name,
            pairs=surveyed.n_pairs,
            kept=n_kept,
            checks={name: counts[name] for name in CHECKS if name in dropping},
            files=names,
            not_utf8=corpora.counts.not_utf8,
        )
        write_report(aside, found.summary())
    return found


def corpus_of_files(given: GivenData) -> CorpusConfig:
    """Returns the only corpus.

    Raises:
        UsageError: if a recipe was given, which has several that lie anywhere.
    """
    if given.is_recipe:
        raise UsageError("FILE…: is a recipe; name the files of one of its corpora")
    return given.data.train[0]


def output_names(corpus: CorpusConfig) -> list[str]:
    """Names of the files that the pairs of a corpus are written to: those of its own files."""
    names = [plain_name(file) for file in text_files(corpus)]
    if len(set(names)) < len(names) or {REPORT, DROPPED} & set(names):
        return [f"{side}.{name}" for side, name in zip(("source", "target"), names, strict=False)]
    return names


def check_output(output: Path) -> None:
    """Checks that a directory holds nothing that would be lost.

    Raises:
        UsageError: if it holds files which this program did not write.
    """
    if not output.is_dir() or not any(output.iterdir()):
        return
    try:
        report = json.loads(read_regular(output / REPORT, MIB))
        is_ours = str(report["schema"]).startswith("tformer.data")
        is_ours = is_ours and {one.name for one in output.iterdir()} <= {
            *report["files"], REPORT, DROPPED
        }  # fmt: skip
    except (OSError, ValueError, RecursionError, KeyError, TypeError):
        is_ours = False
    if not is_ours:
        raise UsageError(f"--output: {output} holds other files; name a new directory")


@contextmanager
def text_outputs(paths: Sequence[Path]) -> Iterator[list[TextIO]]:
    """Opens files for writing lines."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(path.open("w", encoding="utf-8", newline="\n")) for path in paths
        ]


def write_report(directory: Path, summary: dict[str, Any]) -> None:
    """Writes `report.json`."""
    text = json.dumps(summary, ensure_ascii=False, indent=2) + "\n"
    (directory / REPORT).write_text(text, encoding="utf-8", newline="\n")


def _dropped_line(one: Judged, kind: CorpusKind) -> str:
    pair = kind.named(one.record.pair)
    record = {"line": one.record.number, "checks": one.found, **pair}
    return json.dumps(record, ensure_ascii=False) + "\n"
