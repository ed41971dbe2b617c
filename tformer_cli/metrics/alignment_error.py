"""Agreement of word alignments with gold ones: alignment error rate, precision and recall.

With found links A, sure links S and possible links P ⊇ S, summed over all sentences (Och & Ney
2003, section 5):

    AER = 1 − (|A∩S| + |A∩P|) / (|A| + |S|),  precision = |A∩P| / |A|,  recall = |A∩S| / |S|
"""

from collections.abc import Collection
from dataclasses import dataclass

from tformer_cli.text.pharaoh import GoldLinks, Link


@dataclass
class AlignmentCounts:
    """The four sums of the measures; grows sentence by sentence."""

    n_links: int = 0
    sure: int = 0
    found_sure: int = 0
    """|A∩S|."""
    found_possible: int = 0
    """|A∩P|."""

    def add(self, links: Collection[Link], gold: GoldLinks) -> None:
        """Counts the links of a sentence, each once."""
        links = set(links)
        self.n_links += len(links)
        self.sure += len(gold.sure)
        self.found_sure += len(links & gold.sure)
        self.found_possible += len(links & gold.possible)

    @property
    def error_rate(self) -> float:
        """AER, 0 to 1; 1 where nothing was found though there is something to find."""
        total = self.n_links + self.sure
        return 1.0 - (self.found_sure + self.found_possible) / total if total else 0.0

    @property
    def precision(self) -> float:
        """|A∩P| / |A|; 1 where nothing was found: nothing of it is wrong."""
        return self.found_possible / self.n_links if self.n_links else 1.0

    @property
    def recall(self) -> float:
        """|A∩S| / |S|; 1 where there is nothing to find."""
        return self.found_sure / self.sure if self.sure else 1.0


def diagonal_links(n_source: int, n_target: int) -> set[Link]:
    """Links every target word with the source word at the same share of the sentence."""
    # The score of an aligner that knows only the lengths: the floor of a comparison.
    if not n_source:
        return set()
    # target word j of T falls on j·(S − 1)/(T − 1), rounded
    last, steps = n_source - 1, max(n_target - 1, 1)
    return {((2 * j * last + steps) // (2 * steps), j) for j in range(n_target)}


def best_single_links(gold: GoldLinks) -> set[Link]:
    """Links every target word with one sure source word, else a possible one, else with none."""
    # The lowest error rate that at most one link a target word can reach: the ceiling of a
    # comparison. (A link that is found and possible adds 1 above and 1 below the fraction's line,
    # so it never raises the rate.)
    best: dict[int, Link] = {}
    for link in sorted(gold.possible, key=lambda link: (link not in gold.sure, link)):
        best.setdefault(link[1], link)
    return set(best.values())
