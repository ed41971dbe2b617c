"""Pickles read as data: nothing that they name is imported, and nothing is called.

The standard library splits a pickle into operations; here they build dictionaries, lists and plain
values. A class or function becomes a name (`Named`), and what it would be called with or an object
of it an `UnreadObject`. Each operation takes at least a byte of the file and makes at most one
small object, and calls count as many operations as their arguments have items, so that the work is
bounded by the limits below whatever a file says.
"""

import pickletools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, BinaryIO

MOST_OPERATIONS = 1 << 23
# Cost of a call besides its arguments, or a class's name: some hundreds of bytes; and a list or
# dictionary, which takes about a hundred.
CALL_OPERATIONS, CONTAINER_OPERATIONS = 16, 4
LONGEST_NAME = 1000  # characters of a class's or function's name and of its module's
# skip larger numbers as keys: many with equal hashes would make a dictionary slow
MOST_AS_KEY = 1 << 32
_MARK = object()


class PickleError(ValueError):
    """A pickle is damaged, or has an operation that is not known."""


@dataclass(frozen=True, slots=True)
class Named:
    """A class or function that a pickle names."""

    module: str
    name: str

    @property
    def path(self) -> str:
        return f"{self.module}.{self.name}"


@dataclass(eq=False)
class UnreadObject:
    """An object of a class that is not read, or the result of a function that is not called."""

    path: str  # of the class or function
    arguments: tuple[Any, ...] = ()
    state: Any = None


class PickleReader:
    """Reads one pickle after another from a stream."""

    def __init__(
        self,
        stream: BinaryIO,
        persistent: Callable[[Any], Any] | None = None,
        functions: dict[str, Callable[..., Any]] | None = None,
    ) -> None:
        self._stream = stream
        self._persistent = persistent
        self._functions = functions or {}
        self._n_operations = 0
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    @property
    def position(self) -> int:
        return self._stream.tell()

    def read(self) -> Any:  # noqa: ANN401
        self._stack, self._memo = [], {}
        try:
            for operation, argument, _ in pickletools.genops(self._stream):
                self._apply(operation.name, argument)
            return self._stack.pop()
        except PickleError:
            raise
        # IndexError: an empty stack; ValueError: the library's own; the others: wrong types
        except (IndexError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise PickleError(" ".join(str(error).split())[:200]) from None

    def _count(self, n_operations: int) -> None:
        self._n_operations += n_operations
        if self._n_operations > MOST_OPERATIONS:
            raise PickleError(f"has more than {MOST_OPERATIONS:,} operations")

    def _apply(self, name: str, argument: Any) -> None:  # noqa: ANN401
        self._count(CONTAINER_OPERATIONS if name in _CONTAINERS else 1)
        if name in _CONSTANTS:
            self._stack.append(_CONSTANTS[name])
        elif name in _VALUES:
            self._stack.append(argument)
        elif name in _PUSHED:
            self._stack.append(_PUSHED[name](self, argument))
        elif name in _DONE:
            _DONE[name](self, argument)
        elif name not in _IGNORED:
            raise PickleError("has an operation that is not known")

    def _above_mark(self) -> list[Any]:
        """Takes what lies above the last mark off the stack, and the mark."""
        place = len(self._stack) - 1
        while place >= 0 and self._stack[place] is not _MARK:
            place -= 1
        if place < 0:
            raise PickleError("has no mark where one is needed")
        above = self._stack[place + 1 :]
        del self._stack[place:]
        return above

    def _some(self, count: int) -> tuple[Any, ...]:
        items = [self._stack.pop() for _ in range(count)]
        return tuple(reversed(items))

    def _extend(self, values: list[Any]) -> None:
        target = self._stack[-1]
        if isinstance(target, list):
            target.extend(values)
        elif not isinstance(target, UnreadObject):
            raise PickleError("adds items to what is not a list")

    def _set_items(self, items: list[Any]) -> None:
        self._set(self._stack[-1], items)

    def _fill_dict(self, items: list[Any]) -> dict[Any, Any]:
        target: dict[Any, Any] = {}
        self._set(target, items)
        return target

    def _set(self, target: object, items: list[Any]) -> None:
        if isinstance(target, UnreadObject):  # a subclass of dict, such as collections.Counter
            target.state = target.state if isinstance(target.state, dict) else {}
            target = target.state
        if not isinstance(target, dict):
            raise PickleError("sets items of what is not a dictionary")
        for key, value in zip(items[::2], items[1::2], strict=True):
            # To hash a nested tuple could take for ever; nothing that is read has such keys
            if isinstance(key, str | None) or (
                isinstance(key, int) and -MOST_AS_KEY < key < MOST_AS_KEY
            ):
                target[key] = value

    def _stack_global(self, _: object) -> None:
        module, name = self._some(2)
        if not isinstance(name, str) or not isinstance(module, str):
            raise PickleError("names something by what is not a text")
        self._name(module, name)

    def _name(self, module: str, name: str) -> None:
        self._count(CALL_OPERATIONS)
        if len(module) + len(name) > LONGEST_NAME:
            raise PickleError(f"has a name of more than {LONGEST_NAME} characters")
        self._stack.append(Named(module, name))

    def _reduce(self, _: object) -> None:
        arguments, function = self._stack.pop(), self._stack.pop()
        items = arguments if isinstance(arguments, tuple) else ()
        sized = (len(item) for item in items if isinstance(item, tuple | list | dict | str | bytes))
        self._count(CALL_OPERATIONS + len(items) + sum(sized))
        if not isinstance(function, Named) or not isinstance(arguments, tuple):
            self._stack.append(UnreadObject("", ()))
            return
        known = self._functions.get(function.path)
        result = known(*arguments) if known else UnreadObject(function.path, arguments)
        self._stack.append(result)

    def _build(self, _: object) -> None:
        state = self._stack.pop()
        if isinstance(self._stack[-1], UnreadObject):
            self._stack[-1].state = state

    def _binpersid(self, _: object) -> None:
        if self._persistent is None:
            raise PickleError("refers to something outside of it")
        self._stack.append(self._persistent(self._stack.pop()))


_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
# operations that put their argument on the stack
_VALUES = frozenset(
    {
        *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
        *("STRING", "BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8"),
        *("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BYTEARRAY8"),
    }
)
_CONTAINERS = frozenset({"EMPTY_DICT", "EMPTY_LIST", "EMPTY_SET", "LIST", "DICT"})
_IGNORED = frozenset({"PROTO", "FRAME", "STOP"})
_Operation = Callable[[PickleReader, Any], Any]
# operations whose result goes on the stack; a set is a list, since hashing its items may take long
_PUSHED: dict[str, _Operation] = {
    "MARK": lambda *_: _MARK,
    "DUP": lambda reader, _: reader._stack[-1],
    **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), lambda reader, place: reader._memo[place]),
    "EMPTY_DICT": lambda *_: {},
    **dict.fromkeys(("EMPTY_LIST", "EMPTY_SET"), lambda *_: []),
    **dict.fromkeys(("TUPLE", "FROZENSET"), lambda reader, _: tuple(reader._above_mark())),
    "LIST": lambda reader, _: reader._above_mark(),
    "DICT": lambda reader, _: reader._fill_dict(reader._above_mark()),
    "TUPLE1": lambda reader, _: reader._some(1),
    "TUPLE2": lambda reader, _: reader._some(2),
    "TUPLE3": lambda reader, _: reader._some(3),
}
_DONE: dict[str, _Operation] = {
    "POP": lambda reader, _: reader._stack.pop(),
    "POP_MARK": lambda reader, _: reader._above_mark(),
    **dict.fromkeys(
        ("PUT", "BINPUT", "LONG_BINPUT"),
        lambda reader, place: reader._memo.update({place: reader._stack[-1]}),
    ),
    "MEMOIZE": lambda reader, _: reader._memo.update({len(reader._memo): reader._stack[-1]}),
    "APPEND": lambda reader, _: reader._extend([reader._stack.pop()]),
    **dict.fromkeys(
        ("APPENDS", "ADDITEMS"), lambda reader, _: reader._extend(reader._above_mark())
    ),
    "SETITEM": lambda reader, _: reader._set_items([*reader._some(2)]),
    "SETITEMS": lambda reader, _: reader._set_items(reader._above_mark()),
    "GLOBAL": lambda reader, name: reader._name(*name.partition(" ")[::2]),
    "STACK_GLOBAL": PickleReader._stack_global,
    **dict.fromkeys(("REDUCE", "NEWOBJ"), PickleReader._reduce),
    # no object is made, so its named arguments are dropped
    "NEWOBJ_EX": lambda reader, _: reader._reduce(reader._stack.pop()),
    "BUILD": PickleReader._build,
    "BINPERSID": PickleReader._binpersid,
}
