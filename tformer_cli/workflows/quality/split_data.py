"""A corpus split into files for training, validation and testing that share no sentence."""

from array import array
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tformer_cli.data.config import CorpusConfig
from tformer_cli.data.corpora import text_files
from tformer_cli.data.quality.examine import Progress, progress_after
from tformer_cli.data.quality.keys import keys_of_pair
from tformer_cli.data.quality.minhash import near_duplicates, signatures_of_texts
from tformer_cli.data.quality.splitting import TEST, TRAIN, VALID, assign, labels_of_similar
from tformer_cli.files.atomic import directory_aside
from tformer_cli.workflows.quality.clean_data import (
    REPORT,
    check_output,
    corpus_of_files,
    report_text,
    text_outputs,
)
from tformer_cli.workflows.quality.given import GivenData, ending_of

SCHEMA = "tformer.datasplit/1"
SETS = {TRAIN: "train", VALID: "valid", TEST: "test"}


@dataclass(frozen=True, kw_only=True)
class SplitReport:
    """What went where."""

    pairs: dict[str, int]
    """Pairs of each set."""
    seed: int
    files: list[str]
    not_utf8: int = 0
    """Lines with bytes that are not UTF-8, which U+FFFD stands for in what is written."""

    def summary(self) -> dict[str, Any]:
        """The report as an object for JSON."""
        return {"schema": SCHEMA, **vars(self)}


def split_data(
    given: GivenData,
    output: Path,
    *,
    n_valid: int,
    n_test: int,
    near: bool = False,
    seed: int = 1,
    progress: Progress | None = None,
) -> SplitReport:
    """Writes a corpus as three, whole or not at all; lines are kept as by `clean_data`.

    No two sets have the same source or the same target, apart from case, punctuation and spaces;
    with `near`, nor nearly the same one.
    """
    corpus = corpus_of_files(given)
    check_output(output, SCHEMA)
    corpora = given.corpora(keeps_rows=True)
    keys = array("Q")
    texts = given.kind.texts
    both = texts if len(texts) == 2 else texts * 2  # a label or no source links no examples
    with ExitStack() as stack:
        similar = [stack.enter_context(near_duplicates()) for _ in texts if near]
        for _, chunk in corpora.chunks(progress):
            for record in chunk:
                of_sides = keys_of_pair(*record.pair)[1:]
                keys.extend(of_sides[place] for place in both)
            for place, one in zip(texts, similar, strict=False):
                one.add_signatures(signatures_of_texts([record.pair[place] for record in chunk]))
        of_pairs = np.frombuffer(keys, dtype=np.uint64).reshape(-1, 2).T
        if near:
            labels = labels_of_similar(similar, len(of_pairs[0]))
            of_pairs = np.concatenate([of_pairs, labels[np.newaxis].astype(np.uint64)])
        sets = assign(of_pairs, n_valid, n_test, seed)
    names = {number: [f"{name}{end}" for end in _endings(corpus)] for number, name in SETS.items()}
    files = [name for some in names.values() for name in some]
    with directory_aside(output) as aside:
        with text_outputs([aside / name for name in files]) as streams:
            n_sides, place = len(names[TRAIN]), 0
            for _, chunk in corpora.chunks(progress_after(len(sets), progress)):
                for record in chunk:
                    first = int(sets[place]) * n_sides
                    for number, line in enumerate(record.lines):
                        streams[first + number].write(line + "\n")
                    place += 1
        counts = Counter(sets.tolist())
        found = SplitReport(
            pairs={name: counts[number] for number, name in SETS.items()},
            seed=seed,
            files=files,
            not_utf8=corpora.counts.not_utf8,
        )
        (aside / REPORT).write_bytes(report_text(found.summary()))
    return found


def _endings(corpus: CorpusConfig) -> list[str]:
    """Endings of the files: those of the corpus's, else its sides."""
    if corpus.dataset:
        return [".jsonl"]
    endings = [ending_of(file) for file in text_files(corpus)]
    if len(endings) == 1:
        return [endings[0] or ".txt"]
    if len(set(endings)) < len(endings) or not all(endings):
        return [".source", ".target"]
    return endings
