"""The `tformer` program: its commands, and how every error becomes one line."""

import errno
import signal
import sys
from collections.abc import Sequence
from functools import partial
from types import FrameType
from typing import Annotated, Any, NoReturn

import typer
from typer.exceptions import TyperException

from tformer_cli import __version__
from tformer_cli.cli.checked_command import CheckedCommand
from tformer_cli.cli.commands.benchmark import benchmark
from tformer_cli.cli.commands.evaluate import evaluate
from tformer_cli.cli.commands.export import export
from tformer_cli.cli.commands.guide import guide
from tformer_cli.cli.commands.help_command import help_command
from tformer_cli.cli.commands.info import info
from tformer_cli.cli.commands.make_corpus import make_corpus
from tformer_cli.cli.commands.plot import plot
from tformer_cli.cli.commands.quickstart import quickstart
from tformer_cli.cli.commands.recipes import recipes_app
from tformer_cli.cli.commands.score import score
from tformer_cli.cli.commands.tokenize import tokenize_app
from tformer_cli.cli.commands.train import train
from tformer_cli.cli.commands.translate import translate
from tformer_cli.cli.console import error_line
from tformer_cli.cli.help_screen import DEPLOY, EXAMPLES, LOOK_INSIDE, START, TRAIN, TRANSLATE
from tformer_cli.cli.inspection.inspect_ablate import inspect_ablate
from tformer_cli.cli.inspection.inspect_align import inspect_align
from tformer_cli.cli.inspection.inspect_diff import inspect_diff
from tformer_cli.cli.inspection.inspect_heads import inspect_heads
from tformer_cli.cli.inspection.inspect_report import inspect_report
from tformer_cli.cli.inspection.inspect_step import inspect_step
from tformer_cli.cli.inspection.inspect_view import view_command
from tformer_cli.cli.inspection.weights_option import CommandWithWeights
from tformer_cli.cli.standard_streams import discard_stdout, prepare_standard_streams
from tformer_cli.cli.usage import HelpfulGroup, usage_message
from tformer_cli.errors import TformerError
from tformer_cli.inspection.views import all_views
from tformer_cli.training.launch import launched, wait_for_first_error

CLOSED_PIPE_STATUS = 141
"""Status that a shell reports for a program ended by a closed pipe (128 + SIGPIPE)."""
NO_MEMORY = "there is not enough memory"
LESS_MEMORY = "use smaller batches, a smaller beam or fewer threads"
UNWRITABLE = (errno.ENOSPC, errno.EBADF, errno.EIO, errno.EFBIG, errno.EDQUOT)
"""Error numbers of writing to a stream that is full, closed or gone."""

HELP = {"help_option_names": ["-h", "--help"]}
FIRST = ("quickstart", "guide", "recipes", "make-corpus", "help")
"""Commands to begin with."""
INSPECT = "inspect"
"""A group of the commands that begin with it, without that beginning."""
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
            status = super().main(
                given, prog_name, complete_var, False, windows_expand_args, **extra
            )
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
            if launched().local_rank:
                wait_for_first_error()
            _end(given, error, usage_message(error), getattr(error, "exit_code", 1))
        except typer.Abort as error:
            _end(given, error, "stopped", 1)
        except MemoryError as error:
            _end(given, error, f"{str(error) or NO_MEMORY}; {LESS_MEMORY}", 1)
        except OSError as error:
            if error.errno == errno.EPIPE:
                _leave_closed_pipe()
            _end(given, error, _system_message(error), 1)
        except Exception as error:  # noqa: BLE001 - a fault of ours is one line, too
            if _signals:  # a library that was interrupted may call that an error of its own
                sys.exit(128 + _signals[0])
            if _is_out_of_memory(error):
                _end(given, error, f"{NO_MEMORY}; {LESS_MEMORY}", 1)
            message = str(error).splitlines()[0] if str(error) else "no message"
            hint = "run `tformer --debug …` for a traceback"
            _end(given, error, f"{type(error).__name__}: {message}; {hint}", 1)
        sys.exit(status if isinstance(status, int) else 0)

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
        found = {n.removeprefix(start): c for n, c in self.commands.items() if n.startswith(start)}
        return HelpfulGroup(name=INSPECT, commands=found, help=INSPECT_HELP, context_settings=HELP)

    def invoke(self, ctx: Any) -> Any:
        """Runs the chosen command; a closed pipe ends it quietly."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            _leave_closed_pipe()


def _end(args: list[str], error: BaseException, message: str, status: int) -> NoReturn:
    if "--debug" in args[:1]:
        raise error
    if message:  # empty: another process reports it
        error_line(message)
    sys.exit(status)


def _is_out_of_memory(error: Exception) -> bool:
    """Recognizes torch's several ways of running out of memory."""
    if "torch" not in sys.modules:
        return False
    from tformer_cli.model.runtime import is_out_of_memory

    return is_out_of_memory(error)


def _system_message(error: OSError) -> str:
    """Describes a refusal of the system; an error without a file name is stdout's."""
    reason = (error.strerror or str(error)).lower()
    if error.filename is None and error.errno in UNWRITABLE:
        discard_stdout()
        return f"stdout: cannot be written ({reason}); free some space or write elsewhere"
    return f"{error.filename or 'the system'}: {reason}"


def _leave_closed_pipe() -> NoReturn:
    discard_stdout()
    sys.exit(CLOSED_PIPE_STATUS)


app = typer.Typer(
    name="tformer",
    cls=OneLineErrors,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings=HELP,
)


def _show_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"tformer {__version__}")
        raise typer.Exit


@app.callback()
def root(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            "-V",
            help="Show the version and exit.",
            callback=_show_version,
            is_eager=True,
        ),
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Train, use and understand translation Transformers.

    Examples:
        tformer quickstart
        tformer translate runs/quickstart "The old house is green."
        tformer translate --help
    """


_command = partial(app.command, cls=CheckedCommand)
_command("quickstart", rich_help_panel=START)(quickstart)
_command("guide", rich_help_panel=START)(guide)
app.add_typer(recipes_app, name="recipes", rich_help_panel=START)
_command("make-corpus", rich_help_panel=START)(make_corpus)
_command("help", rich_help_panel=START)(help_command)
_command("train", rich_help_panel=TRAIN)(train)
_command("plot", rich_help_panel=TRAIN)(plot)
app.add_typer(tokenize_app, name="tokenize", rich_help_panel=TRAIN)
_command("translate", rich_help_panel=TRANSLATE)(translate)
_command("evaluate", rich_help_panel=TRANSLATE)(evaluate)
_command("score", rich_help_panel=TRANSLATE)(score)
_command("info", rich_help_panel=DEPLOY)(info)
_command("export", rich_help_panel=DEPLOY)(export)
_command("benchmark", rich_help_panel=DEPLOY)(benchmark)
_inspection = partial(app.command, cls=CheckedCommand, rich_help_panel=LOOK_INSIDE)
app.command("inspect-heads", cls=CommandWithWeights, rich_help_panel=LOOK_INSIDE)(inspect_heads)
_inspection("inspect-report")(inspect_report)
_inspection("inspect-step")(inspect_step)
for _view in reversed(all_views().values()):
    if _view.help:
        _inspection(f"inspect-{_view.name}")(view_command(_view))
_inspection("inspect-align")(inspect_align)
_inspection("inspect-ablate")(inspect_ablate)
_inspection("inspect-diff")(inspect_diff)


def main() -> None:
    """Runs the program with the process's arguments."""
    prepare_standard_streams()
    signal.signal(signal.SIGTERM, _leave_on_signal)
    app()


def _leave_on_signal(signal_number: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001
    """Exits as an error does, so that nothing half-written is left."""
    _signals.append(signal_number)
    sys.exit(128 + signal_number)


_signals: list[int] = []
"""Signals that have ended the program."""
