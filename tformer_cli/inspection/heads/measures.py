"""The metrics of a head by name; the selection of heads reads them, and imports no torch."""

from typing import NamedTuple


class Measure(NamedTuple):
    """Plain name of a number, and its meaning."""

    label: str
    """Its name in plain words, as a heading of a table."""
    meaning: str
    """Meaning, in a sentence without a period."""


METRICS: dict[str, Measure] = {
    "entropy": Measure(
        "spread, in nats", "How widely a row spreads over the keys: 0 is one single key"
    ),
    "entropy_norm": Measure(
        "spread",
        "How widely a row spreads over the keys: 0 is one single key, 1 is all visible keys alike",
    ),
    "confidence": Measure(
        "largest weight", "The largest weight of a row, on average; the end of sentence not counted"
    ),
    "prev": Measure("on the token before", "Average weight on the token just before"),
    "self": Measure("on the token itself", "Average weight on the token itself"),
    "next": Measure("on the token after", "Average weight on the token just after"),
    "prev_argmax": Measure(
        "points to the token before", "Share of rows whose largest weight is on the token before"
    ),
    "self_argmax": Measure(
        "points to itself", "Share of rows whose largest weight is on the token itself"
    ),
    "next_argmax": Measure(
        "points to the token after", "Share of rows whose largest weight is on the token after"
    ),
    "rare_argmax": Measure(
        "points to a rare word",
        "Share of rows whose largest weight is on one of the sentence's two rarest tokens",
    ),
    "distance": Measure(
        "distance",
        "How far away it looks on average: in tokens, in cross-attention as a share of the whole",
    ),
    "diagonality": Measure(
        "follows word order",
        "How closely later target words look at later source words: 1 is along the diagonal",
    ),
    "monotonicity": Measure(
        "never goes back",
        "Share of rows whose largest weight is not further left than that of the row before",
    ),
    "sink_eos": Measure(
        "on the end of sentence", "Average weight on the source's end of sentence, a place to rest"
    ),
    "sink_bos": Measure(
        "on the start of sentence",
        "Average weight on the target's start of sentence, a place to rest",
    ),
    "memory": Measure(
        "on the memory", "Average weight on tokens of earlier segments, of rows that have any"
    ),
}
"""Every metric with its plain name and what it says, in the order of the output."""
