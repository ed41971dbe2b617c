"""Options of commands, declared once: their help, their roles as paths, and their values.

    @takes_groups
    def translate(model: ModelArgument, *, files: FileOptions) -> None: ...

A command takes a dataclass, and its help shows the fields as options. A field is declared by
`option_field`, or like a parameter of a command by an annotated type. Settings, which know nothing
of Typer, have a `settings.Option`, behind the type or by `settings.setting`. A field without any of
these is not an option.
"""

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from enum import Enum, StrEnum
from functools import partial, wraps
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

import typer

from tformer_cli.artifacts.overwriting import Writes
from tformer_cli.cli.help import MACHINE, MESSAGES
from tformer_cli.cli.streams import note, note_choices
from tformer_cli.errors import UsageError
from tformer_cli.metrics.choices import ScoringSettings
from tformer_cli.search.config import DecodingConfig, search_options
from tformer_cli.search.opening import OpeningSettings
from tformer_cli.settings import Limits, Option, declared_options, types_of

if TYPE_CHECKING:
    from tformer_cli.kinds.opening import Opened

Found = TypeVar("Found")


class PathRole(Enum):
    """Role of a path in a command."""

    reads_file = "file"
    reads_directory = "directory"
    """A directory, or a file of one in its place."""
    reads_model = "model"
    """A model directory, or a foreign model, which is imported when it is first used."""
    reads_tokenizer = "tokenizer or model"
    """A tokenizer's file or a model directory, or a foreign model, which is imported."""
    reads_adapter = "adapter's directory"
    """The directory of a low-rank adapter, or that of its run."""
    reads_system = "system"
    """A file or a model directory, which a name may stand before: see `named_path`."""
    writes_file = Writes.FILE
    writes_new_file = Writes.NEW_FILE
    """A file that must not exist: the command refuses it itself."""
    writes_directory = Writes.DIRECTORY
    """A directory of its own: all that is in it is replaced."""
    writes_run = Writes.RUN
    """A run directory: the files of a run are written into it, other files stay."""
    adds_files = Writes.FILES
    """A directory that files are added to, which the command looks after itself."""

    @property
    def names(self) -> str:
        """The kind of path to name: a file or a directory."""
        return "file" if self in _FILES else "directory"


_FILES = (
    *(PathRole.reads_file, PathRole.reads_system),
    *(PathRole.writes_file, PathRole.writes_new_file),
)


class Holds(frozenset[str]):
    """Formats of an output's file, as `content_of` names them, where no `--format` chooses it."""


def path_roles(command: Callable[..., Any]) -> dict[str, PathRole]:
    """Reads the roles that the parameters of a command's function declare, by their names."""
    return _declared(command, PathRole)


def held_formats(command: Callable[..., Any]) -> dict[str, Holds]:
    """Reads the formats that the parameters of a command's function declare, by their names."""
    return _declared(command, Holds)


def _declared(command: Callable[..., Any], kind: type[Found]) -> dict[str, Found]:
    parameters = inspect.signature(command).parameters.values()
    return {
        parameter.name: one
        for parameter in parameters
        for one in getattr(parameter.annotation, "__metadata__", ())
        if isinstance(one, kind)
    }


def named_path(value: str) -> tuple[str, str]:
    """Separates ``NAME=PATH`` into both; the name is empty if there is none.

    A file whose name has an equals sign is found as it is.
    """
    name, sign, path = value.partition("=")
    return ("", value) if not (name and sign) or Path(value).exists() else (name, path)


HEADS = (
    *(f"{kind}{rest}" for kind in ("enc", "dec", "cross") for rest in (".", ".last", ".*.*")),
    *("self", "*"),
)
"""Selections of heads that fit every model."""


def complete_recipes(incomplete: str) -> list[str]:
    """Returns the shipped recipes, and the TOML files and directories that are there."""
    from tformer_cli.recipe import recipe_names

    folder, _, name = incomplete.rpartition("/")
    within = Path(folder or ("/" if incomplete.startswith("/") else "."))
    files = [
        f"{folder}/{path.name}" if "/" in incomplete else path.name
        for path in sorted(within.glob(f"{name}*"))
        if path.suffix == ".toml" or (path.is_dir() and name)
    ]
    return [*recipe_names(), *files]


def complete_keys(incomplete: str) -> list[str]:  # noqa: ARG001 - Typer sorts them out
    """Returns every key of a recipe, ready for its value."""
    from tformer_cli.recipe import OF_START, Recipe

    keys = (key for key in _keys(Recipe) if not key.startswith("start."))
    return [f"{key}=" for key in ("model.preset", *(f"model.{key}" for key in OF_START), *keys)]


def complete_heads(incomplete: str) -> list[str]:
    """Returns selections of heads for the last term typed."""
    before = incomplete[: max(incomplete.rfind(","), incomplete.rfind("!")) + 1]
    return [f"{before}{one}" for one in HEADS]


def complete_topics() -> list[str]:
    """Returns the topics of the guides."""
    from tformer_cli.guide import SAMPLE, guides

    return [*(guide.topic for guide in guides()), SAMPLE]


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


Command = TypeVar("Command", bound=Callable[..., None])


def takes_groups(command: Command) -> Command:
    """Spreads every parameter of a command that is a dataclass into the options of its fields."""
    signature = inspect.signature(command)
    groups: dict[str, Any] = {
        name: one.annotation
        for name, one in signature.parameters.items()
        if is_dataclass(one.annotation)
    }
    options = {name: _options_of(group) for name, group in groups.items()}

    @wraps(command)
    def spread(*args: Any, **values: Any) -> None:  # noqa: ANN401 - typed by the options
        for name, group in groups.items():
            given = {option.name: values.pop(option.name) for option in options[name]}
            several = {one.name for one in fields(group) if isinstance(one.default, tuple)}
            given |= {one: tuple(given[one] or ()) for one in several & given.keys()}
            values[name] = group(**given)
        command(*args, **values)

    parameters = [
        one
        for name, parameter in signature.parameters.items()
        for one in options.get(name, [parameter])
    ]
    # Typer reads both, and would find the groups behind `__wrapped__`
    spread.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    spread.__annotations__ = {one.name: one.annotation for one in parameters}
    return spread  # type: ignore[return-value]


def _options_of(group: Any) -> list[inspect.Parameter]:  # noqa: ANN401 - a dataclass
    kinds = get_type_hints(group, include_extras=True)
    parameters = []
    for one in fields(group):
        if (kind := _parameter_type(kinds[one.name], one)) is None:
            continue
        default = inspect.Parameter.empty if one.default is MISSING else one.default
        if default == ():
            default = None  # Typer's default of what may be repeated
        parameters.append(
            inspect.Parameter(
                one.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind
            )
        )
    return parameters


def _parameter_type(kind: Any, field: "Field[Any]") -> Any:  # noqa: ANN401 - a type
    """Returns the annotated type of the parameter that a field declares; None: it declares none."""
    value, *behind = get_args(kind) if get_origin(kind) is Annotated else (kind,)
    behind = [one for one in behind if not isinstance(one, Limits)]
    is_field = "option" in field.metadata
    if not (is_field or behind):
        return None
    option, *roles = (field.metadata["option"], field.metadata.get("role")) if is_field else behind
    if isinstance(option, Option):
        is_field = True
        option, *roles = _typer_option(option)
    if is_field and field.default is False and not option.param_decls:
        # a flag that is off needs no --no-flag
        option.param_decls = (f"--{field.name.replace('_', '-')}",)
    if field.default == ():
        value = list[str] | None
    return Annotated[value, option, *filter(None, roles)]


def option_type(settings: type, name: str) -> Any:  # noqa: ANN401 - a type
    """Returns the annotated type of the parameter that a field of settings declares."""
    kinds = get_type_hints(settings, include_extras=True)
    return _parameter_type(kinds[name], next(one for one in fields(settings) if one.name == name))


def optional(kind: Any, option: Option) -> Any:  # noqa: ANN401 - a type
    """Returns the annotated type of a parameter that is None where its option is not given."""
    return Annotated[kind | None, *_typer_option(option)]


def _typer_option(option: Option) -> list[Any]:
    shown = {} if option.shown_default is None else {"show_default": option.shown_default}
    declared = typer.Option(
        *(option.name or "").split(),
        metavar=option.metavar,
        min=option.min,
        max=option.max,
        help=option.help,
        rich_help_panel=option.panel,
        autocompletion=_completion(option),
        **shown,  # type: ignore[arg-type]
    )
    return [declared, PathRole[option.role]] if option.role else [declared]


def _completion(option: Option) -> Callable[..., list[str]] | None:
    if option.metavar in ("HEAD", "HEADS"):
        return complete_heads
    return (lambda: list(option.completes)) if option.completes else None


def given_options(*groups: Any) -> set[str]:  # noqa: ANN401 - dataclasses
    """Names the fields of groups of options that have not their default."""
    return {
        one.name
        for group in groups
        for one in fields(group)
        if getattr(group, one.name) != one.default
    }


def without_options(command: Command, names: Collection[str]) -> Command:
    """Takes options away from a command, which always gets their defaults."""
    signature = inspect.signature(command)
    kept = [one for one in signature.parameters.values() if one.name not in names]
    defaults = {name: signature.parameters[name].default for name in names}

    @wraps(command)
    def fewer(*args: Any, **values: Any) -> None:  # noqa: ANN401 - typed by the options
        command(*args, **defaults, **values)

    fewer.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
    fewer.__annotations__ = {one.name: one.annotation for one in kept}
    return fewer  # type: ignore[return-value]


def with_settings(command: Command, kind: type, options: Mapping[str, Option]) -> Command:
    """Gives a command that ends in ``**some_name`` options of settings, all None by default."""
    types = types_of(kind)
    return with_options(
        command, {name: (optional(types[name], one), None) for name, one in options.items()}
    )


def with_options(command: Command, options: Mapping[str, tuple[Any, Any]]) -> Command:
    """Gives a command that ends in ``**some_name`` more options, which arrive under that name."""
    signature = inspect.signature(command)
    own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    (rest,) = (p.name for p in signature.parameters.values() if p.kind is p.VAR_KEYWORD)
    more = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, (kind, default) in options.items()
    ]
    # Typer reads both
    command.__signature__ = signature.replace(parameters=[*own, *more])  # type: ignore[attr-defined]
    del command.__annotations__[rest]
    return command


Value = TypeVar("Value")


class DecodingPrecision(StrEnum):  # Typer has no lists of literals, and `benchmark` takes several
    """Values of `--precision` where translations are searched for."""

    auto = "auto"
    float32 = "float32"
    bfloat16 = "bfloat16"
    int8 = "int8"


class Engine(StrEnum):
    """Values of `--engine`."""

    tformer = "tformer"
    compiled = "compiled"
    torch = "torch"


def option(
    sentence: str,
    *names: str,
    panel: str | None = None,
    shown: str | bool = True,
    **details: Any,  # noqa: ANN401 - Typer's
) -> Any:  # noqa: ANN401 - Typer's options have no type of their own
    """Declares an option behind its type, inside `Annotated`."""
    return typer.Option(*names, help=sentence, rich_help_panel=panel, show_default=shown, **details)


def option_field(
    default: Value,
    sentence: str,
    *names: str,
    role: PathRole | None = None,
    **details: Any,  # noqa: ANN401 - those of `option`
) -> Value:
    """Declares a field of a group of options with its default, help and names; see `option`."""
    metadata = {"option": option(sentence, *names, **details), "role": role}
    declared: Value = field(default=default, metadata=metadata)
    return declared


ModelArgument = Annotated[
    Path,
    typer.Argument(metavar="MODEL", help="Model directory; a run directory is one."),
    PathRole.reads_model,
]
AdapterOption = option_type(OpeningSettings, "adapter")
DeviceOption = option_type(OpeningSettings, "device")
PrecisionOption = Annotated[
    Literal["auto", "float32", "bfloat16"],
    option(
        "Precision to train in; bfloat16 is mixed precision. auto takes the recipe's.",
        panel=MACHINE,
    ),
]
DecodingPrecisionOption = Annotated[
    DecodingPrecision,
    option("Precision to compute in. auto takes that of the model's weights.", panel=MACHINE),
]
OutputOption = Annotated[
    str,
    option("Output file; - is stdout.", "--output", "-o", shown="stdout", metavar="FILE"),
    PathRole.writes_file,
]
SeedOption = option_type(OpeningSettings, "seed")
TrainingSeedOption = Annotated[
    int | None,
    option(
        "Random seed of weights, dropout and the order of the data.",
        panel=MACHINE,
        shown="the recipe's",
        min=0,
    ),
]
ThreadsOption = option_type(OpeningSettings, "threads")
QuietOption = Annotated[
    bool,
    option("Show only warnings and errors on stderr.", "--quiet", "-q", panel=MESSAGES),
]
LowercaseOption = option_type(ScoringSettings, "lowercase")
TokenizeOption = option_type(ScoringSettings, "tokenize")


def prepare_torch(threads: int = 0) -> None:
    """Sets torch's threads and how they wait, its products and the allocator. Imports torch."""
    from tformer_cli.acceleration import has_fast
    from tformer_cli.runtime import prepare_cpu, set_threads

    try:
        set_threads(threads)
    except ValueError as error:
        raise UsageError(f"--threads: {error}") from None
    prepare_cpu()
    if has_fast():
        from tformer_cli.fast.native.threads import be_polite

        be_polite()


def torch_preparation(threads: int = 0) -> Callable[[], None]:
    """Makes the `before_torch` of `open_model`; sets at once what does not need torch."""
    from tformer_cli.runtime import keep_freed_pages

    keep_freed_pages()
    return partial(prepare_torch, threads)


_OF_TRANSLATION = search_options()


def search_option(name: str) -> Any:  # noqa: ANN401 - a type
    """Returns the annotated type of one option of the search."""
    return optional(types_of(DecodingConfig)[name], _OF_TRANSLATION[name])


BeamSizeOption = search_option("beam_size")
LengthPenaltyOption = search_option("length_penalty")
NormalizationOption = search_option("length_normalization")
CoveragePenaltyOption = search_option("coverage_penalty")
SourceLanguageOption = option_type(OpeningSettings, "source_language")
TargetLanguageOption = option_type(OpeningSettings, "target_language")


def takes_decoding_options(command: Command) -> Command:
    """Gives a command that ends in ``**decoding`` every option of the search."""
    return with_settings(command, DecodingConfig, _OF_TRANSLATION)


def takes_generation_options(command: Command) -> Command:
    """Gives a command that ends in ``**decoding`` the options of a search for texts."""
    return with_settings(command, DecodingConfig, search_options(of_prompts=True))


@dataclass(frozen=True, kw_only=True)
class TranslatorOptions(OpeningSettings):
    """Options of a translator besides those of its search."""

    def settings(self, *, quiet: bool) -> dict[str, Any]:
        """Returns them as arguments of `open_model`."""
        given = {name: getattr(self, name) for name in declared_options(OpeningSettings, Option)}
        return {**given, "tell": partial(note, quiet=quiet)}

    def open(self, model: Path, *, quiet: bool, **more: Any) -> "Opened":  # noqa: ANN401
        """Opens a model for translation and notes where it computes."""
        from tformer_cli.kinds.opening import open_model

        before_torch = torch_preparation(self.threads)
        settings = self.settings(quiet=quiet)
        opened = open_model(model, **settings, before_torch=before_torch, **more)
        note_choices(opened, quiet=quiet)
        return opened
