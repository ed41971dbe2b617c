"""The `tformer` program: its commands, and how every error becomes one line."""

import errno
import os
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module
from types import FrameType
from typing import Any, NoReturn, get_args

import typer
from typer.exceptions import TyperException

from tformer_cli.artifacts.config_file import Verb
from tformer_cli.cli.command import CommandGroup
from tformer_cli.cli.help import (
    DEPLOY,
    EXAMPLES,
    HELP,
    LOOK_INSIDE,
    OTHER_TASKS,
    START,
    TRAIN,
    TRANSLATE,
    HelpfulGroup,
    usage_message,
)
from tformer_cli.cli.options import option_field, takes_groups
from tformer_cli.cli.streams import discard_stdout, error_line, prepare_standard_streams
from tformer_cli.errors import TformerError
from tformer_cli.runtime import bound_waiting
from tformer_cli.version import __version__

# Status that a shell reports for a program ended by a closed pipe (128 + SIGPIPE).
CLOSED_PIPE_STATUS = 141
NO_MEMORY = "there is not enough memory"
LESS_MEMORY = "use smaller batches, a smaller beam or fewer threads"
# What `tformer-runtime` installs only with its extra; see `.ci/runtime_wheel.py`.
LEFT_OUT = ("datasets", "pyarrow", "torch")
LEFT_OUT_MESSAGE = "needs {0}, which is not installed; pip install 'tformer-runtime[train]'"
# Error numbers of writing to a stream that is full, closed or gone.
UNWRITABLE = (errno.ENOSPC, errno.EBADF, errno.EIO, errno.EFBIG, errno.EDQUOT)

# Commands to begin with.
FIRST = ("quickstart", "guide", "recipes", "models", "make-corpus", "help")
# A group of the commands that begin with it, without that beginning.
INSPECT = "inspect"
INSPECT_HELP = f"""Look inside a model.

`tformer inspect heads` is the same command as `tformer inspect-heads`, and so on.
{EXAMPLES}    tformer inspect heads runs/quickstart "The animal was tired."
    tformer inspect report runs/quickstart "The animal was tired." -o report.html
"""


class OneLineErrors(HelpfulGroup):
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
        given = list(sys.argv[1:] if args is None else args)
        try:
            # Not standalone: Typer would print errors of several lines and exit itself
            status = super().main(
                given, prog_name, complete_var, False, windows_expand_args, **extra
            )
            # Now: at exit Python reports a full disk or a closed pipe in lines of its own
            sys.stdout.flush()
        except SystemExit as leaving:
            # Typer and rich, which draw the help, turn a closed pipe into status 1
            if isinstance(leaving.__context__, BrokenPipeError):
                _leave_closed_pipe()
            raise
        except TformerError as error:
            _end(given, error, str(error), error.exit_status)
        except TyperException as error:
            # All processes of a machine read the same command line: one error is enough
            _leave_to_first_process()
            _end(given, error, usage_message(error), getattr(error, "exit_code", 1))
        except typer.Abort as error:
            _end(given, error, "stopped", 1)
        except MemoryError as error:
            _end(given, error, f"{str(error) or NO_MEMORY}; {LESS_MEMORY}", 1)
        except OSError as error:
            if error.errno == errno.EPIPE:
                _leave_closed_pipe()
            _end(given, error, _system_message(error), 1)
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except ModuleNotFoundError as error:
            if error.name not in LEFT_OUT:
                _end(given, error, _fault(error), 1)
            command = next((one for one in given if not one.startswith("-")), "tformer")
            _end(given, error, f"{command}: {LEFT_OUT_MESSAGE.format(error.name)}", 2)
        # a fault of ours is one line, too, and so is a panic of a library, which is no Exception
        except BaseException as error:  # noqa: BLE001
            if _signals:  # a library that was interrupted may call that an error of its own
                sys.exit(128 + _signals[0])
            if _is_out_of_memory(error):
                _end(given, error, f"{NO_MEMORY}; {LESS_MEMORY}", 1)
            _end(given, error, _fault(error), 1)
        sys.exit(status if isinstance(status, int) else 0)

    # The commands inspect-… are listed themselves; the group would say them twice
    unlisted = (INSPECT,)

    def list_commands(self, ctx: Any) -> list[str]:
        """Lists the commands, those to begin with first: Typer puts groups behind the others."""
        names = super().list_commands(ctx)
        return [*(name for name in FIRST if name in names), *(n for n in names if n not in FIRST)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Finds a command; `inspect heads` is `inspect-heads`."""
        if cmd_name != INSPECT:
            return super().get_command(ctx, cmd_name)
        start = f"{INSPECT}-"
        # The same commands under a shorter name, so that the two never differ
        found = {n.removeprefix(start): c for n, c in self.commands.items() if n.startswith(start)}
        return HelpfulGroup(name=INSPECT, commands=found, help=INSPECT_HELP, context_settings=HELP)

    def invoke(self, ctx: Any) -> Any:
        """Runs the chosen command; a closed pipe ends it quietly."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            _leave_closed_pipe()


def _end(args: list[str], error: BaseException, message: str, status: int) -> NoReturn:
    # Only before the command: behind it, the word may be part of a text
    if "--debug" in args[:1]:
        raise error
    if message:  # empty: another process reports it
        error_line(message)
    sys.exit(status)


def _leave_to_first_process() -> None:
    """Lets the first of several processes report what all of them find wrong."""
    from tformer_cli.trainer.processes.launch import launched, wait_for_first_error

    if launched().local_rank:
        wait_for_first_error()


def _fault(error: BaseException) -> str:
    """Describes an error that no one foresaw."""
    # The first line alone: an error is one line, and a traceback has the rest
    message = str(error).splitlines()[0] if str(error) else "no message"
    return f"{type(error).__name__}: {message}; run `tformer --debug …` for a traceback"


def _is_out_of_memory(error: BaseException) -> bool:
    """Recognizes torch's several ways of running out of memory."""
    # Without torch no error is torch's, and importing it takes long
    if "torch" not in sys.modules:
        return False
    from tformer_cli.runtime import is_out_of_memory

    return is_out_of_memory(error)


def _system_message(error: OSError) -> str:
    """Describes a refusal of the system; an error without a file name is stdout's."""
    reason = (error.strerror or str(error)).lower()
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
    version: bool = option_field(False, "Show the version and exit.", "-V", callback=_show_version),
    # Only for the help: `_end` reads it, as errors of the command line need it, too
    debug: bool = option_field(False, "Show the traceback of an error."),
) -> None:
    """Train, use and understand Transformers, translation first.

    Examples:
        tformer quickstart
        tformer translate runs/quickstart "The old house is green."
        tformer translate --help
    """


# Panels of the commands besides the inspections.
COMMANDS = {
    "quickstart": START,
    "guide": START,
    "recipes": START,
    "models": START,
    "make-corpus": START,
    "help": START,
    "train": TRAIN,
    "distill": TRAIN,
    "plot": TRAIN,
    "data": TRAIN,
    "tokenize": TRAIN,
    "translate": TRANSLATE,
    "translate-corpus": TRANSLATE,
    "evaluate": TRANSLATE,
    "compare": TRANSLATE,
    "score": TRANSLATE,
    "calibrate": TRANSLATE,
}
COMMANDS |= {verb: OTHER_TASKS for verb in get_args(Verb) if verb not in COMMANDS}
COMMANDS |= dict.fromkeys(("info", "import", "export", "shortlist", "serve", "benchmark"), DEPLOY)
# Modules and functions of commands that do not have their name.
PLACES = {
    "recipes": "guide:recipes_app",
    "help": "guide:help_command",
    "data": "data:data_app",
    "tokenize": "tokenize:tokenize_app",
    "import": "import_model:import_model",
}


def make_app(only: str | None = None) -> CommandGroup:
    """Makes the program with all commands, or `only` one: loading all takes as long as a line."""
    app = CommandGroup(
        "tformer", cls=OneLineErrors, pretty_exceptions_enable=False, rich_markup_mode="markdown"
    )
    app.callback()(takes_groups(root))
    for name in COMMANDS if only is None else [only]:
        stem = name.replace("-", "_")
        place, _, found = PLACES.get(name, f"{stem}:{stem}").partition(":")
        command = getattr(import_module(f"tformer_cli.cli.commands.{place}"), found)
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name, rich_help_panel=COMMANDS[name])
        else:
            app.add(name, rich_help_panel=COMMANDS[name])(command)
    if only is None:
        _add_inspections(app)
    return app


def _add_inspections(app: CommandGroup) -> None:
    # Here, so that `translate` and others start without loading the inspections
    from tformer_cli.cli.inspect.inspect_ablate import inspect_ablate
    from tformer_cli.cli.inspect.inspect_align import inspect_align
    from tformer_cli.cli.inspect.inspect_decision import inspect_decision
    from tformer_cli.cli.inspect.inspect_heads import inspect_heads
    from tformer_cli.cli.inspect.inspect_layers import inspect_layers
    from tformer_cli.cli.inspect.inspect_probe import inspect_probe
    from tformer_cli.cli.inspect.inspect_sentences import inspect_diff, inspect_report, inspect_step
    from tformer_cli.cli.inspect.inspect_view import CommandWithWeights, view_command
    from tformer_cli.inspect.views import all_views

    add = partial(app.add, rich_help_panel=LOOK_INSIDE)
    add("inspect-heads", cls=CommandWithWeights)(inspect_heads)
    add("inspect-report")(inspect_report)
    add("inspect-step")(inspect_step)
    for view in reversed(all_views().values()):
        if view.help:
            add(f"inspect-{view.name}")(view_command(view))
    add("inspect-align")(inspect_align)
    add("inspect-ablate")(inspect_ablate)
    add("inspect-diff")(inspect_diff)
    add("inspect-decision")(inspect_decision)
    add("inspect-layers")(inspect_layers)
    add("inspect-probe")(inspect_probe)


def wanted_command(arguments: Sequence[str], environment: Mapping[str, str]) -> str | None:
    """Returns the only command that arguments can need; None: it may be any of them."""
    if any(name.endswith("_COMPLETE") for name in environment):  # the shell asks what may follow
        return None
    first = next((one for one in arguments if one != "--debug"), "")
    # help shows any command, and a misspelt name is compared with all
    return first if first in COMMANDS and first != "help" else None


def __getattr__(name: str) -> Any:
    """Makes `app`, the program with all its commands, when it is first asked for."""
    if name != "app":
        raise AttributeError(f"module {__name__} has no attribute {name}")
    return globals().setdefault("app", make_app())


def main() -> None:
    """Runs the program with the process's arguments."""
    prepare_standard_streams()  # first: else a file of ours takes the place of a closed stream
    # SystemExit unwinds the stack, so that what was written aside is removed
    signal.signal(signal.SIGTERM, _leave_on_signal)
    sys.unraisablehook = _leave_later
    if "--debug" not in sys.argv[1:2]:
        threading.excepthook = _say_of_thread
    bound_waiting(os.environ)  # OpenMP reads it when torch is loaded, and never again
    make_app(wanted_command(sys.argv[1:], os.environ))()


def _leave_on_signal(signal_number: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001
    """Exits as an error does, so that nothing half-written is left."""
    _signals.append(signal_number)
    # As a shell reports it: scripts rely on 143 for SIGTERM
    sys.exit(128 + signal_number)


def _say_of_thread(args: threading.ExceptHookArgs) -> None:
    """Ends a thread's error in one line, too; whoever waits for the thread decides the status."""
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
