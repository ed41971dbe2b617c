"""Documents while they are translated: read, handed out in windows of lines, and written.

Long ones are read in a process of its own: Python cannot be stopped in a thread, keeps the memory
that a document took, and lets nothing else compute meanwhile. The process takes orders on its
standard input, one document at a time, and is killed by whoever has enough of it.
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
"""Bytes of an upload when it is unpacked."""
MEMORY = 1 << 30
"""Bytes that a process may take: an upload of the largest size, as files of people are."""
WINDOW_LINES = 256
WINDOW_CHARACTERS = 64 << 10
"""A window ends with the line that reaches so many."""
LONGEST_LINE = 50_000
"""Characters that the engine prepares in one go, while sentences wait."""
LOOKED_AT = 100
"""Segments of a document by which its language is guessed."""
LOOKED_AT_CHARACTERS = 1000
"""Characters of each such segment."""
NICENESS = 5
"""Leaves it a quarter of the processor, as bulk requests have, where sentences need all."""
GRACE = 5.0
"""Seconds after which a process ends itself, if whoever should have ended it is gone."""
_PEAK = re.compile(r"VmHWM:\s+(\d+) kB")
Frame = tuple[dict[str, Any], "list[bytes]"]
"""An order or a reply: an object of JSON, and contents of files."""


class Session:
    """The documents of one request; its orders are `read`, then `next` until it brings files."""

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
        # Else nobody asks, and of a large document it takes a while
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
        """Takes the translations of a window, and returns the next one, or the files."""
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
    """Makes links of what JSON makes of them."""
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
    sys.stdout = sys.stderr  # what is printed by mistake is no reply
    os.nice(NICENESS)
    with suppress(ValueError, OSError):  # of a system that allows less, or knows no such limit
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(OSError):  # of a machine whose memory ends, this goes first
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
        except Exception as error:  # noqa: BLE001 - told to whoever asked
            head, files = error_reply(error), []
        signal.alarm(0)
        if "lines" not in head and "texts" not in head:
            session = Session()
        try:
            write_frame(replies, {**head, "peak": peak_bytes()}, files)
        except BrokenPipeError:  # the service was killed meanwhile
            os._exit(1)


def peak_bytes() -> int:
    """Returns the most memory that this process has taken; 0: the system does not say."""
    # What the other functions return begins with the memory of the process that started this one
    with suppress(OSError):
        if match := _PEAK.search(Path("/proc/self/status").read_text("ascii")):
            return int(match[1]) << 10
    return 0


def error_reply(error: Exception) -> dict[str, Any]:
    """Makes a reply of an error."""
    kind = type(error).__name__
    is_known = isinstance(error, TformerError)
    return {"error": kind, "is_known": is_known, "message": str(error).partition("\n")[0]}


if __name__ == "__main__":
    main()
