"""Declares a setting once: its limits follow its type, its option its default.

    beam_size: Annotated[int, between(1, 100)] = setting(5, "Beam size.", "Search")

The check on construction, the option of every command, the tables of the guides and the types of
`load()` follow from the field. The model's settings keep theirs: `model` imports only torch.

Allow-lists: an engine, an export or a cache that reads settings by itself names every field that it
knows, each with the values that it knows. A field or value that is added later is refused by all of
them until their tables name it, and is never silently computed as something else.

The dataclasses behind a command are made by `dataclass`, which compiles `__init__` alone. The
standard library compiles up to six methods of each class: for the forty classes behind one
translated line that was a twelfth of what a cold start computes.
"""

import dataclasses
import math
from collections.abc import Callable, Container, Mapping
from dataclasses import FrozenInstanceError, field, fields
from functools import cache
from itertools import chain
from numbers import Integral, Real
from operator import attrgetter, ge, gt, le, lt
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Final,
    Literal,
    NamedTuple,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass  # noqa: PLC0414 - is offered

    from _typeshed import DataclassInstance
else:

    def dataclass(
        *, frozen: bool = False, kw_only: bool = False, slots: bool = False, eq: bool = True
    ) -> Callable[[type], type]:
        """Makes a dataclass; see `dataclasses.dataclass`. A frozen one extends only such ones."""

        def make(kind: type) -> type:
            # With slots, only the library's own `__init__` knows how to set a field
            names = ["__repr__", *(["__setattr__", "__delattr__"] if frozen and not slots else ())]
            names += ["__eq__", "__hash__"] if eq and frozen else ["__eq__"] if eq else []
            for name in names:
                if name not in vars(kind):
                    setattr(kind, name, vars(_Values)[name])
            if eq and not frozen:
                kind.__hash__ = None
            return dataclasses.dataclass(
                kind, frozen=frozen and slots, kw_only=kw_only, slots=slots, repr=False, eq=False
            )

        return make


class _Values:
    """The methods of a frozen dataclass."""

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]

    def __repr__(self) -> str:
        shown = (f"{row.name}={getattr(self, row.name)!r}" for row in fields(self) if row.repr)
        return f"{type(self).__qualname__}({', '.join(shown)})"

    def __eq__(self, other: object) -> bool:
        return (
            _compare_key(self) == _compare_key(other)
            if type(other) is type(self)
            else NotImplemented
        )

    def __hash__(self) -> int:
        return hash(_compare_key(self))

    def __setattr__(self, name: str, value: object) -> None:
        if name in vars(self) or name not in self.__dataclass_fields__:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        vars(self)[name] = value  # by `__init__`, which sets each field once

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError(f"cannot delete field {name!r}")


def _compare_key(record: Any) -> tuple[Any, ...]:  # noqa: ANN401 - of whatever class
    return tuple(getattr(record, row.name) for row in fields(record) if row.compare)


Value = TypeVar("Value")
Role = Literal[
    "reads_file", "reads_directory", "reads_model", "reads_tokenizer", "reads_adapter",
    "reads_system", "writes_file", "writes_new_file", "writes_directory", "writes_run",
    "adds_files",
]  # fmt: skip
"""Roles of paths: members of the command line's `PathRole`."""


_TESTS: Mapping[str, Callable[[Any, Any], bool]] = {
    "minimum": ge,
    "exclusiveMinimum": gt,
    "maximum": le,
    "exclusiveMaximum": lt,
}


class Limits(NamedTuple):
    """A condition on the value of a setting, and its words in messages."""

    words: str
    bounds: Mapping[str, float]
    """Bounds by their keywords in JSON Schema, such as ``minimum``."""
    off: float | None = None
    """A value beyond the bounds that is also allowed."""

    def hold(self, value: Any) -> bool:  # noqa: ANN401 - of the field's type
        # An infinity passes none of them: it would turn scores and learning rates into NaN.
        within = all(_TESTS[keyword](value, bound) for keyword, bound in self.bounds.items())
        return math.isfinite(value) and (within or value == self.off)

    @property
    def schema(self) -> dict[str, Any]:
        """Keywords of JSON Schema, for editors."""
        bounds = dict(self.bounds)
        return bounds if self.off is None else {"anyOf": [{"const": self.off}, bounds]}


NOT_NEGATIVE = Limits("a number of at least 0", {"minimum": 0})
POSITIVE = Limits("a number above 0", {"exclusiveMinimum": 0})
FRACTION = Limits("at least 0 and below 1", {"minimum": 0, "exclusiveMaximum": 1})
SHARE = Limits("above 0 and at most 1", {"exclusiveMinimum": 0, "maximum": 1})


def at_least(low: int) -> Limits:
    return Limits(f"at least {low}", {"minimum": low})


def between(low: int, high: int) -> Limits:
    return Limits(f"{low} to {high}", {"minimum": low, "maximum": high})


@dataclass(frozen=True)
class Argument:
    """An argument of `tformer.load`, of a field of settings; the command line has it elsewhere."""

    help: str
    panel: str | None = None


@dataclass(frozen=True)
class Option(Argument):
    """An option of the command line, of a field of settings: ``top_k`` is ``--top-k``."""

    # A field of type bool is a flag, one of a `Literal` a choice; a tuple may be given repeatedly.
    # Without a metavar the role or the type names the value; without a panel the option stands in
    # Common.

    names: tuple[str, ...] = ()
    metavar: str | None = None
    min: float | None = None
    max: float | None = None
    shown_default: str | None = None
    """Default in the help, where the value itself would say little."""
    role: Role | None = None
    holds: tuple[str, ...] = ()
    """Contents of the file that it names, where no `--format` decides."""
    parser: Callable[[str], Any] | None = None
    complete: Callable[..., list[str]] | None = None
    """Finds what a shell may offer for its value."""
    callback: Callable[[Any], None] | None = None
    """Called with the value before anything else is checked, as of `--version`."""
    is_argument: bool = False

    @property
    def limits(self) -> Limits | None:
        """`min` and `max` as a condition; None if it has neither."""
        bounds = {"minimum": self.min, "maximum": self.max}
        given = {keyword: bound for keyword, bound in bounds.items() if bound is not None}
        names = {"minimum": "at least", "maximum": "at most"}
        words = " and ".join(f"{names[keyword]} {bound:g}" for keyword, bound in given.items())
        return Limits(words, given) if given else None


Declared = TypeVar("Declared", bound=Argument)


def check_limits(settings: Any) -> None:  # noqa: ANN401 - a dataclass
    """Raises a ValueError that names the first field beyond its limits, or those of its option."""
    kind: type = type(settings)
    for name, limits in _limits(kind).items():
        value = getattr(settings, name)
        for part in value if isinstance(value, tuple) else (value,):
            if part is not None and not limits.hold(part):
                raise ValueError(f"{name}: must be {limits.words}, but is {part}")


@cache
def _limits(kind: type) -> Mapping[str, Limits]:
    hints = get_type_hints(kind, include_extras=True)
    limits_of: dict[str, Limits] = {}
    for row in fields(kind):
        extras = (row.metadata.get("option"), *getattr(hints[row.name], "__metadata__", ()))
        # An option may take less than the setting: the limits of the type are the setting's own
        options = [extra.limits for extra in extras if isinstance(extra, Option)]
        limits = [extra for extra in (*extras, *options) if isinstance(extra, Limits)]
        if limits:
            limits_of[row.name] = limits[0]
    return limits_of


@cache
def types_of(kind: type) -> Mapping[str, Any]:
    """Returns the types of a dataclass's fields, without their limits."""
    return get_type_hints(kind)


def setting(default: Value, help_text: str, panel: str | None = None, **more: Any) -> Value:  # noqa: ANN401
    """Declares a field with its option; its limits follow its type. `more`: see `Option`."""
    return declare(default, Option(help_text, panel, **more))


def argument(default: Value, help_text: str, panel: str | None = None) -> Value:
    """Declares a field with its argument of `tformer.load`."""
    return declare(default, Argument(help_text, panel))


def declare(default: Value, option: Argument) -> Value:
    declared: Value = field(default=default, metadata={"option": option})
    return declared


@cache
def declared_options(kind: type, option: type[Declared]) -> Mapping[str, Declared]:
    """Finds the options that the fields of a dataclass declare, by the fields' names."""
    declared = {field.name: field.metadata.get("option") for field in fields(kind)}
    return {name: value for name, value in declared.items() if isinstance(value, option)}


def literal_values(kind: Any) -> tuple[str | None, ...]:  # noqa: ANN401 - a type
    """Lists the values of a `Literal`, and None where it may be None; empty for other types."""
    if get_origin(kind) is Literal:
        return get_args(kind)
    parts = [literal_values(part) for part in get_args(kind) if part is not NoneType]
    if get_origin(kind) not in (Union, UnionType) or not all(parts):
        return ()
    return (None, *chain.from_iterable(parts))


def type_problem(value: object, kind: Any) -> str:  # noqa: ANN401 - a type
    """Explains why a value from Python does not have a setting's type; empty if it has."""
    # Numbers of other libraries are numbers, too.
    if choices := literal_values(kind):
        known = ", ".join(filter(None, choices))
        return "" if value in choices else f"must be one of {known}; found {_format_value(value)}"
    accepted: type = {int: Integral, float: Real}.get(kind, kind)
    # Python takes True for an int
    if isinstance(value, accepted) and (kind is bool or not isinstance(value, bool)):
        return ""
    return f"must be {kind.__name__}, but is {_format_value(value)} ({type(value).__name__})"


def _format_value(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


_LONGEST_SHOWN = 80


class _Anything:
    """Holds every value."""

    def __contains__(self, value: object) -> bool:
        return True


ANY: Final = _Anything()
"""In a table: every value of the field is known."""


def unknown_setting(
    settings: "DataclassInstance", known: Mapping[str, Container[Any]]
) -> str | None:
    """Names the first setting that a table does not know; None if it knows all."""
    names, values_of = _fields(type(settings))
    for name, value in zip(names, values_of(settings), strict=True):
        values = known.get(name)
        if values is None:  # a field that was added after the table
            return name
        if values is not ANY and value not in values:
            shown = f'"{value}"' if isinstance(value, str) else value
            return f"{name} = {shown}"
    return None


@cache
def _fields(
    kind: type["DataclassInstance"],
) -> "tuple[tuple[str, ...], attrgetter[tuple[Any, ...]]]":
    """Names of the fields of a dataclass, and what gets their values: asked for every sentence."""
    names = tuple(field.name for field in fields(kind))
    return names, attrgetter(*names)
