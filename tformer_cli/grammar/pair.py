"""One generated sentence pair with its gold word alignment."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AlignedPair:
    """An English sentence, its French translation and the links between their words."""

    source: str
    """The English sentence as ordinary text."""
    target: str
    """The French sentence as ordinary text."""
    source_words: tuple[str, ...]
    """The English words with punctuation and ``n't`` split off."""
    target_words: tuple[str, ...]
    """The French words with punctuation and clitics split off."""
    links: tuple[tuple[int, int], ...]
    """Sorted (source index, target index) pairs, 0-based, over the words."""

    def pharaoh(self) -> str:
        """Return the links in Pharaoh format, such as ``0-0 1-1 2-3``."""
        return " ".join(f"{source}-{target}" for source, target in self.links)
