"""Layout of every `--help`, and errors of a command line in one sentence.

Typer's own screen has six columns, which 80 and 40 characters are too few for. This one has two,
and at less than `NARROW` characters one.
"""

import inspect
import re
import shlex
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import redirect_stdout
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, get_args

from typer import BadParameter
from typer.core import TyperArgument, TyperGroup, TyperOption
from typer.exceptions import TyperException

from tformer_cli.errors import UsageError
from tformer_cli.wording import did_you_mean, suggestions

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

COMMON, MESSAGES = "Common", "Messages"
OPTION_PANELS = (
    *(COMMON, "Documents", "Search", "Sampling", "Constraints", "Ensembles", "Formats"),
    *("Large jobs", "Machine", MESSAGES),
)
# First options of the panel Common, in order.
COMMON_FIRST = (
    *("--input", "--source", "--hypothesis", "--reference", "--target", "--target-file"),
    *("--output", "--beam-size", "--n-best", "--format"),
)
START, TRAIN, TRANSLATE, OTHER_TASKS = "Start", "Train", "Translate", "Other tasks"
DEPLOY, LOOK_INSIDE = "Deploy", "Look inside"
# Panels of commands, in their order.
COMMAND_PANELS = (START, TRAIN, TRANSLATE, OTHER_TASKS, DEPLOY, LOOK_INSIDE)
ADDED = "From other packages"  # a panel after these, if there are any

HELP = {"help_option_names": ["-h", "--help"]}
# Line that begins the examples in a command's docstring.
EXAMPLES = "\n\nExamples:\n"
# Maximum columns of a screen; minimum for names next to their sentences; maximum for these names.
WIDEST, NARROW, NAMES = 100, 64, 30
# Characters of choices that are written out in place of a value; longer ones become NAME.
LONGEST_CHOICES = 48
_VALUES = {int: "N", float: "X", str: "TEXT"}


class ReadableHelp:
    """A command or a group whose help is drawn here; a base class before Typer's."""

    def get_params(self, ctx: Any) -> list[Any]:  # noqa: ANN401 - click's
        """Returns the parameters, `--help` included; their values are read here, not by Typer."""
        parameters: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for parameter in parameters:
            # Typer's own reader loads pydantic, which takes as long as a line to translate
            if not isinstance(parameter._runtime_param, PlainValue):
                parameter._runtime_param = PlainValue(parameter.type_descriptor)
        return parameters

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401, ARG002 - click's
        """Draws the help on stdout."""
        from tformer_cli.cli.streams import stdout_console

        show_help(stdout_console(), ctx)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:  # noqa: ANN401, ARG002 - click's
        """Lists required options and arguments: `[OPTIONS] --reference FILE MODEL [TEXT…]`."""
        parameters = self.params  # type: ignore[attr-defined]
        options = [
            option for option in parameters if isinstance(option, TyperOption) and option.required
        ]
        arguments = [
            _usage_of(argument) for argument in parameters if isinstance(argument, TyperArgument)
        ]
        commands = ["COMMAND …"] if isinstance(self, TyperGroup) else []
        required = (f"{option.opts[0]} {value_of(option)}" for option in options)
        return ["[OPTIONS]", *required, *arguments, *commands]


def show_help(console: "Console", ctx: Any) -> None:  # noqa: ANN401 - click's
    """Draws a command's help."""
    from rich.padding import Padding
    from rich.panel import Panel
    from rich.text import Text

    # Longer lines are hard to read
    console.width = width = min(console.width, WIDEST)
    command = ctx.command
    usage = f"{ctx.command_path} {' '.join(command.collect_usage_pieces(ctx))}"
    console.print(Text.assemble(("Usage: ", "yellow"), (usage, "bold")))
    description, examples = parts_of(command)
    for paragraph in description.split("\n\n"):
        console.print(Padding(_highlight(" ".join(paragraph.split())), (1, 1, 0, 1)))
    console.print()
    for panels in (list(commands_by_panel(ctx)), list(parameters_by_panel(ctx))):
        indent = _indent([rows for _, rows in panels], width)
        for title, rows in panels:
            body = Text("\n").join(_lines(console, rows, width - 4, indent))
            console.print(Panel(body, title=title, title_align="left", border_style="dim"))
    if examples:
        console.print(Text("\nExamples:", style="bold"))
        for line in examples:
            style = "dim" if line.startswith("#") else ""
            for piece in fold_line(line, width - 2):
                console.print(Text(f"  {piece}", style=style), soft_wrap=True)


def show_list(console: "Console", rows: Sequence[tuple[str, str]]) -> None:
    """Lists names with their descriptions: next to them, or below them on a narrow terminal."""
    # Elsewhere a row is a line, whatever the width, for grep, awk and the like.
    if not console.is_terminal:
        from rich.text import Text

        indent = max((len(name) for name, _ in rows), default=0) + 2
        for name, sentence in rows:
            console.print(Text(f"{name:{indent}}{sentence}".rstrip()), soft_wrap=True)
        return
    console.width = min(console.width, WIDEST)
    indent = _indent([rows], console.width)
    for line in _lines(console, rows, console.width, indent):
        console.print(line, soft_wrap=True)


def parts_of(command: Any) -> tuple[str, list[str]]:  # noqa: ANN401 - Typer's
    """Returns a command's description, and the lines of its examples."""
    text, _, examples = inspect.cleandoc(command.help or "").partition(EXAMPLES)
    return text.strip(), [line.strip() for line in examples.splitlines() if line.strip()]


def options_by_panel(parameters: Iterable[Any]) -> list[tuple[str, list[TyperOption]]]:
    """Sorts the options of a command into panels, those first that are used most."""
    panels: dict[str, list[TyperOption]] = {COMMON: []}
    for option in parameters:
        if isinstance(option, TyperOption) and not option.hidden:
            title = MESSAGES if option.name == "help" else option.rich_help_panel or COMMON
            panels.setdefault(title, []).append(option)

    def place(option: TyperOption) -> int:
        return next((n for n, name in enumerate(COMMON_FIRST) if name in option.opts), 99)

    panels[COMMON].sort(key=place)
    own = [title for title in panels if title not in OPTION_PANELS]
    order = [COMMON, *own, *OPTION_PANELS[1:]]
    return [(title, panels[title]) for title in order if panels.get(title)]


def value_of(parameter: Any) -> str:  # noqa: ANN401 - Typer's
    """Names the value of an option or argument: N, FILE, `text|tsv`; empty for a flag."""
    if getattr(parameter, "is_flag", False):
        return ""
    if parameter.metavar is not None:
        return str(parameter.metavar)
    choices = "|".join(_choices(parameter))
    if choices:
        return choices if len(choices) <= LONGEST_CHOICES else "NAME"
    return _VALUES.get(parameter.type_descriptor.annotation, "TEXT")


def fold_line(line: str, width: int) -> list[str]:
    r"""Breaks a command line that is too long at spaces outside quotes, with a ``\`` at the ends.

    So it can be copied at any width.
    """
    # Not as POSIX: quotes stay, so that a copied command has them
    words = shlex.shlex(line, posix=False, punctuation_chars=False)
    # Otherwise everything after a # would be dropped: a comment, or the number of an image
    words.whitespace_split, words.commenters = True, ""
    lines = [""]
    for word in words:
        if lines[-1] and len(lines[-1]) + len(word) + 3 > width:
            lines[-1] += "" if line.startswith("#") else " \\"
            lines.append(f"  {word}")
        else:
            lines[-1] += f" {word}" if lines[-1] else word
    return lines


def _choices(parameter: Any) -> list[str]:  # noqa: ANN401 - Typer's
    choices = parameter.type_descriptor.choices or ()
    return [str(choice.value if isinstance(choice, Enum) else choice) for choice in choices]


def _usage_of(argument: TyperArgument) -> str:
    name = argument.display_name_raw.removesuffix("…") + ("…" if argument.nargs != 1 else "")
    return name if argument.required else f"[{name}]"


def commands_by_panel(ctx: Any) -> Iterator[tuple[str, list[tuple[str, str]]]]:  # noqa: ANN401
    """Yields the panels of a group's commands, each with its summary; of a command none."""
    if not hasattr(ctx.command, "commands"):
        return
    panels: dict[str, list[tuple[str, str]]] = {title: [] for title in COMMAND_PANELS}
    for name, panel, summary in ctx.command.summaries(ctx):
        panels.setdefault(panel, []).append((name, summary))
    yield from ((title, rows) for title, rows in panels.items() if rows)


def parameters_by_panel(ctx: Any) -> Iterator[tuple[str, list[tuple[str, str]]]]:  # noqa: ANN401
    """Yields the panels of a command's arguments and options: of each its name and its sentence."""
    parameters = ctx.command.get_params(ctx)
    arguments = [argument for argument in parameters if isinstance(argument, TyperArgument)]
    if arguments:
        yield "Arguments", [_row(ctx, argument) for argument in arguments]
    panels = options_by_panel(parameters)
    if isinstance(ctx.command, TyperGroup):
        panels = [("Options", [option for _, options in panels for option in options])]
    for title, options in panels:
        yield title, [_row(ctx, option) for option in options]


def _row(ctx: Any, parameter: Any) -> tuple[str, str]:  # noqa: ANN401 - click's and Typer's
    """Writes an option or argument and its sentence."""
    sentence = " ".join((parameter.help or "").split())
    default = _default(ctx, parameter)
    names = _usage_of(parameter).strip("[]")
    if isinstance(parameter, TyperOption):
        short = [name for name in parameter.opts if not name.startswith("--")]
        long = [name for name in parameter.opts if name.startswith("--")]
        names = ", ".join([*(short or ["  "]), *long]).replace("  , ", "    ", 1)
        names = " / ".join([names, *parameter.secondary_opts])
        value = value_of(parameter)
        names = f"{names} {value}".rstrip()
        if value == "NAME" and (choices := _choices(parameter)):
            sentence += f" One of {', '.join(choices)}."
    return names, f"{sentence} {default}".strip()


def _default(ctx: Any, parameter: Any) -> str:  # noqa: ANN401 - click's and Typer's
    if parameter.required:
        return "[required]"
    if isinstance(parameter.show_default, str):
        return f"[default: {parameter.show_default}]"
    value = parameter.get_default(ctx, call=False)
    if isinstance(parameter, TyperArgument) or not parameter.show_default:
        return ""
    if parameter.is_flag:
        if not parameter.secondary_opts:
            return ""
        value = parameter.opts[0] if value else parameter.secondary_opts[0]
    if value is None:
        return "[default: none]"
    return f"[default: {value.value if isinstance(value, Enum) else value}]"


def _indent(lists: Iterable[Sequence[tuple[str, str]]], width: int) -> int:
    """Finds the column where sentences begin: after the names, ignoring the longest."""
    names = [len(name) for rows in lists for name, _ in rows]
    return max((n for n in names if n <= NAMES), default=0) + 2 if width >= NARROW else 6


def _lines(
    console: "Console", rows: Iterable[tuple[str, str]], width: int, indent: int
) -> Iterator["Text"]:
    """Writes names, each with its sentence next to it, or below it if the name is too long."""
    from rich.text import Text

    for name, sentence in rows:
        wrapped = list(_highlight(sentence).wrap(console, width - indent))
        head = Text(name, style="bold cyan")
        if len(name) + 2 > indent or not wrapped:
            yield from head.wrap(console, width)
        else:
            head.pad_right(indent - len(name))
            yield head.append_text(wrapped.pop(0))
        yield from (Text(" " * indent).append_text(line) for line in wrapped)


def _highlight(sentence: str) -> "Text":
    """Highlights options, text in backticks, and defaults."""
    from rich.text import Text

    text = Text(sentence)
    text.highlight_regex(r"(?<![\w-])--?[a-z][\w-]*", "cyan")
    text.highlight_regex(r"`[^`]*`", "bold")
    text.highlight_regex(r"\[(default: .*|required)\]$", "dim")
    return text


NO_SUCH_COMMAND = r"no such command (['\"])(.*?)\1(?:$|\.)"

# Options of other tools, earlier versions and other commands, and what to write where a command
# has it.
OTHER_NAMES = {
    "--batch-size": ("--batch-tokens", "--set training.tokens_per_batch=N"),
    "--config": ("RECIPE without an option",),
    "--cuda": ("--device cuda",),
    "--gpu": ("--device cuda",),
    "--head": ("--heads",),
    "--hypothesis": ("--rank",),
    "--input": ("--source",),
    "--lang": ("--source-language", "--target-language"),
    "--layer": ("--heads",),
    "--lr": ("--set training.learning_rate=X",),
    "--model": ("MODEL without an option",),
    "--nbest": ("--n-best-file",),
    "--source": ("--input",),
    "--src": ("--source", "--input"),
    "--symmetrise": ("--symmetrize",),
    "--target": ("--target-file",),
    "--tgt": ("--target", "--target-file", "--reference"),
    "--top": ("--top-k",),
    "--topk": ("--top-k",),
    "--verbose": ("to omit --quiet",),
}


class HelpfulGroup(ReadableHelp, TyperGroup):
    """A group of commands that shows its help on stderr when called without a command."""

    unlisted: ClassVar[tuple[str, ...]] = ()
    """Commands that work and are suggested, but not listed in the help."""

    def summaries(self, ctx: Any) -> Iterator[tuple[str, str, str]]:  # noqa: ANN401
        """Yields the commands that are listed: name, panel, summary."""
        for name in self.list_commands(ctx):
            command: Any = self.get_command(ctx, name)
            if not command.hidden:
                summary = " ".join(parts_of(command)[0].split("\n\n")[0].split())
                yield name, command.rich_help_panel or "Commands", summary

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401
        """Parses the arguments; see `typer.core.TyperGroup.parse_args`."""
        if not (args or ctx.resilient_parsing or self.invoke_without_command):
            # stdout carries results, and a group without a command has none
            with redirect_stdout(sys.stderr):
                sys.stderr.write(ctx.get_help())  # empty where Typer has drawn it itself
            # A group without a command is bad usage
            ctx.exit(2)
        return super().parse_args(ctx, args)


def usage_message(error: TyperException) -> str:
    """Writes an error of Typer as ``WHERE: WHAT; WHAT TO DO``."""
    context = getattr(error, "ctx", None)
    problem = _problem(error)
    if context is None:
        return problem
    unknown = getattr(error, "option_name", "") if "no such option" in problem else ""
    if unknown:
        options = _options_of(context)
        near = _other_names(unknown, options, context)
        # With a single dash it may have been meant as a text: see `_without_guess`
        if not near and unknown.startswith("--"):
            near = suggestions(unknown, options)
        hint = did_you_mean(near) or _without_guess(unknown, context)
        return f"{unknown}: no such option of {context.command_path}; {hint}"
    parameter = getattr(error, "param", None)
    if parameter is not None and problem.startswith("missing "):
        long = [name for name in parameter.opts if name.startswith("--")]
        pieces = " ".join(context.command.collect_usage_pieces(context))
        missing = long[0] if long else parameter.metavar
        return f"{missing}: is missing; usage: {context.command_path} {pieces}"
    command = re.match(NO_SUCH_COMMAND, problem)
    if command:
        shown = [name for name, _, _ in context.command.summaries(context)]
        known = [*shown, *context.command.unlisted]
        hint = did_you_mean(suggestions(command[2], known)) or _hint_by_words(command[2], context)
        # Other tools have a command `list`; here the group itself lists
        if command[2] == "list" and context.command.invoke_without_command:
            hint = f"did you mean `{context.command_path}`?"
        return f"{command[2]}: no such command of {context.command_path}; {hint}"
    where = "" if problem.startswith("--") else f"{context.command_path}: "
    return f"{where}{problem}; see `{context.command_path} --help`"


def _hint_by_words(word: str, context: Any) -> str:  # noqa: ANN401 - Typer's
    """Advice for a word that no command is like: of the field, it may stand in the guides."""
    from tformer_cli.guide.search import suggest_commands

    summaries = ((name, summary) for name, _, summary in context.command.summaries(context))
    return suggest_commands(word, summaries) or _without_guess("", context)


def _other_names(unknown: str, options: Collection[str], context: Any) -> list[str]:  # noqa: ANN401
    """Names that this command has for an option it lacks; an argument needs no option."""
    # An argument of two kinds has both names: RECIPE|SOURCE
    names = (name for param in context.command.params for name in str(param.metavar).split("|"))
    known = {*options, *names}
    return [name for name in OTHER_NAMES.get(unknown, ()) if known & set(name.split())]


def _options_of(context: Any) -> list[str]:  # noqa: ANN401 - Typer's
    """Lists the long names of a command's options that are not hidden."""
    shown = [
        param
        for param in context.command.get_params(context)
        if not getattr(param, "hidden", False)
    ]
    return [
        name for param in shown for name in param.opts + param.secondary_opts if name[:2] == "--"
    ]


def _without_guess(unknown: str, context: Any) -> str:  # noqa: ANN401 - Typer's
    """Advice where no name is near; a word with a leading dash may have been meant as a text."""
    takes_text = any("TEXT" in str(parameter.metavar) for parameter in context.command.params)
    if unknown[1:2] != "-" and takes_text:
        return (
            f'put -- before a text that begins with -: {context.command_path} MODEL -- "{unknown}…"'
        )
    return f"`{context.command_path} --help` lists them"


def _problem(error: TyperException) -> str:
    parameter = getattr(error, "param", None)
    options = [] if parameter is None else [n for n in parameter.opts if n.startswith("--")]
    if options and isinstance(error.__cause__, ValueError):  # of a value; see `PlainValue`
        return f"{options[0]}: {str(error.__cause__).rstrip('.')}"
    format_message = getattr(error, "format_message", error.__str__)
    message: str = " ".join(format_message().split())
    # The sentence becomes a part of `WHERE: WHAT; WHAT TO DO`
    return message[:1].lower() + message[1:].rstrip(".")


# Scripts compute counts as 5.0 or 5.00
WHOLE = r"\.0+$"
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SIZE = r"(?i)(\d{1,15}(?:\.\d{1,3})?) ?([KMGT]?)(?:i?B)?"


class PlainValue:
    """Reads the values of a parameter in the place of Typer's `RuntimeParam`.

    Typer asks pydantic, which takes as long to load as a line to translate.
    """

    def __init__(self, descriptor: Any) -> None:  # noqa: ANN401 - Typer's
        self._info = descriptor.parameter_info
        self._choices = descriptor.choices
        self._kind = (
            get_args(descriptor.annotation)[0] if descriptor.is_list else descriptor.annotation
        )

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:  # noqa: ANN401 - Typer's
        is_list = param.multiple or param.nargs == -1
        if value is None:
            return () if is_list else None
        try:
            return [self._read(item) for item in value] if is_list else self._read(value)
        except ValueError as error:
            # `help.usage_message` takes its words from the cause
            raise BadParameter(str(error), ctx=ctx, param=param) from error

    def _read(self, value: Any) -> Any:  # noqa: ANN401 - of the parameter's type
        if self._info.parser is not None:
            return self._info.parser(value)
        if self._choices is not None:
            return _choice(value, self._choices)
        if self._kind in (int, float):
            return self._number(value)
        return Path(value) if self._kind is Path else value

    def _number(self, value: Any) -> int | float:  # noqa: ANN401 - a text, or a default
        # A long text, passed by mistake, would hide the problem
        shown = f'"{str(value)[:60]}"'
        try:
            number = int(re.sub(WHOLE, "", str(value))) if self._kind is int else float(value)
        except ValueError:
            word = "whole number" if self._kind is int else "number"
            raise ValueError(f"must be a {word}, but is {shown}") from None
        # NaN fails both
        if self._info.min is not None and not number >= self._info.min:
            raise ValueError(f"must be at least {self._info.min:g}, but is {shown}")
        if self._info.max is not None and not number <= self._info.max:
            raise ValueError(f"must be at most {self._info.max:g}, but is {shown}")
        return number


def _choice(value: Any, choices: Iterable[Any]) -> Any:  # noqa: ANN401 - one of the choices
    known = {str(item.value if isinstance(item, Enum) else item): item for item in choices}
    if str(value) not in known:
        raise ValueError(f"{value!r} is not one of {', '.join(map(repr, known))}")
    return known[str(value)]


def parse_size(text: str, option: str) -> int:
    """Reads a number of bytes: 1000, 500M, 2.5G, 2GiB; units are powers of 1024."""
    match = re.fullmatch(_SIZE, text.strip())
    n_bytes = 0 if match is None else int(float(match[1]) * UNITS[match[2].upper()])
    if n_bytes < 1:
        raise UsageError(f'{option}: "{text}" is not a size above 0; write 500M or 20G')
    return n_bytes


def format_size(n_bytes: int) -> str:
    size = float(n_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:,.1f} TiB"
