"""Settings of distillation: the recipe's `[distillation]` table, which `tformer distill` reads.

Sequence-level knowledge distillation (Kim & Rush 2016, "Sequence-Level Knowledge Distillation"): a
student learns from a teacher's translations of the source side, which are simpler than what people
wrote. Chosen by the reference, the best of the teacher's n-best are sequence-level interpolation
(section 3.3); the references themselves may be mixed in by their weight.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

from tformer_cli.metrics.choices import TestName
from tformer_cli.search.config import MOST_HYPOTHESES, PrecisionChoice
from tformer_cli.settings import Limits, between, check_limits
from tformer_cli.text.config import LARGEST_WEIGHT, CorpusConfig

Choice = Literal["chrf", "bleu", "first"]
_WEIGHT = Limits(
    f"0 to {LARGEST_WEIGHT:g}",
    {"minimum": 0, "maximum": LARGEST_WEIGHT},
)


@dataclass(frozen=True, kw_only=True)
class DistillationConfig:
    """Teachers, their translations, and the student's training data."""

    teachers: tuple[str, ...] = ()
    """Model directories, or foreign models, that translate the source side of `data.train`;
    several are an ensemble and must have one tokenizer."""
    translations: tuple[str, ...] = ()
    """Translations of `data.train` made elsewhere, in place of `teachers`: a file for each of its
    corpora, in order, with a line for each pair, or the JSONL of `tformer translate --n-best`."""
    teacher_beam_size: Annotated[int, between(1, MOST_HYPOTHESES)] = 5
    """Beam of teachers and of the reverse model."""
    teacher_n_best: int = 5
    """Translations of each sentence to choose from."""
    choice: Choice = "chrf"
    """Which of them the student learns: the one nearest to the reference by sentence "chrf" or
    "bleu" (Kim & Rush 2016, section 3.3), or the teacher's "first"."""
    teacher_precision: PrecisionChoice = "auto"
    """Precision of the teacher: "auto" (as stored), "float32", "bfloat16" or "int8"."""
    teacher_source_language: str = ""
    """Code by which a multilingual teacher knows the source language (default: its own)."""
    teacher_target_language: str = ""
    """The same of the target language."""
    original_weight: Annotated[float, _WEIGHT] = 1.0
    """How often each pair of `data.train` is used per epoch as it is (0: never)."""
    distilled_weight: Annotated[float, _WEIGHT] = 1.0
    """How often with its distilled translation in place of the reference (0: never)."""
    monolingual: tuple[str, ...] = ()
    """Files of source sentences without a translation, which the teacher translates."""
    monolingual_weight: Annotated[float, _WEIGHT] = 1.0
    """How often each of these pairs is used per epoch."""
    back_translation: tuple[str, ...] = ()
    """Files of target sentences, which `reverse_model` translates into the source language
    (Sennrich et al. 2016)."""
    reverse_model: str = ""
    """Model from the target to the source language."""
    back_translation_tag: str = "<BT>"
    """Token before sources that are back-translations (Caswell et al. 2019; empty: none)."""
    back_translation_weight: Annotated[float, _WEIGHT] = 1.0
    """How often each of these pairs is used per epoch."""
    shortlist: bool = True
    """Make a lexical shortlist for the student."""
    int8: bool = True
    """Make a model directory of the student with int8 weights."""
    plain_student: bool = False
    """Also train the same student without a teacher, only on `data.train`, for the report."""
    test: tuple[CorpusConfig, ...] = ()
    """Test sets of the report (empty: `data.valid`)."""
    test_translations: tuple[str, ...] = ()
    """A teacher's translations of the test sets made elsewhere, a file for each, to compare the
    student with; as `translations`."""
    significance: TestName = "paired-bootstrap"
    """Test of significance in the report: "paired-bootstrap" or
    "paired-approximate-randomization"."""

    def __post_init__(self) -> None:
        check_limits(self)
        if not 1 <= self.teacher_n_best <= self.teacher_beam_size:
            raise ValueError(
                f"teacher_n_best: must be 1 to teacher_beam_size = {self.teacher_beam_size}, but "
                f"is {self.teacher_n_best}"
            )
        if self.teachers and self.translations:
            raise ValueError("translations: teachers make them; omit one of the two")
        if self.teachers and self.test_translations:
            raise ValueError("test_translations: teachers make them; omit one of the two")
        if self.monolingual and not self.teachers:
            raise ValueError("monolingual: needs teachers, which translate it; name one")
        if bool(self.back_translation) != bool(self.reverse_model):
            missing = "reverse_model" if self.back_translation else "back_translation"
            raise ValueError(f"{missing}: is missing; give the model and the text, or neither")
        tag = self.back_translation_tag
        if tag.split() != ([tag] if tag else []):
            raise ValueError("back_translation_tag: must be one word without spaces, or empty")
        if any(corpus.is_text for corpus in self.test):
            raise ValueError("test: must have pairs, not texts")
