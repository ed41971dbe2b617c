"""`tformer compare`: several systems on one test set or several."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tformer_cli.artifacts.overwriting import NamedPath, Output, check_outputs, standard_stream
from tformer_cli.cli.format_choice import chosen_format, format_option
from tformer_cli.cli.options import (
    DeviceOption,
    LowercaseOption,
    OutputOption,
    QuietOption,
    ThreadsOption,
    TokenizeOption,
    argument,
    given_options,
    named_path,
    option_field,
    torch_preparation,
)
from tformer_cli.cli.streams import (
    STANDARD_STREAM,
    STDOUT,
    check_stdin_is_read_once,
    note,
    open_stream,
    prompt_at_terminal,
    results,
    text_console,
    utf8_line,
    warn_of_bytes,
)
from tformer_cli.errors import UsageError
from tformer_cli.metrics.choices import MetricName, TestName
from tformer_cli.text.lines import LineCounts

if TYPE_CHECKING:
    from tformer_cli.evaluate.compare import CompareSettings, TestSetFiles
    from tformer_cli.evaluate.comparison.compare import Comparison
    from tformer_cli.show.document import Document

SCHEMA, SCHEMA_OF_LABELS = "tformer.compare/1", "tformer.comparelabels/1"


class CompareFormat(StrEnum):
    """Values of `--format`."""

    text = "text"
    json = "json"
    markdown = "markdown"
    latex = "latex"
    html = "html"


FOR_TRANSLATIONS = (
    *("manifest", "test_set", "train_text", "metric", "test", "tokenize", "lowercase"),
    *("examples", "comet_model"),
)


@dataclass(frozen=True, kw_only=True)
class TextOptions:
    """The test sets, besides the systems' translations."""

    reference: list[Path] | None = option_field(
        None, "Reference translation. Repeat for several references.", role="reads_file"
    )
    source: Path | None = option_field(
        None,
        "Source text: shown beside the translations, and translated by SYSTEMs that are model "
        "directories.",
        "-i",
        role="reads_file",
    )
    manifest: Path | None = option_field(
        None,
        "Several test sets and their systems, in TOML, instead of SYSTEM and --reference; see "
        "`tformer guide comparing`.",
        panel="Test sets",
        role="reads_file",
    )
    test_set: str | None = option_field(
        None,
        "sacreBLEU's test set of this name, such as wmt20, instead of --reference and --source; "
        "it is downloaded once.",
        panel="Test sets",
        metavar="CODE",
    )
    language_pair: str | None = option_field(
        None, "Its language pair, such as en-de.", panel="Test sets", metavar="CODE-CODE"
    )
    train_text: Path | None = option_field(
        None,
        "Target side of the training text, to sort words by their frequency in it.",
        shown="the first reference",
        role="reads_file",
    )

    def test_sets(self, systems: Sequence[str]) -> "dict[str, TestSetFiles]":
        """Makes the test sets of the arguments, or reads those of the manifest."""
        from tformer_cli.evaluate.compare import TestSetFiles, read_manifest

        if self.manifest is not None:
            own = {"SYSTEM": systems, "--reference": self.reference, "--source": self.source}
            own |= {"--test-set": self.test_set, "--language-pair": self.language_pair}
            for twice in (name for name, value in own.items() if value):
                raise UsageError(f"{twice}: the manifest has its own; omit one of the two")
            return read_manifest(self.manifest)
        if not systems:
            raise UsageError(
                "SYSTEM: is missing; give one to score, several to compare, or --manifest FILE"
            )
        if not self.reference and self.test_set is None:
            raise UsageError("--reference: is missing; name a file, or a --test-set")
        if self.test_set is not None and (self.reference or self.source):
            raise UsageError("--test-set: has source and references; omit it or those")
        if self.language_pair is not None and self.test_set is None:
            raise UsageError("--language-pair: is that of a --test-set; name one or omit it")
        files = TestSetFiles(
            systems=_named(systems),
            reference=tuple(map(str, self.reference or ())),
            source=None if self.source is None else str(self.source),
            test_set=self.test_set,
            language_pair=self.language_pair,
        )
        return {self.test_set or "": files}


def _named(systems: Sequence[str]) -> dict[str, str]:
    """Separates NAME=FILE into names and files; without a name it is that of the file."""
    found: dict[str, str] = {}
    for one in systems:
        name, path = named_path(one)
        name = name or Path(path).name
        if name in found:
            raise UsageError(f"SYSTEM: two are called {name}; give names, as in NAME={path}")
        found[name] = path
    return found


@dataclass(frozen=True, kw_only=True)
class ScoreOptions:
    """How systems are scored and tested."""

    labels: bool = option_field(
        False,
        "Lines are labels, and models classifiers: compares accuracy and macro F1 by paired "
        "bootstrap.",
        panel="Scores and tests",
    )
    metric: list[str] | None = option_field(
        None,
        "Metric. Repeatable, or separated by commas; lengths and sentences are compared by the "
        "first. comet needs the extra comet, and --source.",
        panel="Scores and tests",
        shown="bleu, chrf, ter",
        metavar="|".join(MetricName),
        complete=lambda: list(MetricName),
    )
    baseline: str | None = option_field(
        None,
        "Name of the system that the others are tested against.",
        panel="Scores and tests",
        shown="the first",
        metavar="TEXT",
    )
    test: TestName = option_field(
        "paired-bootstrap", "Test of significance, sacreBLEU's.", panel="Scores and tests"
    )
    samples: int | None = option_field(
        None,
        "Resamples or trials of the test.",
        panel="Scores and tests",
        shown="1000 resamples or 10000 trials",
        min=1,
    )
    seed: int = option_field(
        12345, "Seed of the test; the default is sacreBLEU's.", panel="Scores and tests", min=1
    )
    tokenize: TokenizeOption = "13a"
    lowercase: LowercaseOption = False
    examples: int = option_field(
        3, "Sentences to show of each system that differ most, in each direction.", min=0
    )
    comet_model: str = option_field(
        "Unbabel/wmt22-comet-da",
        "Model for comet: a name on the Hugging Face hub, or a checkpoint.",
        panel="Scores and tests",
        metavar="NAME|FILE",
        role="reads_file",
    )

    def check_labels(self, texts: "TextOptions", n_systems: int) -> None:
        """Refuses what only translations have where labels are compared."""
        for name in FOR_TRANSLATIONS:
            if name in given_options(texts, self):
                option = f"--{name.replace('_', '-')}"
                raise UsageError(f"{option}: is of translations; omit it or --labels")
        if not texts.reference:
            raise UsageError("--reference: is missing; name the file of the right labels")
        if n_systems == 1:
            raise UsageError("SYSTEM: nothing to compare the labels with; give two or more")

    def settings(self, train_text: Path | None, device: str, threads: int) -> "CompareSettings":
        from tformer_cli.evaluate.compare import DEFAULT_METRICS, CompareSettings
        from tformer_cli.evaluate.comparison.paired_tests import TestSettings

        metrics = [one.strip() for names in self.metric or () for one in names.split(",")]
        return CompareSettings(
            metrics=metrics or DEFAULT_METRICS,
            test=TestSettings(name=self.test, samples=self.samples or 0, seed=self.seed),
            baseline=self.baseline,
            tokenize=self.tokenize,
            lowercase=self.lowercase,
            train_text=train_text,
            n_examples=self.examples,
            comet_model=self.comet_model,
            device=device,
            threads=threads,
        )


def compare(
    systems: list[str] | None = argument(
        "SYSTEM",
        "A file of translations or a model directory; NAME=FILE gives it a name. The first is the "
        "baseline; one alone is scored.",
        default=None,
        role="reads_system",
    ),
    *,
    texts: TextOptions,
    scores: ScoreOptions,
    output: OutputOption = STANDARD_STREAM,
    output_format: Annotated[
        CompareFormat | None,
        format_option(CompareFormat, "text"),
    ] = None,
    device: DeviceOption = "auto",
    threads: ThreadsOption = 0,
    quiet: QuietOption = False,
) -> None:
    """Compare translations of several systems: scores, significance, and where they differ.

    Scores, confidence intervals and tests against the baseline are sacreBLEU's. Below them stand
    the scores by length of the reference, F1 of words by their frequency, and the sentences that
    differ most. With --labels files hold labels, and models are classifiers.

    Examples:
        tformer compare --reference ref.de a.de b.de
        tformer compare --reference ref.de --source src.en old=a.de new=runs/quickstart -o new.html
        tformer compare --labels --reference test.label --source test.txt old.label new=runs/mine
        tformer compare --manifest systems.toml --metric chrf --metric ter --format latex
    """
    chosen = chosen_format(output_format, output, CompareFormat, CompareFormat.text)
    if scores.labels:
        scores.check_labels(texts, len(systems or ()))
    test_sets = texts.test_sets(systems or ())
    _check_files(test_sets, texts, output)
    from tformer_cli.evaluate import compare as workflow

    files = [path for one in test_sets.values() for path in one.paths]
    prompt_at_terminal(files=files, quiet=quiet)
    read = LineCounts()
    settings = scores.settings(texts.train_text, device, threads)
    how: Any = {
        "counts": read,
        "tell": partial(note, quiet=quiet),
        "before_torch": torch_preparation(threads),
    }
    if scores.labels:
        (files_of_labels,) = test_sets.values()
        labels = workflow.compare_classifiers(files_of_labels, settings, **how)
        record = {"schema": SCHEMA_OF_LABELS, **labels.record()}
        document = labels.document()
    else:
        from tformer_cli.evaluate.comparison.report import comparison_document

        found = workflow.compare(test_sets, settings, **how)
        record, document = _record(found, settings), comparison_document(found)
    warn_of_bytes(read)
    with results(output) as stream:
        if chosen == CompareFormat.text:
            from tformer_cli.show.terminal import show_document

            show_document(text_console(output, stream), document)
        else:
            stream.write(utf8_line(_rendered(record, document, chosen)))


def _check_files(test_sets: "dict[str, TestSetFiles]", texts: TextOptions, output: str) -> None:
    """Checks that stdin is read once, and that a manifest's files are not written over."""
    named = [path for one in test_sets.values() for path in one.paths]
    given = [*named, *(one for one in (texts.train_text, texts.manifest) if one is not None)]
    check_stdin_is_read_once(given)
    inputs = [NamedPath(name="--manifest", path=path) for path in named]
    outputs = standard_stream("stdout", STDOUT)
    if open_stream(output) is None:
        outputs.append(Output(name="--output", path=Path(output)))
    check_outputs(outputs, inputs)


def _record(found: "Sequence[Comparison]", settings: "CompareSettings") -> dict[str, Any]:
    test = settings.test
    return {
        "schema": SCHEMA,
        "test": test.name,
        "samples": test.n_samples,
        "seed": test.seed,
        "test_sets": [asdict(one) for one in found],
    }


def _rendered(record: dict[str, Any], document: "Document", chosen: CompareFormat) -> str:
    """Renders a comparison as the text of a format, without its last line end."""
    if chosen == CompareFormat.json:
        return json.dumps(record, ensure_ascii=False)
    from tformer_cli.show.html import render_html
    from tformer_cli.show.markup import render_latex, render_markdown

    render = {"html": render_html, "latex": render_latex, "markdown": render_markdown}
    return render[chosen](document).removesuffix("\n")
