"""Options of `tformer evaluate`: inputs, metrics and output."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tformer_cli.cli.format_choice import text_or_json
from tformer_cli.cli.options import option_field, refuse
from tformer_cli.cli.streams import STANDARD_STREAM, file_lines, warn
from tformer_cli.errors import UsageError
from tformer_cli.metrics.choices import ScoringSettings, Tokenization
from tformer_cli.metrics.gates import OVER, UNDER, Gate, parse_gates
from tformer_cli.settings import Option, declared_options
from tformer_cli.text.lines import LineCounts

SCORING = declared_options(ScoringSettings, Option)


@dataclass(frozen=True, kw_only=True)
class TextOptions:
    """The texts that are compared, and where translations go."""

    source: Path | None = option_field(
        None, "Source text that MODEL translates or labels; - is stdin.", "-i", role="reads_file"
    )
    reference: list[Path] | None = option_field(
        None,
        "Reference translation, or correct labels. Repeat for several references.",
        shown="none",
        role="reads_file",
    )
    hypothesis: Path | None = option_field(
        None, "Translation to score, without a model; - is stdin.", role="reads_file"
    )
    baseline: Path | None = option_field(
        None,
        "Other translations of the same text, or another classifier's labels: adds their scores, "
        "and significance tests as in `tformer compare`.",
        role="reads_file",
    )
    baseline_model: Path | None = option_field(
        None,
        "Another language model or classifier: adds its scores on the same text, and significance "
        "tests.",
        role="reads_model",
    )
    output: Path | None = option_field(
        None,
        "Also write MODEL's translations or labels to this file.",
        "-o",
        role="writes_file",
        holds=("text",),
    )

    @property
    def files(self) -> list[Path]:
        """The text that is scored or translated, the references, then the baseline."""
        baseline = [] if self.baseline is None else [self.baseline]
        return [self.hypothesis or self.source or Path(), *(self.reference or ()), *baseline]

    def check(self, model: Path | None) -> None:
        if not self.reference:
            raise UsageError(
                "--reference: is missing; name the file of a reference, or --text for a language "
                "model"
            )
        if model is None:
            if self.hypothesis is None:
                raise UsageError(
                    "--hypothesis: nothing to score; give --hypothesis FILE, or a MODEL and "
                    "--source FILE"
                )
            values = {"source": self.source, "output": self.output}
            refuse(values, "needs a MODEL; name one or omit it")
        elif self.hypothesis is not None:
            raise UsageError("--hypothesis: a MODEL makes its own; omit one of the two")
        elif self.source is None:
            raise UsageError("--source: is missing; name the text to translate")


@dataclass(frozen=True, kw_only=True)
class ScoreOptions:
    """Options for computing and showing scores."""

    report_format: str = text_or_json("A table with sacreBLEU's signatures, or one JSON object.")
    confidence: bool = option_field(
        False,
        "Also show each score's 95 % confidence interval, by bootstrap (Koehn 2004); only for "
        "translations.",
    )
    lowercase: Annotated[bool, SCORING["lowercase"]] = False
    tokenize: Annotated[Tokenization, SCORING["tokenize"]] = "13a"
    fail_under: list[str] | None = option_field(
        None,
        "Exit with status 1 if this score is lower: bleu, chrf, accuracy or macro_f1. Repeatable.",
        shown="none",
        metavar="METRIC=VALUE",
    )
    fail_over: list[str] | None = option_field(
        None,
        "The same for scores that are better when lower: ter, loss, perplexity or bits_per_byte.",
        shown="none",
        metavar="METRIC=VALUE",
    )

    def gates(self, measures: Sequence[str]) -> list[Gate]:
        """Reads the limits of scores, given the measures that will be computed."""
        limits = {UNDER: self.fail_under, OVER: self.fail_over}
        gates = [
            gate
            for option, assignments in limits.items()
            for gate in parse_gates(option, assignments or (), measures)
        ]
        for doubt in filter(None, (gate.doubt for gate in gates)):
            warn(doubt)
        return gates

    def for_translations(self) -> dict[str, object]:
        """The settings that only scores of translations have; None: as it is by default."""
        return {
            "lowercase": self.lowercase or None,
            "tokenize": None if self.tokenize == "13a" else self.tokenize,
            "confidence": self.confidence or None,
        }


@dataclass(frozen=True, kw_only=True)
class TextScoringOptions:
    """The text that a language model is evaluated on, and how it is read."""

    text: str | None = option_field(
        None,
        "Text to evaluate a language model on: loss, perplexity and bits per byte, or the "
        "accuracy of a masked one; - is stdin.",
        panel="Language models",
        role="reads_file",
    )
    text_field: str | None = option_field(
        None,
        "Field or column of the texts, if --text is a JSONL file, a TSV file or a Hugging Face "
        "dataset (a hub name or a path).",
        panel="Language models",
        shown="none; --text is text",
        metavar="FIELD",
    )
    text_split: str | None = option_field(
        None,
        "Split of a dataset; slices such as test[:100] work.",
        panel="Language models",
        shown="train",
        metavar="SPLIT",
    )
    text_kind: Literal["lines", "stream"] | None = option_field(
        None,
        "Score each line or record of --text by itself, or the whole text as one stream.",
        panel="Language models",
        shown="as MODEL was trained",
    )
    window: int | None = option_field(
        None,
        "Number of positions to read at once.",
        panel="Language models",
        shown="as many as MODEL takes",
        min=2,
    )
    stride: int | None = option_field(
        None,
        "Tokens between the starts of two windows; a smaller stride gives each token more context "
        "and takes longer.",
        panel="Language models",
        shown="--window",
        min=1,
    )

    def lines(self, counts: LineCounts, *, quiet: bool) -> Iterable[str]:
        """Returns the lines or records of the text."""
        name = self.text or ""
        if self.text_field is None:
            if self.text_split is not None:
                raise UsageError("--text-split: only for datasets; add --text-field")
            return file_lines(name, counts, quiet=quiet)
        # A table or data set is opened by its name, which stdin lacks
        if name == STANDARD_STREAM:
            raise UsageError("--text-field: stdin is text; name a file")
        from tformer_cli.evaluate.evaluate import texts_in_field

        return texts_in_field(name, self.text_field, self.text_split or "train", counts)

    def check(self, model: Path | None, texts: TextOptions, scores: ScoreOptions) -> Path:
        """Checks that nothing but the text of a model is scored; returns the model."""
        if model is None or texts.reference or texts.source or texts.hypothesis:
            raise UsageError(
                "--text: only for language models; name a MODEL, and no --source, --hypothesis or "
                "--reference"
            )
        if texts.baseline is not None:
            raise UsageError(
                "--baseline: only for translations and labels; name a --baseline-model"
            )
        if scores.confidence:
            raise UsageError(
                "--confidence: only for translations; --baseline-model gives intervals"
            )
        return model
