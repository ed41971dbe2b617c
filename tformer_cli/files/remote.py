"""Files and directories at URLs that fsspec knows, such as s3://bucket/folder, copied to the cache.

They are only read: what a program writes stays on its machine.
"""

import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path, PurePosixPath

from tformer_cli.errors import ArtifactError, TformerError, UsageError
from tformer_cli.files.atomic import await_directory, directory_aside, make_directory
from tformer_cli.files.cache import cache_directory

_URL = re.compile(r"(?!https?:)([a-z][a-z0-9+.-]+):/+(.+)")
"""A URL, also after `Path` has taken one of its slashes. Web pages are for the hub's downloads."""
_LEFT_OUT = ("checkpoints/", "tensorboard/")
"""Directories of a run that its model does without."""


def remote_url(name: Path | str) -> str:
    """Returns the URL that a name is; empty for a path of this machine."""
    found = _URL.fullmatch(str(name))
    return "" if found is None or Path(name).exists() else f"{found[1]}://{found[2]}"


def path_in(directory: Path | str, name: str) -> Path:
    """Returns the path of a file in a directory; either may be a URL, of which it is the copy."""
    place = Path(directory) / Path(name).expanduser()
    url = remote_url(name) or remote_url(place)
    return local_copy(url) if url else place


@cache  # a program sees one state of it
def local_copy(url: str) -> Path:
    """Copies a file, or a directory of them, into the cache, unless that has this state of it."""
    with _one_line_errors(url):
        from fsspec.core import url_to_fs

        system, root = url_to_fs(url)
        root = root.rstrip("/")
        found = sorted(path for path in system.find(root) if not path.endswith("/"))
        # "" of a file itself
        names = {path: path[len(root) :].lstrip("/") for path in found}
        files = {path: name for path, name in names.items() if not name.startswith(_LEFT_OUT)}
        # By what the system says about them: time, size, checksum
        state = json.dumps([url, *((name, system.ukey(path)) for path, name in files.items())])
    if not files:
        raise ArtifactError(f"{url}: no such file or directory; check the URL")
    if any(".." in name.split("/") for name in files.values()):
        raise ArtifactError(f'{url}: holds a name with ".."; give it another')
    place = cache_directory() / "remote" / hashlib.sha256(state.encode()).hexdigest()[:32]
    copy = place / PurePosixPath(root).name
    make_directory(place.parent)
    with await_directory(place.parent):  # what another process is copying is used when it is whole
        if not copy.exists():
            with directory_aside(place) as aside:
                for path, name in files.items():
                    target = aside / copy.name / name
                    target.parent.mkdir(parents=True, exist_ok=True)
                    with _one_line_errors(url):
                        system.get_file(path, str(target))
    return copy


@contextmanager
def _one_line_errors(url: str) -> Iterator[None]:
    """Says in one line what fsspec, or a package that it loads, could not do."""
    try:
        yield
    except (ImportError, ValueError) as error:  # no fsspec, no such protocol, or no package for it
        advice = "install fsspec and the package of the protocol, such as s3fs for s3://"
        raise UsageError(f"{url}: {str(error).rstrip('.')}; {advice}") from None
    except TformerError:
        raise
    except Exception as error:  # noqa: BLE001 - each package has its own
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        message = f"{url}: cannot be read ({reason}); check the URL and your rights"
        raise ArtifactError(message) from None
