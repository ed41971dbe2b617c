"""Outputs that would destroy something: an input of the same command, or a file of a model.

Two names mean one file if device and inode are equal: through links, in another case where the
file system ignores case, and under ``/dev/stdin``. A path that is neither a file nor a directory
(``/dev/null``, a named pipe) cannot be destroyed.

Two rules replace a list of names that other tools give their files. Nothing that is read is
replaced: what was named, what lies in the directory of a model of another tool, and what the
program opens while it runs (`files.atomic`). And a file is replaced only if its content may be an
earlier result of the same command (`files.regular_file`), or the user insists.
"""

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from enum import Enum
from itertools import islice
from pathlib import Path

from tformer_cli.errors import UsageError
from tformer_cli.files.regular_file import content_of, open_regular
from tformer_cli.files.remote import shown_url
from tformer_cli.settings import dataclass

LAYOUT = frozenset(
    {
        *("config.json", "tokenizer.json", "model.safetensors", "frequencies.json"),
        *("shortlist.safetensors", "doubt.json", "lens.safetensors"),
        *("recipe.toml", "metrics.jsonl", "heads.jsonl", "heads-probe.jsonl", ".lock"),
        *("state.json", "optimizer.safetensors", "average.safetensors"),
        *("manifest.json", "origin.json"),
        *("imported.json", "adapter_config.json", "adapter_model.safetensors"),
    }
)
"""Files of model, run and checkpoint directories, dumps and exports."""
MOST_FILES = 10_000
"""Files looked at in the directory of another tool's model, for links to one."""
CODE = frozenset({".toml", ".yaml", ".yml", ".py", ".ipynb", ".sh", ".js", ".c", ".h"})
"""Endings of files that people write by hand, and no command."""
TREES = frozenset({"checkpoints", "tensorboard", "adapter"})
"""Directories of a run that belong to it with all their contents."""
_RECIPE, _TOKENIZER, _ORIGIN = "recipe.toml", "tokenizer.json", "origin.json"
_KINDS = (
    ("checkpoint", ("state.json", "model.safetensors")),
    ("run", ("recipe.toml", "metrics.jsonl")),
    ("run", ("recipe.toml", "checkpoints")),
    ("run", ("recipe.toml", ".lock")),
    ("model", ("config.json", "model.safetensors")),
    ("model", ("tokenizer.json", "model.safetensors")),
    ("export", (_ORIGIN, "model.bin")),
    ("adapter", ("adapter_config.json", "adapter_model.safetensors")),
    ("dump", ("manifest.json", "part-00000.safetensors")),
    ("translated corpus", ("manifest.json", "shards.jsonl")),
    *(
        ("translated corpus", ("manifest.json", f"part-00000.{ending}"))
        for ending in ("txt", "tsv", "csv", "jsonl", "parquet")
    ),
)
"""Files that together identify each kind of directory, even if others are missing."""


class Writes(Enum):
    """Kind of an output."""

    FILE = "a file that is written, or replaced"
    NEW_FILE = "a file that must not exist, which the command looks after itself"
    DIRECTORY = "a directory that is written whole"
    RUN = "a directory that the files of a run are written into"
    FILES = "a directory that files are added to"


@dataclass(frozen=True, kw_only=True)
class NamedPath:
    """A file or directory with the option that names it."""

    name: str
    """The option, argument or key that names it."""
    path: Path
    descriptor: int | None = None
    """Descriptor of an open stream, which may have no path."""
    is_model: bool = False
    """True of the directory of a model, which libraries read in ways that no one sees."""

    def status(self) -> os.stat_result | None:
        with suppress(OSError, ValueError):
            return self.path.stat() if self.descriptor is None else os.fstat(self.descriptor)
        return None

    def is_file(self) -> bool:
        status = self.status()
        return status is not None and stat.S_ISREG(status.st_mode)


@dataclass(frozen=True, kw_only=True)
class Output(NamedPath):
    """A file or directory to be written."""

    writes: Writes = Writes.FILE
    holds: frozenset[str] | None = None
    """Formats in which it may be written, as `content_of` names them; None: not looked at."""
    is_document: bool = False
    """True if it is a translated document, which does not say who wrote it."""
    is_named: bool = False
    """True if its name shows it: an existing file is a document of the same format."""


def standard_stream(name: str, descriptor: int) -> list[Output]:
    """The file that an open stream was redirected to, if any."""
    path = _real(Path(f"/dev/fd/{descriptor}"))
    place = Output(name=name, path=path, descriptor=descriptor)
    status = place.status()
    return [] if status is None or not stat.S_ISREG(status.st_mode) else [place]


def check_outputs(outputs: Sequence[Output], inputs: Sequence[NamedPath]) -> None:
    """Checks that no output destroys an input, a model's file, another output or a foreign file."""
    # No file: nothing to destroy, and perhaps the name of a shipped recipe or a published model
    inputs = [source for source in inputs if source.status() is not None]
    for number, output in enumerate(outputs):
        if _is_special(output):
            continue
        advice = _advice(output)
        if url := shown_url(os.path.relpath(output.path)):  # it may have become a whole path
            raise UsageError(
                f"{output.name}: {url} is not on this machine, where outputs are written; name a "
                "path here, and copy it there"
            )
        for source in inputs:
            if problem := _problem(output, source):
                raise UsageError.of(
                    "{}: {} the input ({}); {}", output.name, problem, source.name, advice
                )
        owner = _owner(output)
        if owner is not None:
            raise UsageError.of("{}: {} belongs to {}; {}", output.name, output.path, owner, advice)
        for other in outputs[:number]:
            if is_same(output, other):
                raise UsageError(
                    f"{output.name}: {output.path} is also the output ({other.name}); {advice}"
                )
        _check_content(output, advice)


def check_links(place: NamedPath) -> None:
    """Refuses links that lead round in a circle, which no path can be made of."""
    try:
        if place.descriptor is None:
            place.path.stat()
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise UsageError(
                f"{place.name}: {place.path} is a loop of links; name another path"
            ) from None
    except ValueError:  # no path at all
        return


def _check_content(output: Output, advice: str) -> None:
    """Refuses to replace a file whose content cannot be an earlier result of the same command."""
    if output.holds is None or output.is_named or not output.is_file():
        return
    try:
        content, is_ours = content_of(output.path)
    except OSError:
        content, is_ours = "a file that cannot be read", False  # unknown content may not be ours
    if content == "text" and output.path.suffix.lower() in CODE:  # a recipe, though unfinished
        content, is_ours = "code or settings, by its name", False
    if content and not ((is_ours or output.is_document) and content in output.holds):
        raise UsageError(
            f"{output.name}: {output.path} already exists and holds {content}, which this "
            f"command did not write; {advice}, or add --force to replace it"
        )


def _is_special(place: NamedPath) -> bool:
    status = place.status()
    return status is not None and not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode))


def _advice(output: Output) -> str:
    if output.name == "stdout":
        return "redirect it to another file"
    is_file = output.writes in (Writes.FILE, Writes.NEW_FILE)
    return f"name another {'file' if is_file else 'directory'}"


def is_same(first: NamedPath, second: NamedPath) -> bool:
    """True if two paths mean one file, or the same name of a file to be made."""
    ours, theirs = first.status(), second.status()
    if ours is not None and theirs is not None:
        return os.path.samestat(ours, theirs)
    if ours is not None or theirs is not None:
        return False
    with suppress(OSError, ValueError):  # a link that leads round in a circle
        return os.path.realpath(first.path) == os.path.realpath(second.path)
    return False


def _problem(output: Output, source: NamedPath) -> str:
    """Relation of an output to an input that it would destroy, in words; empty if none."""
    if is_same(output, source):
        return f"{source.path if output.descriptor is not None else output.path} is also"
    match output.writes:
        case Writes.FILE | Writes.NEW_FILE:
            return f"{output.path} belongs to" if _is_part(output, source) else ""
        case Writes.DIRECTORY:
            return f"{output.path} holds" if _lies_in(source, [output]) else ""
        case Writes.RUN:
            # The recipe of a run that was begun is the run's own: the run continues by it
            names = LAYOUT - {_RECIPE} if _is_begun(output.path) else LAYOUT
            files = (NamedPath(name="", path=output.path / name) for name in names)
            trees = [NamedPath(name="", path=output.path / name) for name in TREES]
            is_taken = any(is_same(source, file) for file in files) or _lies_in(source, trees)
            return f"{source.path} would be replaced: it is" if is_taken else ""
        case Writes.FILES:
            return ""


def _is_begun(run: Path) -> bool:
    """True if `tformer train` has written files: a mere recipe belongs to its author."""
    return (run / _TOKENIZER).exists()


def _is_part(output: Output, source: NamedPath) -> bool:
    """True if an output is, or would become, a file of a directory that is read."""
    status = source.status()
    if status is None or not stat.S_ISDIR(status.st_mode):
        return False
    is_foreign = source.is_model and not _is_ours(source.path)
    if is_foreign and output.status() is not None and _lies_in(output, [source]):
        return True
    files = islice(source.path.rglob("*"), MOST_FILES) if is_foreign else _files_of(source.path)
    if any(is_same(output, NamedPath(name="", path=file)) for file in files):
        return True
    return any(
        # Some file systems ignore case
        place.name.casefold() in LAYOUT and is_same(source, NamedPath(name="", path=place.parent))
        for place in _places(output)
    )


def _files_of(directory: Path) -> Iterator[Path]:
    """The files of our layout in a directory; users keep pages and texts next to them."""
    yield from (directory / name for name in LAYOUT)
    for tree in TREES:
        yield from (directory / tree).glob("**/*")


def _lies_in(source: NamedPath, directories: Sequence[NamedPath]) -> bool:
    """True if a path lies in one of some directories, at any depth."""
    there = [status for place in directories if (status := place.status()) is not None]
    parents = (parent for place in _places(source) for parent in place.parents) if there else ()
    statuses = (NamedPath(name="", path=parent).status() for parent in parents)
    return any(
        status is not None and os.path.samestat(status, other)
        for status in statuses
        for other in there
    )


def _owner(output: Output) -> str | None:
    """The model, run or checkpoint directory that an output belongs to, in words, if any."""
    for place in _places(output):
        name = place.name.casefold()
        kind = _kind(place.parent)
        is_shard = kind in ("dump", "translated corpus") and name.startswith("part-")
        if kind is not None and (name in LAYOUT | TREES or is_shard or kind == "export"):
            return f"the {kind} {place.parent}"
        for tree in place.parents:
            if tree.name.casefold() in TREES and _kind(tree.parent) is not None:
                return f"the run {tree.parent}"
    return None


def _kind(directory: Path) -> str | None:
    for kind, names in _KINDS:  # a directory that may not be searched seems to hold none
        if all(NamedPath(name="", path=directory / name).status() for name in names):
            return kind
    start = _settings(directory)  # of another tool, whatever holds the weights
    return "model" if b'"model_type"' in start or b'"architectures"' in start else None


def _is_ours(directory: Path) -> bool:
    """True for a directory that tformer wrote, with the files of the layout."""
    is_run = _kind(directory) not in (None, "model", "adapter")
    return is_run or b'"format_version"' in _settings(directory)


def _settings(directory: Path) -> bytes:
    with suppress(OSError, ValueError), open_regular(directory / "config.json") as stream:
        return stream.read(4096)
    return b""


def _places(output: NamedPath) -> Iterator[Path]:
    """Paths of a name: itself and, if it is a link, its target."""
    real = _real(output.path)
    yield real
    literal = _real(output.path.parent) / output.path.name  # a rename replaces the link itself
    if literal != real:
        yield literal


def _real(path: Path) -> Path:
    with suppress(OSError, ValueError):
        return Path(os.path.realpath(path))
    return path
