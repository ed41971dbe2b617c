"""Settings of scores and tests."""

# The command line reads this module at every start: it imports neither sacreBLEU nor torch.

from dataclasses import dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import Literal

from tformer_cli.errors import UsageError
from tformer_cli.settings import setting


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
# Tests of significance: Koehn 2004; Riezler & Maxwell 2005.
TestName = Literal["paired-bootstrap", "paired-approximate-randomization"]
COMET_MODEL = "Unbabel/wmt22-comet-da"
SEED = 12345
"""sacreBLEU's own."""
DEFAULT_METRICS = ("bleu", "chrf", "ter")


def record_key(measure: str) -> str:
    """Names a measure in JSON: "BLEU" and "chrF2" as `--metric` does, "macro F1" macro_f1."""
    return measure.lower().removesuffix("2").replace(" ", "_")


@dataclass(frozen=True, kw_only=True)
class ScoringSettings:
    """Settings of words, for BLEU and for counts of words."""

    tokenize: Tokenization = setting(
        "13a",
        "sacreBLEU's tokenizer for BLEU. ja-mecab and ko-mecab need the extras ja and ko; "
        "flores101, flores200 and spBLEU-1K a model that is downloaded once.",
    )
    lowercase: bool = setting(
        False, "Ignore case in BLEU and chrF; TER always does, as in sacreBLEU."
    )


@dataclass(frozen=True, kw_only=True)
class CompareSettings(ScoringSettings):
    """Settings of a comparison of systems."""

    train_text: str | None = setting(
        None,
        "Target side of the training text, to sort words by their frequency in it.",
        shown_default="the first reference",
        metavar="FILE",
        role="reads_file",
    )
    examples: int = setting(
        3, "Number of most different sentences to show for each system and direction.", min=0
    )
    labels: bool = setting(
        False,
        "Compare labels, or classifiers: accuracy and macro F1, with a paired bootstrap.",
        "Scores and tests",
    )
    metric: tuple[str, ...] = setting(
        (),
        "Metric. Repeatable, or separated by commas; the first compares lengths and sentences. "
        "comet needs the extra comet and --source.",
        "Scores and tests",
        shown_default="bleu, chrf, ter",
        metavar="|".join(MetricName),
        complete=lambda: list(MetricName),
    )
    baseline: str | None = setting(
        None,
        "System to test the others against.",
        "Scores and tests",
        shown_default="the first",
        metavar="NAME",
    )
    test: TestName = setting(
        "paired-bootstrap", "Significance test from sacreBLEU.", "Scores and tests"
    )
    samples: int | None = setting(
        None,
        "Resamples or trials of the test.",
        "Scores and tests",
        shown_default="1000 resamples or 10000 trials",
        min=1,
    )
    seed: int = setting(
        SEED, "Seed of the test; the default is sacreBLEU's.", "Scores and tests", min=1
    )
    comet_model: str = setting(
        COMET_MODEL,
        "Model for comet: a name on the Hugging Face hub, or a checkpoint.",
        "Scores and tests",
        metavar="NAME|FILE",
        role="reads_file",
    )

    def __post_init__(self) -> None:
        unknown = next((name for name in self.metrics if name not in set(MetricName)), None)
        if unknown is not None:
            names = ", ".join(MetricName)
            raise UsageError(f"--metric: must be of {names}; found {unknown or 'nothing'}")

    @property
    def metrics(self) -> tuple[str, ...]:
        chosen = [name.strip() for names in self.metric for name in names.split(",")]
        return tuple(dict.fromkeys(chosen)) or DEFAULT_METRICS

    def check_labels(self) -> None:
        """Refuses settings of translations where labels are compared."""
        for entry in fields(self):
            if entry.name in ("labels", "baseline", "samples", "seed"):
                continue
            if getattr(self, entry.name) != entry.default:
                option = entry.name.replace("_", "-")
                raise UsageError(f"--{option}: only for translations; omit it or --labels")


@dataclass(frozen=True, kw_only=True)
class TestSetFiles:
    """A test set and the systems that translated it; a table of a manifest."""

    __test__ = False  # pytest would collect it for its name

    systems: dict[str, str] = field(default_factory=dict)
    """For each system the file of its translations, or the model directory that makes them."""
    reference: tuple[str, ...] = setting(
        (),
        "Reference translation. Repeat for several references.",
        metavar="FILE",
        shown_default="none",
        role="reads_file",
    )
    source: str | None = setting(
        None,
        "Source text: shown with the translations, and translated by SYSTEMs that are model "
        "directories.",
        names=("-i",),
        metavar="FILE",
        role="reads_file",
    )
    test_set: str | None = setting(
        None,
        "A sacreBLEU test set, such as wmt20, instead of --reference and --source; it is "
        "downloaded once.",
        "Test sets",
        metavar="CODE",
    )
    language_pair: str | None = setting(
        None, "Language pair of the test set, such as en-de.", "Test sets", metavar="CODE-CODE"
    )

    def check(self) -> None:
        """Raises a ValueError that names the field which is wrong."""
        if not self.systems:
            raise ValueError("systems: name at least one")
        if not self.reference and self.test_set is None:
            raise ValueError("reference: is missing; name a file, or a --test-set")
        if self.test_set is not None and (self.reference or self.source):
            raise ValueError("test_set: has source and references; omit it or those")
        if self.language_pair is not None and self.test_set is None:
            raise ValueError("language_pair: only with a --test-set; name one or omit it")

    @property
    def paths(self) -> list[Path]:
        texts = [*self.reference, *([] if self.source is None else [self.source])]
        return [Path(file) for file in (*texts, *self.systems.values())]
