"""Files and directories at URLs that fsspec knows, such as s3://bucket/folder, copied to the cache.

They are only read: what a program writes stays on its machine.
"""

import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from errno import EDQUOT, EFBIG, ENOSPC, EROFS
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

from tformer_cli.errors import ArtifactError, TformerError, UsageError
from tformer_cli.files.atomic import (
    await_directory,
    directory_aside,
    hold,
    make_directory,
    remove_if_unheld,
)

_URL = r"(?is)([a-z][a-z0-9+.:-]+):/{1,2}(.*)"
"""A URL, also after `Path` has taken one of its slashes; the letter of a drive is none."""
_CREDENTIALS = r"(?s)(?<=://)(?:[^/:]*:(?!\d+(?:/|$)).*|(?<!abfs://)(?<!abfss://)[^/]*)@"
"""The part before an @; Azure has a container there, and a password may hold a slash."""
_LEFT_OUT = ("checkpoints/", "tensorboard/")
"""Directories of a run that its model does without."""
_DISK_ERRORS = (EDQUOT, EFBIG, ENOSPC, EROFS)
"""Numbers of errors that reading elsewhere does not have."""
_held: dict[Path, int] = {}
"""Open copies that this process uses until it ends."""


def _log(line: str) -> None:
    import logging  # of programs in Python

    logging.getLogger("tformer").info("%s", line)


say: Callable[[str], None] = _log
"""Takes notes; the command line puts its own in this place."""


def shown_url(name: Path | str) -> str:
    """Returns the URL that a name is, without credentials; empty for a path of this machine."""
    found = re.fullmatch(_URL, str(name)) if ":/" in str(name) else None
    # Unlike that of `Path`, it takes names that are too long
    if found is None or os.path.exists(name):  # noqa: PTH110
        return ""
    rest = found[2].removesuffix("/")
    return re.sub(_CREDENTIALS, "***@", f"{found[1].lower()}://{rest}")


def remote_url(name: Path | str) -> str:
    """Returns the URL that a name is, if it can be read; empty for a path of this machine.

    Text keeps what `Path` loses: a second slash, which may belong to a name.
    """
    url = shown_url(name)
    scheme, _, rest = url.partition("://")
    problem = ""
    if rest.startswith("***@"):
        problem = "holds a user or a password; leave them to the environment or to the settings of "
        problem += "the package"
    elif scheme in ("file", "local"):
        problem = "is on this machine; name the path itself"
    elif scheme in ("http", "https") or ":" in scheme:
        problem = "pages of the web and chained URLs (::) are not read; download the file and name "
        problem += "its path"
    elif url and {"", ".", ".."} & set(rest.split("/")):
        problem = 'has a part that is empty, "." or ".."; name the URL without it'
    if problem:
        raise UsageError(f"{url}: {problem}")
    return url


def place_in(directory: Path | str, name: str) -> Path | str:
    """Returns the path of a file in a directory, or its URL if either is one."""
    path = Path(name).expanduser()
    if url := remote_url(name):
        return url
    if not path.is_absolute() and (url := remote_url(directory)):
        return remote_url(f"{url}/{name.removeprefix('./')}")
    return Path(directory) / path


def path_in(directory: Path | str, name: str) -> Path:
    """Returns the path of a file in a directory; if either is a URL, that of the copy."""
    place = place_in(directory, name)
    return place if isinstance(place, Path) else local_copy(place)


def exists(place: Path | str) -> bool:
    """Returns whether there is a file or a directory at a path or a URL, without copying it."""
    if isinstance(place, Path):
        return place.exists()
    with _one_line_errors(place):
        system, root = _open_system(place)
        return bool(system.exists(root))


@cache  # a program sees one state of it
def local_copy(url: str) -> Path:
    """Copies a file, or a directory of them, into the cache, unless that has this state of it.

    A process holds the state that it uses; the next one at this URL removes what nobody holds.
    """
    with _one_line_errors(url):
        system, root = _open_system(url)
        files = _list_files(url, system, root)
        # By what the system says about them: time, size, checksum
        state = json.dumps([url, *((name, system.ukey(path)) for path, name in files.items())])
    import hashlib  # loads a library that a cold line does without

    keys = (hashlib.sha256(text.encode()).hexdigest()[:32] for text in (url, state))
    from tformer_cli.files.cache import cache_directory  # a line at a path needs none

    place = cache_directory().joinpath("remote", *keys)
    copy = place / PurePosixPath(root).name
    make_directory(place.parent)
    with await_directory(place.parent):  # what another process is copying is used when it is whole
        if not copy.exists():
            say(f"{url}: copying to the cache")
            with directory_aside(place) as aside:
                for path, name in files.items():
                    target = aside / copy.name / name
                    target.parent.mkdir(parents=True, exist_ok=True)
                    with _one_line_errors(url):
                        system.get_file(path, str(target))
        if place not in _held and os.name == "posix":
            _held[place] = os.open(place, os.O_RDONLY)
            hold(_held[place], is_shared=True)
        for other in place.parent.iterdir():
            if other != place:
                remove_if_unheld(other)
    return copy


def _open_system(url: str) -> tuple[Any, str]:
    """Opens the file system of a URL, and returns the name of the file there."""
    from fsspec.core import url_to_fs

    system, root = url_to_fs(url)
    return system, root.rstrip("/")


def _list_files(url: str, system: Any, root: str) -> dict[str, str]:  # noqa: ANN401
    """Lists files by their whole names, each with its name in the copy: "" of a file itself."""
    is_file = system.isfile(root)  # asked first: what `find` lists is a directory to s3fs
    found = {*system.find(root), *([root] if is_file else [])}
    files = {path: path[len(root) + 1 :] for path in sorted(found) if not path.endswith("/")}
    files = {path: name for path, name in files.items() if not name.startswith(_LEFT_OUT)}
    if not files:
        raise ArtifactError(f"{url}: no such file or directory; check the URL")
    keys = {PurePosixPath(name) for name in files.values()}
    for path, name in files.items():
        is_inside = path == root or path.startswith(f"{root}/")
        if not is_inside or (name and {"", ".", ".."} & set(name.split("/"))):
            raise ArtifactError(
                f"{url}: holds {path}, which cannot be copied; give it another name"
            )
        if both := keys.intersection(PurePosixPath(name).parents):
            place = url if both == {PurePosixPath()} else f"{url}/{both.pop()}"
            raise ArtifactError(f"{place}: is a file and also a directory; rename one of them")
    return files


@contextmanager
def _one_line_errors(url: str) -> Iterator[None]:
    """Says in one line what fsspec, or a package that it loads, could not do."""
    try:
        yield
    except ImportError as error:  # how fsspec tells of another: that is in the cause
        module = getattr(error.__cause__, "name", None) or error.name or str(error)
        package = module.partition(".")[0]
        raise UsageError(f"{url}: needs the package {package}; install it") from None
    except Exception as error:
        if isinstance(error, TformerError) or getattr(error, "errno", None) in _DISK_ERRORS:
            raise
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        message = f"{url}: cannot be read ({reason}); check the URL and your rights"
        raise ArtifactError(message) from None
