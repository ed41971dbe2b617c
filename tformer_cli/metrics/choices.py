"""Names of metrics, tokenizers and tests; free of sacreBLEU, so that a command can list them."""

from enum import StrEnum
from typing import Literal


class MetricName(StrEnum):
    """Metrics of translations."""

    bleu = "bleu"
    chrf = "chrf"
    ter = "ter"
    comet = "comet"


Tokenization = Literal[
    "13a",
    "intl",
    "char",
    "zh",
    "none",
    "flores101",
    "flores200",
    "spBLEU-1K",
    "ja-mecab",
    "ko-mecab",
]
TestName = Literal["paired-bootstrap", "paired-approximate-randomization"]
"""Tests of significance: Koehn 2004; Riezler & Maxwell 2005."""
