"""Kinds of corpora that are examined: sentence pairs, texts with labels, texts alone."""

from dataclasses import dataclass

from tformer_cli.data.corpora import SentencePair


@dataclass(frozen=True, kw_only=True)
class CorpusKind:
    """What the two sides of an example hold."""

    name: str
    noun: str
    """One example, in messages."""
    sides: tuple[str, str]
    """What each side is called; empty: there is none."""
    texts: tuple[int, ...]
    """Places of the sides that are text."""
    side: str
    """One of them, in messages."""

    def texts_of(self, pair: SentencePair) -> list[tuple[str, str]]:
        """The texts of an example, each with what it is called."""
        return [(self.sides[place], pair[place]) for place in self.texts]

    def named(self, pair: SentencePair) -> dict[str, str]:
        """All that an example has, by name."""
        return {name: side for name, side in zip(self.sides, pair, strict=True) if name}


PAIRS = CorpusKind(
    name="pairs", noun="pair", sides=("source", "target"), texts=(0, 1), side="a side"
)
LABELED = CorpusKind(
    name="labeled", noun="example", sides=("text", "label"), texts=(0,), side="a text or label"
)
TEXTS = CorpusKind(name="texts", noun="text", sides=("", "text"), texts=(1,), side="a text")
