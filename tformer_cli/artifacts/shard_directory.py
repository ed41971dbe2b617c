"""A directory of shards that is written over several runs of a program; nothing is done twice.

Its `manifest.json` names every finished shard with its SHA-256. A shard is written aside, flushed
and renamed, then the manifest is, so a kill at any moment leaves a directory whose next run
continues behind the last shard named. Shards follow from the items alone: an interrupted directory
ends with the bytes of an uninterrupted one.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from tformer_cli.artifacts.same_origin import check_same_origin
from tformer_cli.errors import ArtifactError
from tformer_cli.files.aside import remove_leftovers_of
from tformer_cli.files.atomic import (
    make_directory,
    not_writable,
    remove_leftovers,
    write_text,
    written_aside,
)
from tformer_cli.files.hashes import hash_file
from tformer_cli.files.lock import hold
from tformer_cli.files.regular_file import read_regular

MANIFEST = "manifest.json"
LARGEST_MANIFEST = 1 << 28
ANEW = "remove the directory to begin anew, or name another"


@dataclass
class ShardDirectory:
    """The shards so far."""

    path: Path
    """Path of the directory."""
    about: Mapping[str, Any]
    """Head of the manifest."""
    origin: Mapping[str, str]
    """Origin of the shards: names of inputs and settings with their values."""
    shards: list[dict[str, Any]] = field(default_factory=list)
    """Each shard's `file`, `sha256`, `bytes`, `items`, and the facts given to `add`."""
    is_complete: bool = False
    """True if all items are in."""

    @property
    def done(self) -> int:
        """Items that are in the shards."""
        return sum(int(shard["items"]) for shard in self.shards)

    @property
    def n_bytes(self) -> int:
        """Bytes of the shards."""
        return sum(int(shard["bytes"]) for shard in self.shards)

    def add(
        self, write: Callable[[BinaryIO], None], n_items: int, facts: Mapping[str, Any]
    ) -> None:
        """Writes the next shard and names it in the manifest.

        Args:
            write: writes it to the stream that it is given.
            n_items: items it holds.
            facts: its other entries in the manifest.

        Raises:
            ArtifactError: if it cannot be written.
        """
        file = self.path / f"part-{len(self.shards):05d}.safetensors"
        with written_aside(file) as aside:
            with aside.open("wb") as stream:
                write(stream)
            sha256, n_bytes = hash_file(aside), aside.stat().st_size
        self.shards.append(
            {"file": file.name, "sha256": sha256, "bytes": n_bytes, "items": n_items, **facts}
        )
        self.write_manifest()

    def finish(self) -> None:
        """Marks the directory as complete."""
        self.is_complete = True
        self.write_manifest()

    def write_manifest(self) -> None:
        """Writes the manifest."""
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
    """Opens a directory of shards, new or begun before, for this process alone.

    Args:
        path: the directory; it is made if it is not there.
        about: head of the manifest.
        origin: inputs and settings that the shards are made from.

    Raises:
        ArtifactError: if something else is there, or it was begun from something else, or a shard
            differs from the manifest, or it cannot be written.
    """
    make_directory(path)
    with held_directory(path):
        remove_leftovers_of(path / MANIFEST)
        directory = ShardDirectory(path, about, origin)
        if (path / MANIFEST).exists():
            remove_leftovers(path)
            directory.shards, directory.is_complete = _begun(path, origin)
        elif any(path.iterdir()):
            raise ArtifactError(
                f"{path}: holds files that are not part of a dump; name another directory"
            )
        else:
            directory.write_manifest()
        yield directory


@contextmanager
def held_directory(path: Path) -> Iterator[None]:
    """Holds a directory, where the system can hold one, without leaving a file in it.

    Raises:
        ArtifactError: if another process holds it.
    """
    if os.name != "posix":
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


def _begun(path: Path, origin: Mapping[str, str]) -> tuple[list[dict[str, Any]], bool]:
    """The shards of an earlier run, checked."""
    manifest = path / MANIFEST
    try:
        found = json.loads(read_regular(manifest, LARGEST_MANIFEST))
        theirs, is_complete = dict(found["origin"]), bool(found["is_complete"])
        shards = [dict(shard) for shard in found["shards"]]
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
