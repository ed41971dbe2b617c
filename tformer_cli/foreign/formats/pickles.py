"""Pickles read as data: nothing that they name is imported, and nothing is called.

The standard library splits a pickle into operations; here they build dictionaries, lists and plain
values. A class or function becomes a name (`Named`), and what it would be called with or an object
of it becomes an `Inert`. Each operation takes at least a byte of the file and makes at most one
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
# larger numbers are no keys: many with equal hashes would make a dictionary slow
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
class Inert:
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
        elif name not in _IGNORED:
            getattr(self, f"_{name.lower()}", self._unknown)(argument)

    def _unknown(self, _: object) -> None:
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

    def _mark(self, _: object) -> None:
        self._stack.append(_MARK)

    def _pop(self, _: object) -> None:
        self._stack.pop()

    def _pop_mark(self, _: object) -> None:
        self._above_mark()

    def _dup(self, _: object) -> None:
        self._stack.append(self._stack[-1])

    def _put(self, place: int) -> None:
        self._memo[place] = self._stack[-1]

    _binput = _long_binput = _put

    def _memoize(self, _: object) -> None:
        self._memo[len(self._memo)] = self._stack[-1]

    def _get(self, place: int) -> None:
        self._stack.append(self._memo[place])

    _binget = _long_binget = _get

    def _empty_dict(self, _: object) -> None:
        self._stack.append({})

    def _empty_list(self, _: object) -> None:
        self._stack.append([])

    _empty_set = _empty_list

    def _tuple(self, _: object) -> None:
        self._stack.append(tuple(self._above_mark()))

    _frozenset = _tuple

    def _list(self, _: object) -> None:
        self._stack.append(self._above_mark())

    def _dict(self, _: object) -> None:
        items = self._above_mark()
        self._stack.append({})
        self._set(self._stack[-1], items)

    def _some(self, count: int) -> None:
        items = [self._stack.pop() for _ in range(count)]
        self._stack.append(tuple(reversed(items)))

    def _tuple1(self, _: object) -> None:
        self._some(1)

    def _tuple2(self, _: object) -> None:
        self._some(2)

    def _tuple3(self, _: object) -> None:
        self._some(3)

    def _append(self, _: object) -> None:
        self._extend([self._stack.pop()])

    def _appends(self, _: object) -> None:
        self._extend(self._above_mark())

    _additems = _appends

    def _extend(self, values: list[Any]) -> None:
        target = self._stack[-1]
        if isinstance(target, list):
            target.extend(values)
        elif not isinstance(target, Inert):
            raise PickleError("adds items to what is not a list")

    def _setitem(self, _: object) -> None:
        value, key = self._stack.pop(), self._stack.pop()
        self._set(self._stack[-1], [key, value])

    def _setitems(self, _: object) -> None:
        items = self._above_mark()
        self._set(self._stack[-1], items)

    def _set(self, target: object, items: list[Any]) -> None:
        if isinstance(target, Inert):  # a subclass of dict, such as collections.Counter
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

    def _global(self, argument: str) -> None:
        module, _, name = argument.partition(" ")
        self._name(module, name)

    def _stack_global(self, _: object) -> None:
        name, module = self._stack.pop(), self._stack.pop()
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
        sized = (len(one) for one in items if isinstance(one, tuple | list | dict | str | bytes))
        self._count(CALL_OPERATIONS + len(items) + sum(sized))
        if not isinstance(function, Named) or not isinstance(arguments, tuple):
            self._stack.append(Inert("", ()))
            return
        known = self._functions.get(function.path)
        result = known(*arguments) if known else Inert(function.path, arguments)
        self._stack.append(result)

    _newobj = _reduce

    def _newobj_ex(self, _: object) -> None:
        self._stack.pop()
        self._reduce(None)

    def _build(self, _: object) -> None:
        state = self._stack.pop()
        if isinstance(self._stack[-1], Inert):
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
