"""Counts names that say nothing; fails if there are more of them than the numbers stored here.

    python .ci/names.py [TREE]    prints a line for each fault, and exits with 1 if there are any

A name is a noun of the field, a function a verb and its object. The numbers only fall: one that is
far above its count is a fault, too, so that whoever makes the names better lowers it.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

NOUN = "name the thing: row, head, layer, hypothesis, word, path, label"
VERB = "name a verb and its object: rotate_heads, not turned"
WORD, ONE, VAGUE = "the word `one` in 1,000 lines", "`one` as a name", "vague names"
PARTICIPLES, PREFIXES = "functions named by participles", "constants named OF_…"
LIMITS = {
    ("tformer_cli", ONE): (0, NOUN),
    ("tformer_cli", VAGUE): (0, NOUN),
    ("tformer_cli", PARTICIPLES): (0, VERB),
    ("tformer_cli", PREFIXES): (0, "name what it holds: MOST_LINES, MARKERS"),
    ("tformer_cli", WORD): (17, "repeat the noun, in names and in prose"),
    ("tests", ONE): (0, NOUN),
    ("tests", VAGUE): (0, NOUN),
    ("tests", PARTICIPLES): (1, VERB),  # commands.refused, which 17 files use
    ("tests", PREFIXES): (0, "name what it holds: MOST_LINES, MARKERS"),
}
"""Most in each folder, and what to use instead."""
VAGUE_NAMES = {"asked", "found", "given", "heard", "made", "said", "told"}
"""They count as functions, parameters and fields; as locals they end with a function."""
IRREGULAR = re.compile(
    "begun|bound|broken|brought|built|bought|caught|chosen|done|drawn|driven|fallen|fed|felt|found|"
    "forgotten|frozen|given|gone|grown|heard|held|hidden|kept|known|laid|left|lent|lost|made|meant|"
    "met|paid|said|seen|sent|shown|sold|spent|spoken|stolen|taken|taught|thought|thrown|told|torn|"
    "understood|undone|won|worn|woven|written"
)
NO_PARTICIPLES = {"deed", "embed", "exceed", "feed", "need", "proceed", "seed", "shed", "speed"}
"""Verbs and nouns. A participle that the field uses as a verb would stand here, too."""
VALUES = {"property", "cached_property", "setter", "fixture"}
"""Decorators of functions that are read as values, and so have names of values."""


def is_participle(name: str) -> bool:
    word = name.strip("_")
    is_regular = bool(re.fullmatch("[a-z]+ed", word)) and word not in NO_PARTICIPLES
    return is_regular or bool(IRREGULAR.fullmatch(word))


def find_names(node: ast.AST) -> Iterator[tuple[str, str]]:
    """Yields the names in a node that are counted, each with what it counts as."""
    names = {getattr(node, field, None) for field in ("id", "arg", "attr", "name", "asname")}
    if not names.isdisjoint({"one", "_one"}):
        yield ONE, "one"
    own = ""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        own = node.name
        if is_participle(own):
            decorators = {ast.unparse(part).split("(")[0] for part in node.decorator_list}
            if not VALUES & {decorator.split(".")[-1] for decorator in decorators}:
                yield PARTICIPLES, own
    elif isinstance(node, ast.arg):
        own = node.arg
    elif isinstance(node, ast.AnnAssign):
        own = getattr(node.target, "id", "") or getattr(node.target, "attr", "")
    elif isinstance(node, ast.Name) and re.match("_*OF_[A-Z]", node.id):
        yield PREFIXES, node.id
    if own.strip("_") in VAGUE_NAMES:
        yield VAGUE, own


def find_faults(tree: Path) -> Iterator[str]:
    for folder in ("tformer_cli", "tests"):
        places: dict[str, list[str]] = {}
        n_lines = n_words = 0
        for path in sorted((tree / folder).rglob("*.py")):
            code = path.read_text(encoding="utf-8")
            n_lines += code.count("\n")
            n_words += len(re.findall(r"\bone\b", code, re.IGNORECASE))
            for node in ast.walk(ast.parse(code)):
                for what, name in find_names(node):
                    place = f"{path.relative_to(tree)}:{getattr(node, 'lineno', 0)} {name}"
                    places.setdefault(what, []).append(place)
        counts = {what: len(lines) for what, lines in places.items()}
        counts[WORD] = round(1000 * n_words / max(n_lines, 1))
        for (where, what), (limit, remedy) in LIMITS.items():
            number = counts.get(what, 0)
            if where == folder and number > limit:
                yield "\n  ".join(
                    [f"{where}: {number} {what}, {limit} at most; {remedy}", *places.get(what, ())]
                )
            elif where == folder and number < limit - max(1, limit // 5):
                yield f"{where}: {number} {what}, but {limit} allowed; lower it in .ci/names.py"


if __name__ == "__main__":
    faults = [*find_faults(Path(sys.argv[1]) if sys.argv[1:] else Path(__file__).parents[1])]
    sys.exit("\n".join(faults) or None)
