"""Options of commands, declared once: their help, their roles as paths, and their values.

    @takes_groups
    def translate(model: ModelArgument, *, files: FileOptions, rounds: int = option_field(3, "…")):

A command takes a dataclass, and its help shows the fields as options. A field or a parameter is an
option if `option_field`, or `settings.setting`, gives its default, or if a `settings.Option` stands
behind its type. Settings know nothing of Typer: this module is where it learns of them.
"""

import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass, replace
from enum import Enum
from functools import partial, wraps
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

import typer

from tformer_cli.artifacts.overwriting import Writes
from tformer_cli.cli.streams import note, note_choices
from tformer_cli.errors import UsageError
from tformer_cli.search.config import DecodingConfig, search_options
from tformer_cli.search.opening import OpeningSettings
from tformer_cli.settings import (
    Option,
    dataclass,
    declare,
    declared_options,
    literal_values,
    types_of,
)

if TYPE_CHECKING:
    from tformer_cli.artifacts.config_file import Verb
    from tformer_cli.kinds.stored_model import Opened
    from tformer_cli.search.constraints import Term

Command = TypeVar("Command", bound=Callable[..., None])
Found = TypeVar("Found")
Value = TypeVar("Value")
# In the place of a default: the option must be given.
REQUIRED: Any = MISSING


class PathRole(Enum):
    """Role of a path in a command: what kind of place it names, and who writes it."""

    reads_file = "file"
    reads_directory = "directory"
    """A directory, or a file of one in its place."""
    reads_model = "model"
    """A model directory, or a foreign model, which is imported when it is first used."""
    reads_tokenizer = "tokenizer or model"
    """A tokenizer's file or a model directory, or a foreign model, which is imported."""
    reads_adapter = "adapter's directory"
    """The directory of a low-rank adapter or of its run."""
    reads_system = "system"
    """A file or a model directory, perhaps with a name in front: see `named_path`."""
    writes_file = Writes.FILE
    writes_new_file = Writes.NEW_FILE
    """A file that must not exist: the command refuses it itself."""
    writes_directory = Writes.DIRECTORY
    """A directory of its own: everything in it is replaced."""
    writes_run = Writes.RUN
    """A run directory: the files of a run are written into it, other files stay."""
    adds_files = Writes.FILES
    """A directory that files are added to; the command checks it itself."""

    @property
    def names(self) -> str:
        """The kind of path to name: a file or a directory."""
        return "file" if self.name.endswith("_file") or self.name == "reads_system" else "directory"

    @property
    def metavar(self) -> str:
        metavars = {"reads_model": "MODEL", "reads_system": "SYSTEM", "writes_run": "RUN"}
        return metavars.get(self.name, "FILE" if self.names == "file" else "DIR")


class Holds(frozenset[str]):
    """Formats of an output's file, as `content_of` names them, where no `--format` chooses it."""


def path_roles(command: Callable[..., Any]) -> dict[str, PathRole]:
    """Reads the roles that the parameters of a command's function declare, by their names."""
    return _behind_types(command, PathRole)


def held_formats(command: Callable[..., Any]) -> dict[str, Holds]:
    """Reads the formats that the parameters of a command's function declare, by their names."""
    return _behind_types(command, Holds)


def _behind_types(command: Callable[..., Any], kind: type[Found]) -> dict[str, Found]:
    parameters = inspect.signature(command).parameters.values()
    return {
        parameter.name: entry
        for parameter in parameters
        for entry in getattr(parameter.annotation, "__metadata__", ())
        if isinstance(entry, kind)
    }


def named_path(value: str) -> tuple[str, str]:
    """Separates ``NAME=PATH`` into both; the name is empty if there is none."""
    # A file whose own name has an equals sign
    name, sign, path = value.partition("=")
    return ("", value) if not (name and sign) or Path(value).exists() else (name, path)


def option(
    sentence: str,
    *names: str,
    shown: str | None = None,
    **more: Any,  # noqa: ANN401 - those of `Option`
) -> Option:
    """Declares an option after its type, inside `Annotated`."""
    return Option(sentence, names=names, shown_default=shown, **more)


def option_field(default: Value, sentence: str, *names: str, **more: Any) -> Value:  # noqa: ANN401
    """Declares a field of a group of options, or a parameter of a command; see `option`."""
    return declare(default, option(sentence, *names, **more))


def argument(
    metavar: str,
    sentence: str,
    default: Any = REQUIRED,  # noqa: ANN401
    **more: Any,  # noqa: ANN401
) -> Any:  # noqa: ANN401
    """Declares a parameter of a command that has no name on the command line."""
    return declare(default, option(sentence, metavar=metavar, is_argument=True, **more))


def takes_groups(command: Command) -> Command:
    """Turns a command with groups and declared options into one that Typer reads."""
    signature = inspect.signature(command)
    groups: dict[str, Any] = {
        name: parameter.annotation
        for name, parameter in signature.parameters.items()
        if is_dataclass(parameter.annotation)
    }
    options = {name: _options_of(group) for name, group in groups.items()}

    @wraps(command)
    def spread(*args: Any, **values: Any) -> None:  # noqa: ANN401 - typed by the options
        for name, group in groups.items():
            settings = {option.name: values.pop(option.name) for option in options[name]}
            # Typer gives lists, and None for none; settings are frozen and hold tuples
            several = {field.name for field in fields(group) if isinstance(field.default, tuple)}
            settings |= {name: tuple(settings[name] or ()) for name in several & settings.keys()}
            values[name] = group(**settings)
        command(*args, **values)

    parameters = [
        option
        for name, parameter in signature.parameters.items()
        for option in (options[name] if name in options else [for_typer(parameter)])
    ]
    return with_parameters(spread, parameters)  # type: ignore[no-any-return]


def with_parameters(command: Any, parameters: list[inspect.Parameter]) -> Any:  # noqa: ANN401
    # Typer reads both, and would find the groups through `__wrapped__`
    command.__signature__ = inspect.signature(command).replace(parameters=parameters)
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


def _options_of(group: Any) -> list[inspect.Parameter]:  # noqa: ANN401 - a dataclass
    kinds = get_type_hints(group, include_extras=True)
    named = inspect.Parameter.KEYWORD_ONLY
    declared = [
        for_typer(inspect.Parameter(field.name, named, default=field, annotation=kinds[field.name]))
        for field in fields(group)
    ]
    return [parameter for parameter in declared if not isinstance(parameter.default, Field)]


def for_typer(parameter: inspect.Parameter) -> inspect.Parameter:
    """Converts a declared option to Typer's; other parameters stay as they are."""
    kind, *behind = (
        get_args(parameter.annotation) if _is_annotated(parameter) else (parameter.annotation,)
    )
    default: Any = parameter.default
    if isinstance(default, Field):
        default, behind = default.default, [default.metadata.get("option"), *behind]
    option = next((each for each in behind if isinstance(each, Option)), None)
    if option is None:
        return parameter
    if default is MISSING:
        default = inspect.Parameter.empty
    # An immutable default for the dataclass; a list would be shared by all of its instances
    if default == ():  # what may be repeated: Typer then gives None
        if words := tuple(map(str, literal_values(get_args(kind)[0]))):
            option = replace(option, parser=one_of(words))
        kind, default = list[int] | None if get_args(kind)[0] is int else list[str] | None, None
    if words := _words_of_list(kind):
        kind = list[str] | None
        option = replace(option, metavar="|".join(words), parser=one_of(words))
    long = f"--{parameter.name.replace('_', '-')}"
    names = option.names
    if not names and default is False:  # a flag that is off needs no --no-flag
        names = (long,)
    if names and not any(name.startswith("--") for name in names):
        names = (long, *names)
    roles = (each for each in behind if isinstance(each, PathRole | Holds))
    annotation: Any = Annotated[kind, *_typer_option(option, names), *roles]
    return parameter.replace(default=default, annotation=annotation)


def _words_of_list(kind: Any) -> tuple[str, ...]:  # noqa: ANN401 - a type
    """Lists the words of a list of literals, which Typer does not know."""
    lists = (each for each in get_args(kind) if get_origin(each) is list)
    return next((tuple(map(str, literal_values(*get_args(each)))) for each in lists), ())


def one_of(words: Iterable[str]) -> Callable[[str], str]:
    """Returns the parser of an option whose value is one of these words."""
    known = list(map(str, words))

    def read(value: str) -> str:
        if value in known:
            return value
        raise ValueError(f"'{value}' is not one of {', '.join(map(repr, known))}")

    return read


def _is_annotated(parameter: inspect.Parameter) -> bool:
    return get_origin(parameter.annotation) is Annotated


def _typer_option(option: Option, names: tuple[str, ...]) -> list[Any]:
    role = PathRole[option.role] if option.role else None
    details: dict[str, Any] = {
        "metavar": option.metavar or (role and role.metavar),
        "help": option.help,
        "rich_help_panel": option.panel,
        "autocompletion": option.complete,
    }
    if option.metavar in ("HEAD", "HEADS"):
        details["autocompletion"] = complete_heads
    if option.shown_default is not None:
        details["show_default"] = option.shown_default
    if option.is_argument:
        declared: Any = typer.Argument(**details)
    else:
        details |= {"min": option.min, "max": option.max, "parser": option.parser}
        # Eager: --version answers before a missing argument is an error
        details |= {"callback": option.callback, "is_eager": option.callback is not None}
        declared = typer.Option(*names, **details)
    holds = Holds(option.holds) if option.holds else None
    return [declared, *filter(None, (role, holds))]


def option_type(settings: type, name: str) -> Any:  # noqa: ANN401 - a type
    """Returns the annotated type of a parameter that a field of settings declares."""
    return Annotated[types_of(settings)[name], declared_options(settings, Option)[name]]


def optional(kind: Any, option: Option) -> Any:  # noqa: ANN401 - a type
    """Returns the annotated type of a parameter that is None where its option is not given."""
    return Annotated[kind | None, option]


def given_options(*groups: Any) -> set[str]:  # noqa: ANN401 - dataclasses
    """Names the fields of option groups whose values differ from the default."""
    return {
        field.name
        for group in groups
        for field in fields(group)
        if getattr(group, field.name) != field.default
    }


def refuse(options: Mapping[str, object], why: str) -> None:
    """Refuses the first of some options, by the names of their fields, that is given."""
    for name, value in options.items():
        if value is not None:
            raise UsageError(f"--{name.replace('_', '-')}: {why}")


def without_options(command: Command, names: Collection[str]) -> Command:
    """Removes options from a command, which always gets their defaults."""
    parameters = inspect.signature(command).parameters
    defaults = {name: parameters[name].default for name in names}

    @wraps(command)
    def fewer(*args: Any, **values: Any) -> None:  # noqa: ANN401 - typed by the options
        command(*args, **defaults, **values)

    kept = [parameter for parameter in parameters.values() if parameter.name not in names]
    return with_parameters(fewer, kept)  # type: ignore[no-any-return]


def with_options(command: Command, options: Mapping[str, tuple[Any, Any]]) -> Command:
    """Adds options to a command that ends in ``**some_name``, which receives them."""
    *own, rest = inspect.signature(command).parameters.values()
    assert rest.kind is rest.VAR_KEYWORD  # noqa: S101
    more = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, (kind, default) in options.items()
    ]
    return with_parameters(command, [*own, *more])  # type: ignore[no-any-return]


# Shell completion beyond commands, options and choices; nothing heavy is imported.

# Selections of heads that fit every model.
HEADS = (
    *(f"{kind}{rest}" for kind in ("enc", "dec", "cross") for rest in (".", ".last", ".*.*")),
    *("self", "*"),
)


def complete_recipes(incomplete: str) -> list[str]:
    """Returns the shipped recipes, and the TOML files and directories that are there."""
    from tformer_cli.recipe import recipe_names

    folder, _, name = incomplete.rpartition("/")
    within = Path(folder or ("/" if incomplete.startswith("/") else "."))
    files = [
        f"{folder}/{path.name}" if "/" in incomplete else path.name
        for path in sorted(within.glob(f"{name}*"))
        # With nothing typed yet, every directory would be offered
        if path.suffix == ".toml" or (path.is_dir() and name)
    ]
    return [*recipe_names(), *files]


def complete_keys(incomplete: str) -> list[str]:  # noqa: ARG001 - Typer sorts them out
    """Returns every key of a recipe, ready for its value."""
    from tformer_cli.recipe import START_KEYS, Recipe

    keys = (key for key in _keys(Recipe) if not key.startswith("start."))
    return [f"{key}=" for key in ("model.preset", *(f"model.{key}" for key in START_KEYS), *keys)]


def complete_heads(incomplete: str) -> list[str]:
    """Returns selections of heads for the last term typed."""
    before = incomplete[: max(incomplete.rfind(","), incomplete.rfind("!")) + 1]
    return [f"{before}{selection}" for selection in HEADS]


def complete_topics() -> list[str]:
    """Returns the topics of the guides."""
    from tformer_cli.guide import SAMPLE, guides, notebooks

    return [*(guide.topic for guide in guides()), *notebooks(), SAMPLE]


def complete_commands(ctx: typer.Context) -> list[str]:
    """Returns the commands that may follow those typed."""
    command: Any = ctx.find_root().command
    for word in ctx.params.get("command") or ():
        command = getattr(command, "commands", {}).get(word)
    return list(getattr(command, "commands", {}))


def _keys(kind: type) -> Iterator[str]:
    for name, value in get_type_hints(kind).items():
        if is_dataclass(value):
            yield from (f"{name}.{key}" for key in _keys(value))  # type: ignore[arg-type]
        else:
            yield name


ModelArgument = Annotated[
    Path,
    Option(
        "A model or run directory, a hub name (owner/name), or a short name or pair such as "
        "en-de; see `tformer models`.",
        metavar="MODEL",
        role="reads_model",
        is_argument=True,
    ),
]
AdapterOption = option_type(OpeningSettings, "adapter")
DeviceOption = option_type(OpeningSettings, "device")
SeedOption = option_type(OpeningSettings, "seed")
ThreadsOption = option_type(OpeningSettings, "threads")
SourceLanguageOption = option_type(OpeningSettings, "source_language")
TargetLanguageOption = option_type(OpeningSettings, "target_language")
DecodingPrecisionOption = option_type(OpeningSettings, "precision")
OutputOption = Annotated[
    str,
    option("Output file; - is stdout.", "--output", "-o", shown="stdout", role="writes_file"),
]
TrainingSeedOption = Annotated[
    int | None,
    option(
        "Random seed for weights, dropout and data order.",
        panel="Machine",
        shown="the recipe's",
        min=0,
    ),
]
QuietOption = Annotated[
    bool,
    option("Show only warnings and errors on stderr.", "--quiet", "-q", panel="Messages"),
]


def prepare_torch(threads: int = 0) -> None:
    """Sets torch's threads and how they wait, its products and the allocator. Imports torch."""
    from tformer_cli.runtime import has_fast, prepare_cpu, set_threads

    try:
        set_threads(threads)
    except ValueError as error:
        raise UsageError(f"--threads: {error}") from None
    prepare_cpu()
    if has_fast():
        from tformer_cli.fast.native.threads import be_polite

        # Threads that spin keep other programs from running
        be_polite()


def torch_preparation(threads: int = 0) -> Callable[[], None]:
    """Returns the `before_torch` of `open_model`; sets now what does not need torch."""
    from tformer_cli.runtime import keep_freed_pages

    # Returning each large temporary to the system costs a tenth of greedy search
    keep_freed_pages()
    return partial(prepare_torch, threads)


def opened_model(
    model: Path,
    verb: "Verb",
    *,
    threads: int,
    quiet: bool,
    **options: Any,  # noqa: ANN401 - those of `open_model`
) -> "Opened":
    """Opens a model for a verb, and notes where it computes."""
    from tformer_cli.kinds.opening import open_model

    opened = open_model(
        model,
        verb,
        threads=threads,
        tell=partial(note, quiet=quiet),
        before_torch=torch_preparation(threads),
        **options,
    )
    note_choices(opened, quiet=quiet)
    return opened


_TRANSLATION_OPTIONS = search_options()


def search_option(name: str) -> Any:  # noqa: ANN401 - a type
    """Returns the annotated type of one option of the search."""
    return optional(types_of(DecodingConfig)[name], _TRANSLATION_OPTIONS[name])


LengthPenaltyOption = search_option("length_penalty")
NormalizationOption = search_option("length_normalization")
CoveragePenaltyOption = search_option("coverage_penalty")


def settings_options(names: Iterable[str]) -> dict[str, tuple[Any, Any]]:
    """Returns the annotated types and defaults of settings of the search and of opening a model."""
    opening = {
        parameter.name: (parameter.annotation, parameter.default)
        for parameter in _options_of(OpeningSettings)
    }
    return {n: opening[n] if n in opening else (search_option(n), None) for n in names}


def takes_decoding_options(command: Command) -> Command:
    """Adds every search option to a command that ends in ``**decoding``."""
    return _with_search(command, _TRANSLATION_OPTIONS)


def takes_generation_options(command: Command) -> Command:
    """Adds the options of a search for texts to a command that ends in ``**decoding``."""
    return _with_search(command, search_options(of_prompts=True))


def _with_search(command: Command, options: Mapping[str, Option]) -> Command:
    types = types_of(DecodingConfig)
    annotated = {name: (optional(types[name], option), None) for name, option in options.items()}
    return with_options(command, annotated)


@dataclass(frozen=True, kw_only=True)
class TranslatorOptions(OpeningSettings):
    """Options of a translator that do not belong to its search."""

    @property
    def settings(self) -> dict[str, Any]:
        """The arguments of `open_model` that they are."""
        return {name: getattr(self, name) for name in declared_options(OpeningSettings, Option)}

    def open(
        self,
        model: Path,
        *,
        quiet: bool,
        glossary: "Sequence[Term]" = (),
        **more: Any,  # noqa: ANN401
    ) -> "Opened":
        """Opens a model for translation and notes where it computes."""
        opened = opened_model(model, "translate", quiet=quiet, **self.settings, **more)
        return replace(opened, search=opened.translator.with_glossary(glossary))
