"""Translated files waiting for download, in a private folder under unguessable names."""

import os
import re
import secrets
import shutil
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from threading import Lock
from urllib.parse import quote
from weakref import finalize

from tformer_cli.files.atomic import held_directory, hold_again

PREFIX = "tformer-serve-held-"
"""Prefix of folders that a running process holds; older versions did not hold theirs."""
SECONDS = 30 * 60
MOST_BYTES = 256 << 20
LONGEST_NAME = 100
_ID = re.compile(r"[0-9a-f]{32}")
_UNSAFE = re.compile(r"[^\w.-]+")


class Downloads:
    """Files available for half an hour; the oldest are removed when they take too much space."""

    def __init__(self, seconds: float = SECONDS, most_bytes: int = MOST_BYTES) -> None:
        self._seconds, self._most_bytes = seconds, most_bytes
        self._checking = Lock()

    @cached_property
    def _first_folder(self) -> Path:
        folder, descriptor = held_directory(PREFIX)
        self._descriptors = [descriptor]
        finalize(self, _remove, folder, self._descriptors, os.getpid())
        return folder

    @property
    def folder(self) -> Path:
        """The folder that all processes of a service share, created on first use.

        It is created again if someone has removed it.
        """
        with self._checking:
            folder = self._first_folder
            try:
                is_held = os.path.samestat(folder.stat(), os.fstat(self._descriptors[0]))
            except OSError:
                is_held = False
            if not is_held:
                again = hold_again(folder)
                os.close(self._descriptors[0])
                self._descriptors[0] = again
            return folder

    def add(self, name: str, content: bytes) -> str:
        """Stores a file; returns the part of its address after /download_file/."""
        self._forget(len(content))
        token = secrets.token_hex(16)
        try:
            (self.folder / token).write_bytes(content)
        except OSError:
            (self.folder / token).unlink(missing_ok=True)
            raise
        return f"{token}.{safe_name(name)}"

    def find(self, address: str) -> tuple[str, bytes] | None:
        """Returns the name and content of a file; None if it does not exist or has expired."""
        token, _, name = address.partition(".")
        # The name comes from the client, so only the token reaches the disk
        if _ID.fullmatch(token) is None:
            return None
        self._forget(0)
        try:
            return safe_name(name), (self.folder / token).read_bytes()
        except OSError:
            return None

    def _forget(self, n_new: int) -> None:
        """Removes expired files, and the oldest ones to make room for `n_new` bytes."""
        now, total = time.time(), n_new
        files = []
        for path in self.folder.iterdir():
            with suppress(OSError):  # another worker has just removed it
                files += [(path.stat(), path)] if _ID.fullmatch(path.name) else []
        for status, path in sorted(files, key=lambda entry: -entry[0].st_mtime):
            total += status.st_size
            if now - status.st_mtime > self._seconds or total > self._most_bytes:
                path.unlink(missing_ok=True)


def _remove(folder: Path, descriptors: Sequence[int], maker: int) -> None:
    os.close(descriptors[0])
    if os.getpid() == maker:  # not a worker, whose siblings still use it
        shutil.rmtree(folder, ignore_errors=True)


def safe_name(name: str) -> str:
    """Returns a file name without folders and special characters; never empty."""
    last = re.split(r"[/\\]", name)[-1]
    return _UNSAFE.sub("_", last).strip("._")[-LONGEST_NAME:] or "translation"


def attachment(name: str) -> str:
    """Returns the Content-Disposition header of a file name (RFC 6266 and 5987)."""
    plain = name.encode("ascii", "replace").decode().replace("?", "_")
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name)}"
