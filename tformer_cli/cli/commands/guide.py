"""`tformer guide`, `recipes` and `help`: what ships with the program to be read."""

import json
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tformer_cli.cli.command import CommandGroup
from tformer_cli.cli.format_choice import check_ending
from tformer_cli.cli.help import show_list
from tformer_cli.cli.options import (
    Holds,
    OutputOption,
    QuietOption,
    argument,
    complete_commands,
    complete_recipes,
    complete_topics,
    option_field,
)
from tformer_cli.cli.streams import (
    STANDARD_STREAM,
    error_line,
    note,
    print_paged,
    results,
    stdout_console,
    utf8_line,
    write_line,
)
from tformer_cli.errors import TformerError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console, ConsoleOptions
    from rich.text import Text

_LIVE_PAGE = Path("runs/quickstart/page.html")  # The quickstart writes it


def guide(
    topic: list[str] | None = argument(
        "TOPIC",
        "Guide to print, or a word to find; without it, lists the topics.",
        default=None,
        complete=complete_topics,
    ),
    *,
    output: Annotated[OutputOption, Holds({"text", "HTML"})] = STANDARD_STREAM,
    quiet: QuietOption = False,
) -> None:
    """Print a guide, find a word in the guides, or list the topics.

    On a terminal, the guide is formatted and shown in $PAGER, unless --quiet; elsewhere you get the
    Markdown. Any other word is looked up in the glossary, the commands and the guides.
    sample-report is a report page, to open in a browser without training a model; topics that end
    in .ipynb are notebooks.

    Examples:
        tformer guide
        tformer guide how-a-transformer-works
        tformer guide softmax
        tformer guide sample-report -o report.html
        tformer guide translating.ipynb -o translating.ipynb
    """
    from tformer_cli.guide import (
        SAMPLE,
        guides,
        notebook_text,
        notebooks,
        sample_report,
    )

    is_on_terminal = output == STANDARD_STREAM and sys.stdout.isatty()
    word = " ".join(topic or ())
    if not topic:
        if output != STANDARD_STREAM:
            raise UsageError("--output: there is no guide to write; name a TOPIC")
        rows = [(page.topic, page.summary) for page in guides()]
        rows += [(name, f"A notebook: {title}.") for name, title in notebooks().items()]
        show_list(stdout_console(), [*rows, (SAMPLE, "A report page to open; needs -o FILE.")])
        return
    if word == SAMPLE or word in notebooks():
        if is_on_terminal:
            raise UsageError("--output: a page is not for a terminal; name a file with -o FILE")
        if word == SAMPLE:
            check_ending(output, ["html"])
        text = sample_report() if word == SAMPLE else notebook_text(word)
    else:
        check_ending(output, ["markdown", "text"])
        text = _text_of(word)
    if is_on_terminal:
        show_guide(stdout_console(), text, is_paged=not quiet)
        return
    with results(output) as stream:
        stream.write(utf8_line(text.rstrip("\n")))
    if word == SAMPLE and _LIVE_PAGE.is_file():
        note(f"{_LIVE_PAGE} also computes what you type; open it, too", quiet=quiet)


def _text_of(word: str) -> str:
    """Reads a guide, or else writes where the word stands."""
    from tformer_cli.cli.known_commands import known_commands
    from tformer_cli.guide import find_guide, has_guide
    from tformer_cli.guide.search import write_search_page

    summaries = ((name, row.summary) for name, row in known_commands())
    page = "" if has_guide(word) else write_search_page(word, summaries)
    return page or find_guide(word).text


def show_guide(console: "Console", text: str, *, is_paged: bool = False) -> None:
    """Prints a guide, its Markdown formatted, but lines of code whole: they can be copied."""
    from rich.markdown import CodeBlock, Markdown
    from rich.text import Text

    class WholeLines(CodeBlock):
        """Code whose long lines the terminal wraps, without line breaks."""

        def __rich_console__(
            self, console: "Console", options: "ConsoleOptions"
        ) -> "Iterator[Text]":
            code = str(self.text).rstrip()
            yield Text(code, style="cyan", no_wrap=True, overflow="ignore")

    guide = Markdown(text, hyperlinks=False)
    guide.elements = {**guide.elements, "fence": WholeLines, "code_block": WholeLines}  # type: ignore[misc]
    print_paged(console, guide, is_paged=is_paged)


recipes_app = CommandGroup(
    "recipes",
    invoke_without_command=True,
)
NAME = argument("RECIPE", "Name of a shipped recipe.", complete=complete_recipes, role="reads_file")
RECIPES = argument(
    "RECIPE…",
    "A TOML file or the name of a shipped recipe.",
    complete=complete_recipes,
    role="reads_file",
)


@recipes_app.callback()
def recipes(ctx: typer.Context) -> None:
    """List the shipped recipes, show one, or copy one to edit.

    Without a command, lists the recipes: what each trains, and where its data come from.

    Examples:
        tformer recipes
        tformer recipes show multi30k-en-de
        tformer recipes copy template -o my.toml
        tformer recipes check my.toml
    """
    # Typer runs this before `show` and `copy`, too
    if ctx.invoked_subcommand is not None:
        return
    from tformer_cli.guide import shipped_recipes

    rows = [
        (row.name, f"{row.summary} Data: {row.origin}" if row.origin else row.summary)
        for row in shipped_recipes()
    ]
    show_list(stdout_console(), rows)


@recipes_app.add("show")
def show(
    name: str = NAME,
    *,
    quiet: QuietOption = False,  # noqa: ARG001 - every command takes it; this one is quiet
) -> None:
    """Print a recipe with its comments.

    Examples:
        tformer recipes show quickstart
        tformer recipes show template > my.toml
    """
    from tformer_cli.guide import recipe_text

    # As bytes: TOML is UTF-8, whatever the locale
    sys.stdout.buffer.write(utf8_line(recipe_text(name).rstrip("\n")))


@recipes_app.add("copy")
def copy(
    name: str = NAME,
    *,
    output: Path | None = option_field(
        None, "The new file; it must not exist.", "-o", shown="RECIPE.toml", role="writes_new_file"
    ),
    quiet: QuietOption = False,
) -> None:
    """Copy a recipe to a file, to edit and train.

    An existing file is never overwritten.

    Examples:
        tformer recipes copy template
        tformer recipes copy multi30k-en-de -o my.toml
    """
    from tformer_cli.guide import copy_recipe
    from tformer_cli.recipe import read_toml

    path = copy_recipe(name, output)
    command = "study" if "variants" in read_toml(path) else "train"
    note(f"copied {name}; next: `tformer {command} {path} --dry-run`", quiet=quiet)
    write_line(str(path))


@recipes_app.add("check")
def check(
    names: list[str] = RECIPES,
    *,
    without_files: bool = option_field(
        False,
        "Do not look for corpora and the model that a recipe starts from, which may be on another "
        "machine.",
    ),
    quiet: QuietOption = False,
) -> None:
    """Check recipes without training.

    Finds what `tformer train` and `tformer distill` would refuse before they read any text: keys,
    values, combinations, missing files. Each unknown key and each value of a wrong type gets a
    line on stderr, other mistakes are named one at a time, and the exit status is 2. Correct
    recipes are named on stdout.

    Examples:
        tformer recipes check my.toml
        tformer recipes check recipes/*.toml --without-files
    """
    from tformer_cli.train.checking import check_recipe

    errors: list[TformerError] = []
    for name in names:
        try:
            check_recipe(name, has_files=not without_files, say=partial(note, quiet=quiet))
        except TformerError as error:
            errors += [error, *error.others]
        else:
            write_line(f"{name}: correct")
    if errors:
        *others, last = errors
        for other in others:
            error_line(str(other))
        raise last


@recipes_app.add("schema")
def schema(
    *,
    output: Annotated[OutputOption, Holds({"JSON"})] = STANDARD_STREAM,
    quiet: QuietOption = False,  # noqa: ARG001 - every command takes it; this one is quiet
) -> None:
    """Write the JSON Schema of recipes, for editors.

    An editor with a TOML language server, such as Even Better TOML, then completes keys, shows what
    they mean and marks wrong ones in a recipe that begins with `#:schema recipe.schema.json`.

    Examples:
        tformer recipes schema -o recipe.schema.json
        tformer recipes schema | jq .properties.training
    """
    from tformer_cli.guide.recipe_schema import recipe_schema

    check_ending(output, ["json"])
    with results(output) as stream:
        stream.write(utf8_line(json.dumps(recipe_schema(), ensure_ascii=False, indent=1)))


def help_command(
    ctx: typer.Context,
    command: list[str] | None = argument(
        "COMMAND",
        "Command, such as translate or tokenize train; without it, lists all commands.",
        default=None,
        complete=complete_commands,
    ),
) -> None:
    """Show the help of a command.

    Examples:
        tformer help translate
        tformer help tokenize train
    """
    root = ctx.find_root()
    group: Any = root.command
    words = command or []
    for at, word in enumerate(words):
        if not hasattr(group, "commands"):
            raise UsageError(f"{word}: {' '.join(words[:at])} has no commands; omit it")
        # A name that is none is refused below, with the nearest ones
        group = group.get_command(root, word) or root.command
    # As if --help were typed, so that the two never differ
    root.command.main([*words, "--help"], prog_name=root.info_name)
