"""Groups of options: a command takes a dataclass, its help shows the fields as options.

    @takes_groups
    def translate(model: ModelArgument, *, files: FileOptions) -> None: ...

A field of `FileOptions` is declared by `options.option_field`, or like a parameter of a command by
an annotated type. Settings, which know nothing of Typer, have a `settings.Option`, behind the type
or by `settings.setting`. A field without any of these is not an option.
"""

import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import wraps
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

import typer

from tformer_cli.cli.completion import complete_heads
from tformer_cli.cli.path_roles import PathRole
from tformer_cli.settings import Limits, Option, types_of

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
        if (kind := _declared(kinds[one.name], one)) is None:
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


def _declared(kind: Any, field: "Field[Any]") -> Any:  # noqa: ANN401 - a type
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
    return _declared(kinds[name], next(one for one in fields(settings) if one.name == name))


def optional(kind: Any, option: Option) -> Any:  # noqa: ANN401 - a type
    """Returns the annotated type of a parameter that is None where its option is not given."""
    return Annotated[kind | None, *_typer_option(option)]


def _typer_option(option: Option) -> list[Any]:
    shown = {} if option.shown_default is None else {"show_default": option.shown_default}
    declared = typer.Option(
        *([option.name] if option.name else []),
        metavar=option.metavar,
        min=option.min,
        max=option.max,
        help=option.help,
        rich_help_panel=option.panel,
        autocompletion=complete_heads if option.metavar in ("HEAD", "HEADS") else None,
        **shown,  # type: ignore[arg-type]
    )
    return [declared, PathRole[option.role]] if option.role else [declared]


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
