"""`tformer translate`: lines in, lines out; constraints, ensembles, formats and large jobs."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, Unpack

import typer

from tformer_cli.artifacts.config_file import DOUBT
from tformer_cli.artifacts.overwriting import NamedPath
from tformer_cli.cli.command import is_given
from tformer_cli.cli.line_job import FileOptions, count_lines, write_lines
from tformer_cli.cli.options import (
    ModelArgument,
    QuietOption,
    TranslatorOptions,
    argument,
    given_options,
    option_field,
    refuse,
    takes_decoding_options,
)
from tformer_cli.cli.streams import (
    STANDARD_STREAM,
    STDOUT,
    check_not_compressed,
    check_stdin_is_read_once,
    count_of_lines,
    file_lines,
    input_lines,
    note,
    open_stream,
    results,
    telling_of_markup,
    warn,
    warn_of_bytes,
    warn_of_results,
)
from tformer_cli.errors import ArtifactError, UsageError
from tformer_cli.runtime import without_garbage_collection
from tformer_cli.settings import dataclass
from tformer_cli.text.lines import LineCounts, shard_range
from tformer_cli.wording import count_of, is_blank

if TYPE_CHECKING:
    from tformer_cli.artifacts.resumable import ResumableFiles
    from tformer_cli.kinds.lines.job import ResultCounts
    from tformer_cli.kinds.stored_model import Opened
    from tformer_cli.search.constraints import Term
    from tformer_cli.search.formats import OutputFormat
    from tformer_cli.search.keywords import SearchOverrides
    from tformer_cli.search.translator import Translation

TEXT = argument(
    "TEXT",
    "Sentences to translate, or the file of a document; without any, -i or stdin.",
    default=None,
)


@dataclass(frozen=True, kw_only=True)
class ConstraintOptions:
    """Phrases that translations must or must not contain."""

    ban: list[str] | None = option_field(
        None,
        "Phrase that must not occur in a translation as whole words. Repeatable.",
        panel="Constraints",
        metavar="TEXT",
    )
    glossary: str | None = option_field(
        None,
        "Glossary for constrained decoding. Each line is SOURCE TAB TARGET: if the source phrase "
        "occurs, the translation must contain the target phrase. With TAB ban at the end, it must "
        "not.",
        panel="Constraints",
        role="reads_file",
    )

    def arguments(self) -> dict[str, Any]:
        """Returns the banned phrases as an argument of `open_model`."""
        if self.ban and any(map(is_blank, self.ban)):
            raise UsageError("--ban: is empty; name the text that no translation may contain")
        return {"banned": self.ban or ()}

    def terms(self) -> "list[Term]":
        """Reads the glossary."""
        from tformer_cli.search.constraints import read_glossary

        if self.glossary is None:
            return []
        return read_glossary(file_lines(self.glossary, LineCounts()), self.glossary)


@dataclass(frozen=True, kw_only=True)
class EnsembleOptions:
    """Models that decode together with MODEL."""

    ensemble: list[Path] | None = option_field(
        None,
        "Another model to decode with; it must have the same vocabulary. Repeatable.",
        panel="Ensembles",
        role="reads_model",
    )
    ensemble_weights: str | None = option_field(
        None,
        "Weights of the models, MODEL's first.",
        panel="Ensembles",
        shown="equal",
        metavar="W,W,…",
    )
    ensemble_space: Literal["probability", "log"] = option_field(
        "probability",
        "Average the models' probabilities, or their log-probabilities.",
        panel="Ensembles",
    )

    def arguments(self) -> dict[str, Any]:
        """Returns them as arguments of `open_model`."""
        if self.ensemble_weights is not None and not self.ensemble:
            raise UsageError("--ensemble-weights: there is one model; add --ensemble MODEL")
        try:
            text = self.ensemble_weights
            weights = None if text is None else [float(weight) for weight in text.split(",")]
        except ValueError:
            raise UsageError(
                f'--ensemble-weights: "{self.ensemble_weights}" is not a list of numbers; write '
                "2,1,1"
            ) from None
        return {
            "ensemble": self.ensemble or (),
            "ensemble_weights": weights,
            "ensemble_space": self.ensemble_space,
        }


@dataclass(frozen=True, kw_only=True)
class LargeJobOptions:
    """Buffers, shards and interrupted jobs."""

    buffer_lines: int | None = option_field(
        None,
        "Lines read before a buffer is translated; 1 answers line by line.",
        panel="Large jobs",
        shown="1024, on a GPU 8192; 1 from a terminal",
        min=1,
    )
    max_wait: float | None = option_field(
        None,
        "Translate a buffer this long after its first line, even if it is not full.",
        panel="Large jobs",
        shown="no limit",
        metavar="SECONDS",
        min=0.0,
    )
    shard: str | None = option_field(
        None,
        "Translate only part I of N of the input, I from 0. `cat` joins the outputs.",
        panel="Large jobs",
        shown="all",
        metavar="I/N",
    )
    resume: bool = option_field(
        False, "Continue an interrupted translation; needs -i and -o.", panel="Large jobs"
    )


@dataclass(frozen=True, kw_only=True)
class FormatOptions:
    """Formats of input and output, and the contents of the output."""

    n_best: int = option_field(
        1,
        "Translations per line, an n-best list; needs --format tsv, jsonl or moses. Beyond the "
        "beam size it raises the beam.",
        min=1,
    )
    output_format: Literal["text", "tsv", "jsonl", "moses"] = option_field(
        "text",
        "text: one translation per line. tsv: index, source, translation, score. jsonl: one "
        "object per line. moses: index ||| translation ||| features ||| score.",
        "--format",
    )
    input_format: Literal["text", "jsonl"] = option_field(
        "text",
        'jsonl: one object per line, with the text in "source". Optional: "target_prefix" begins '
        'the translation, phrases in "required" must occur in it, phrases in "banned" must not. '
        "Other fields are passed through to jsonl output.",
        panel="Formats",
    )
    alignments: Literal["pharaoh", "soft"] | None = option_field(
        None,
        "Add word alignments to tsv, jsonl or moses. pharaoh: links i-j of source and target "
        "words. soft: for each target word, the attention weights of the source words and the end "
        "of sentence. `tformer inspect-align --save` finds and stores the best heads first.",
        panel="Formats",
    )
    token_scores: bool = option_field(
        False, "Add tokens and their log-probabilities to jsonl.", panel="Formats"
    )
    flags: bool = option_field(
        False,
        "Add flags for repetition, dropped sentences, unseen words and hallucination to jsonl.",
        panel="Formats",
    )
    doubt: bool | None = option_field(
        None,
        "Add the probability that the translation is wrong to tsv or jsonl, and those of its words "
        "to jsonl; of a document, list the segments on stdout, the most doubtful first. Needs a "
        "model that `train` or `tformer calibrate` has calibrated.",
        panel="Formats",
        shown="in jsonl of a calibrated model, without words",
    )

    def check(self) -> None:
        """Refuses details that the format cannot hold."""
        if self.output_format == "text" and self.n_best > 1:
            raise UsageError(
                f"--n-best: {self.n_best} translations per line do not fit text output; choose "
                "--format tsv, jsonl or moses"
            )
        if self.output_format == "text" and self.alignments is not None:
            raise UsageError(
                "--alignments: text output has no place for them; choose --format tsv, jsonl or "
                "moses"
            )
        if self.output_format != "jsonl":
            options = {"token_scores": self.token_scores or None, "flags": self.flags or None}
            refuse(options, "only jsonl has a place for them; add --format jsonl")

    def check_lines(self) -> None:
        """Refuses what only the list of a document's segments has without --format."""
        if self.output_format not in ("tsv", "jsonl"):
            refuse({"doubt": self.doubt or None}, "has a place in tsv and jsonl; add --format")

    def check_document(self, output: str, summary: str | None) -> "OutputFormat | None":
        """Returns the format of the list of doubts that stdout gets, if there is one."""
        if not self.doubt:
            return None
        # By what a name means: /dev/stdout would mix two results as "-" does
        for what, file, option in (("document", output, "-o"), ("summary", summary, "--summary")):
            if file is not None and open_stream(file) == STDOUT:
                raise UsageError(
                    f"--doubt: stdout has the {what}; name a file for that with {option}"
                )
        return "jsonl" if self.output_format == "jsonl" else "tsv"

    def arguments(
        self, opened: "Opened", *, is_calibrated_search: bool, quiet: bool
    ) -> dict[str, Any]:
        """Returns them as arguments of `translated_text`: the translator, and what aligns.

        `is_calibrated_search`: whether a calibration of the model would be one of its translations.
        """
        from tformer_cli.search.formats import Details

        arguments: dict[str, Any] = {
            "translator": opened.translator,
            "output_format": self.output_format,
            "input_format": self.input_format,
            "lists_hypotheses": self.n_best > 1,
            "details": Details(token_scores=self.token_scores, flags=self.flags),
        }
        is_usual = self.doubt is None and self.output_format == "jsonl" and is_calibrated_search
        if self.doubt or (is_usual and (opened.directory.path / DOUBT).is_file()):
            arguments["correct"] = self._doubts(opened)
        if self.alignments is None:
            return arguments
        from tformer_cli.inspect.jobs.align import Aligner

        aligner = Aligner(opened.directory)
        note(f"aligning by {aligner.choice}", quiet=quiet)
        return {
            **arguments,
            "translator": aligner.listening(opened.translator),
            "aligner": aligner,
            "alignment_format": self.alignments,
        }

    def _doubts(
        self, opened: "Opened"
    ) -> "Callable[[Sequence[Translation]], list[Translation]] | None":
        """Returns what adds doubts; None if nobody asked for them and they would not apply."""
        from tformer_cli.inspect.doubt import Doubter

        try:
            doubter = Doubter(opened.directory)
        except ArtifactError as error:
            if self.doubt:
                raise
            warn(f"no doubt scores: {error}")
            return None
        different = doubter.difference(opened, opened.translator)
        if self.doubt and different:
            warn(different)
        if different and not self.doubt:
            return None
        return partial(doubter.add_doubts, has_words=bool(self.doubt))


def parse_shard(text: str) -> tuple[int, int]:
    """Reads I/N, I from 0; launchers provide it as `--shard $RANK/$WORLD_SIZE`."""
    match = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text)
    if match is None or int(match[1]) >= int(match[2]):
        raise UsageError(f'--shard: "{text}" is not I/N with I from 0 to N - 1; write 0/4')
    return int(match[1]), int(match[2])


def chosen_lines(
    lines: Iterator[str], file: str | None, shard: str | None
) -> tuple[range, Iterator[str]]:
    """Returns the numbers of the lines to translate, and these lines."""
    if shard is None:
        return range(0), lines
    index, count = parse_shard(shard)
    n_lines = count_lines(file)
    if n_lines is None:
        raise UsageError("--shard: the lines have to be counted first; give a file with --input")
    chosen = shard_range(n_lines, index, count)
    return chosen, islice(lines, chosen.start, chosen.stop)


@contextmanager
def opened_output(
    files: FileOptions, model: Path, settings: Mapping[str, object], *, resume: bool
) -> Iterator[tuple[BinaryIO, "ResumableFiles | None"]]:
    """Opens the output as `results` does or, to resume, behind the lines that are done."""
    output, input_file = files.output, files.input_file
    if not resume:
        with results(output) as stream:
            yield stream, None
        return
    if output == STANDARD_STREAM or input_file is None or not Path(input_file).is_file():
        raise UsageError("--resume: works from a file to a file; give --input and --output")
    from tformer_cli.artifacts.config_file import WEIGHTS
    from tformer_cli.artifacts.resumable import resumable_file
    from tformer_cli.files.regular_file import hash_file

    if Path(output).is_dir():
        raise UsageError(f"--output: {output} is a directory; name a file")
    check_not_compressed(output)
    # A part of another input, model or search must not be continued
    origin = {
        "input": hash_file(Path(input_file)),
        "model": hash_file(model / WEIGHTS) if (model / WEIGHTS).is_file() else "",
        "settings": json.dumps(settings, sort_keys=True, default=str),
        "doubt": hash_file(model / DOUBT) if (model / DOUBT).is_file() else "",
    }
    # Through a link its target is written, and the link stays
    with resumable_file(Path(output).resolve(), origin) as file:
        if file.done:
            note(f"{output}.part: {count_of(file.done, 'line')} done; resuming after them")
        yield file.stream, file


@dataclass(frozen=True, kw_only=True)
class DocumentOptions:
    """Documents, and what is copied of any text."""

    document: str | None = option_field(
        None,
        "Translate a document of a format, or plain lines whatever the file is called. Formats: "
        "html, markdown, text, docx, pptx, odt, odp, srt, vtt, po, xliff, tmx, json, epub, csv, "
        "tsv, jsonl, xlsx, ods.",
        panel="Documents",
        metavar="FORMAT|lines",
        shown="by the file's ending",
    )
    protect: bool | None = option_field(
        None,
        "Copy placeholders, web and mail addresses, code, numbers and emoji as they are.",
        panel="Documents",
        shown="documents yes, lines no",
    )
    summary: str | None = option_field(
        None,
        "Write what became of a document's segments to a JSON file.",
        panel="Documents",
        role="writes_file",
        holds=("JSON",),
    )
    unwrap: bool = option_field(
        False, "Join the lines of each paragraph of plain text.", panel="Documents"
    )
    fuzzy: bool = option_field(
        False, "Translate again what a file marks as doubtful (fuzzy).", panel="Documents"
    )
    key: list[str] | None = option_field(
        None,
        "Path of values to translate in JSON or JSON Lines, such as menu.*.title; of JSON, without "
        "any, all texts. Repeatable.",
        panel="Documents",
        metavar="KEY",
    )
    column: list[str] | None = option_field(
        None,
        "Column to translate of a table (csv, tsv, xlsx, ods): its name, its number from 1, or in "
        "xlsx and ods its letter, such as C or Sheet1!C. Repeatable.",
        panel="Documents",
        metavar="COLUMN",
    )
    no_header: bool = option_field(
        False, "The first row of a table is no header: translate it, too.", panel="Documents"
    )
    front_matter: bool = option_field(
        False,
        "Translate title and description in the front matter of Markdown, too.",
        panel="Documents",
    )
    encoding: str | None = option_field(
        None,
        "Encoding of a document that is text, such as windows-1252; the translation has it, too.",
        panel="Documents",
        metavar="NAME",
        shown="as the file says, or UTF-8",
    )

    def may_be_meant(self, texts: list[str] | None, files: FileOptions) -> bool:
        """Returns whether a document may be named; only then the formats are loaded."""
        is_file = files.input_file not in (None, STANDARD_STREAM)
        is_written = bool(texts) and files.output != STANDARD_STREAM
        if self.document is not None or is_file or is_written:
            return True
        return len(texts or ()) == 1 and NamedPath(name="TEXT", path=Path(*texts or ())).is_file()

    def reading(self) -> dict[str, Any]:
        """Returns settings of the format as arguments of `ReadSettings`."""
        from tformer_cli.documents.known_formats import encoding_named

        keys = tuple(self.key or ())
        encoding = encoding_named(self.encoding) if self.encoding is not None else ""
        return {
            "keys": keys,
            "columns": tuple(self.column or ()),
            "has_header": not self.no_header,
            "fills_fuzzy": self.fuzzy,
            "unwraps": self.unwrap,
            "front_matter": self.front_matter,
            "encoding": encoding,
        }

    def check(self, name: str, takes: Sequence[str]) -> None:
        """Refuses what a format does not take, such as the columns of a page."""
        options = self._format_options()
        unused = {option: value for option, value in options.items() if option not in takes}
        instead = f"; it has --{takes[0].replace('_', '-')}" if takes else ""
        refuse(unused, f"a document of {name} has none{instead}")

    def _format_options(self) -> dict[str, Any]:
        names = ("key", "column", "no_header", "front_matter", "unwrap", "fuzzy")
        return {name: getattr(self, name) or None for name in names}

    def check_lines(self) -> None:
        """Refuses options that only documents have."""
        options = {"summary": self.summary, "encoding": self.encoding, **self._format_options()}
        refuse(
            options, "documents have it, lines do not; name a document, or add --document FORMAT"
        )

    def arguments(
        self, opened: "Opened", counts: "ResultCounts", formats: FormatOptions
    ) -> dict[str, Any]:
        """Returns what puts into translations of lines what they have to copy, if asked to."""
        if not self.protect:
            return {}
        refuse(
            {
                "alignments": formats.alignments,
                "n_best": formats.n_best if formats.n_best > 1 else None,
                "doubt": formats.doubt or None,
            },
            "does not go with --protect, which changes the best translation; omit one of the two",
        )
        from tformer_cli.documents.answers import ModelAnswers

        answers = ModelAnswers(opened, counts=counts)
        return {"correct": answers.restore_lines, "translator": answers.copying}


# Parameters that leave the results as they are: a run may be resumed under others.
WITHOUT_EFFECT = frozenset(
    {"quiet", "resume", "threads", "device", "buffer_lines", "max_wait", "batch_tokens", "output"}
)


def languages_of(model: Path, options: TranslatorOptions) -> dict[str, Any]:
    """Returns the languages of a model as arguments of `ReadSettings`, without opening it."""
    from tformer_cli.artifacts.config_file import read_config
    from tformer_cli.foreign.known_models import languages_of as languages_named
    from tformer_cli.kinds.opening import resolve_directory
    from tformer_cli.text.language_codes import label_of
    from tformer_cli.wording import given_name

    path = resolve_directory(model, options)
    config = read_config(path)
    name = given_name(path)  # a pair, for a model of many languages
    named = (languages_named(name) if name else None) or ("", "")
    source = options.source_language or named[0] or config.source_language
    target = options.target_language or named[1] or config.target_language
    return {"source_language": label_of(source), "target_language": label_of(target)}


def without_labels(model: Path, options: TranslatorOptions) -> TranslatorOptions:
    """Omits languages for which a model has no tokens: they only label a document.

    Raises:
        UsageError: The model is known to read or to write another language.
    """
    codes = options.source_language, options.target_language
    if not any(codes):
        return options
    from tformer_cli.artifacts.config_file import read_config
    from tformer_cli.kinds.opening import resolve_directory
    from tformer_cli.text.language_codes import is_same_language
    from tformer_cli.text.tokenizer import read_tokenizer

    path = resolve_directory(model, options)
    config, chosen = read_config(path), list[str | None]()
    for side, code, own, has_tokens in zip(
        ("source", "target"),
        codes,
        (config.source_language, config.target_language),
        read_tokenizer(path).has_language_tokens,
        strict=True,
    ):
        if code and own and not has_tokens and not is_same_language(code, own):
            does = "reads" if side == "source" else "writes"
            raise UsageError(
                f'--{side}-language: this model {does} "{own}", not "{code[:40]}"; omit it, or '
                "name another model"
            )
        chosen.append(code if has_tokens else None)
    return replace(options, source_language=chosen[0], target_language=chosen[1])


def refuse_of_lines(job: LargeJobOptions, formats: FormatOptions) -> None:
    """Refuses options that only lines have."""
    names_given = given_options(job, formats) - {"doubt"}
    if formats.doubt and formats.output_format in ("tsv", "jsonl"):
        names_given -= {"output_format"}  # of the list of doubts
    why = "lines have it, documents do not; omit it, or add --document lines"
    names = {"output_format": "format"}
    refuse({names.get(name, name): True for name in sorted(names_given)}, why)


@takes_decoding_options
def translate(
    ctx: typer.Context,
    model: ModelArgument,
    text: list[str] | None = TEXT,
    *,
    files: FileOptions,
    constraints: ConstraintOptions,
    ensemble: EnsembleOptions,
    job: LargeJobOptions,
    formats: FormatOptions,
    documents: DocumentOptions,
    options: TranslatorOptions,
    quiet: QuietOption = False,
    **decoding: Unpack["SearchOverrides"],
) -> None:
    """Translate text, one line out for each line in, or a document.

    The order is kept. Blank lines stay blank. In float32 a line's translation does not depend on
    its neighbors. Of a document, such as a page of HTML, everything stays but its text.

    Examples:
        tformer translate runs/quickstart "The old house is green."
        tformer translate runs/quickstart -i a.en -o a.fr --beam-size 8
        cat a.en | tformer translate runs/quickstart --n-best 3 --format jsonl
        tformer translate runs/quickstart page.html -o page.fr.html
        tformer translate runs/quickstart crm.csv -o crm.fr.csv --column comment
    """
    formats.check()
    if formats.doubt:
        refuse({"ensemble": ensemble.ensemble}, "--doubt is calibrated for one model; omit it")
        refuse(
            {"adapter": options.adapter},
            "--doubt is calibrated without it; calibrate what `tformer export --adapter` writes",
        )
    # Before a model is loaded: a wrong value is an error at once
    more = {**ensemble.arguments(), **constraints.arguments()}
    if documents.may_be_meant(text, files):
        from tformer_cli.cli.commands.document import chosen_document, translate_document

        reads_records = is_given(ctx, "input_format")
        if document := chosen_document(
            documents.document, text, files, reads_records=reads_records
        ):
            refuse_of_lines(job, formats)
            terms = constraints.terms()
            documents.check(document.format.name, document.format.takes)
            translate_document(
                document,
                files.output,
                partial(languages_of, model, options),
                lambda: without_labels(model, options).open(
                    model, quiet=quiet, glossary=terms, **more, **decoding
                ),
                protects=documents.protect is not False,
                summary_file=documents.summary,
                doubt_format=formats.check_document(files.output, documents.summary),
                reading=documents.reading(),
                quiet=quiet,
            )
            return
    documents.check_lines()
    formats.check_lines()
    if documents.document is not None and text and len(text) == 1 and Path(text[0]).is_file():
        files, text = replace(files, input_file=text[0]), None  # a file of lines
    read = LineCounts()
    lines = input_lines(text, files.input_file, read, "--input", quiet=quiet)
    is_stdin, is_typed = files.is_stdin(text), files.is_typed(text)
    check_stdin_is_read_once([STANDARD_STREAM if is_stdin else "", constraints.glossary])
    # These imports make objects that stay: looking through them takes time, now and later
    with without_garbage_collection():
        from tformer_cli.kinds.lines.job import ResultCounts
        from tformer_cli.kinds.lines.translate import translated_text

    settings = {name: value for name, value in ctx.params.items() if name not in WITHOUT_EFFECT}
    chosen, lines = chosen_lines(lines, files.input_file, job.shard)
    counts, terms = ResultCounts(n_best=formats.n_best), constraints.terms()
    # The output first: an unwritable one is an error at once, not after the model is loaded
    with opened_output(files, model, settings, resume=job.resume) as (stream, resumed):
        n_before = resumed.done if resumed is not None else 0
        opened = options.open(
            model, quiet=quiet, n_best=formats.n_best, glossary=terms, **more, **decoding
        )
        buffers = translated_text(
            lines=telling_of_markup(islice(lines, n_before, None), chosen.start + n_before),
            counts=counts,
            input_name="stdin" if is_stdin else files.input_file or "arguments",
            buffer_lines=job.buffer_lines or (1 if is_typed else None),
            first_index=chosen.start + n_before,
            max_wait=job.max_wait,
            **{
                **formats.arguments(
                    opened,
                    is_calibrated_search=not (
                        ensemble.ensemble or options.adapter or documents.protect
                    ),
                    quiet=quiet,
                ),
                **documents.arguments(opened, counts, formats),
            },
        )

        def mark_buffers() -> "Iterator[list[str]]":
            for buffer in buffers:
                yield buffer
                # Only now is the buffer written: what is marked is not translated again
                if resumed is not None:
                    resumed.mark(n_before + counts.lines)

        seconds = write_lines(
            stream,
            mark_buffers(),
            counts,
            output=files.output,
            total=lambda: len(chosen) or files.count(text),
            is_hidden=quiet or is_typed,
        )
    result = f"{count_of_lines(counts.lines)} in {seconds:.1f} s"
    rate = counts.lines / max(seconds, 1e-9)
    # Who types sentences or gives them as arguments asks for no speed
    note(f"{result}, {rate:,.1f} lines/s", quiet=quiet or is_typed or bool(text))
    warn_of_bytes(read)
    warn_of_results(counts, quiet=quiet)
