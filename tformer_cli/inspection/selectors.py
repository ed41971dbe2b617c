"""The grammar of ``--heads``.

::

    selection := term {"," term}
    term      := ["!"] kind ["." layers ["." heads]]
    kind      := enc | enc-self | dec | dec-self | cross | self (enc and dec) | * (all three)
    layers, heads := * | last | n | ^k (k-th from the end) | a-b | a- | {n,n,…}

Terms are read from left to right: each adds its heads, or with ``!`` takes them away. A selection
that begins with ``!`` begins with every head. Layers and heads count from 0.
"""

import re
from collections.abc import Sequence

from tformer_cli.errors import UsageError
from tformer_cli.inspection.heads import KINDS, HeadId, HeadLayout, Kind

KIND_WORDS: dict[str, tuple[Kind, ...]] = {
    "enc": ("enc",),
    "enc-self": ("enc",),
    "dec": ("dec",),
    "dec-self": ("dec",),
    "cross": ("cross",),
    "self": ("enc", "dec"),
    "*": KINDS,
}
_COMMA_OUTSIDE_BRACES = re.compile(r",(?![^{]*\})")
_NUMBER, _FROM_END, _RANGE = (re.compile(p) for p in (r"\d{1,9}", r"\^(\d{1,9})", r"(\d+)-(\d*)"))


def select_heads(selections: Sequence[str], layout: HeadLayout) -> list[HeadId]:
    """Finds the heads that selections name.

    Args:
        selections: selections by the grammar above, read as one; none selects every head.
        layout: the heads there are.

    Returns:
        The heads by kind, layer and head, each once.

    Raises:
        UsageError: if a term cannot be read or names no head, or if nothing is left.
    """
    terms = [term.strip() for text in selections for term in _COMMA_OUTSIDE_BRACES.split(text)]
    selected = set(layout) if not terms or terms[0].startswith("!") else set[HeadId]()
    for term in terms:
        if term.startswith("!"):
            selected -= _heads_of(term[1:], term, layout)
        else:
            selected |= _heads_of(term, term, layout)
    if not selected:
        raise UsageError(f'--heads: "{",".join(selections)}" selects no head; there are {layout}')
    return [head for head in layout if head in selected]


def _heads_of(pattern: str, term: str, layout: HeadLayout) -> set[HeadId]:
    """The heads of one term without its ``!``."""
    kind_word, *rest = pattern.split(".")
    if kind_word not in KIND_WORDS or len(rest) > 2:
        raise _refused(term, "is not KIND, KIND.LAYER or KIND.LAYER.HEAD", layout)
    layers, heads = (*rest, "*", "*")[:2]
    found = {
        HeadId(kind, layer, head)
        for kind in KIND_WORDS[kind_word]
        for layer in _indices(layers, len(layout.of(kind)), term, layout)
        for head in _indices(heads, layout.of(kind)[layer], term, layout)
    }
    if not found:
        raise _refused(term, "names no head", layout)
    return found


def _indices(pattern: str, n: int, term: str, layout: HeadLayout) -> list[int]:
    """The numbers below `n` that a pattern names.

    A single number that is not there is simply no match, as stacks differ in depth; a range must
    begin below `n` to match, and ends where the stack does only if it is open.
    """
    if pattern.startswith("{") and pattern.endswith("}"):
        parts = [part.strip() for part in pattern[1:-1].split(",")]
        return sorted({i for part in parts for i in _indices(part, n, term, layout)})
    if pattern == "*":
        return list(range(n))
    if pattern == "last":
        return [n - 1] if n else []
    if _NUMBER.fullmatch(pattern):
        return [int(pattern)] if int(pattern) < n else []
    if match := _FROM_END.fullmatch(pattern):
        return [n - int(match[1])] if 1 <= int(match[1]) <= n else []
    if match := _RANGE.fullmatch(pattern):
        end = int(match[2]) if match[2] else n - 1
        if match[2] and end < int(match[1]):
            raise _refused(term, f"counts backwards in {pattern}", layout)
        return list(range(int(match[1]), end + 1)) if end < n else []
    raise _refused(term, f'does not say which with "{pattern}"', layout)


def _refused(term: str, reason: str, layout: HeadLayout) -> UsageError:
    return UsageError(
        f'--heads: "{term}" {reason}; there are {layout} '
        "(layers and heads: n, a-b, a-, last, ^k, {list} or *)"
    )
