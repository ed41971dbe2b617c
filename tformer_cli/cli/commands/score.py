"""`tformer score`: log-probabilities of given translations or labels, or of texts."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from tformer_cli.artifacts.config_file import check_model, read_config
from tformer_cli.cli.encoder_job import ReadImageOptions
from tformer_cli.cli.line_job import render_buffers, write_lines
from tformer_cli.cli.options import (
    AdapterOption,
    CoveragePenaltyOption,
    DecodingPrecisionOption,
    DeviceOption,
    LengthPenaltyOption,
    ModelArgument,
    NormalizationOption,
    OutputOption,
    QuietOption,
    SourceLanguageOption,
    TargetLanguageOption,
    ThreadsOption,
    opened_model,
    option_field,
    refuse,
)
from tformer_cli.cli.streams import (
    STANDARD_STREAM,
    check_stdin_is_read_once,
    file_lines,
    results,
    warn,
    warn_of_bytes,
    warn_of_results,
)
from tformer_cli.errors import UsageError
from tformer_cli.kinds import kind_named, kinds_for
from tformer_cli.text.lines import LineCounts

FOR_TRANSLATIONS = (
    *("source_language", "target_language"),
    *("length_penalty", "length_normalization", "coverage_penalty"),
)
RETOKENIZED = (
    "the model was trained with BPE dropout, so its own translations may have other tokens than "
    "the tokenizer's, which were scored; translate --n-best N --format jsonl keeps them for "
    "--n-best-file"
)
TEXTS_REFUSAL = "MODEL is a language model, which has no source; omit it"
CLASSIFIERS_REFUSAL = "MODEL is a classifier; omit it"


@dataclass(frozen=True, kw_only=True)
class PairOptions:
    """The pairs to score: sources, with targets or with n-best lists."""

    source: str | None = option_field(
        None,
        "Source sentences, texts (for a language model or classifier) or names of images, one per "
        "line; - is stdin.",
        "-i",
        role="reads_file",
    )
    target_file: str | None = option_field(
        None,
        "Translations or labels of the --source lines, one per line; - is stdin.",
        role="reads_file",
    )
    n_best_file: str | None = option_field(
        None,
        "Instead of --target-file: an n-best list to rerank, from translate --format moses (index "
        "||| translation ||| features ||| score) or jsonl, which is scored by its token_ids.",
        role="reads_file",
    )
    output: OutputOption = STANDARD_STREAM
    output_format: Literal["text", "tsv", "jsonl"] = option_field(
        "text",
        "text: the log-probability. tsv: index, source, target, log-probability, score; for texts "
        "index, text, log-probability, bits per byte; for labels index, text, label, "
        "log-probability, the most probable label. jsonl: one object per line, with the "
        "log-probability of every token.",
        "--format",
    )

    def texts(self) -> tuple[str, ...]:
        """Returns the file of texts."""
        if self.source is None:
            raise UsageError("-i, --source: is missing; name the file of the texts, or -")
        values = {"target_file": self.target_file, "n_best_file": self.n_best_file}
        refuse(values, TEXTS_REFUSAL)
        return (self.source,)

    def labels(self) -> tuple[str, ...]:
        """Returns the files of texts or names, and of labels."""
        if self.source is None or self.target_file is None:
            missing = "-i, --source" if self.source is None else "--target-file"
            what = "texts" if self.source is None else "labels"
            raise UsageError(
                f"{missing}: is missing; MODEL is a classifier, so name the file of the {what}"
            )
        return self.source, self.target_file

    def sides(self) -> tuple[str, ...]:
        """Returns the files of sources and of targets, which may be missing or given twice."""
        if self.source is None:
            raise UsageError(
                "-i, --source: is missing; name the file of the sources, one a line, or - for stdin"
            )
        if (self.target_file is None) == (self.n_best_file is None):
            raise UsageError("--target-file: give exactly one of --target-file and --n-best-file")
        if self.n_best_file is not None and self.output_format != "text":
            raise UsageError("--format: an n-best list keeps its own; omit it")
        return self.source, self.target_file or self.n_best_file or ""


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """Options that the model is opened with."""

    adapter: AdapterOption = None
    source_language: SourceLanguageOption = None
    target_language: TargetLanguageOption = None
    length_penalty: LengthPenaltyOption = None
    length_normalization: NormalizationOption = None
    coverage_penalty: CoveragePenaltyOption = None
    device: DeviceOption = "auto"
    precision: DecodingPrecisionOption = "auto"
    threads: ThreadsOption = 0

    def only(self, *names: str) -> dict[str, object]:
        return {name: getattr(self, name) for name in names}


def score(
    model: ModelArgument,
    *,
    pairs: PairOptions,
    pictures: ReadImageOptions,
    options: ModelOptions,
    quiet: QuietOption = False,
) -> None:
    """Score existing translations, labels or texts by the model's probabilities.

    This is forced decoding. The log-probability is the sum of natural logarithms over the tokens
    and the end of sentence. The score is the log-probability after the penalties; --n-best-file
    ranks by it. Probabilities are over the whole target vocabulary, even if MODEL has a shortlist.

    A language model scores the lines of --source: their log-probability, and in tsv and jsonl their
    bits per byte; sort by these to find the oddest lines. A masked language model masks one token
    at a time (pseudo-log-likelihood). A classifier scores the label of each text or image from
    --target-file: the least probable labels may well be wrong. --images brings its own labels, from
    folder names or a file.

    Examples:
        tformer score runs/quickstart -i corpus/test.en --target-file corpus/test.fr
        tformer score runs/quickstart -i a.en --n-best-file a.nbest > reranked.nbest
        tformer score runs/names -i names.txt --format tsv
        tformer score runs/ratings -i test.txt --target-file test.label --format tsv
        tformer score runs/shapes --images shapes/pictures --format tsv
    """
    pictures.check(has_texts=pairs.source is not None)
    # First: what the other options mean depends on the kind of the model
    check_model(model, kinds_for("score"))
    stored = read_config(model)
    pictures.check_model(stored.model)
    read = LineCounts()
    inputs = _open(kind_named(stored.task).measured_by, pairs, pictures, options, read, quiet=quiet)
    from tformer_cli.kinds.lines import score as workflow
    from tformer_cli.kinds.lines.job import ResultCounts, aligned_pairs

    counts = ResultCounts()
    with results(pairs.output) as stream:
        opened = opened_model(model, "score", quiet=quiet, **vars(options))
        buffers: Iterable[list[Any]]
        if (name := pairs.n_best_file) is not None:
            # The sources are needed in any order, and a line may have many hypotheses
            ranked = workflow.rank_again(opened, list(inputs[0]), inputs[1], name)
            buffers = ([result] for result in ranked)
        else:
            lines = inputs[0] if len(inputs) == 1 else aligned_pairs(inputs[0], inputs[1])
            buffers = workflow.scored_lines(opened, lines, pictures.damaged)
        write_lines(
            stream,
            render_buffers(buffers, counts, lambda result: result.line(pairs.output_format)),
            counts,
            doing="scoring",
            output=pairs.output,
            is_hidden=quiet,
        )
    warn_of_bytes(read)
    if counts.retokenized and workflow.was_cut_at_random(opened.directory.path):
        warn(RETOKENIZED)
    warn_of_results(counts)


def _open(
    measured_by: str,
    pairs: PairOptions,
    pictures: ReadImageOptions,
    options: ModelOptions,
    read: LineCounts,
    *,
    quiet: bool,
) -> list[Iterable[Any]]:
    """Opens the files to score, or labeled images; refuses options of other kinds of models."""
    if measured_by == "translations":
        files = pairs.sides()
    elif measured_by == "labels":
        values = {"n_best_file": pairs.n_best_file, **options.only(*FOR_TRANSLATIONS, "adapter")}
        refuse(values, CLASSIFIERS_REFUSAL)
        labeled = pictures.read_labeled_images(pairs.target_file or "", "--target-file", read)
        if labeled is not None:  # pairs already: no other file is read
            return [labeled]
        files = pairs.labels()
    else:
        files = pairs.texts()
        refuse(options.only(*FOR_TRANSLATIONS), TEXTS_REFUSAL)
        if measured_by == "gaps":
            refuse(options.only("adapter"), "MODEL takes no adapter; omit it")
    check_stdin_is_read_once(files)
    # Before the imports: a missing file is an error at once, not after seconds
    return [file_lines(file, read, quiet=quiet) for file in files]
