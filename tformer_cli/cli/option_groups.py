"""Groups of options: a command takes a dataclass, its help shows the fields as options.

    @takes_groups
    def translate(model: ModelArgument, *, files: FileOptions) -> None: ...

Each field of `FileOptions` is declared like a parameter of a command: an annotated type and a
default.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from typing import Any, TypeVar, get_type_hints

Command = TypeVar("Command", bound=Callable[..., None])


def takes_groups(command: Command) -> Command:
    """Spreads every parameter of a command that is a dataclass into the options of its fields."""
    signature = inspect.signature(command)
    groups: dict[str, Any] = {
        name: one.annotation
        for name, one in signature.parameters.items()
        if is_dataclass(one.annotation)
    }

    @wraps(command)
    def spread(*args: Any, **values: Any) -> None:  # noqa: ANN401 - typed by the options
        for name, group in groups.items():
            values[name] = group(**{one.name: values.pop(one.name) for one in fields(group)})
        command(*args, **values)

    parameters = [
        one
        for name, parameter in signature.parameters.items()
        for one in (_options_of(groups[name]) if name in groups else [parameter])
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
            default=inspect.Parameter.empty if one.default is MISSING else one.default,
            annotation=kinds[one.name],
        )
        for one in fields(group)
    ]


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
