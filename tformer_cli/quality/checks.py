"""The registry of checks: a check is a function and a name.

A check of a side takes a text, a check of a pair takes the pair and the facts of its corpus. Both
return why the pair is doubtful, in words, or an empty text. Checks of repeats compare pairs with
each other, which `examine` does.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tformer_cli.errors import UsageError
from tformer_cli.quality import content
from tformer_cli.quality.facts import LABELED, PAIRS, CorpusFacts, CorpusKind
from tformer_cli.text.corpora import SentencePair
from tformer_cli.wording import did_you_mean, suggestions

MALFORMED, EMPTY, HELD_OUT, DUPLICATE = "malformed", "empty", "held-out", "duplicate"
NEAR_DUPLICATE, OTHER_LABEL, SCORE = "near-duplicate", "other-label", "score"
REPEATED_SOURCE, REPEATED_TARGET = "repeated-source", "repeated-target"


@dataclass(frozen=True, kw_only=True)
class Check:
    """A check: it has one function, or none if it compares pairs with each other."""

    meaning: str
    """The finding in a few words; ``{side}`` is the name of a side."""
    of_side: Callable[[str], str] | None = None
    """Finds it in a side."""
    of_pair: Callable[[SentencePair, CorpusFacts], str] | None = None
    """Finds it in a pair."""
    drops: bool = True
    """True if pairs that have it are dropped unless others are asked for."""
    is_default: bool = True
    """False if it is made only where it is asked for."""
    only_of: CorpusKind | None = None
    """Kind of corpora that it is for; None: all."""

    def means(self, kind: CorpusKind) -> str:
        """Returns what is found in corpora of a kind, in a few words."""
        return self.meaning.format(side=kind.side)

    def find(self, pair: SentencePair, facts: CorpusFacts) -> str:
        """Returns why a pair is doubtful; empty if it is not."""
        if self.of_pair is not None:
            return self.of_pair(pair, facts)
        if self.of_side is not None:
            for name, side in facts.kind.texts_of(pair):
                if found := self.of_side(side):
                    return f"{name} {found}"
        return ""


CHECKS: Mapping[str, Check] = MappingProxyType(
    {
        MALFORMED: Check(meaning="a line of a table is not an example"),
        EMPTY: Check(meaning="{side} is blank", of_pair=content.empty),
        "encoding": Check(meaning="characters were lost", of_side=content.undecodable),
        "mojibake": Check(meaning="UTF-8 was read as another encoding", of_side=content.mojibake),
        "invisible": Check(meaning="control or invisible characters", of_side=content.invisible),
        "markup": Check(meaning="tags, entities, other markup", of_side=content.markup),
        "identical": Check(
            meaning="both sides are the same", of_pair=content.identical, only_of=PAIRS
        ),
        "copied": Check(
            meaning="most of the target is copied", of_pair=content.copied, only_of=PAIRS
        ),
        "too-long": Check(meaning="{side} is very long", of_pair=content.too_long),
        "long-word": Check(meaning="a very long word", of_side=content.long_word),
        "length-ratio": Check(
            meaning="lengths do not fit", of_pair=content.unlike_lengths, only_of=PAIRS
        ),
        "swapped": Check(meaning="sides are swapped", of_pair=content.swapped, only_of=PAIRS),
        "script": Check(meaning="another script", of_pair=content.wrong_script),
        "language": Check(meaning="another language", of_pair=content.wrong_language),
        "numbers": Check(meaning="numbers differ", of_pair=content.numbers, only_of=PAIRS),
        "addresses": Check(
            meaning="web or mail addresses differ", of_pair=content.addresses, only_of=PAIRS
        ),
        "repetition": Check(
            meaning="one side repeats itself", of_pair=content.repetition, only_of=PAIRS
        ),
        "symbols": Check(meaning="mostly no letters", of_side=content.symbols),
        "spaced-letters": Check(meaning="spaces between letters", of_side=content.spaced_letters),
        SCORE: Check(meaning="models find it unlikely", is_default=False, only_of=PAIRS),
        HELD_OUT: Check(meaning="a held-out file has it"),
        DUPLICATE: Check(meaning="an earlier one is the same"),
        NEAR_DUPLICATE: Check(meaning="an earlier one is nearly the same", is_default=False),
        REPEATED_SOURCE: Check(
            meaning="an earlier pair has the source", drops=False, only_of=PAIRS
        ),
        REPEATED_TARGET: Check(
            meaning="an earlier pair has the target", drops=False, only_of=PAIRS
        ),
        OTHER_LABEL: Check(
            meaning="the text has another label earlier", drops=False, only_of=LABELED
        ),
    }
)
"""All checks by name, in the order in which they are shown."""
DROPPING = frozenset(name for name, check in CHECKS.items() if check.drops)
"""Checks for which pairs are dropped unless others are asked for."""
DEFAULT = frozenset(name for name, check in CHECKS.items() if check.is_default)
"""Checks that are made unless others are asked for."""
_SINGLE_PAIR = {name: c for name, c in CHECKS.items() if c.of_side or c.of_pair}


def known_checks(names: Iterable[str], where: str) -> frozenset[str]:
    given = [one.strip() for name in names for one in name.split(",")]
    for name in given:
        if name not in CHECKS:
            hint = did_you_mean(suggestions(name, CHECKS)) or f"checks are {', '.join(CHECKS)}"
            raise UsageError(f'{where}: no check is called "{name}"; {hint}')
    return frozenset(given)


def checks_for(kind: CorpusKind) -> frozenset[str]:
    """Returns the checks that can be made of a kind of corpora."""
    return frozenset(name for name, one in CHECKS.items() if one.only_of in (None, kind))


def findings_of(
    pair: SentencePair, facts: CorpusFacts, wanted: frozenset[str]
) -> Iterator[tuple[str, str]]:
    """Yields the checks that find a pair doubtful, each with why; of a blank one only that."""
    blank = content.empty(pair, facts)
    if blank:
        if EMPTY in wanted:
            yield EMPTY, blank
        return
    for name, check in _SINGLE_PAIR.items():
        if name in wanted and (why := check.find(pair, facts)):
            yield name, why
