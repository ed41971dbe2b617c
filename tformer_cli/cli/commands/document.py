"""Documents of `tformer translate`: which file is one, and the work."""

import json
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path, PurePath
from time import monotonic
from typing import TYPE_CHECKING, Any

from tformer_cli.cli.line_job import FileOptions
from tformer_cli.cli.progress import line_progress, shares_terminal
from tformer_cli.cli.streams import STANDARD_STREAM, note, results, warn, warn_of_results
from tformer_cli.documents.known_formats import REFUSED, Format, format_named, format_of
from tformer_cli.errors import DataError, UsageError
from tformer_cli.text.lines import check_file
from tformer_cli.wording import count_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tformer_cli.documents.answers import ModelAnswers
    from tformer_cli.documents.segments import Document
    from tformer_cli.documents.translating import Translated
    from tformer_cli.kinds.stored_model import Opened
    from tformer_cli.search.constraints import Term

LINES = "lines"
# Files of lines have this ending, too: they are documents only where that is asked for.
_PLAIN_TEXT = "text"
_WRITTEN = "file of text, or of the document's own format"


@dataclass(frozen=True)
class ChosenDocument:
    """A document to translate."""

    file: str
    format: Format


def chosen_document(
    named_format: str | None, texts: list[str] | None, files: FileOptions
) -> ChosenDocument | None:
    """Chooses the document, if it is one."""
    named = texts[0] if texts and len(texts) == 1 else None
    file = files.input_file or named or STANDARD_STREAM
    if named_format == LINES:
        return None
    if named_format is not None:
        if texts and (files.input_file is not None or named is None):
            raise UsageError("--document: takes one file; name it once, or omit it for stdin")
        return ChosenDocument(file, format_named(named_format))
    is_file = files.input_file is not None and file != STANDARD_STREAM
    # A sentence is a text, though a file may be called so
    if named is not None and files.input_file is None and files.output != STANDARD_STREAM:
        is_file = _is_file(named)
        if not is_file and " " not in named and format_of(named) is not None:
            raise UsageError(
                f"{named}: no such file; name a document, or add --document lines to "
                "translate these words"
            )
    found = format_of(file) if is_file else None
    if texts and PurePath(files.output).suffix.lower() in REFUSED:
        raise UsageError(f"--output: {files.output}: cannot be written; name a {_WRITTEN}")
    if found is None or (found.name == _PLAIN_TEXT and files.input_file is not None):
        return None
    return ChosenDocument(file, found)


def _is_file(name: str) -> bool:
    try:
        return Path(name).is_file()
    except (OSError, ValueError):  # longer than a name can be
        return False


def translate_document(
    chosen: ChosenDocument,
    output: str,
    open_model: "Callable[[], Opened]",
    glossary: "Sequence[Term]",
    target_language: str,
    *,
    protects: bool,
    summary_file: str | None,
    reading: "Mapping[str, Any]",
    quiet: bool,
) -> None:
    """Translates a document and says what became of it; `reading` are settings of the format."""
    from tformer_cli.documents.answers import ModelAnswers
    from tformer_cli.documents.segments import ReadSettings

    data = _read(chosen.file)
    start = monotonic()
    with ExitStack() as outputs:
        # The outputs first: an unwritable one is an error at once, not after the work
        stream = outputs.enter_context(results(output))
        told = outputs.enter_context(results(summary_file)) if summary_file else None
        opened = open_model()
        info = opened.directory.info
        document = chosen.format.read(
            data,
            ReadSettings(
                name="stdin" if chosen.file == STANDARD_STREAM else chosen.file,
                source_language=info.source_language,
                target_language=target_language or info.target_language,
                **reading,
            ),
        )
        answers = ModelAnswers(opened, glossary, protects=protects)
        is_hidden = quiet or shares_terminal(output)
        made = _translated(document, answers, protects=protects, quiet=is_hidden)
        stream.write(document.write(made.segments))
        if told is not None:
            found = {"format": chosen.format.name, **made.summary.as_json()}
            told.write(json.dumps(found, ensure_ascii=False, indent=1).encode() + b"\n")
    summary = made.summary
    done = count_of(summary.n_translated, "segment")
    note(f"{done} of {chosen.format.name} in {monotonic() - start:.1f} s", quiet=quiet)
    warn_of_results(answers.counts, quiet=quiet)
    if doubtful := [one for one in summary.doubtful if one["reasons"] != ["restored"]]:
        where = "--summary FILE lists them" if summary_file is None else summary_file
        warn(f"{count_of(len(doubtful), 'segment')} whose translation is doubtful; {where}")


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


def _translated(
    document: "Document", answers: "ModelAnswers", *, protects: bool, quiet: bool
) -> "Translated":
    """Sends the lines of a document to a model."""
    from tformer_cli.documents.translating import translating

    job = translating(document.segments, protects=protects)
    requests = next(job)
    with line_progress(len(requests), "translating", quiet=quiet) as progress:
        while True:
            try:
                requests = job.send(answers.answers(requests, progress.update))
            except StopIteration as end:
                made: Translated = end.value
                return made
