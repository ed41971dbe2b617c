"""The size of the project: a budget of lines for the core and for each plugin.

`python -m tests.test_budget` prints the table of sizes. What becomes smaller lowers its budget. A
budget is raised only by a commit of its own, whose body names the user who needs it.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "tformer_cli"

BUDGET = {
    "built_in": 4293,
    "core": 72716,
    "corpora_tools": 12764,
    "documents": 6598,
    "instruments": 14377,
    "interchange": 3255,
    "legacy": 1187,
    "page": 761,
    "serve": 8318,
    "tests of built_in": 1166,
    "tests of core": 68660,
    "tests of corpora_tools": 6845,
    "tests of documents": 4999,
    "tests of instruments": 6144,
    "tests of interchange": 2502,
    "tests of legacy": 960,
    "tests of page": 1914,
    "tests of serve": 8095,
}
"""Lines of Python: of the package without its plugins, of each plugin, and of the tests of each."""
SLACK = 0.02
"""Share of a budget that may lie unused before it must fall."""
LONGEST = 60
"""Lines of a function, above which it is counted as long."""
MODULES = 561
LONG_FUNCTIONS = 9
CIRCLES = 0
_COMMENT = re.compile(r"(?m)(?:^ *|  )# (?!noqa|type:|fmt:|pragma:)")
"""Comments other than directives. The module `tokenize` finds all, and takes ten seconds."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """Counts of one file or of many."""

    files: int = 0
    lines: int = 0
    docstrings: int = 0
    comments: int = 0
    long_functions: int = 0

    def __add__(self, other: "Size") -> "Size":
        return Size(**{key: value + getattr(other, key) for key, value in vars(self).items()})


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(path.read_text("utf-8"))))


def size_of(path: Path) -> Size:
    """Counts the lines of a file, of its docstrings, and its comments."""
    text = path.read_text("utf-8")
    docstrings = long_functions = 0
    for node in nodes_of(path):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            # a string that stands alone documents what is above it
            if isinstance(node.value.value, str):
                docstrings += (node.end_lineno or 0) - node.lineno + 1
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            long_functions += (node.end_lineno or 0) - node.lineno + 1 > LONGEST
    return Size(
        files=1,
        lines=text.count("\n"),
        docstrings=docstrings,
        comments=len(_COMMENT.findall(text)),
        long_functions=long_functions,
    )


def python_files(folder: Path) -> Iterator[Path]:
    yield from (path for path in sorted(folder.rglob("*.py")) if "__pycache__" not in path.parts)


def room_of(path: Path) -> str:
    """The part of the project that a file belongs to: the core or a plugin, or its tests."""
    top, *inside = path.relative_to(ROOT).parts
    plugin = inside[1] if inside[0] == "plugins" and len(inside) > 2 else "core"
    return f"tests of {plugin}" if top == "tests" else plugin


@cache
def sizes(*, in_full: bool = False) -> dict[str, Size]:
    by_room: dict[str, Size] = defaultdict(Size)
    for path in (*python_files(PACKAGE), *python_files(ROOT / "tests")):
        # Lines are all that has a budget; the rest takes seconds
        lines = Size(files=1, lines=path.read_text("utf-8").count("\n"))
        by_room[room_of(path)] += size_of(path) if in_full else lines
    return dict(by_room)


@cache
def module_imports() -> dict[str, set[str]]:
    """The modules of the package that each of them imports, in functions and for types, too."""
    names = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for path in python_files(PACKAGE)
    }
    imports: dict[str, set[str]] = {}
    for name, path in names.items():
        imports[name] = set()
        for node in nodes_of(path):
            if isinstance(node, ast.ImportFrom) and node.module:
                parts = {f"{node.module}.{alias.name}" for alias in node.names}
                imports[name] |= ((parts & names.keys()) or {node.module}) & names.keys() - {name}
            elif isinstance(node, ast.Import):
                imports[name] |= {alias.name for alias in node.names} & names.keys()
    return imports


def circles(imports: dict[str, set[str]]) -> list[list[str]]:
    """The groups of modules that import each other, by Tarjan's algorithm."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    groups: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in sorted(imports[name]):
            if other not in index:
                visit(other)
            if other in stack:
                low[name] = min(low[name], low[other])
        if low[name] == index[name]:
            group = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            if len(group) > 1:
                groups.append(sorted(group))

    for name in sorted(imports):
        if name not in index:
            visit(name)
    return groups


@pytest.mark.parametrize("room", [*BUDGET])
def test_a_room_keeps_its_budget_and_the_budget_falls_with_it(room: str) -> None:
    lines, budget = sizes().get(room, Size()).lines, BUDGET[room]
    assert lines <= budget, f"{room} has {lines:,} lines of {budget:,}; remove what is needless"
    least = budget * (1 - SLACK) - 20
    assert lines >= least, f"{room} has {lines:,} lines of {budget:,}; lower the budget to it"


def test_every_room_has_a_budget() -> None:
    assert sizes().keys() == BUDGET.keys()


def test_modules_long_functions_and_circles_only_fall() -> None:
    rooms = sizes(in_full=True).items()
    package = sum((size for name, size in rooms if not name.startswith("tests")), Size())
    assert package.files <= MODULES
    assert package.long_functions <= LONG_FUNCTIONS
    assert len(circles(module_imports())) <= CIRCLES


def test_a_circle_is_found() -> None:
    imports = {"a": {"b"}, "b": {"c", "d"}, "c": {"a"}, "d": set()}
    assert circles(imports) == [["a", "b", "c"]]


def table() -> Iterator[str]:
    """Yields the sizes as a table of Markdown."""
    yield "| room | files | lines | budget | docstrings | comments/100 | long functions |"
    yield "|---|---|---|---|---|---|---|"
    rooms = sizes(in_full=True)
    for name, size in sorted(rooms.items(), key=lambda row: (row[0].startswith("tests"), row[0])):
        shares = f"{size.docstrings / size.lines:.0%} | {100 * size.comments / size.lines:.1f}"
        counts = f"{size.files} | {size.lines:,} | {BUDGET.get(name, 0):,}"
        yield f"| {name} | {counts} | {shares} | {size.long_functions} |"
    yield f"\ncircles of imports: {len(circles(module_imports()))}"


if __name__ == "__main__":
    for line in table():
        print(line)  # noqa: T201
