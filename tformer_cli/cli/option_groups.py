"""Groups of options: a command takes a dataclass, its help shows the fields as options.

    @takes_groups
    def translate(model: ModelArgument, *, files: FileOptions) -> None: ...

Each field of `FileOptions` is declared like a parameter of a command: an annotated type and a
default. Settings of an inspection, which know nothing of Typer, have an `inspection.view.Option`
there instead of a ``typer.Option``. A field without either is no option.
"""

import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import wraps
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

import typer

from tformer_cli.cli.completion import complete_heads
from tformer_cli.inspection.view import Option

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
    return [
        inspect.Parameter(
            one.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty
            if one.default is MISSING
            else (one.default if one.default != () else None),
            annotation=_declared(kinds[one.name], one),
        )
        for one in fields(group)
        if get_origin(kinds[one.name]) is Annotated
    ]


def _declared(kind: Any, field: "Field[Any]") -> Any:  # noqa: ANN401 - a type
    """Makes the type of a command's parameter of that of a field."""
    value, option = get_args(kind)[:2]
    if not isinstance(option, Option):
        return kind
    flag = option.name or (f"--{field.name.replace('_', '-')}" if field.default is False else None)
    shown = {} if option.shown_default is None else {"show_default": option.shown_default}
    declared = typer.Option(
        *([flag] if flag else []),
        metavar=option.metavar,
        min=option.min,
        help=option.help,
        autocompletion=complete_heads if option.metavar in ("HEAD", "HEADS") else None,
        **shown,  # type: ignore[arg-type]
    )
    return Annotated[list[str] | None if get_origin(value) is tuple else value, declared]


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


def with_options(command: Command, options: Mapping[str, tuple[Any, Any]]) -> Command:
    """Gives a command that ends in ``**some_name`` more options, which arrive under that name.

    Args:
        command: the command; it is changed.
        options: for each the annotated type and the default.
    """
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
