"""`tformer serve`: models behind HTTP, and a page to try them."""

import os
from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from tformer_cli.cli.help import parse_size
from tformer_cli.cli.options import (
    QuietOption,
    ThreadsOption,
    argument,
    named_path,
    option_field,
)
from tformer_cli.cli.streams import STANDARD_STREAM, note, warn
from tformer_cli.errors import UsageError
from tformer_cli.plugins.serve.config import ServeSettings
from tformer_cli.runtime import n_processors, soft_limit
from tformer_cli.wording import installing

PACKAGES = ("uvicorn", "starlette", "python_multipart")
FEWEST_FILES = 64
"""Files that the system has to let a service open: a connection is one."""


def serve(
    models: list[str] = argument(
        "MODEL",
        "Model directories, hub names (owner/name), short names or pairs such as en-de, which "
        "`tformer models` lists; NAME=MODEL gives one a name.",
        role="reads_system",
    ),
    *,
    settings: ServeSettings,
    open_page: bool = option_field(False, "Open the page in a browser.", "--open"),
    threads: ThreadsOption = 0,
    quiet: QuietOption = False,
) -> None:
    """Serve models over HTTP, with a page to try them.

    Programs that speak LibreTranslate's API or OpenAI's (models, completions, embeddings, chats
    that are translations) can use it; `tformer guide serving` lists the paths. Only this machine is
    answered, unless --host says more. Answers have the bytes of `tformer translate`, whatever is
    asked at the same time.

    Examples:
        tformer serve runs/quickstart --open
        tformer serve en-de=models/ende de-en=models/deen --port 8080 --workers 2
        tformer serve runs/mine --host 0.0.0.0 --api-key-file keys.txt
    """
    missing = next((name for name in PACKAGES if find_spec(name) is None), None)
    if missing is not None:
        raise UsageError(f"serve: the package {missing} is not installed; {installing('serve')}")
    check_open_files()
    if settings.suggestions is not None:
        check_suggestions(settings.suggestions)
    if settings.log is not None:
        check_log(settings.log)
    say = partial(note, quiet=quiet)
    named = named_models(models)
    memory = None if settings.memory is None else parse_size(settings.memory, "--memory")
    cache = 0 if settings.cache.strip() == "0" else parse_size(settings.cache, "--cache")
    from tformer_cli.plugins.serve.hosts import is_loopback
    from tformer_cli.plugins.serve.security import read_keys

    keys = read_keys(settings.api_key_file)
    if not settings.host.strip():  # a script's unset variable: a socket would take any address
        raise UsageError("--host: is empty; name an address of this machine, or omit it")
    if not (keys or is_loopback(settings.host)):
        warn(f"--host: whoever reaches {settings.host} can use the models; add --api-key-file")
    from tformer_cli.files.atomic import remove_unheld
    from tformer_cli.foreign.import_model import resolve_model
    from tformer_cli.plugins.serve.documents import Documents
    from tformer_cli.plugins.serve.downloads import PREFIX
    from tformer_cli.plugins.serve.inspector import Inspector
    from tformer_cli.plugins.serve.models import Service
    from tformer_cli.plugins.serve.request_log import RequestLog
    from tformer_cli.plugins.serve.run import (
        Workers,
        listening_socket,
        open_browser,
        serve_here,
        url_of,
    )
    from tformer_cli.plugins.serve.site import Site, report

    # The port first: one that is in use is an error at once, not after the models are loaded
    with listening_socket(settings.host, settings.port) as listening:
        # Here, so that the inspector finds the same directories as the service
        named = {name: resolve_model(path, say) for name, path in named.items()}
        service = Service(
            named,
            memory=memory,
            threads=threads or threads_of_each(settings.workers),
            max_queue=settings.max_queue,
            cache_bytes=cache,
            pivot=settings.pivot,
            tell=say,
        )
        service.preload()
        # What a service that was killed has translated for its clients is not to lie around
        remove_unheld(PREFIX)
        site = Site(
            service=service,
            settings=settings,
            keys=keys,
            paths=named,
            documents=Documents(settings.max_documents),
            inspector=Inspector() if find_spec("torch") else None,
            log=None if settings.log is None else RequestLog(settings.log, report),
        )
        url = url_of(listening)
        note(f"serving {', '.join(named)} at {url} (Ctrl-C ends)", quiet=quiet)

        def show() -> None:
            if open_page:
                open_browser(url)

        serve_one = partial(serve_here, site, listening)
        if settings.workers == 1:
            show()
            serve_one()
        else:
            board = site.share()  # what one worker translated, any other hands out
            Workers(settings.workers, serve_one, show, board.retire).run()


def check_open_files() -> None:
    """Refuses a limit of the system under which connections would soon fail."""
    limit = soft_limit("RLIMIT_NOFILE")
    if limit is not None and limit < FEWEST_FILES:
        raise UsageError(
            f"serve: `ulimit -n` allows {limit} open files, too few for connections; raise it to "
            "1024"
        )


def check_suggestions(file: Path) -> None:
    """Refuses a file that no suggestion can be written to; it is made by the first."""
    if not file.parent.is_dir():
        raise UsageError(f"--suggestions: {file.parent}: no such directory; make it first")
    if file.is_dir():
        raise UsageError(f"--suggestions: {file}: is a directory; name a file in it")
    place, wanted = (file, os.R_OK) if file.exists() else (file.parent, os.X_OK)
    if place == file and not file.is_file():  # a pipe or a device keeps nothing
        raise UsageError(f"--suggestions: {file}: is not an ordinary file; name another one")
    if not os.access(place, wanted | os.W_OK):
        raise UsageError(f"--suggestions: {file}: cannot be read and written; name another file")


def check_log(file: Path) -> None:
    """Refuses a file that no line can be appended to; a pipe or a device may be one."""
    if str(file) == STANDARD_STREAM:
        return
    if not file.parent.is_dir():
        raise UsageError(f"--log: {file.parent}: no such directory; make it first")
    if file.is_dir():
        raise UsageError(f"--log: {file}: is a directory; name a file in it")
    if not os.access(file if file.exists() else file.parent, os.W_OK):
        raise UsageError(f"--log: {file}: cannot be written; name another file")


def threads_of_each(n_workers: int) -> int:
    """Shares the cores among workers; 0, all of them, for the only one."""
    return 0 if n_workers == 1 else max(1, n_processors() // n_workers)


def named_models(models: Sequence[str]) -> dict[str, Path]:
    """Separates NAME=MODEL; a model without a name has that of its directory."""
    paths: dict[str, Path] = {}
    for model in models:
        name, path = named_path(model)
        name = name or Path(path).resolve().name
        if name in paths:
            raise UsageError(f"MODEL: two are called {name}; give names, as in NAME={path}")
        # Names stand in paths of requests
        if "/" in name or not name.isprintable():
            raise UsageError(f"MODEL: {name!r} cannot be a name; give another, as in en-de={path}")
        paths[name] = Path(path)
    return paths
