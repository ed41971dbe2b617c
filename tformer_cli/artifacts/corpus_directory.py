"""A directory of numbered files that several processes write, over several runs of a program.

Each file is written aside and renamed, so an existing one is whole, and writing it twice does no
harm. `shards.jsonl` gets a line for each that is done; a kill at any moment leaves a directory that
the next run continues. At the end the lines move into `manifest.json`, in the order of the shards:
an interrupted directory ends with the bytes of an uninterrupted one.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, TypedDict

from tformer_cli.artifacts.resumable import check_same_origin
from tformer_cli.errors import ArtifactError, DataError
from tformer_cli.files.atomic import (
    hold,
    make_directory,
    not_writable,
    remove_leftovers,
    remove_leftovers_of,
    write_text,
    written_aside,
)
from tformer_cli.files.regular_file import hash_file, read_regular

MANIFEST = "manifest.json"
LARGEST_MANIFEST = 1 << 28
ANEW = "remove the directory to start over, or name another"


@dataclass
class ShardDirectory:
    """The shards so far."""

    path: Path
    about: Mapping[str, Any]
    origin: Mapping[str, str]
    """Origin of the shards: names of inputs and settings with their values."""
    shards: list[dict[str, Any]] = field(default_factory=list)
    """Each shard's `file`, `sha256`, `bytes`, `items`, and the facts given to `add`."""
    is_complete: bool = False

    @property
    def done(self) -> int:
        return sum(int(shard["items"]) for shard in self.shards)

    @property
    def n_bytes(self) -> int:
        return sum(int(shard["bytes"]) for shard in self.shards)

    def add(
        self, write: Callable[[BinaryIO], None], n_items: int, facts: Mapping[str, Any]
    ) -> None:
        """Writes the next shard and names it in the manifest."""
        file = self.path / f"part-{len(self.shards):05d}.safetensors"
        with written_aside(file) as aside:
            with aside.open("wb") as stream:
                write(stream)
            sha256, n_bytes = hash_file(aside), aside.stat().st_size
        self.shards.append(
            {"file": file.name, "sha256": sha256, "bytes": n_bytes, "items": n_items, **facts}
        )
        self.write_manifest()  # at once: a kill later loses none

    def finish(self) -> None:
        self.is_complete = True
        self.write_manifest()

    def write_manifest(self) -> None:
        manifest = {
            **self.about,
            "origin": dict(self.origin),
            "is_complete": self.is_complete,
            "items": self.done,
            "bytes": self.n_bytes,
            "shards": self.shards,
        }
        text = json.dumps(manifest, ensure_ascii=False, indent=1)
        write_text(self.path / MANIFEST, text + "\n")


@contextmanager
def shard_directory(
    path: Path, about: Mapping[str, Any], origin: Mapping[str, str]
) -> Iterator[ShardDirectory]:
    """Opens a directory of shards, new or begun before, for only this process."""
    make_directory(path)
    with held_directory(path):
        remove_leftovers_of(path / MANIFEST)
        directory = ShardDirectory(path, about, origin)
        if (path / MANIFEST).exists():
            remove_leftovers(path)  # only here: other directories are not ours
            directory.shards, directory.is_complete = _read_manifest(path, origin)
        elif any(path.iterdir()):
            raise ArtifactError(
                f"{path}: holds files that are not part of a dump; name another directory"
            )
        else:
            directory.write_manifest()
        yield directory


@contextmanager
def held_directory(path: Path) -> Iterator[None]:
    """Holds a directory, where the system can hold one, without leaving a file in it."""
    if os.name != "posix":  # elsewhere directories cannot be opened
        yield
        return
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError as error:
        raise not_writable(path, error) from None
    try:
        hold(descriptor, f"{path}: another process is writing it; wait for it")
        yield
    finally:
        os.close(descriptor)


def _read_manifest(path: Path, origin: Mapping[str, str]) -> tuple[list[dict[str, Any]], bool]:
    """The shards of an earlier run, checked."""
    manifest = path / MANIFEST
    try:
        content = json.loads(read_regular(manifest, LARGEST_MANIFEST))
        theirs, is_complete = dict(content["origin"]), bool(content["is_complete"])
        shards = [dict(shard) for shard in content["shards"]]
        named = [
            (path / f"part-{number:05d}.safetensors", str(shard["sha256"]), int(shard["items"]))
            for number, shard in enumerate(shards)
        ]
    except (OSError, ValueError, KeyError, TypeError):
        raise ArtifactError(f"{manifest}: is damaged; {ANEW}") from None
    check_same_origin(theirs, origin, manifest, ANEW)
    for file, sha256, _ in named:
        if not file.is_file() or hash_file(file) != sha256:
            raise ArtifactError(f"{file}: does not match {MANIFEST}; {ANEW}")
    return shards, is_complete


LOG = "shards.jsonl"


class ShardFacts(TypedDict):
    """Facts about a shard that is done."""

    sha256: str
    bytes: int
    counts: dict[str, int]
    """Lines, and the lines with a remark."""


@dataclass
class CorpusDirectory:
    """The shards so far."""

    path: Path
    about: Mapping[str, Any]
    """Head of the manifest: all that is known before the first shard."""
    origin: Mapping[str, str]
    """Inputs and settings that the shards are made from."""
    done: dict[int, ShardFacts] = field(default_factory=dict)
    """Shards that are done, by their numbers."""
    damaged: list[str] = field(default_factory=list)
    """Names of files that were done once, and are missing or have other bytes now."""

    def add(self, number: int, facts: ShardFacts) -> None:
        self.done[number] = facts
        try:
            with (self.path / LOG).open("a", encoding="utf-8", newline="\n") as file:
                file.write(self._line(number))
                file.flush()
                os.fsync(file.fileno())  # a shard counts once its line is on the disk
        except OSError as error:
            raise not_writable(self.path / LOG, error) from None

    def finish(self, shards: Sequence[Mapping[str, Any]]) -> None:
        entries = [{**shard, **self.done[number]} for number, shard in enumerate(shards)]
        self._write_manifest(entries, is_complete=True)
        (self.path / LOG).unlink(missing_ok=True)  # last: until the manifest is there, it counts

    def begin(self) -> None:
        """Writes the head of the manifest, without the lines of damaged shards."""
        # Lines of damaged shards would make them count again
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
    """Opens a directory of shards, new or begun before, for only this process."""
    make_directory(path)
    with held_directory(path):
        directory = begun_corpus(path, about, origin, files)
        remove_leftovers(path)
        if len(directory.done) < len(files) or not (path / MANIFEST).exists():
            directory.begin()
        try:
            yield directory
        finally:
            remove_leftovers(path)  # workers that were killed leave some


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
        facts = json.loads(read_regular(manifest, LARGEST_MANIFEST))
        schema, theirs = facts["schema"], dict(facts["origin"])
        known = dict(enumerate(facts["shards"])) or _load(path / LOG)  # unfinished ones name none
        directory.done = {number: _facts(known[number]) for number in sorted(known)}
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise ArtifactError(f"{manifest}: is damaged or of another kind; {ANEW}") from None
    if schema != about["schema"]:
        raise ArtifactError(f"{manifest}: has another schema ({schema}); name a new directory")
    check_same_origin(theirs, origin, manifest, ANEW)
    for number in [*directory.done]:
        if number >= len(files) or not _is_whole(path / files[number], directory.done[number]):
            directory.damaged += files[number : number + 1]
            del directory.done[number]
    return directory


def _load(log: Path) -> dict[int, Any]:
    """The lines of the log; the last may have been cut off."""
    records: dict[int, Any] = {}
    for line in read_regular(log, LARGEST_MANIFEST).split(b"\n") if log.exists() else ():
        try:
            record = json.loads(line)
            records[int(record["shard"])] = record
        except (ValueError, KeyError, TypeError):
            continue  # its shard is written again
    return records


def _facts(record: Mapping[str, Any]) -> ShardFacts:
    counts = {str(name): int(count) for name, count in record["counts"].items()}
    return {"sha256": str(record["sha256"]), "bytes": int(record["bytes"]), "counts": counts}


def _is_whole(file: Path, facts: ShardFacts) -> bool:
    try:
        # The size needs no reading
        return file.stat().st_size == facts["bytes"] and hash_file(file) == facts["sha256"]
    except (OSError, DataError):
        return False
