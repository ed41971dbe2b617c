"""The grammar of ``--heads``.

::

    selection := term {"," term}
    term      := ["!"] [pattern] {"@" condition} [":"] ["top:" n "@" metric]
    pattern   := kind ["." layers ["." heads]]; without one, every head
    kind      := enc | enc-self | dec | dec-self | cross | self (enc and dec) | * (all three)
    layers, heads := * | last | n | ^k (k-th from the end) | a-b | a- | {n,n,…}
    condition := metric (">" | ">=" | "<" | "<=") number | "role=" role

Terms are read from left to right: each adds its heads, or with ``!`` takes them away. A selection
that begins with ``!`` begins with every head. Layers and heads count from 0.

Conditions keep the heads of a pattern that meet all of them; ``top:n`` keeps those n of them whose
metric is largest. So ``@prev>0.8``, ``cross@entropy<1``, ``enc.0-2@role=sink``,
``top:8@confidence``, ``cross:top:2@diagonality``, ``*,!@role=other``. The metrics
(`roles.METRICS`) are those of the inspected sentence, or the means over a corpus;
a head for which one is not defined does not meet a condition on it.
"""

import operator
import re
from collections.abc import Callable, Mapping, Sequence

from tformer_cli.errors import Setting, UsageError
from tformer_cli.heads.names import KINDS, HeadId, HeadLayout, Kind
from tformer_cli.heads.roles import METRICS, ROLES, role_of
from tformer_cli.settings import dataclass

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


_TOP = re.compile(r"(?:(.*):)?top:(\d{1,9})@(\w+)")
_COMPARISON = re.compile(r"(\w+)(>=|<=|>|<)(.+)")
_COMPARE: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
Metrics = Mapping[str, float]
Condition = Callable[[Metrics], bool]


def select_heads(
    selections: Sequence[str], layout: HeadLayout, *, setting: str = "heads"
) -> list[HeadId]:
    """Finds the heads that selections name only by kind, layer and number."""
    try:
        selection = HeadSelection(selections, layout)
        if not selection.needs_metrics:
            return selection.select({})
    except UsageError as error:
        # The grammar speaks of the option that it is written for.
        error.args = (str(error).replace("--heads", f"--{setting}", 1),)
        raise
    raise UsageError.of(
        '{}: "{}" has conditions on metrics, which only inspect-heads measures; '
        "name the heads here",
        *(Setting(setting), selection),
    )


def check_names_layers(selections: Sequence[str], weights: str) -> None:
    """Refuses what only heads have, where there is one map a layer."""
    for term in (term for text in selections for term in _COMMA_OUTSIDE_BRACES.split(text)):
        of_layers = UsageError.of(
            "{weights} {} has one map per layer, for all its heads together", weights
        )
        pattern = re.split("[@:]", term.strip())[0].split(".")
        if len(pattern) == 3 and pattern[2] != "*":
            raise UsageError.of('{heads}: "{}" names heads, but {}; name layers', term, of_layers)
        if "@role=" in term:
            raise UsageError.of('{heads}: "{}" asks for a role of heads, but {}', term, of_layers)


class HeadSelection:
    """Selections that were read, and can be applied to the metrics of any sentence."""

    def __init__(self, selections: Sequence[str], layout: HeadLayout) -> None:
        """Reads selections as one; none selects every head."""
        if not list(layout):  # All were pruned, or there was none
            raise UsageError("MODEL: has no heads; inspect one with attention")
        self._text = ",".join(selections)
        self._layout = layout
        texts = [term.strip() for text in selections for term in _COMMA_OUTSIDE_BRACES.split(text)]
        self._terms = [_term_of(text, layout) for text in texts]
        self.needs_metrics = any(term.needs_metrics for term in self._terms)
        """True if the metrics decide."""
        if not self.needs_metrics and not self.select({}):
            raise UsageError.of('{heads}: "{}" selects no head; the heads are {}', self, layout)

    def __str__(self) -> str:
        return self._text

    @property
    def kinds(self) -> list[Kind]:
        begins_full = not self._terms or self._terms[0].is_negated
        added = [head for term in self._terms if not term.is_negated for head in term.heads]
        kinds = set(KINDS) if begins_full else {head.kind for head in added}
        return [kind for kind in KINDS if kind in kinds]

    def select(self, metrics: Mapping[HeadId, Metrics]) -> list[HeadId]:
        """Selects by the metrics of every head; they are not looked at if none decide."""
        begins_full = not self._terms or self._terms[0].is_negated
        selected = set(self._layout) if begins_full else set[HeadId]()
        for term in self._terms:
            if term.is_negated:
                selected -= term.select(metrics)
            else:
                selected |= term.select(metrics)
        return [head for head in self._layout if head in selected]


@dataclass(frozen=True)
class _Term:
    """A term: its pattern's heads, and the conditions on their metrics."""

    is_negated: bool
    heads: frozenset[HeadId]
    conditions: tuple[Condition, ...]
    top: tuple[int, str] | None  # Number of heads kept, and the metric that ranks them

    @property
    def needs_metrics(self) -> bool:
        return bool(self.conditions) or self.top is not None

    def select(self, metrics: Mapping[HeadId, Metrics]) -> set[HeadId]:
        """The heads of the pattern that meet the conditions and are among the top."""
        heads = {
            head
            for head in self.heads
            if all(condition(metrics.get(head, {})) for condition in self.conditions)
        }
        if self.top is None:
            return heads
        n_kept, name = self.top
        ranked = sorted(
            (head for head in heads if name in metrics.get(head, {})),
            key=lambda head: (-metrics[head][name], KINDS.index(head.kind), head),
        )
        return set(ranked[:n_kept])


def _term_of(text: str, layout: HeadLayout) -> _Term:
    is_negated = text.startswith("!")
    body, top = text.removeprefix("!"), None
    if match := _TOP.fullmatch(body):
        body, top = match[1] or "", (int(match[2]), _metric(match[3], text))
    pattern, *conditions = body.split("@")
    has_rest = bool(conditions) or top is not None
    return _Term(
        is_negated,
        frozenset(_heads_of("*" if has_rest and not pattern else pattern, text, layout)),
        tuple(_condition_of(condition.strip(), text) for condition in conditions),
        top,
    )


def _condition_of(text: str, term: str) -> Condition:
    if text.startswith("role="):
        wanted = text.removeprefix("role=")
        roles = [rule.role for rule in ROLES]
        if wanted not in roles:
            raise UsageError.of(
                '{heads}: "{}" names no role; the roles are {}', term, ", ".join(roles)
            )
        return lambda metrics: role_of(metrics) == wanted
    match = _COMPARISON.fullmatch(text)
    limit = None if match is None else _number(match[3])
    if match is None or limit is None:
        raise UsageError.of(
            '{heads}: "{}" has no condition such as @prev>0.8, @entropy<=1 or @role=sink', term
        )
    name, compare = _metric(match[1], term), _COMPARE[match[2]]
    return lambda metrics: name in metrics and compare(metrics[name], limit)


def _metric(name: str, term: str) -> str:
    if name not in METRICS:
        known = ", ".join(METRICS)
        raise UsageError.of('{heads}: "{}" names no metric; the metrics are {}', term, known)
    return name


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _heads_of(pattern: str, term: str, layout: HeadLayout) -> set[HeadId]:
    kind_word, *rest = pattern.split(".")
    if kind_word not in KIND_WORDS or len(rest) > 2:
        raise _selector_error(term, "is not KIND, KIND.LAYER or KIND.LAYER.HEAD", layout)
    layers, heads = (*rest, "*", "*")[:2]
    matches = {
        HeadId(kind, layer, head)
        for kind in KIND_WORDS[kind_word]
        for layer in _indices(layers, len(layout.of(kind)), term, layout)
        for head in _indices(heads, layout.of(kind)[layer], term, layout)
    }
    if not matches:
        raise _selector_error(term, "matches no head", layout)
    return matches


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
            raise _selector_error(term, f"counts backwards in {pattern}", layout)
        return list(range(int(match[1]), end + 1)) if end < n else []
    raise _selector_error(term, f'has an unreadable part "{pattern}"', layout)


def _selector_error(term: str, reason: str, layout: HeadLayout) -> UsageError:
    return UsageError.of(
        '{heads}: "{}" {}; the heads are {} (layers and heads: n, a-b, a-, last, '
        "^k, {{list}} or *)",
        term,
        reason,
        layout,
    )
