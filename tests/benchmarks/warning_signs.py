"""Warning signs that need no model, on translations whose errors people annotated.

    python -m tests.benchmarks.warning_signs CORPUS VOCABULARY

CORPUS is annotated_corpus.csv and VOCABULARY sentencepiece.joint.bpe.model of Guerreiro et al.
2023, "Looking for a Needle in a Haystack" (github.com/deep-spin/hallucinations-in-nmt): German to
English, chosen by detectors from millions of lines, so that errors are far more frequent than in
ordinary text. For each sign of `translate --flags` and each kind of error: how many lines have the
sign, which share of them has the error (precision), and which share of the errors it finds.
"""

import csv
import sys
from pathlib import Path

from sentencepiece import SentencePieceProcessor

from tformer_cli.search.formats import (
    LARGEST_EXTRA,
    LARGEST_RATIO,
    SMALLEST_RATIO,
    _least_share,
    repeats,
)

UNSUPPORTED = ("strong-unsupport", "full-unsupport")
ERRORS = {
    "oscillation": ("repetitions",),
    "detached": UNSUPPORTED,
    "hallucination": ("repetitions", *UNSUPPORTED),
    "omission": ("omission",),
}


def signs_of(source, translation, encode):
    """Computes the signs as `flags_of` does, from tokens of the vocabulary and an end."""
    source_ids, ids = encode(source), encode(translation)
    n_source, n_target = len(source_ids) + 1, len(ids) + 1
    return {
        "repetition": repeats(ids) and not repeats(source_ids),
        "length": n_target > LARGEST_RATIO * n_source + LARGEST_EXTRA
        or n_target < SMALLEST_RATIO * n_source,
        "dropped": n_target < n_source and n_target < n_source * _least_share(source, translation),
    }


def main(corpus, vocabulary):
    """Prints a line for each sign and each error."""
    encode = SentencePieceProcessor(model_file=vocabulary).encode
    with Path(corpus).open(encoding="utf-8", newline="") as stream:
        rows = [row for row in csv.DictReader(stream) if row["repetitions"] in ("0", "1")]
    signs = [signs_of(row["src"], row["mt"], encode) for row in rows]
    print(f"{len(rows)} lines")  # noqa: T201
    for name in (*signs[0], "any"):
        has_sign = [any(sign.values()) if name == "any" else sign[name] for sign in signs]
        for error, columns in ERRORS.items():
            has_error = [any(row[column] == "1" for column in columns) for row in rows]
            n_both = sum(a and b for a, b in zip(has_sign, has_error, strict=True))
            print(  # noqa: T201
                f"{name:<12}{error:<15}{sum(has_sign):>5} signs  "
                f"precision {n_both / max(1, sum(has_sign)):5.1%}  "
                f"recall {n_both / max(1, sum(has_error)):5.1%} of {sum(has_error)}"
            )


if __name__ == "__main__":
    main(*sys.argv[1:])
