"""Sockets: the tables that other packages add rows to.

- A table names what ships; to look up such a name reads nothing from disk.
- Another package names its row as an entry point of the table's group, such as `tformer.views`. Its
  row has the type of the rows that ship.
- Installed packages are searched only for an unknown name and for a list of all names.
- A row that fails to load, or that has another type or name than it promised, is skipped with one
  warning that names its package.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from importlib.metadata import EntryPoint

Row = TypeVar("Row")
PREFIX = "tformer."
_METADATA = (".dist-info", ".egg-info")


def _warn(message: str) -> None:
    warnings.warn(message, RuntimeWarning, stacklevel=2)


report: Callable[[str], None] = _warn
"""Shows a warning; the program prints it as one line."""


def load_place(place: str) -> Any:  # noqa: ANN401 - whatever stands there
    """Imports the object at `MODULE:NAME`."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


class Socket(Mapping[str, Row], Generic[Row]):
    """A table of rows by their names: those that ship first, then those of other packages."""

    def __init__(self, group: str, row_type: type[Row], shipped: Mapping[str, Row | str]) -> None:
        """Takes the rows that ship, or their places as `MODULE:NAME`, imported at first use."""
        self.group, self.shipped = PREFIX + group, shipped
        self.row_type, self._loaded = row_type, dict[str, Row | None]()

    def __getitem__(self, name: str) -> Row:
        row = self._find(name)
        if row is None:
            raise KeyError(name)
        return row

    # Mapping's own two would hide a KeyError of a module that is imported
    def __contains__(self, name: object) -> bool:
        return name in self.shipped or (isinstance(name, str) and self._find(name) is not None)

    def get(self, name: str, default: Any = None) -> Any:  # noqa: ANN401 - as Mapping's
        row = self._find(name)
        return default if row is None else row

    def __iter__(self) -> Iterator[str]:
        yield from self.shipped
        yield from self.added

    def __len__(self) -> int:
        return len(self.shipped) + len(self.added)

    @property
    def added(self) -> dict[str, Row]:
        """The rows of other packages."""
        rows = ((name, self._find(name)) for name in _entry_points(self.group))
        return {name: row for name, row in rows if row is not None and name not in self.shipped}

    def _find(self, name: str) -> Row | None:
        row = self.shipped.get(name)
        if not isinstance(row, str) and row is not None:
            return row
        if name not in self._loaded:
            entries = _entry_points(self.group).get(name, ()) if row is None else ()
            outside = self._load(*entries) if entries else None
            self._loaded[name] = outside if row is None else load_place(row)
        return self._loaded[name]

    def _load(self, entry: EntryPoint, *others: EntryPoint) -> Row | None:
        try:
            row = entry.load()
            problem = self._problem(entry, row, others)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever its code does
            report(self.describe_failure(entry.name, error))
            return None
        if problem:
            report(self._message(entry, problem))
        return None if problem else row

    def describe_failure(self, name: str, error: BaseException) -> str:
        """Names the package whose row, or what it names, cannot be loaded; empty if it ships."""
        entries = () if name in self.shipped else _entry_points(self.group).get(name, ())
        if not entries:
            return ""
        reason = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        return self._message(entries[0], f"cannot be loaded ({reason})")

    def _message(self, entry: EntryPoint, problem: str) -> str:
        place = f"{self.group}: {entry.name} ({entry.value})"
        return f"{_package(entry)}: {place} {problem}; update or remove the package"

    def _problem(self, entry: EntryPoint, row: object, others: Sequence[EntryPoint]) -> str:
        if others:
            return f"is named by {_package(others[0])}, too"
        if not isinstance(row, self.row_type):
            return f"is no {self.row_type.__name__}"
        name = getattr(row, "name", entry.name)
        return f"calls itself {name}" if name != entry.name else getattr(row, "problem", "")


def added_names(group: str) -> dict[str, str]:
    """Names that other packages add to a table, with their places; nothing of them is imported."""
    return {name: entries[0].value for name, entries in _entry_points(PREFIX + group).items()}


def _package(entry: EntryPoint) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else "a package"


@cache
def _entry_points(group: str) -> Mapping[str, tuple[EntryPoint, ...]]:
    """Finds the entry points of a group by name; several packages may claim one."""
    if not _is_mentioned():
        return {}
    from importlib.metadata import entry_points

    try:
        entries = entry_points(group=group)
    except Exception as error:  # noqa: BLE001 - files of any package may be damaged
        report(f"{group}: the entry points of a package cannot be read ({error}); install it again")
        return {}
    return {name: tuple(entries.select(name=name)) for name in sorted(entries.names)}


@cache
def _is_mentioned() -> bool:
    """True if an installed package names a table of ours.

    Python's own search takes 40 milliseconds with its imports, this one a millisecond.
    """
    for folder in sys.path:
        try:
            names = os.listdir(folder or os.curdir)  # noqa: PTH208 - pathlib is slower
        except OSError:  # a zip file, or a folder that is gone
            continue
        packages = (f"{folder or os.curdir}/{n}" for n in names if n.endswith(_METADATA))
        if any(map(_mentions, packages)):
            return True
    return False


def _mentions(metadata: str) -> bool:
    try:
        with open(f"{metadata}/entry_points.txt", "rb") as file:  # noqa: PTH123
            return b"[" + PREFIX.encode() in file.read()
    except OSError:  # most packages have none
        return False
