"""A directory of numbered files that several processes write, over several runs of a program.

Each file is written aside and renamed, so one that is there is whole, and to write it twice does no
harm. `shards.jsonl` gets a line for each that is done; a kill at any moment leaves a directory that
the next run continues. At the end the lines move into `manifest.json`, in the order of the shards:
an interrupted directory ends with the bytes of an uninterrupted one.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

from tformer_cli.artifacts.same_origin import check_same_origin
from tformer_cli.artifacts.shard_directory import (
    ANEW,
    LARGEST_MANIFEST,
    MANIFEST,
    held_directory,
)
from tformer_cli.errors import ArtifactError, DataError
from tformer_cli.files.atomic import make_directory, not_writable, remove_leftovers, write_text
from tformer_cli.files.hashes import hash_file
from tformer_cli.files.regular_file import read_regular

LOG = "shards.jsonl"


class ShardFacts(TypedDict):
    """Facts about a shard that is done."""

    sha256: str
    bytes: int
    counts: dict[str, int]
    """Lines, and lines of which there is something to say."""


@dataclass
class CorpusDirectory:
    """The shards so far."""

    path: Path
    """Path of the directory."""
    about: Mapping[str, Any]
    """Head of the manifest: all that is known before the first shard."""
    origin: Mapping[str, str]
    """Inputs and settings that the shards are made from."""
    done: dict[int, ShardFacts] = field(default_factory=dict)
    """Shards that are done, by their numbers."""
    damaged: list[str] = field(default_factory=list)
    """Names of files that were done once, and are missing or have other bytes now."""

    def add(self, number: int, facts: ShardFacts) -> None:
        """Notes that a shard is done.

        Raises:
            ArtifactError: if it cannot be written.
        """
        self.done[number] = facts
        try:
            with (self.path / LOG).open("a", encoding="utf-8", newline="\n") as file:
                file.write(self._line(number))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise not_writable(self.path / LOG, error) from None

    def finish(self, shards: Sequence[Mapping[str, Any]]) -> None:
        """Marks the directory as complete.

        Args:
            shards: what is known of each shard before it is done.
        """
        entries = [{**shard, **self.done[number]} for number, shard in enumerate(shards)]
        self._write_manifest(entries, is_complete=True)
        (self.path / LOG).unlink(missing_ok=True)

    def begin(self) -> None:
        """Writes what is known before the first shard, and forgets what is damaged."""
        write_text(self.path / LOG, "".join(map(self._line, sorted(self.done))))
        self._write_manifest([], is_complete=False)

    def _write_manifest(self, entries: Sequence[Mapping[str, Any]], *, is_complete: bool) -> None:
        manifest = {
            **self.about, "origin": dict(self.origin), "is_complete": is_complete,
            "shards": entries,
        }  # fmt: skip
        write_text(self.path / MANIFEST, json.dumps(manifest, ensure_ascii=False, indent=1) + "\n")

    def _line(self, number: int) -> str:
        return json.dumps({"shard": number, **self.done[number]}) + "\n"


@contextmanager
def corpus_directory(
    path: Path, about: Mapping[str, Any], origin: Mapping[str, str], files: Sequence[str]
) -> Iterator[CorpusDirectory]:
    """Opens a directory of shards, new or begun before, for this process alone.

    Args:
        path: the directory; it is made if it is not there.
        about: head of the manifest.
        origin: inputs and settings that the shards are made from.
        files: name of each shard's file.

    Raises:
        ArtifactError: if something else is there, or it was begun from something else, or it
            cannot be written.
    """
    make_directory(path)
    with held_directory(path):
        directory = begun_corpus(path, about, origin, files)
        remove_leftovers(path)
        if len(directory.done) < len(files) or not (path / MANIFEST).exists():
            directory.begin()
        try:
            yield directory
        finally:
            remove_leftovers(path)


def begun_corpus(
    path: Path, about: Mapping[str, Any], origin: Mapping[str, str], files: Sequence[str]
) -> CorpusDirectory:
    """Reads what earlier runs have left in a directory; see `corpus_directory`. Writes nothing."""
    directory = CorpusDirectory(path, about, origin)
    manifest = path / MANIFEST
    if path.exists() and not path.is_dir():
        raise ArtifactError(f"{path}: is a file; name a directory")
    if not manifest.exists():
        if path.is_dir() and any(path.iterdir()):
            raise ArtifactError(f"{path}: holds other files; name a new directory")
        return directory
    try:
        found = json.loads(read_regular(manifest, LARGEST_MANIFEST))
        schema, theirs = found["schema"], dict(found["origin"])
        known = dict(enumerate(found["shards"])) or _logged(path / LOG)
        directory.done = {number: _facts(known[number]) for number in sorted(known)}
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise ArtifactError(f"{manifest}: is damaged or of another kind; {ANEW}") from None
    if schema != about["schema"]:
        raise ArtifactError(f"{manifest}: is of another kind ({schema}); name a new directory")
    check_same_origin(theirs, origin, manifest, ANEW)
    for number in [*directory.done]:
        if number >= len(files) or not _is_whole(path / files[number], directory.done[number]):
            directory.damaged += files[number : number + 1]
            del directory.done[number]
    return directory


def _logged(log: Path) -> dict[int, Any]:
    """The lines of the log; the last may have been cut off."""
    found: dict[int, Any] = {}
    for line in read_regular(log, LARGEST_MANIFEST).split(b"\n") if log.exists() else ():
        try:
            record = json.loads(line)
            found[int(record["shard"])] = record
        except (ValueError, KeyError, TypeError):
            continue  # its shard is written again
    return found


def _facts(record: Mapping[str, Any]) -> ShardFacts:
    counts = {str(name): int(count) for name, count in record["counts"].items()}
    return {"sha256": str(record["sha256"]), "bytes": int(record["bytes"]), "counts": counts}


def _is_whole(file: Path, facts: ShardFacts) -> bool:
    try:
        return file.stat().st_size == facts["bytes"] and hash_file(file) == facts["sha256"]
    except (OSError, DataError):
        return False
