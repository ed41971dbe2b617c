"""`tformer score`: log-probabilities of given translations or labels, or of texts."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from tformer_cli.artifacts.config_file import check_model, read_config
from tformer_cli.cli.image_options import ReadImageOptions
from tformer_cli.cli.options import (
    AdapterOption,
    CoveragePenaltyOption,
    DecodingPrecision,
    DecodingPrecisionOption,
    DeviceOption,
    LengthPenaltyOption,
    ModelArgument,
    NormalizationOption,
    OutputOption,
    PathRole,
    QuietOption,
    SourceLanguageOption,
    TargetLanguageOption,
    ThreadsOption,
    option,
    takes_groups,
    torch_preparation,
)
from tformer_cli.cli.progress import line_progress
from tformer_cli.cli.streams import (
    STANDARD_STREAM,
    check_stdin_is_read_once,
    count_of_lines,
    file_lines,
    note_choices,
    results,
    utf8_line,
    warn,
    warn_of_bytes,
)
from tformer_cli.errors import UsageError
from tformer_cli.kinds import kinds_for
from tformer_cli.text.lines import LineCounts

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, kw_only=True)
class PairOptions:
    """The pairs to score: sources, with targets or with n-best lists."""

    source: Annotated[
        str | None,
        option(
            "Source sentences, one per line, the texts of a language model or classifier, or names "
            "of images; - is stdin.",
            "--source",
            "-i",
            metavar="FILE",
        ),
        PathRole.reads_file,
    ] = None
    target_file: Annotated[
        str | None,
        option("Their translations or labels, one per line; - is stdin.", metavar="FILE"),
        PathRole.reads_file,
    ] = None
    n_best_file: Annotated[
        str | None,
        option(
            "Instead of --target-file: an n-best list to rerank, of translate --format moses "
            "(index ||| translation ||| features ||| score) or jsonl, whose token_ids are scored.",
            metavar="FILE",
        ),
        PathRole.reads_file,
    ] = None
    output: OutputOption = STANDARD_STREAM
    output_format: Annotated[
        Literal["text", "tsv", "jsonl"],
        option(
            "text: the log-probability. tsv: index, source, target, log-probability, score; of "
            "texts index, text, log-probability, bits per byte; of labels index, text, label, "
            "log-probability, the most probable label. jsonl: one object per line, with the "
            "log-probability of every token.",
            "--format",
        ),
    ] = "text"

    def files(self) -> tuple[str, str]:
        """Returns the files of sources and of targets.

        Raises:
            UsageError: if the targets are missing or given twice, or the format is not theirs.
        """
        if self.source is None:
            raise UsageError("--source: is missing; name the file of the sources")
        if (self.target_file is None) == (self.n_best_file is None):
            raise UsageError(
                "--target-file: is missing or doubled; give either it or --n-best-file"
            )
        if self.n_best_file is not None and self.output_format != "text":
            raise UsageError("--format: an n-best list keeps its own; omit it")
        return self.source, self.target_file or self.n_best_file or ""


@takes_groups
def score(
    model: ModelArgument,
    *,
    pairs: PairOptions,
    pictures: ReadImageOptions,
    adapter: AdapterOption = None,
    source_language: SourceLanguageOption = None,
    target_language: TargetLanguageOption = None,
    length_penalty: LengthPenaltyOption = None,
    length_normalization: NormalizationOption = None,
    coverage_penalty: CoveragePenaltyOption = None,
    device: DeviceOption = "auto",
    precision: DecodingPrecisionOption = DecodingPrecision.auto,
    threads: ThreadsOption = 0,
    quiet: QuietOption = False,
) -> None:
    """Score given translations, labels or texts by the model's probabilities.

    This is forced decoding. The log-probability is the sum of natural logarithms over the tokens
    and the end of sentence. The score is the log-probability after the penalties; --n-best-file
    ranks by it. Probabilities are among all target tokens, whether MODEL has a shortlist or not.

    A language model scores the lines of --source themselves: their log-probability, and with tsv or
    jsonl their bits per byte, by which sort finds the oddest lines. A masked one does so by the
    probability of each token where it alone is hidden (pseudo-log-likelihood). A classifier scores
    the label in --target-file of each text or image: the least probable ones may well be wrong.
    --images has labels of its own, of a folder's names or in a file.

    Examples:
        tformer score runs/quickstart -i corpus/test.en --target-file corpus/test.fr
        tformer score runs/quickstart -i a.en --n-best-file a.nbest > reranked.nbest
        tformer score runs/names -i names.txt --format tsv
        tformer score runs/ratings -i test.txt --target-file test.label --format tsv
        tformer score runs/shapes --images shapes/pictures --format tsv
    """
    pictures.check(has_texts=pairs.source is not None)
    check_model(model, kinds_for("score"))
    stored = read_config(model)
    pictures.check_model(reads_images=stored.model.reads_images)
    if stored.task != "translate":
        of_translations = {
            "--n-best-file": pairs.n_best_file,
            "--source-language": source_language,
            "--target-language": target_language,
            "--length-penalty": length_penalty,
            "--length-normalization": length_normalization,
            "--coverage-penalty": coverage_penalty,
        }
        machine = (device, precision, adapter, threads)
        if stored.task in ("language-model", "masked"):
            from tformer_cli.cli.commands.score_texts import score_texts

            is_masked = stored.task == "masked"
            score_texts(model, pairs, of_translations, machine, is_masked=is_masked, quiet=quiet)
        else:
            from tformer_cli.cli.commands.score_texts import score_labels

            score_labels(model, pairs, pictures, of_translations, machine, quiet=quiet)
        return
    files = pairs.files()
    check_stdin_is_read_once(files)
    counts = LineCounts()
    # Before the imports: a missing file is an error at once, not after seconds
    sources, targets = (file_lines(file, counts, quiet=quiet) for file in files)
    from tformer_cli.kinds.lines import score as workflow
    from tformer_cli.kinds.opening.translator import open_translator

    with results(pairs.output) as stream:
        opened = open_translator(
            model,
            device=device,
            precision=precision.value,
            adapter=adapter,
            source_language=source_language,
            target_language=target_language,
            threads=threads,
            before_torch=torch_preparation(threads),
            length_penalty=length_penalty,
            length_normalization=length_normalization,
            coverage_penalty=coverage_penalty,
        )
        note_choices(opened, quiet=quiet)
        scored = workflow.ScoreCounts()
        lines: Iterator[str]
        if pairs.n_best_file is not None:
            # The sources are needed in any order, and a line may have many hypotheses
            lines = workflow.rank_again(opened, list(sources), targets, pairs.n_best_file, scored)
        else:
            given = workflow.score_lines(opened, sources, targets, scored)
            lines = (workflow.format_score(pair, pairs.output_format) for pair in given)
        with line_progress(None, "scoring", quiet=quiet, output=pairs.output) as progress:
            for line in lines:
                stream.write(utf8_line(line))
                progress.update(scored.lines)
    warn_of_bytes(counts)
    if scored.cut and workflow.was_cut_at_random(opened.directory.path):
        warn(
            "the model was trained with BPE dropout, so it may write a text in other tokens than "
            "the tokenizer's, which were scored; translate --n-best N --format jsonl keeps its own "
            "for --n-best-file"
        )
    if scored.truncated:
        warn(f"{count_of_lines(scored.truncated)} longer than the model takes; truncated")
