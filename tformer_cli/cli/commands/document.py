"""Documents of `tformer translate`: which file is one, and the work."""

import json
import shlex
import sys
from contextlib import ExitStack
from pathlib import Path, PurePath
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

from tformer_cli.artifacts.overwriting import NamedPath
from tformer_cli.cli.line_job import FileOptions
from tformer_cli.cli.progress import line_progress, shares_terminal
from tformer_cli.cli.streams import (
    COMPRESSORS,
    STANDARD_STREAM,
    note,
    results,
    warn,
    warn_of_results,
    write_line,
)
from tformer_cli.documents.known_formats import (
    REFUSED,
    TABLES,
    Format,
    format_named,
    format_of,
    format_with,
)
from tformer_cli.errors import DataError, UsageError
from tformer_cli.text.lines import check_file
from tformer_cli.wording import count_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tformer_cli.documents.answers import ModelAnswers
    from tformer_cli.documents.segments import Document, ReadSettings
    from tformer_cli.documents.translating import Summary, Translated
    from tformer_cli.inspect.doubt import Doubter
    from tformer_cli.kinds.stored_model import Opened
    from tformer_cli.search.formats import OutputFormat

LINES = "lines"
# Files of lines have this ending, too: they are documents only where that is asked for.
_PLAIN_TEXT = "text"
_NO_LABEL = (
    "its label of the language stays, for that of the translation is not known; name it: "
    "--target-language CODE"
)
MOST_CHARACTERS = 10_000_000


class ChosenDocument(NamedTuple):
    """A document to translate."""

    file: str
    format: Format


def chosen_document(
    named_format: str | None,
    texts: list[str] | None,
    files: FileOptions,
    *,
    reads_records: bool = False,
) -> ChosenDocument | None:
    """Chooses the document, if it is one; `reads_records`: a table is lines of a named kind."""
    named = texts[0] if texts and len(texts) == 1 else None
    file = files.input_file or named or STANDARD_STREAM
    if named_format == LINES:
        return None
    if named_format is not None:
        if texts and (files.input_file is not None or named is None):
            raise UsageError("--document: takes one file; name it once, or omit it for stdin")
        return _check_names(file, format_named(named_format), files.output)
    is_file = files.input_file is not None and file != STANDARD_STREAM
    # A sentence is a text, though a file may be called so
    if texts and files.input_file is None:
        is_file = named is not None and NamedPath(name="TEXT", path=Path(named)).is_file()
    own_format = format_of(file) if is_file else None
    if reads_records and own_format is not None and own_format.extensions[0] in TABLES:
        return None
    if own_format is not None and (own_format.name != _PLAIN_TEXT or files.input_file is None):
        return _check_names(file, own_format, files.output)
    if PurePath(files.output).suffix.lower() in REFUSED:
        raise UsageError(f"--output: {files.output}: cannot be written; name a file of text")
    return None


def _check_names(file: str, chosen: Format, output: str) -> ChosenDocument:
    """Refuses names under which other programs would take the bytes for what they are not."""
    if program := COMPRESSORS.get(PurePath(file).suffix.casefold()):
        raise UsageError(
            f"{file}: documents are not read compressed; unpack it: {program} -dk "
            f"{shlex.quote(file)}"
        )
    own, suffix = (PurePath(name).suffix.lower() for name in (file, output))
    # A file of any ending may be read in a format that is named, and keeps its ending
    if suffix != own and (suffix in REFUSED or (format_with(suffix) or chosen) != chosen):
        ending = own if own in chosen.extensions else chosen.extensions[0]
        raise UsageError(
            f"--output: {output}: {chosen.name} stays {chosen.name}; name a file that ends in "
            f"{ending}"
        )
    return ChosenDocument(file, chosen)


def translate_document(
    chosen: ChosenDocument,
    output: str,
    languages: "Callable[[], Mapping[str, Any]]",
    open_model: "Callable[[], Opened]",
    *,
    protects: bool,
    summary_file: str | None,
    doubt_format: "OutputFormat | None",
    reading: "Mapping[str, Any]",
    quiet: bool,
) -> None:
    """Translates a document and says what became of it.

    `reading` are settings of the format, to which the `languages` of the model belong. With a
    `doubt_format` stdout gets a list of the segments.
    """
    from tformer_cli.documents.answers import ModelAnswers
    from tformer_cli.documents.segments import ReadSettings
    from tformer_cli.documents.translating import may_have_text

    if reading.get("encoding") and chosen.format.tells_encoding:
        raise UsageError(f"--encoding: a file of {chosen.format.name} tells its own; omit it")
    data = _read(chosen.file)
    start = monotonic()
    with ExitStack() as outputs:
        # The outputs first: an unwritable one is an error at once, not after the work
        stream = outputs.enter_context(results(output))
        summary_stream = outputs.enter_context(results(summary_file)) if summary_file else None
        name = "stdin" if chosen.file == STANDARD_STREAM else chosen.file
        # A document that cannot be read is an error before a model is loaded, too
        settings = ReadSettings(name=name, **languages(), **reading)
        document = chosen.format.read(data, settings)
        _check_longest(document, name)
        opened, doubter = open_model(), None
        if doubt_format is not None:
            doubter = _open_doubter(opened)
        answers = ModelAnswers(opened, doubter=doubter)
        is_hidden = quiet or shares_terminal(output)
        translated = _translate_document(
            document, settings, answers, protects=protects, quiet=is_hidden
        )
        stream.write(document.write(translated.segments))
        summary = translated.summary
        summary.skipped.update(document.skipped)
        if summary_stream is not None:
            record = {"format": chosen.format.name, **summary.as_json()}
            summary_stream.write(json.dumps(record, ensure_ascii=False, indent=1).encode() + b"\n")
    if doubt_format is not None:
        for line in summary.doubt_lines(doubt_format):
            write_line(line)
    result = count_of(summary.n_translated, "segment")
    note(f"{result} of {chosen.format.name} in {monotonic() - start:.1f} s", quiet=quiet)
    warn_of_results(answers.counts, quiet=quiet)
    if problem := summary.warning(has_text=may_have_text(data)):
        warn(f"{name}: {problem}")
    is_labelled = settings.target_language or not summary.n_translated
    if not is_labelled and chosen.format.tells_language(data):
        warn(f"{name}: {_NO_LABEL}")
    _warn_of_doubts(summary, summary_file or "--summary FILE")


def _open_doubter(opened: "Opened") -> "Doubter":
    from tformer_cli.inspect.doubt import Doubter

    doubter = Doubter(opened.directory)
    if different := doubter.difference(opened, opened.translator):
        warn(different)
    return doubter


def _warn_of_doubts(summary: "Summary", file: str) -> None:
    """Counts the segments to look at; the file lists them."""
    doubts = [set(segment["reasons"]) - {"restored"} for segment in summary.doubtful]
    for what, n in (
        ("whose translation is doubtful", sum(bool(reasons - {"guessed"}) for reasons in doubts)),
        ("with tags at guessed places", sum(reasons == {"guessed"} for reasons in doubts)),
    ):
        if n:
            warn(f"{count_of(n, 'segment')} {what}; {file} lists them")


def _read(file: str) -> bytes:
    if file == STANDARD_STREAM:
        return sys.stdin.buffer.read()
    check_file(file)
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise DataError(
            f"{file}: cannot be read ({(error.strerror or str(error)).lower()}); check the file"
        ) from None


def _check_longest(document: "Document", name: str) -> None:
    """Refuses a text whose tokens, some hundred times as large, would take all memory."""
    longest = max((len(segment.text) for segment in document.segments), default=0)
    if longest > MOST_CHARACTERS:
        raise DataError(
            f"{name}: has a text of {longest:,} characters, and at most {MOST_CHARACTERS:,} are "
            "translated at once; divide it"
        )


def _translate_document(
    document: "Document",
    settings: "ReadSettings",
    answers: "ModelAnswers",
    *,
    protects: bool,
    quiet: bool,
) -> "Translated":
    """Sends the lines of a document to a model."""
    from tformer_cli.documents.messages import LanguagePair
    from tformer_cli.documents.translating import translating

    languages = LanguagePair(settings.source_language, settings.target_language)
    job = translating(document.segments, protects=protects, languages=languages)
    requests = next(job)
    with line_progress(len(requests), "translating", quiet=quiet) as progress:
        while True:
            try:
                requests = job.send(answers.answers(requests, progress.update))
            except StopIteration as end:
                translated: Translated = end.value
                return translated
