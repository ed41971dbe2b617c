"""Dataclasses of which only `__init__` is compiled when their module is imported.

The standard library writes up to six methods of a class as text and compiles each by itself. For
the forty classes behind one translated line that was a tenth of what a cold start computes. Here
classes share the other five, which do the same.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import FrozenInstanceError, fields
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass  # noqa: PLC0414 - is offered
else:

    def dataclass(
        *, frozen: bool = False, kw_only: bool = False, slots: bool = False, eq: bool = True
    ) -> Callable[[type], type]:
        """Makes a dataclass; see `dataclasses.dataclass`. A frozen one extends only such ones."""

        def make(kind: type) -> type:
            shared = {"__repr__": _Values.__repr__}
            if eq:
                shared |= {
                    "__eq__": _Values.__eq__,
                    "__hash__": _Values.__hash__ if frozen else None,
                }
            # With slots, only the library's own `__init__` knows how to set a field
            if frozen and not slots:
                shared |= {"__setattr__": _Values.__setattr__, "__delattr__": _Values.__delattr__}
            for name, method in shared.items():
                if name not in vars(kind):
                    setattr(kind, name, method)
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
        return _compared(self) == _compared(other) if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash(_compared(self))

    def __setattr__(self, name: str, value: object) -> None:
        if name in vars(self) or name not in self.__dataclass_fields__:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        vars(self)[name] = value  # by `__init__`, which sets each field once

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError(f"cannot delete field {name!r}")


def _compared(record: Any) -> tuple[Any, ...]:  # noqa: ANN401 - of whatever class
    return tuple(getattr(record, row.name) for row in fields(record) if row.compare)
