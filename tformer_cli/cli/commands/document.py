"""Documents of `tformer translate`: their options, and the work."""

import json
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path, PurePath
from time import monotonic
from typing import TYPE_CHECKING

from tformer_cli.cli.line_job import FileOptions
from tformer_cli.cli.options import option_field, refuse
from tformer_cli.cli.progress import line_progress, shares_terminal
from tformer_cli.cli.streams import STANDARD_STREAM, note, results, warn, warn_of_results
from tformer_cli.documents.known_formats import BY_NAME, REFUSED, Format, format_named, format_of
from tformer_cli.errors import DataError, UsageError
from tformer_cli.text.lines import check_file
from tformer_cli.wording import count_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tformer_cli.documents.answers import ModelAnswers
    from tformer_cli.documents.segments import Document
    from tformer_cli.documents.translating import Translated
    from tformer_cli.kinds.stored_model import Opened
    from tformer_cli.search.constraints import Term
    from tformer_cli.search.translator import Translation

LINES = "lines"
# Files of lines have this ending, too: they are documents only where that is asked for.
_PLAIN_TEXT = "text"
_WRITTEN = "file of text, or of the document's own format"


@dataclass(frozen=True)
class ChosenDocument:
    """A document to translate."""

    file: str
    format: Format


@dataclass(frozen=True, kw_only=True)
class DocumentOptions:
    """Documents, and what is copied of any text."""

    document: str | None = option_field(
        None,
        "Translate a document of a format, or plain lines whatever the file is called. Formats: "
        f"{', '.join(BY_NAME)}.",
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
        "Path of values to translate in JSON, such as menu.*.title; without any, all texts. "
        "Repeatable.",
        panel="Documents",
        metavar="PATH",
    )

    def chosen(self, texts: list[str] | None, files: FileOptions) -> ChosenDocument | None:
        """Chooses the document, if it is one."""
        named = texts[0] if texts and len(texts) == 1 else None
        file = files.input_file or named or STANDARD_STREAM
        if self.document == LINES:
            return None
        if self.document is not None:
            if texts and (files.input_file is not None or named is None):
                raise UsageError("--document: takes one file; name it once, or omit it for stdin")
            return ChosenDocument(file, format_named(self.document))
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

    def check_lines(self) -> None:
        """Refuses options that only documents have."""
        given = {
            "summary": self.summary,
            "unwrap": self.unwrap or None,
            "fuzzy": self.fuzzy or None,
            "key": self.key,
        }
        refuse(given, "documents have it, lines do not; name a document, or add --document FORMAT")

    def corrected(
        self, opened: "Opened", alignments: str | None, n_best: int
    ) -> "Callable[[list[Translation]], list[Translation]] | None":
        """Makes what puts into translations of lines what they have to copy, if asked to."""
        if not self.protect:
            return None
        refuse(
            {"alignments": alignments, "n_best": n_best if n_best > 1 else None},
            "does not go with --protect, which changes the best translation; omit one of the two",
        )
        from tformer_cli.documents.answers import ModelAnswers

        return ModelAnswers(opened).restored


def _is_file(name: str) -> bool:
    try:
        return Path(name).is_file()
    except (OSError, ValueError):  # longer than a name can be
        return False


def translate_document(
    chosen: ChosenDocument,
    options: DocumentOptions,
    output: str,
    open_model: "Callable[[], Opened]",
    glossary: "Sequence[Term]",
    target_language: str,
    *,
    quiet: bool,
) -> None:
    """Translates a document and says what became of it."""
    from tformer_cli.documents.answers import ModelAnswers
    from tformer_cli.documents.segments import ReadSettings

    data = _read(chosen.file)
    start = monotonic()
    with ExitStack() as outputs:
        # The outputs first: an unwritable one is an error at once, not after the work
        stream = outputs.enter_context(results(output))
        told = outputs.enter_context(results(options.summary)) if options.summary else None
        opened = open_model()
        info = opened.directory.info
        document = chosen.format.read(
            data,
            ReadSettings(
                name="stdin" if chosen.file == STANDARD_STREAM else chosen.file,
                source_language=info.source_language,
                target_language=target_language or info.target_language,
                keys=tuple(options.key or ()),
                fills_fuzzy=options.fuzzy,
                unwraps=options.unwrap,
            ),
        )
        protects = options.protect is not False
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
        where = "--summary FILE lists them" if options.summary is None else options.summary
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
