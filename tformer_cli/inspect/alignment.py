"""Word alignments from cross-attention weights.

The decoder reads ``<s>``, y₁ … y_T, so a map has T + 1 rows; row i has read y_i and predicts
y_{i+1}. Which row is target token y_t's is a convention:

=====  =========  ==============================================================================
naive  row t − 1  the row that predicts it (attention with output, AWO)
shift  row t      the row that has read it (attention with input, AWI; SHIFT-ATT, Chen et al. 2020)
=====  =========  ==============================================================================

Tokens become words by the sum over a source word's tokens and the mean over a target word's (Clark
et al. 2019, section 4). A target word is then linked with its heaviest source word, or, with a
threshold, with every word whose weight reaches it.

Joining the alignments of two directions into one (Och & Ney 2003; Koehn et al. 2003).

The links of both directions are given source first. The intersection is precise, the union is
complete; grow-diag starts from the first and takes from the second what touches it and links two
words that are both still free. (Moses is content with one free word, which takes in far more: 5,953
links instead of 5,072 from GIZA++'s two directions of the WPT 2003 test set.)

Published outputs of grow-diag differ in a line out of a hundred, because the result depends on the
order in which links are looked at. Here the order is fixed: rounds over the links by source word,
then target word, and round each link its neighbors in the order of `NEIGHBORS`; what is added
counts at once. Rounds continue until one adds nothing.

Words and the tokens that make them up.

Words are what ASCII white space separates, as tools that read Pharaoh files count them, or a given
list that spells the same text, such as a tokenized form with ``did n't`` for ``didn't``. Both
tokens and words are measured in letters: the bytes of a text that are not white space. So it does
not matter how spaces are tokenized, or that a text and its tokenized form differ in them.

The heads that align words, and which words of an inspected pair they link.

Every view asks here which heads to begin with. Heads stored in the model directory come first:
measured against gold alignments, or named by the model file that was imported. Else it is the mean
of the last half of the layers, whose rows are read as words that stand unchanged in both sentences
say they have to be.
"""

from __future__ import annotations

import re
from collections import Counter
from itertools import accumulate, groupby
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from tformer_cli.errors import DataError, UsageError
from tformer_cli.heads.names import HeadId, HeadLayout, Kind
from tformer_cli.heads.selectors import select_heads
from tformer_cli.settings import dataclass
from tformer_cli.text.lines import without_surrogates
from tformer_cli.text.pharaoh import Link, format_links

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from collections.abc import Set as AbstractSet

    from tformer_cli.artifacts.config_file import AlignmentInfo
    from tformer_cli.inspect.capture.maps import AttentionMaps
    from tformer_cli.text.tokenizer import Tokenizer, TokenizerSide

Numbers = NDArray[np.float64]
# Bytes of characters that are white space: no part of another character looks like them in UTF-8
_BLANKS = re.compile(
    b"[\t-\r\x1c-\x20]|\xc2[\x85\xa0]|\xe1\x9a\x80|\xe2\x80[\x80-\x8a\xa8\xa9\xaf]|\xe2\x81\x9f|\xe3\x80\x80"
)
Spans = NDArray[np.int64]  # (N, 2): from a letter up to, and without, another


@dataclass(frozen=True)
class WordTokens:
    """A sentence, or a part of a line, in tokens, and the words they belong to."""

    ids: tuple[int, ...]  # Its tokens, without special tokens
    shares: Numbers  # (tokens, words) part of each token in each word; 0 for blanks
    is_cut: bool = False  # True if it has more tokens than were kept

    @property
    def n_words(self) -> int:
        return int(self.shares.shape[1])


def words_of_text(
    tokenizer: TokenizerSide,
    line: str,
    *,
    words: Sequence[str] | None = None,
    parts: Sequence[str] = (),
    longest: int | None = None,
    where: str = "the line",
) -> list[WordTokens]:
    parts = [without_surrogates(part) for part in parts or (line,)]
    if words is None:
        in_bytes = without_surrogates(line).encode().split()
    else:
        in_bytes = [without_surrogates(word).encode() for word in words]
        _check_spelling(line, words, where)
    word_spans = _spans_of(in_bytes)
    parts_of_words, start = [], 0
    encoded = tokenizer.for_parts_of(line).encode_with_spans(parts)
    for part, (ids, offsets) in zip(parts, encoded, strict=True):
        before = _letters_before(part.encode())
        spans = start + before[_byte_spans(part, offsets)]
        # a tokenizer's own space before the text counts as part of the first letter
        is_space = [tokenizer.piece_bytes[token].isspace() for token in ids]
        spans[is_space] = 0
        shares = _shares(spans[:longest], word_spans)
        is_cut = longest is not None and len(ids) > longest
        parts_of_words.append(WordTokens(tuple(ids[:longest]), shares, is_cut))
        start += int(before[-1])
    return parts_of_words


@dataclass(frozen=True)
class SpelledWords:
    """The words that tokens spell, in letters."""

    texts: tuple[str, ...]
    of_token: tuple[int | None, ...]
    """For each token the number of its word; None if it has no letter."""


def spelled_words(tokenizer: TokenizerSide, ids: Sequence[int]) -> SpelledWords:
    """Spells the words of tokens, each part of the one it has most of; a gap is its own word."""
    texts: list[str] = []
    of_token: list[int | None] = []
    for is_gap, run in groupby(ids, key=lambda token: token == tokenizer.mask_id):
        tokens = list(run)
        if is_gap:
            spelled = SpelledWords((tokenizer.mask,) * len(tokens), tuple(range(len(tokens))))
        else:
            spelled = _spell_words(tokenizer, tokens)
        of_token += [None if word is None else len(texts) + word for word in spelled.of_token]
        texts += spelled.texts
    return SpelledWords(tuple(texts), tuple(of_token))


def _spell_words(tokenizer: TokenizerSide, ids: Sequence[int]) -> SpelledWords:
    text = b"".join(tokenizer.piece_bytes[token] for token in ids)
    shares = words_of_ids(tokenizer, ids).shares
    return SpelledWords(
        tuple(word.decode("utf-8", "replace") for word in text.split()),
        tuple(int(row.argmax()) if row.any() else None for row in shares),
    )


def words_of_ids(tokenizer: TokenizerSide, ids: Sequence[int]) -> WordTokens:
    """Finds the words that tokens spell, however else that text might be tokenized."""
    pieces = [tokenizer.piece_bytes[token] for token in ids]
    text = b"".join(pieces)
    ends = _letters_before(text)[list(accumulate(map(len, pieces), initial=0))]
    return WordTokens(tuple(ids), _shares(_between(ends), _spans_of(text.split())))


def _letters_before(text: bytes) -> NDArray[np.int64]:
    """(bytes + 1) how many letters come before each byte, and before the end."""
    letters = np.zeros(len(text) + 1, dtype=np.int64)
    letters[1:] = 1
    for blank in _BLANKS.finditer(text):
        letters[blank.start() + 1 : blank.end() + 1] = 0
    return np.cumsum(letters)


def _spans_of(words: Iterable[bytes]) -> Spans:
    """The letters of words that follow one another."""
    sizes = (len(_BLANKS.sub(b"", word)) for word in words)
    return _between(np.array(list(accumulate(sizes, initial=0)), dtype=np.int64))


def _between(ends: NDArray[np.int64]) -> Spans:
    return np.array([ends[:-1], ends[1:]]).T


def _byte_spans(text: str, offsets: Sequence[tuple[int, int]]) -> Spans:
    spans = np.array(offsets, dtype=np.int64).reshape(-1, 2)
    if text.isascii():  # characters are bytes, in most lines of many languages
        return spans
    sizes = [len(c.encode()) for c in text]
    before = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
    return before[spans]


def _shares(tokens: Spans, words: Spans) -> Numbers:
    """(tokens, words) the part of each token's letters that lies in each word."""
    starts = np.maximum(tokens[:, None, 0], words[None, :, 0])
    ends = np.minimum(tokens[:, None, 1], words[None, :, 1])
    common = np.maximum(ends - starts, 0).astype(np.float64)
    shares: Numbers = common / np.maximum(common.sum(axis=1, keepdims=True), 1.0)
    return shares


def _check_spelling(line: str, words: Sequence[str], where: str) -> None:
    spelled, written = "".join("".join(words).split()), "".join(line.split())
    if spelled != written:
        both = enumerate(zip(spelled, written, strict=False))
        differing = (i for i, (ours, theirs) in both if ours != theirs)
        place = next(differing, min(len(spelled), len(written)))
        raise DataError(
            f'{where}: the words spell "{spelled[place : place + 12]}", but the text has '
            f'"{written[place : place + 12]}"; give the same text with other spaces'
        )


Convention = Literal["naive", "shift"]
CONVENTIONS: tuple[Convention, ...] = ("naive", "shift")
ALIGNING: tuple[Kind, ...] = ("cross",)  # Attentions that see both sentences


@dataclass(frozen=True, kw_only=True)
class LinkRule:
    """Rule by which weights between words become links."""

    threshold: float | None = None  # Link words from this weight on; None: the heaviest only
    keeps_eos: bool = False  # A word that attends most to the end of sentence has no link


def cross_heads(selections: Sequence[str], layout: HeadLayout) -> list[HeadId]:
    heads = select_heads(selections, layout)
    for head in heads:
        if head.kind not in ALIGNING:
            raise UsageError.of(
                '{heads}: "{}" selects {}, but only cross-attention sees both sentences; '
                "select cross heads",
                ",".join(selections),
                head,
            )
    return heads


def default_selection(layout: HeadLayout) -> str:
    """The heads to align by where nothing better is known: the last half of the layers.

    Their mean has fewer errors than any head or layer of the models measured here, and includes the
    last layer but one, where Garg et al. 2019 begin. Layers whose heads are all pruned are not
    counted.
    """
    layers = [layer for layer, n_heads in enumerate(layout.cross) if n_heads]
    if not layers:
        raise UsageError(
            "MODEL: has no cross-attention head left to align words with; use the unpruned model"
        )
    first, last = layers[len(layers) // 2], layers[-1]
    return f"cross.{first}" if first == last else f"cross.{first}-{last}"


def head_mean(maps: AttentionMaps, heads: Sequence[HeadId]) -> Numbers:
    """(T, S) mean of the weights of heads; the begin and end of sentence are counted."""
    mean: Numbers = np.mean([maps.weights(head) for head in heads], axis=0, dtype=np.float64)
    return mean


def word_weights(
    weights: Numbers, source: WordTokens, target: WordTokens, convention: Convention
) -> Numbers:
    """Turns cross-attention (…, T + 1, S + 1) of tokens into (…, words, words + 1) of words.

    The begin of sentence is a row more, the end of sentence a column more; without the latter in a
    model that does not read it.
    """
    rows = weights[..., :-1, :] if convention == "naive" else weights[..., 1:, :]
    n_tokens = len(source.shares)
    at_end = rows[..., n_tokens:] if rows.shape[-1] > n_tokens else np.zeros_like(rows[..., :1])
    # (…, T, S) · (S, source words) -> (…, T, source words)
    on_words = np.concatenate([rows[..., :n_tokens] @ source.shares, at_end], axis=-1)
    means = target.shares / np.maximum(target.shares.sum(axis=0), 1e-12)
    combined: Numbers = means.T @ on_words
    return combined


def link_words(weights: Numbers, rule: LinkRule) -> NDArray[np.bool_]:
    on_words = weights[..., :-1]
    if on_words.shape[-1] == 0:
        return on_words > 0
    if rule.threshold is not None:
        return (on_words >= rule.threshold) & (on_words > 0)
    heaviest = on_words.argmax(axis=-1)[..., None]
    links: NDArray[np.bool_] = heaviest == np.arange(on_words.shape[-1])
    links &= on_words > 0  # a word without tokens has no heaviest
    if rule.keeps_eos:
        links &= on_words >= weights[..., -1:]
    return links


def links_of(is_linked: NDArray[np.bool_]) -> set[Link]:
    targets, sources = np.nonzero(is_linked)
    return set(zip(sources.tolist(), targets.tolist(), strict=True))


NEIGHBORS = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))
"""Steps (source, target) to the neighbors of a link: sides first, then corners."""

Symmetrization = Literal["intersection", "union", "grow-diag", "grow-diag-final-and"]


def symmetrize(
    method: Symmetrization, forward: AbstractSet[Link], reverse: AbstractSet[Link]
) -> set[Link]:
    return METHODS[method](forward, reverse)


def grow_diag(forward: AbstractSet[Link], reverse: AbstractSet[Link]) -> set[Link]:
    """Grows the intersection by neighbors from the union that link two free words."""
    links, union = set(forward & reverse), forward | reverse
    free = _FreeWords(links)
    is_growing = True
    while is_growing:
        near = [(s + a, t + b) for s, t in sorted(links) for a, b in NEIGHBORS]
        new = {link for link in near if link in union and free.take(link)}
        links |= new
        is_growing = bool(new)
    return links


def grow_diag_final_and(forward: AbstractSet[Link], reverse: AbstractSet[Link]) -> set[Link]:
    links = grow_diag(forward, reverse)
    free = _FreeWords(links)
    return links | {link for link in (*sorted(forward), *sorted(reverse)) if free.take(link)}


class _FreeWords:
    """The words that no link has taken yet."""

    def __init__(self, links: AbstractSet[Link]) -> None:
        self._sources = {source for source, _ in links}
        self._targets = {target for _, target in links}

    def take(self, link: Link) -> bool:
        """Takes both words of a link; says whether both were free."""
        source, target = link
        if source in self._sources or target in self._targets:
            return False
        self._sources.add(source)
        self._targets.add(target)
        return True


METHODS: dict[Symmetrization, Callable[[AbstractSet[Link], AbstractSet[Link]], set[Link]]] = {
    "intersection": lambda forward, reverse: set(forward & reverse),
    "union": lambda forward, reverse: set(forward | reverse),
    "grow-diag": grow_diag,
    "grow-diag-final-and": grow_diag_final_and,
}
"""Every method by its name."""


SHIFTED_FROM = 0.2
"""Weight on unchanged tokens that rows have to gain from being read one later; ours. In a sentence
or two of a hundred less is chance: 0 costs 0.3 to 0.7 points of the alignment error rate."""


@dataclass(frozen=True, kw_only=True)
class HeadChoice:
    """Heads that align, how they are read, and the reason for them."""

    heads: str
    members: tuple[HeadId, ...]  # Its heads; of several the mean aligns
    convention: Convention | None  # Row that is a target token's; None: found for each sentence
    reason: Literal["given", "stored", "default"]

    def __str__(self) -> str:
        return f"{self.heads} ({', '.join(filter(None, (self.convention, self.reason)))})"

    @property
    def description(self) -> str:
        """The heads in words, for the report of one sentence."""
        name = f"mean of {self.heads}" if len(self.members) > 1 else self.heads
        return f"{name} ({'stored' if self.is_stored else 'not measured'})"

    @property
    def is_stored(self) -> bool:
        return self.reason == "stored"

    def weights(self, maps: AttentionMaps, tokenizer: Tokenizer) -> tuple[Numbers, Convention]:
        """(T, S) mean of the heads' weights for a pair, and the convention to read it by."""
        mean = head_mean(maps, self.members)
        return mean, self.read_by(mean, maps.source_tokens, maps.target_ids[:-1], tokenizer)

    def read_by(
        self,
        weights: Numbers,
        source: Sequence[int],
        target: Sequence[int],
        tokenizer: Tokenizer,
    ) -> Convention:
        """Chooses the convention to read the heads' weights for a pair of tokens by."""
        return self.convention or found_convention(weights, source, target, tokenizer)


def choose_heads(
    layout: HeadLayout,
    stored: AlignmentInfo | None,
    head_names: Sequence[str] = (),
    convention: Convention | None = None,
) -> HeadChoice:
    reason: Literal["given", "stored", "default"] = "default"
    selection = ""
    if head_names:
        reason, selection, convention = "given", ",".join(head_names), convention or "naive"
    elif stored is not None:
        reason, selection = "stored", stored.heads
        convention = convention or stored.convention
    selection = selection or default_selection(layout)
    members = tuple(cross_heads([selection], layout))
    return HeadChoice(heads=selection, members=members, convention=convention, reason=reason)


def found_convention(
    weights: Numbers, source_ids: Sequence[int], target_ids: Sequence[int], tokenizer: Tokenizer
) -> Convention:
    """Finds which rows (T, S) are the target tokens', by tokens that stay as they are.

    A name, a number or a mark that occurs once on either side translates itself. Some decoders look
    at it while they predict it, others when they have read it, a row later.
    """
    source, target = (
        [side.piece_bytes[token].strip() for token in ids]
        for side, ids in ((tokenizer.source, source_ids), (tokenizer.target, target_ids))
    )
    counts = Counter(source), Counter(target)
    unchanged = [
        (target.index(piece), source.index(piece))
        for piece in counts[0]
        if piece and counts[0][piece] == counts[1][piece] == 1
    ]
    gain = sum(float(weights[row + 1, key] - weights[row, key]) for row, key in unchanged)
    return "shift" if gain > SHIFTED_FROM else "naive"


@dataclass(frozen=True, kw_only=True)
class AlignedWords:
    """The words of a sentence and its translation, and which go together."""

    choice: HeadChoice
    convention: Convention  # Convention: the row that was read as a target token's
    source: tuple[str, ...]
    target: tuple[str, ...]
    links: frozenset[Link]  # From 0; words that look most at the end of sentence have none
    order: tuple[HeadId, ...]  # Cross-attention heads: the chosen ones first, then by weight

    @property
    def pharaoh(self) -> str:
        return format_links(self.links)

    @property
    def by_target(self) -> list[tuple[str, str]]:
        """Each target word that is linked with its source word, in the order of the target."""
        ordered = sorted(self.links, key=lambda link: link[::-1])
        return [(self.target[target], self.source[source]) for source, target in ordered]


def align_words(
    tokenizer: Tokenizer, maps: AttentionMaps, choice: HeadChoice | None
) -> AlignedWords | None:
    source = words_of_ids(tokenizer.source, maps.source_tokens)
    target = words_of_ids(tokenizer.target, maps.target_ids[:-1])
    if choice is None or not (source.n_words and target.n_words):
        return None
    mean, convention = choice.weights(maps, tokenizer)
    is_linked = link_words(word_weights(mean, source, target, convention), LinkRule())
    heads = [
        HeadId("cross", layer, n)
        for layer, layer_weights in enumerate(maps.cross)
        for n in range(len(layer_weights))
    ]
    each = np.concatenate(maps.cross).astype(np.float64)
    # (heads, target words, source words + 1) -> (heads)
    weights = word_weights(each, source, target, convention)
    agrees = (link_words(weights, LinkRule()) & is_linked).sum(axis=(1, 2))
    on_links = (weights[..., :-1] * is_linked).sum(axis=(1, 2))
    worth = dict(zip(heads, zip(agrees.tolist(), on_links.tolist(), strict=True), strict=True))
    return AlignedWords(
        choice=choice,
        convention=convention,
        source=spelled_words(tokenizer.source, source.ids).texts,
        target=spelled_words(tokenizer.target, target.ids).texts,
        links=frozenset(links_of(is_linked)),
        order=tuple(
            sorted(heads, key=lambda head: (head in choice.members, worth[head]), reverse=True)
        ),
    )
