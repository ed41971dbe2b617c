"""Documents during translation: read, handed out in windows of lines, and written.

Long documents are read in a separate process, since a Python thread cannot be stopped, does not
return the memory of a document, and blocks other threads. The process takes orders on standard
input, one document at a time; the service kills it when a client leaves or time runs out.
"""

from __future__ import annotations

import json
import math
import os
import re
import resource
import signal
import sys
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from tformer_cli.documents.known_formats import format_named
from tformer_cli.documents.messages import LanguagePair
from tformer_cli.documents.projection import Link
from tformer_cli.documents.segments import ReadSettings, TooLargeError
from tformer_cli.documents.translating import Answer, may_have_text, translating
from tformer_cli.errors import TformerError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tformer_cli.documents.segments import Segment
    from tformer_cli.documents.translating import Request, Translated

MOST_SEGMENTS = 100_000
MOST_BYTES = 64 << 20
"""Maximum size of an upload after decompression, in bytes."""
MEMORY = 1 << 30
"""Memory limit of a process in bytes; enough for typical files of the maximum upload size."""
WINDOW_LINES = 256
WINDOW_CHARACTERS = 64 << 10
"""A window ends with the line that reaches this many characters."""
LONGEST_LINE = 50_000
"""Maximum characters of a line: the engine prepares it in one go, while sentences wait."""
LOOKED_AT = 100
"""Segments of a document used to guess its language."""
LOOKED_AT_CHARACTERS = 1000
"""Characters of each such segment."""
NICENESS = 5
"""Leaves the process a quarter of a busy processor, the share of bulk requests."""
GRACE = 5.0
"""Seconds after which a process ends itself if the service did not end it."""
_PEAK = re.compile(r"VmHWM:\s+(\d+) kB")
Frame = tuple[dict[str, Any], "list[bytes]"]
"""An order or a reply: a JSON object and the contents of files."""


class Session:
    """The documents of one request: takes the order `read`, then `next` until files come back."""

    def __init__(self) -> None:
        self._lines: Sequence[Request] = ()
        self._answers: list[Answer] = []
        self._n_given = 0

    def obey(self, order: Mapping[str, Any], contents: list[bytes]) -> Frame:
        """Carries out an order."""
        if order["do"] == "read":
            # JSON has no tuples
            items = order["settings"].items()
            options: dict[str, Any] = {
                name: tuple(v) if isinstance(v, list) else v for name, v in items
            }
            return self._read(order["format"], ReadSettings(**options), contents)
        return self._next([Answer(text, _links(links)) for text, links in order["answers"]])

    def _read(self, name: str, settings: ReadSettings, contents: list[bytes]) -> Frame:
        self._name = settings.name
        settings = replace(settings, most_segments=MOST_SEGMENTS, most_bytes=MOST_BYTES)
        read = format_named(name).read
        data = b"".join(contents) if len(contents) > 1 else contents[0]
        self._documents = [read(contents.pop(0), settings) for _ in range(len(contents))]
        self._segments = [document.segments for document in self._documents]
        # Only needed without segments, and slow for a large document
        self._has_text = not any(self._segments) and may_have_text(data)
        first = islice(self._all_segments(), LOOKED_AT)
        texts = [segment.text[:LOOKED_AT_CHARACTERS] for segment in first]
        pair = LanguagePair(target=settings.target_language)
        self._job = translating(list(self._all_segments()), protects=True, languages=pair)
        self._lines = next(self._job)
        self._check_lines()
        return {"texts": texts}, []

    def _check_lines(self) -> None:
        longest = max((len(line.text) for line in self._lines), default=0)
        if longest > LONGEST_LINE:
            raise TooLargeError(
                f"{self._name}: has a paragraph of {longest:,} characters, more than "
                f"{LONGEST_LINE:,}; divide it"
            )

    def _all_segments(self) -> Iterator[Segment]:
        return (segment for segments in self._segments for segment in segments)

    def _next(self, answers: list[Answer]) -> Frame:
        """Takes the translations of a window; returns the next window, or the files."""
        self._answers += answers
        while len(self._answers) == len(self._lines):
            try:
                self._lines = self._job.send(self._answers)
            except StopIteration as end:
                return self._write_documents(end.value)
            self._answers, self._n_given = [], 0
            self._check_lines()
        window: list[Request] = []
        n_characters = 0
        while (
            self._n_given < len(self._lines)
            and len(window) < WINDOW_LINES
            and n_characters < WINDOW_CHARACTERS
        ):
            window.append(self._lines[self._n_given])
            n_characters += len(window[-1].text)
            self._n_given += 1
        return {"lines": [(line.text, line.needs_links) for line in window]}, []

    def _write_documents(self, translated: Translated) -> Frame:
        remaining = iter(translated.segments)
        contents = [
            document.write(list(islice(remaining, len(own))))
            for document, own in zip(self._documents, self._segments, strict=True)
        ]
        for document in self._documents:
            translated.summary.skipped.update(document.skipped)
        warning = translated.summary.warning(has_text=self._has_text)
        summary = {**translated.summary.counts(), **({"warning": warning} if warning else {})}
        return {"summary": summary}, contents


def _links(plain: Sequence[Any] | None) -> list[Link] | None:
    """Restores links from their JSON form."""
    return plain if plain is None else [Link(tuple(a), tuple(b)) for a, b in plain]


def write_frame(stream: IO[bytes], head: Mapping[str, Any], contents: Sequence[bytes]) -> None:
    text = json.dumps({**head, "sizes": [len(content) for content in contents]}).encode()
    stream.write(len(text).to_bytes(8, "big") + text)
    stream.writelines(contents)
    stream.flush()


def read_frame(stream: IO[bytes]) -> Frame | None:
    """Reads what `write_frame` wrote; None: the stream has ended."""
    size = stream.read(8)
    head = stream.read(int.from_bytes(size, "big")) if len(size) == 8 else b""
    if not head:
        return None
    fields = json.loads(head)
    return fields, [stream.read(size) for size in fields.pop("sizes")]


def main() -> None:
    """Carries out orders until there are no more."""
    orders, replies = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr  # stray prints must not look like replies
    os.nice(NICENESS)
    with suppress(ValueError, OSError):  # the system allows less, or has no such limit
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(OSError):  # when memory runs out, this process is killed first
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    session = Session()
    while (frame := read_frame(orders)) is not None:
        order, contents = frame
        del frame
        signal.alarm(math.ceil(order["seconds"] + GRACE))
        if order["do"] == "read":
            session = Session()
        try:
            head, files = session.obey(order, contents)
        except Exception as error:  # noqa: BLE001 - the reply carries it
            head, files = error_reply(error), []
        signal.alarm(0)
        if "lines" not in head and "texts" not in head:
            session = Session()
        try:
            write_frame(replies, {**head, "peak": peak_bytes()}, files)
        except BrokenPipeError:  # the service was killed meanwhile
            os._exit(1)


def peak_bytes() -> int:
    """Peak memory of this process in bytes; 0 if the system does not report it."""
    # Other functions include the memory of the parent process
    with suppress(OSError):
        if match := _PEAK.search(Path("/proc/self/status").read_text("ascii")):
            return int(match[1]) << 10
    return 0


def error_reply(error: Exception) -> dict[str, Any]:
    """Turns an error into a reply."""
    kind = type(error).__name__
    is_known = isinstance(error, TformerError)
    message = error.in_arguments if isinstance(error, TformerError) else str(error)
    return {"error": kind, "is_known": is_known, "message": message.partition("\n")[0]}


if __name__ == "__main__":
    main()
