"""The `tformer` program: its commands, and how every error becomes one line."""

import errno
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from types import FrameType
from typing import Annotated, Any, NoReturn

import typer
from typer._click.shell_completion import CompletionItem
from typer.core import TyperCommand, TyperGroup
from typer.exceptions import TyperException

from tformer_cli import sockets
from tformer_cli.cli.help import EXAMPLES, HELP, HelpfulGroup, usage_message
from tformer_cli.cli.known_commands import COMMANDS, find_command, known_commands
from tformer_cli.cli.streams import (
    discard_stdout,
    error_line,
    note,
    prepare_standard_streams,
    warn,
)
from tformer_cli.errors import ModelMemoryError, TformerError, UsageError
from tformer_cli.files.atomic import ending_signals
from tformer_cli.runtime import bound_waiting, soft_limit, without_garbage_collection
from tformer_cli.version import __version__
from tformer_cli.wording import RUNTIME, installing

# Status that a shell reports for a program ended by a closed pipe (128 + SIGPIPE).
CLOSED_PIPE_STATUS = 141
NO_MEMORY = "there is not enough memory"
# Bytes of addresses that Python and its libraries take before they do anything.
LEAST_MEMORY = 1 << 28
LESS_MEMORY = "use smaller batches, a smaller beam or fewer threads"
LESS_MODEL = "end other programs, or use `tformer export --format int8`, which needs a quarter"
# What `tformer-runtime` installs only with its extra; see `.ci/runtime_wheel.py`.
LEFT_OUT = ("datasets", "pyarrow", "torch")
# Error numbers of writing to a stream that is full, closed or gone.
UNWRITABLE = (errno.ENOSPC, errno.EBADF, errno.EIO, errno.EFBIG, errno.EDQUOT)

# A group of the commands that begin with it, without that beginning.
INSPECT = "inspect"
INSPECT_HELP = f"""Look inside a model.

`tformer inspect heads` is the same command as `tformer inspect-heads`, and so on.
{EXAMPLES}    tformer inspect heads runs/quickstart "The animal was tired."
    tformer inspect report runs/quickstart "The animal was tired." -o report.html
"""


class _Loaded(Mapping[str, Any]):
    """Commands by their names, each imported when it is taken."""

    def __init__(self, start: str) -> None:
        self._start = start

    def __getitem__(self, name: str) -> Any:
        return load_command(self._start + name)

    # Mapping's own two would import a command to look for it, and hide a KeyError of its modules
    def __contains__(self, name: object) -> bool:
        return find_command(f"{self._start}{name}") is not None

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self else default  # noqa: SIM401 - is `get` itself

    def __iter__(self) -> Iterator[str]:
        names = (name for name, _ in known_commands())
        return (name.removeprefix(self._start) for name in names if name.startswith(self._start))

    def __len__(self) -> int:
        return sum(1 for _ in self)


class LazyGroup(HelpfulGroup):
    """The program's commands, or those that begin with `start`; it lists them without importing."""

    def __init__(self, *, start: str = "", **details: Any) -> None:
        self._start = start
        super().__init__(**{**details, "commands": _Loaded(start)})

    def summaries(self, ctx: Any) -> Iterator[tuple[str, str, str]]:  # noqa: ARG002
        """Yields the commands: name, panel, summary."""
        for name, row in known_commands():
            if name.startswith(self._start):
                yield name.removeprefix(self._start), row.panel, row.summary

    def shell_complete(self, ctx: Any, incomplete: str) -> list[CompletionItem]:
        """Lists what may stand here; see `typer.core.TyperGroup.shell_complete`."""
        rows = [row for row in self.summaries(ctx) if row[0].startswith(incomplete)]
        items = [
            CompletionItem(name, help=TyperCommand(name=name, help=summary).get_short_help_str())
            for name, _, summary in rows
        ]
        # The group's own would import each command for its sentence
        return [*items, *super(TyperGroup, self).shell_complete(ctx, incomplete)]


class OneLineErrors(LazyGroup):
    """A group of commands that ends every error in one line on stderr and the right exit status."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,  # noqa: ARG002 - errors are shown here in any case
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Runs the program; see `typer.core.TyperGroup.main`."""
        words = list(sys.argv[1:] if args is None else args)
        try:
            # Not standalone: Typer would print errors of several lines and exit itself
            status = super().main(
                words, prog_name, complete_var, False, windows_expand_args, **extra
            )
            # Now, because at exit Python reports a full disk or a closed pipe in its own words
            sys.stdout.flush()
        except SystemExit as leaving:
            # Typer and rich, which draw the help, turn a closed pipe into status 1
            if isinstance(leaving.__context__, BrokenPipeError):
                _leave_closed_pipe()
            raise
        except TformerError as error:
            _end(words, error, str(error), error.exit_status)
        except TyperException as error:
            # All processes of a machine read the same command line: one error is enough
            _leave_to_first_process()
            _end(words, error, usage_message(error), getattr(error, "exit_code", 1))
        except typer.Abort as error:
            _end(words, error, "stopped", 1)
        except MemoryError as error:
            advice = LESS_MODEL if isinstance(error, ModelMemoryError) else LESS_MEMORY
            _end(words, error, f"{str(error) or NO_MEMORY}; {_more_memory(advice)}", 1)
        except OSError as error:
            if error.errno == errno.EPIPE:
                _leave_closed_pipe()
            if error.errno == errno.ENOMEM:
                _end(words, error, f"{NO_MEMORY}; {_more_memory()}", 1)
            _end(words, error, _system_message(error), 1)
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except ModuleNotFoundError as error:
            if error.name not in LEFT_OUT:
                _end(words, error, _fault(error), 1)
            command = next((word for word in words if not word.startswith("-")), "tformer")
            advice = installing("train")  # an extra of the runtime; the whole asks for torch itself
            advice = advice if RUNTIME in advice else f"pip install {error.name}"
            missing = f"needs {error.name}, which is not installed"
            _end(words, error, f"{command}: {missing}; {advice}", 2)
        # our own bugs are also one line, as are panics of libraries, which are not Exceptions
        except BaseException as error:  # noqa: BLE001
            if _signals:  # a library that was interrupted may call that an error of its own
                sys.exit(128 + _signals[0])
            # A library that is not mapped is an error of the import
            is_limited = isinstance(error, ImportError) and soft_limit("RLIMIT_AS") is not None
            if is_limited or _is_out_of_memory(error):
                _end(words, error, f"{NO_MEMORY}; {_more_memory()}", 1)
            _end(words, error, _fault(error), 1)
        sys.exit(status if isinstance(status, int) else 0)

    # The commands inspect-… are listed themselves; the group would say them twice
    unlisted = (INSPECT,)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Finds a command; `inspect heads` is `inspect-heads`."""
        if cmd_name != INSPECT:
            return super().get_command(ctx, cmd_name)
        # The same commands under a shorter name, so that the two never differ
        return LazyGroup(
            name=INSPECT, start=f"{INSPECT}-", help=INSPECT_HELP, context_settings=HELP
        )

    def invoke(self, ctx: Any) -> Any:
        """Runs the chosen command; a closed pipe ends it quietly."""
        limit = soft_limit("RLIMIT_AS")
        if limit is not None and limit < LEAST_MEMORY:
            raise MemoryError  # libraries in C++ and Rust would abort
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            _leave_closed_pipe()


def _end(args: list[str], error: BaseException, message: str, status: int) -> NoReturn:
    # Only before the command: after it, the word may be part of a text
    if "--debug" in args[:1]:
        raise error
    if message:  # empty: another process reports it
        error_line(message)
    sys.exit(status)


def _leave_to_first_process() -> None:
    """Lets the first of several processes report an error that all of them find."""
    from tformer_cli.trainer.processes.launch import read_launch, wait_for_first_error

    if read_launch().local_rank:
        wait_for_first_error()


def _fault(error: BaseException) -> str:
    """Describes an error that no one foresaw."""
    # Only the first line: an error is one line, and a traceback has the rest
    message = str(error).splitlines()[0] if str(error) else "no message"
    return f"{type(error).__name__}: {message}; run `tformer --debug …` for a traceback"


def _is_out_of_memory(error: BaseException) -> bool:
    """Recognizes torch's several ways of running out of memory."""
    # Without torch no error is torch's, and importing it takes long
    if "torch" not in sys.modules:
        return False
    from tformer_cli.runtime import is_out_of_memory

    return is_out_of_memory(error)


def _more_memory(advice: str = LESS_MEMORY) -> str:
    """Returns advice on memory: whether a limit of the shell is below the machine's memory."""
    limit = soft_limit("RLIMIT_AS")
    return advice if limit is None else f"raise `ulimit -v`, which is {limit >> 10}"


def _system_message(error: OSError) -> str:
    """Describes a refusal of the system; an error without a file name is stdout's."""
    reason = (error.strerror or str(error)).lower()
    if error.errno == errno.EMFILE:  # whatever file it was that came last
        return f"{reason}; raise `ulimit -n`, which is {soft_limit('RLIMIT_NOFILE')}"
    if error.filename is None and error.errno in UNWRITABLE:
        discard_stdout()
        return f"stdout: cannot be written ({reason}); free some space or write elsewhere"
    return f"{error.filename or 'the system'}: {reason}"


def _leave_closed_pipe() -> NoReturn:
    # Else Python flushes stdout again at exit, and reports the closed pipe itself
    discard_stdout()
    sys.exit(CLOSED_PIPE_STATUS)


def _show_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"tformer {__version__}")
        raise typer.Exit


def root(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            "-V",
            help="Show the version and exit.",
            callback=_show_version,
            is_eager=True,  # it answers before a missing command is an error
        ),
    ] = False,
    # Only for the help: `_end` reads it, as errors of the command line need it, too
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    cite: Annotated[
        bool,
        typer.Option(
            "--cite",
            help="Print BibTeX of tformer and of the methods that a command line uses, and do "
            "nothing else.",
        ),
    ] = False,
) -> None:
    """Train, use and understand Transformers, translation first.

    Examples:
        tformer quickstart
        tformer translate runs/quickstart "The old house is green."
        tformer translate --help
    """


@cache
def load_command(name: str) -> Any:
    """Imports a command; another one, or the whole help, does without."""
    from tformer_cli.cli.command import CheckedCommand, CommandGroup

    row = find_command(name)
    if row is None:
        raise KeyError(name)
    module_name, _, attribute = row.place.partition(":")
    # Its modules and options stay: to look through them again and again takes time
    try:
        with without_garbage_collection():
            module = import_module(module_name)
        command = getattr(module, attribute)
    except Exception as error:
        is_left_out = isinstance(error, ModuleNotFoundError) and error.name in LEFT_OUT
        if is_left_out or not (message := COMMANDS.describe_failure(name, error)):
            raise
        raise UsageError(message) from error
    if not callable(command):
        from tformer_cli.cli.inspect.inspect_view import view_command

        command = view_command(command)
    group = CommandGroup(name, rich_markup_mode="markdown")
    if isinstance(command, typer.Typer):
        group.add_typer(command, name=name, rich_help_panel=row.panel)
    else:
        kind = getattr(module, "COMMAND_CLASS", CheckedCommand)
        group.add(name, cls=kind, rich_help_panel=row.panel)(command)
    return typer.main.get_group(group).commands[name]


def make_app() -> typer.Typer:
    """Builds the program; a command is imported once it is chosen."""
    app = typer.Typer(
        name="tformer", cls=OneLineErrors, pretty_exceptions_enable=False,
        rich_markup_mode="markdown", context_settings=HELP,
    )  # fmt: skip
    app.callback()(root)
    return app


def __getattr__(name: str) -> Any:
    """Builds `app`, the program, on first use."""
    if name != "app":
        raise AttributeError(f"module {__name__} has no attribute {name}")
    return globals().setdefault("app", make_app())


def main() -> None:
    """Runs the program with the process's arguments."""
    sockets.report = warn
    prepare_standard_streams()  # first: else a file of ours takes the place of a closed stream
    # Exceptions unwind the stack, so that what was written aside is removed
    for number in ending_signals():
        if signal.getsignal(number) != signal.SIG_IGN:  # as SIGINT is in the background
            signal.signal(number, _leave_on_signal)
    sys.unraisablehook = _leave_later
    if "--debug" not in sys.argv[1:2]:
        threading.excepthook = _say_of_thread
    bound_waiting(os.environ)  # OpenMP reads it when torch is loaded, and never again
    try:
        make_app()()
    finally:
        if _signals:
            _name_signal(_signals[0])


def _leave_on_signal(signal_number: int, frame: FrameType | None) -> None:
    """Exits as an error does, so that nothing half-written is left."""
    # torch's initialization calls Python from C++ that no exception may leave: it would abort
    if importer := _importer(frame):

        def leave(*_: object) -> None:
            sys.settrace(None)
            _leave(signal_number)

        # As debuggers stop: at the next line of the code that asked for the import
        importer.f_trace = leave
        sys.settrace(lambda *_: None)
    else:
        _leave(signal_number)


def _leave(signal_number: int) -> NoReturn:
    if signal_number == signal.SIGINT:
        raise KeyboardInterrupt
    _signals.append(signal_number)
    # As a shell reports it: scripts rely on 143 for SIGTERM
    sys.exit(128 + signal_number)


def _name_signal(number: int) -> None:
    """Reports why the program ended; an agent reports for the processes that it stops."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:  # given by an agent, torchrun's or our own
        with suppress(OSError):  # of a terminal that was closed
            note(f"stopped by {signal.Signals(number).name}")


def _importer(frame: FrameType | None) -> FrameType | None:
    """Finds the code of the program that waits for an import, if one is going on."""
    importer = None
    while frame is not None and frame.f_code is not main.__code__:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            importer = frame.f_back
        frame = frame.f_back
    return importer


def _say_of_thread(args: threading.ExceptHookArgs) -> None:
    """Reports a thread's error in one line; the code that waits for it decides the status."""
    # SystemExit ends a thread silently in Python, too
    if args.exc_value is not None and args.exc_type is not SystemExit:
        error_line(_fault(args.exc_value))


def _leave_later(ignored: "sys.UnraisableHookArgs") -> None:
    """Repeats a signal that came while an object was destroyed, where exceptions are ignored."""
    if isinstance(ignored.exc_value, SystemExit | KeyboardInterrupt):
        number = _signals[-1] if _signals else signal.SIGINT
        # A moment later the main thread runs code of ours again, which the signal then ends
        again = threading.Timer(0.05, os.kill, (os.getpid(), number))
        # Else the timer holds up an exit that comes first
        again.daemon = True
        again.start()
    else:
        sys.__unraisablehook__(ignored)


# Signals that have ended the program.
_signals: list[int] = []
