"""Lines in, translations out: tokenizing, batching, search, and back to text in order."""

from __future__ import annotations

import math
from collections import Counter
from copy import copy
from dataclasses import field, replace
from functools import cached_property, partial
from heapq import heappop, heappush
from itertools import chain, cycle, islice, product, repeat, zip_longest
from typing import TYPE_CHECKING, Literal, NamedTuple

from tformer_cli.errors import DataError
from tformer_cli.search.constraints import (
    NO_CONSTRAINTS,
    Constraints,
    LineConstraints,
    callers,
    holds,
    text_of,
    unsatisfied_phrases,
    with_terms,
)
from tformer_cli.search.engine import Choice, Searcher, Sentence
from tformer_cli.search.hypothesis import (
    MOST_TOKENS,
    Several,
    length_conflict,
    length_divisor,
    longest_source,
)
from tformer_cli.settings import dataclass
from tformer_cli.text.lines import buffers, check_lines, checked_line
from tformer_cli.text.tokenizer import EOS_ID, UNK_ID, plain, untrained_characters
from tformer_cli.wording import is_blank

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from tformer_cli.runtime import Stopwatch
    from tformer_cli.search.config import DecodingConfig, TooLong
    from tformer_cli.search.constraints import Term
    from tformer_cli.search.engine import SearchedModel, SearchEngine, Shortlist
    from tformer_cli.search.hypothesis import CrossHead, Hypothesis, SourceAttention
    from tformer_cli.text.tokenizer import Tokenizer, TokenizerSide

BUFFER_LINES = 1024
"""Lines that are sorted by length and translated together."""
GPU_BUFFER_LINES = 8192
"""The same on a GPU, whose batches hold lines of one length and are larger."""
LONGEST_PART = 128
"""Most tokens of a part of a line that has to be split, or half of what the model takes, whichever
is less: a translation needs room to be longer than its source."""
MOST_TRIES = 20
"""Maximum number of redraws of a banned sample, and of combinations with equal texts."""
LINE_ENDS = str.maketrans("\n\r", "  ")
LIKELY_WRONG = 0.5
"""Doubt from which a translation is at least as probably wrong as not."""
UNLIKELY_WORD = 0.2
"""Probability below which a word is named as doubtful."""


class Doubt(NamedTuple):
    """Probabilities that a translation is wrong, from `inspect.doubt.Doubter`."""

    probability: float
    """Probability that it is wrong; for several sentences, that of the most doubtful."""
    sentences: tuple[float, ...]
    """That of each part which was translated by itself; none of a blank line."""
    words: tuple[tuple[str, float], ...] | None
    """Each word and its probability in the model, the product of its tokens'; None: not asked."""

    @property
    def is_likely(self) -> bool:
        return self.probability >= LIKELY_WRONG

    @property
    def doubtful_words(self) -> list[str]:
        return [word for word, probability in self.words or () if probability < UNLIKELY_WORD]


@dataclass(frozen=True, slots=True)
class TranslatedText:
    """One hypothesis as text."""

    text: str
    """The translation; it holds no line end."""
    log_probability: float
    """Σ log p of its tokens and ends of sentence (summed over the parts of a split line)."""
    score: float
    """`log_probability` after the length penalty.

    For a split line: the sum of its parts' scores, each weighted as in the best translation.
    """
    token_ids: tuple[int, ...]
    """Its tokens without special tokens."""
    is_finished: bool
    """False where the length limit ended it."""
    part_lengths: tuple[int, ...] = ()
    """Number of tokens of each part of a split line; one number for a whole line."""
    token_log_probabilities: tuple[float, ...] = ()
    """log p of every token in turn, each part's end of sentence included."""
    attention: tuple[SourceAttention, ...] = field(default=(), compare=False, repr=False)
    """Attention of each part to its source; empty unless `Translator.listening` asks for it and the
    engine can tell."""
    doubt: Doubt | None = field(default=None, compare=False)
    """Probability that it is wrong; None unless requested."""

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Translation(Several[TranslatedText]):
    """A line with its translations."""

    index: int
    """Number of the line, from 0."""
    source: str
    """The line."""
    hypotheses: tuple[TranslatedText, ...]
    """The translations, best first; at least one."""
    source_ids: tuple[int, ...]
    """Tokens of the line as the model read them, without special tokens."""
    n_parts: int
    """Parts it was translated in: 0 for a blank line, over 1 where it was split."""
    is_truncated: bool
    """True if its end was cut off because it was too long."""
    is_too_long: bool = False
    """True if it, or a sentence of it, was translated in parts because it was too long."""
    parts: tuple[str, ...] = ()
    """Text of the parts it was translated in; empty where it is whole."""
    unsatisfied: tuple[str, ...] = ()
    """Required phrases that the best translation lacks, and banned ones that it holds."""
    n_sentences: int = 1
    """Sentences that were translated one by one; 1 where the line was not split into sentences."""
    unseen: tuple[str, ...] = ()
    """Words of the line that training never saw, if they are most of its words."""
    untrained: Mapping[str, int] = field(default_factory=dict, compare=False, repr=False)
    """Special spaces and the like that cut other tokens than the model was trained with, counted
    by their names."""
    source_part_lengths: tuple[int, ...] = ()
    """Number of tokens of each of `parts`; empty where it is whole."""
    through: Translation | None = field(default=None, compare=False, repr=False)
    """The translation into a language between, which another model translated further."""

    @property
    def text(self) -> str:
        """The best translation."""
        return self.hypotheses[0].text

    @property
    def doubt(self) -> Doubt | None:
        """Probability that the best translation is wrong; None unless requested."""
        return self.hypotheses[0].doubt

    @property
    def n_unknown(self) -> int:
        """Words or characters that the model does not know; it read `<unk>` in their place."""
        return self.source_ids.count(UNK_ID)

    @property
    def _held(self) -> tuple[TranslatedText, ...]:
        return self.hypotheses

    def __str__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        from tformer_cli.show.notebook import html_table

        rows = [(hypothesis.score, hypothesis.text) for hypothesis in self.hypotheses]
        return html_table(self.source, ("score", "translation"), rows)


class _Cut(NamedTuple):
    """A line in tokens, in as many parts as it is translated in."""

    parts: tuple[tuple[int, ...], ...]
    is_truncated: bool = False
    texts: tuple[str, ...] = ()
    blanks: tuple[str, ...] = ()
    """White space after each part but the last."""
    is_too_long: bool = False
    """True if a part is one because the model could not take more at once."""
    n_sentences: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedLine:
    """A line that is ready to be searched; see `Translator.prepare`."""

    index: int
    """Number of the line, from 0."""
    source: str
    """The line."""
    demands: LineConstraints
    """Phrases that its translation is to hold and not to hold."""
    sentences: tuple[Sentence, ...]
    """Its parts with the demands on each; none for a blank line."""
    cut: _Cut
    """The division into parts."""


@dataclass(frozen=True, kw_only=True)
class PartOfLine(Sentence):
    """A sentence of a split line; any of its sentences may hold a phrase that the line requires."""

    line: PreparedLine
    """The line with all of them as plain sentences."""
    number: int

    @property
    def place(self) -> tuple[LineConstraints, tuple[str, ...], int]:
        """Demands, texts and number: all that its result depends on, besides its tokens."""
        return self.line.demands, self.line.cut.texts, self.number


SpelledHypothesis = tuple["Hypothesis", str]
"""A hypothesis and its text."""
_BLANK = TranslatedText("", 0.0, 0.0, (), is_finished=True)


class Translator:
    """Translates lines with one model.

    In float32 on a CPU, a line's result does not depend on other lines. The same holds on a GPU in
    plain greedy and beam search, if its matrix library treats all rows alike.
    """

    def __init__(
        self,
        model: SearchedModel,
        tokenizer: Tokenizer,
        config: DecodingConfig,
        *,
        engines: Sequence[SearchEngine],
        too_long: TooLong = "split",
        split_sentences: Callable[[str], list[str]] | None = None,
        seed: int = 1,
        banned: Sequence[str] = (),
        before_batch: Callable[[], None] | None = None,
        scorers: Sequence[SearchEngine] = (),
        shortlist: Shortlist | None = None,
        seen_words: Container[str] | None = None,
    ) -> None:
        """Connects a model with its tokenizer."""
        self._seen_words = seen_words
        self._shortlist = shortlist
        self._heads: tuple[CrossHead, ...] = ()
        self._glossary: Sequence[Term] = ()
        self._is_needed: Callable[[str], bool] | None = None
        self._watch: Stopwatch | None = None
        self.config = config
        self._model = model
        self._tokenizer = tokenizer
        self._engines = engines
        self._too_long = too_long
        self._split_sentences = split_sentences
        self._seed = seed
        self._banned = tuple(phrase.strip() for phrase in banned)
        self._undemanding = Sentence(
            tokens=(), constraints=self._constraints(self._with_bans(NO_CONSTRAINTS), ())
        )
        self._before_batch = before_batch
        self._scorers = scorers
        self._searcher = Searcher(model, engines, before_batch, scorers)

    def engine(self) -> Choice:
        """Chooses the engine of lines without demands, and prepares it."""
        return self._searcher.choice(self.config, self._undemanding)

    def check(self) -> None:
        """Checks that an engine supports the settings and the model; prepares none."""
        # A limit that not even the shortest line can keep is a mistake in the settings
        config = replace(self.config, max_length_ratio=MOST_TOKENS)  # longer lines may have more
        if conflict := length_conflict(1, config, self._model.max_positions):
            raise conflict
        self._searcher.check(self.config, self._undemanding)

    def sentences(self, line: str) -> list[str]:
        """Returns the sentences that a line is translated in; a blank line itself."""
        return [text for text, _ in self._sentences(line)] or [line]

    @property
    def has_shortlist(self) -> bool:
        """True if its probabilities are relative to a shortlist's tokens."""
        return self._shortlist is not None

    def of_sentences(self) -> Translator:
        """Returns the same translator for lines that `sentences` has split."""
        other = copy(self)
        other._split_sentences = None
        return other

    def with_model(self, model: SearchedModel) -> Translator:
        """Returns the same translator for another model with the same vocabulary."""
        other = copy(self)
        other._model = model
        # What engines have prepared belongs to the model before
        other._searcher = Searcher(model, self._engines, self._before_batch, self._scorers)
        return other

    def with_languages(self, source: str | None, target: str | None) -> Translator:
        """Returns the same translator for other languages of a multilingual model."""
        other = copy(self)
        other._tokenizer = self._tokenizer.for_languages(source, target)
        return other

    def with_glossary(self, terms: Sequence[Term]) -> Translator:
        """Returns the same translator with a glossary's demands on every line."""
        other = copy(self)
        other._glossary = terms
        return other

    def timed_by(self, watch: Stopwatch) -> Translator:
        """Returns the same translator, which counts the time of tokenizing and of the search."""
        other = copy(self)
        other._watch = watch
        return other

    def listening(
        self, heads: Sequence[CrossHead], is_needed: Callable[[str], bool] | None = None
    ) -> Translator:
        """Returns the same translator, whose hypotheses also record the attention of heads.

        It may be needed for some lines only.
        """
        other = copy(self)
        other._heads, other._is_needed = tuple(heads), is_needed
        return other

    def with_config(self, config: DecodingConfig) -> Translator:
        """Returns a translator with other search settings and the same engines."""
        other = copy(self)
        other.config = config
        other.check()
        return other

    def translate(
        self,
        lines: Sequence[str],
        first_index: int = 0,
        demands: Sequence[LineConstraints] | None = None,
    ) -> list[Translation]:
        """Translates lines."""
        lap = (lambda _: None) if self._watch is None else self._watch.lap
        lap("reading")  # whatever its user has done since the last lap
        prepared = self.prepare(lines, first_index, demands)
        lap("tokenizing")
        hypotheses = iter(
            self.search([sentence for line in prepared for sentence in line.sentences])
        )
        lap("search")
        translations = [
            self.finish(line, list(islice(hypotheses, len(line.sentences)))) for line in prepared
        ]
        lap("tokenizing")
        return translations

    def prepare(
        self,
        lines: Sequence[str],
        first_index: int = 0,
        demands: Sequence[LineConstraints] | None = None,
        seed: int | None = None,
    ) -> list[PreparedLine]:
        """Divides lines into tokenized sentences, each with the demands on its translation.

        A `seed` replaces the translator's. Sentences of any lines may be searched together, and
        equal ones only once: nothing else affects the result.
        """
        demands = [
            self._with_bans(with_terms(demand, line, self._glossary))
            for demand, line in zip(demands or [NO_CONSTRAINTS] * len(lines), lines, strict=True)
        ]
        texts = [self._trim_prefix(demand.target_prefix) for demand in demands]
        cuts = self._cut_lines(lines, first_index, texts)
        prefixes = self._encode_prefixes(texts)
        start = tuple(self._tokenizer.target.start)
        self._check_lengths(cuts, prefixes, first_index)
        seed = self._seed if seed is None else seed
        hears = [self._is_needed is None or self._is_needed(line) for line in lines]

        def sentence(i: int, number: int) -> Sentence:
            required = demands[i].required if len(cuts[i].parts) == 1 else ()
            return self._with_shortlist(
                Sentence(
                    tokens=cuts[i].parts[number],
                    # By line and part, so that the buffer changes nothing that is drawn
                    key=line_key(seed, first_index + i, number) if self.config.sampling else 0,
                    # A prefix is the line's, so only its first part begins with it
                    prefix=start if number else (*start, *prefixes[i]),
                    n_start=len(start),
                    constraints=self._constraints(demands[i], required, is_first=number == 0),
                    heads=self._heads if hears[i] else (),
                )
            )

        return [
            _with_shared_phrases(
                PreparedLine(
                    index=first_index + i,
                    source=lines[i],
                    demands=demands[i],
                    sentences=tuple(sentence(i, number) for number in range(len(cut.parts))),
                    cut=cut,
                )
            )
            for i, cut in enumerate(cuts)
        ]

    def _trim_prefix(self, prefix: str) -> str:
        """The part of a prefix to tokenize; none if it has no visible character.

        The search itself writes the space before the next word; but in French, for example, models
        learn to continue after the no-break space of a quotation mark.
        """
        text = "" if is_blank(prefix) else prefix.rstrip()
        is_special = prefix[-1:] > "\x7f" and prefix[-1] in self._tokenizer.target.characters
        return prefix if text and is_special else text

    def _encode_prefixes(self, texts: Sequence[str]) -> list[list[int]]:
        """Puts prefixes in tokens, except what no search writes; see `unsatisfied_phrases`."""
        # Few ask for a prefix, and reading the target's tokenizer takes as long as many a line
        if not any(texts):
            return [[]] * len(texts)
        encoded = self._tokenizer.target.encode_phrases(texts)
        return [[token for token in ids if token > EOS_ID] for ids in encoded]

    def _check_lengths(
        self, cuts: Sequence[_Cut], prefixes: Sequence[Sequence[int]], first_index: int
    ) -> None:
        """Refuses lines whose translation cannot keep all length limits."""
        most = self._model.max_positions
        for number, (cut, prefix) in enumerate(zip(cuts, prefixes, strict=True), first_index + 1):
            for place, part in enumerate(cut.parts):
                n_prefix = 0 if place else len(prefix)
                if conflict := length_conflict(len(part), self.config, most, n_prefix):
                    raise DataError.of("line {}: {}", number, conflict)

    def _with_bans(self, demands: LineConstraints) -> LineConstraints:
        """Adds the phrases that no translation may hold; phrases become as tokens write them."""
        if self._banned:
            banned = tuple(dict.fromkeys((*demands.banned, *self._banned)))
            demands = replace(demands, banned=banned)
        return demands if demands is NO_CONSTRAINTS or not self._composes else demands.compose()

    @cached_property
    def _composes(self) -> bool:
        """True if the tokenizer composes the letters and marks of what it reads."""
        as_it_is, composed = self._tokenizer.target.encode_phrases(["e\u0301", "\xe9"])
        return as_it_is == composed

    def search(self, sentences: Sequence[Sentence]) -> list[list[SpelledHypothesis]]:
        """Searches, under constraints only where the free search breaks them.

        So they cost little, and hold for the text, however that is cut into tokens. A best
        hypothesis that meets them stays the best, whatever `n_best` others are asked for.
        """
        whole: list[Sentence] = []
        lines: dict[int, tuple[int, PreparedLine]] = {}
        places = []
        for sentence in sentences:
            if not isinstance(sentence, PartOfLine):
                places.append(len(whole))
                whole.append(sentence)
                continue
            start, _ = lines.setdefault(id(sentence.line), (len(whole), sentence.line))
            if start == len(whole):
                whole += sentence.line.sentences
            places.append(start + sentence.number)
        free = self._search_freely(whole)
        results = self._choose_hypotheses(free)
        for start, line in lines.values():
            own = slice(start, start + len(line.sentences))
            whole[own] = self._with_required(line, results[own])
        broken = [
            index
            for index, sentence in enumerate(whole)
            if any(_n_broken(sentence, spelled) for spelled in results[index])
        ]
        if broken:
            constrained = [whole[index] for index in broken]
            again = (
                self._draw_again(constrained, [free[index] for index in broken])
                if self.config.sampling
                else self._search_bound(constrained)
            )
            for index, others in zip(broken, self._choose_hypotheses(again), strict=True):
                results[index] = _put_free_first(whole[index], results[index], others, self.config)
        return [results[place] for place in places]

    def _search_freely(
        self, sentences: Sequence[Sentence], config: DecodingConfig | None = None
    ) -> list[list[SpelledHypothesis]]:
        free = [
            sentence if sentence.constraints is None else replace(sentence, constraints=None)
            for sentence in sentences
        ]
        return self._spell_hypotheses(self._searcher.search(free, config or self.config))

    def _search_bound(self, sentences: Sequence[Sentence]) -> list[list[SpelledHypothesis]]:
        """Finds hypotheses that break as few constraints as can be, the best first."""
        bound = [
            self._with_shortlist(part, () if part.constraints is None else part.constraints.tokens)
            for part in sentences
        ]
        if self.config.sampling:
            return self._spell_hypotheses(self._searcher.search(bound, self.config))
        # The whole beam, so that the best is the same for every `n_best`; and other hypotheses of
        # the free search may be better than those of the constrained one
        whole_beam = replace(self.config, n_best=self.config.beam_size)
        constrained = self._spell_hypotheses(self._searcher.search(bound, whole_beam))
        free = self._search_freely(sentences, whole_beam)
        return [
            _least_broken(
                sentence, {spelled[0].token_ids: spelled for spelled in chain(*pair)}.values()
            )
            for sentence, *pair in zip(sentences, constrained, free, strict=True)
        ]

    def _with_required(
        self, line: PreparedLine, lists: Sequence[Sequence[SpelledHypothesis]]
    ) -> list[Sentence]:
        """Assigns the required phrases of a line to its sentences.

        A phrase goes to the first sentence whose translation contains it; else to those that
        contain its source in the glossary, or the first that contains the phrase itself, such as a
        name or a number; else to where it costs least.
        """
        best = [hypotheses[0] for hypotheses in lists]
        joined = self._join_parts(best, [1.0] * len(best), line.cut.blanks).text
        required: list[tuple[str, ...]] = [()] * len(best)

        def constrain_sentence(number: int, *more: str) -> Sentence:
            phrases = (*required[number], *more)
            own = self._constraints(line.demands, phrases, is_first=number == 0)
            return replace(line.sentences[number], constraints=own)

        spellings = self._spellings(line.demands.required)
        for phrase in line.demands.required:
            places = [number for number, (_, text) in enumerate(best) if holds(text, phrase)][:1]
            if not places and not holds(joined, phrase) and phrase in spellings:
                places = callers(line.demands, phrase, line.cut.texts)
                places = places or [
                    self._cheapest(best, [constrain_sentence(n, phrase) for n in range(len(best))])
                ]
            for number in places:
                required[number] += (phrase,)
        return [constrain_sentence(number) for number in range(len(best))]

    def _cheapest(self, best: Sequence[SpelledHypothesis], bound: Sequence[Sentence]) -> int:
        """Finds the part where satisfying the constraints costs the line least."""
        scores = []
        for number, hypotheses in enumerate(self._search_bound(bound)):
            parts = [
                hypothesis
                for hypothesis, _ in (*best[:number], *hypotheses[:1], *best[number + 1 :])
            ]
            total = sum(hypothesis.log_probability for hypothesis in parts)
            score = total / length_divisor(
                sum(hypothesis.n_tokens for hypothesis in parts), self.config
            )
            n_broken = _n_broken(bound[number], hypotheses[0]) if hypotheses else math.inf
            scores.append((-n_broken, score, -number))
        return -max(scores)[2]

    def _draw_again(
        self, sentences: Sequence[Sentence], free: Sequence[list[SpelledHypothesis]]
    ) -> list[list[SpelledHypothesis]]:
        """Replaces samples that break constraints by others, which are drawn until none do.

        So they are samples of the model's distribution without the translations that do.
        """
        samples = list(free)
        broken = list(range(len(samples)))
        # Limited: a model may write hardly anything else
        for attempt in range(1, MOST_TRIES + 1):
            drawn = [
                replace(sentences[index], key=line_key(sentences[index].key, attempt, 0))
                for index in broken
            ]
            for index, new in zip(broken, self._search_freely(drawn), strict=True):
                broken_by = partial(_n_broken, sentences[index])
                samples[index] = list(map(partial(min, key=broken_by), samples[index], new))
            broken = [
                i for i in broken if any(_n_broken(sentences[i], spelled) for spelled in samples[i])
            ]
            if not broken:
                return samples
        bound = self._search_bound([sentences[index] for index in broken])
        for index, others in zip(broken, bound, strict=True):
            broken_by = partial(_n_broken, sentences[index])
            # The search may have found fewer than were broken
            spare = chain(others, repeat(others[-1])) if others else repeat(samples[index][0])
            least = broken_by(others[0]) if others else math.inf
            samples[index] = [
                next(spare) if broken_by(spelled) > least else spelled for spelled in samples[index]
            ]
        return samples

    def _with_shortlist(self, sentence: Sentence, more: Iterable[int] = ()) -> Sentence:
        """Adds the tokens allowed in a translation: the shortlist's and required ones."""
        if self._shortlist is None:
            return sentence
        # Otherwise tokens outside the shortlist could never be generated
        written = (*sentence.prefix, *more)
        return replace(sentence, candidates=self._shortlist.candidates(sentence.tokens, written))

    def score(
        self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
    ) -> list[Hypothesis]:
        """Scores translations that are given, in token ids, as the search scores its own.

        A translator that listens says what its heads attended to.
        """
        return self._searcher.score(sources, targets, self.config, self._heads)

    def record(self, source: Sequence[int], target: Sequence[int]) -> NDArray[np.float32] | None:
        """Records what the attentions of a pair read and give; see `Searcher.record`."""
        return self._searcher.record(source, target)

    @property
    def usual_buffer(self) -> int:
        """Lines that are best translated together where the last engine computes."""
        device = str(getattr(self._engines[-1], "device", "cpu"))
        return GPU_BUFFER_LINES if device.startswith("cuda") else BUFFER_LINES

    def stream(
        self,
        lines: Iterable[str | tuple[str, LineConstraints]],
        buffer_lines: int | None = None,
    ) -> Iterator[Translation]:
        """Translates lines as they come, yielding a buffer's as soon as it is done."""
        check_lines(lines)
        return chain.from_iterable(self.buffers(lines, buffer_lines))

    def buffers(
        self,
        lines: Iterable[str | tuple[str, LineConstraints]],
        buffer_lines: int | None = None,
        *,
        first_index: int = 0,
        max_wait: float | None = None,
    ) -> Iterator[list[Translation]]:
        """Translates lines as they come, a buffer at a time; see `stream`."""
        size = self.usual_buffer if buffer_lines is None else buffer_lines
        for buffer in buffers(lines, size, max_wait):
            pairs = [
                line if isinstance(line, tuple) else (checked_line(line, number), NO_CONSTRAINTS)
                for number, line in enumerate(buffer, first_index)
            ]
            texts, demands = zip(*pairs, strict=True)
            yield self.translate(texts, first_index, demands)
            first_index += len(buffer)

    def _cut_lines(
        self, lines: Sequence[str], first_index: int, prefixes: Sequence[str]
    ) -> list[_Cut]:
        """Tokenizes lines, perhaps sentence by sentence, and cuts those that are too long."""
        longest = longest_source(self._model.max_positions)
        sentences = list(map(self._sentences, lines, prefixes))
        source = self._tokenizer.source
        sides = [source.for_parts_of(line) for line in lines]
        texts = [[text for text, _ in line] for line in sentences]
        if all(side is source for side in sides):  # all at once is faster
            encoded = iter(source.encode_batch(list(chain.from_iterable(texts))))
        else:
            by_line = (side.encode_batch(line) for side, line in zip(sides, texts, strict=True))
            encoded = chain.from_iterable(by_line)
        prepared = []
        for index, (side, line) in enumerate(zip(sides, sentences, strict=True), first_index):
            fitted = [
                (self._cut_to_length(text, next(encoded), longest, index, side), blank)
                for text, blank in line
            ]
            prepared.append(fitted[0][0] if len(fitted) == 1 else _merge_parts(fitted))
        return prepared

    def _sentences(self, line: str, prefix: str = "") -> list[tuple[str, str]]:
        """The sentences of a line, each with the white space after it; none for a blank line.

        A line stays whole if the prefix of its translation has several sentences, since the
        sentences that they translate are unknown.
        """
        if is_blank(line):
            return []
        split = [] if self._split_sentences is None else self._split_sentences(line)
        sentences = [
            (text := part.rstrip(), part[len(text) :]) for part in split if not is_blank(part)
        ]
        is_whole = len(sentences) < 2 or (
            prefix and self._split_sentences and len(self._split_sentences(prefix)) > 1
        )
        return [(line, "")] if is_whole else sentences

    def _cut_to_length(
        self, line: str, ids: Sequence[int], longest: int, index: int, side: TokenizerSide
    ) -> _Cut:
        """Cuts a line, or a sentence of it, if it has more than `longest` tokens."""
        if len(ids) <= longest:
            return _Cut((tuple(ids),) if ids else (), texts=(line,) if ids else ())
        if self._too_long == "error":
            raise DataError.of(
                "line {}: has {} tokens, but the model takes {}; "
                "shorten it, or choose {too_long} split or truncate",
                index + 1,
                len(ids),
                longest,
            )
        if self._too_long == "truncate":
            # What ends every source ends it here, too
            cut = (*ids[: longest - len(side.end)], *side.end)
            return _Cut((cut,), is_truncated=True, texts=(line,))
        from tformer_cli.search.sentences import split_line  # most lines are short enough

        texts = split_line(
            line,
            min(-(-longest // 2), LONGEST_PART),
            lambda parts: [len(ids) for ids in side.encode_batch(parts)],
        )
        encoded = zip(texts, side.encode_batch(texts), strict=True)
        # A single character may have more tokens than the model takes
        kept = [(text, tuple(ids[:longest])) for text, ids in encoded if ids]
        return _Cut(
            tuple(ids for _, ids in kept),
            texts=tuple(text for text, _ in kept),
            blanks=(" ",) * (len(kept) - 1),
            is_too_long=True,
        )

    def _constraints(
        self, demands: LineConstraints, required: tuple[str, ...], *, is_first: bool = True
    ) -> Constraints | None:
        """Puts the phrases of a line's part in tokens; None where nothing is asked of it."""
        prefix = demands.target_prefix
        # A space at its end says that its last word is whole
        whole_prefix = prefix.strip() if is_first and prefix != prefix.rstrip() else ""
        if not (required or demands.banned or whole_prefix):
            return None
        spellings = self._spellings(required)
        return Constraints(
            required=tuple(spellings.values()),
            unwritten=tuple(phrase for phrase in required if phrase not in spellings),
            banned=tuple(
                phrase
                for phrase in demands.banned
                # A ban inside a required phrase or a prefix could never be kept
                if not any(holds(other, phrase) for other in (*demands.required, prefix))
            ),
            whole_prefix=whole_prefix,
            token_bytes=self._tokenizer.target.piece_bytes,
        )

    def _spellings(self, phrases: Sequence[str]) -> dict[str, tuple[int, ...]]:
        """Puts phrases in tokens, but those that tokens do not write."""
        side = self._tokenizer.target
        return {
            phrase: tuple(ids)
            for phrase, ids in zip(phrases, side.encode_phrases(list(phrases)), strict=True)
            if min(ids, default=0) > EOS_ID
            and text_of(ids, side.piece_bytes).translate(LINE_ENDS) == phrase
        }

    def _spell_hypotheses(
        self, parts: Sequence[Sequence[Hypothesis]]
    ) -> list[list[SpelledHypothesis]]:
        """Adds texts to hypotheses, all at once: each call wakes the tokenizer's threads."""
        texts = iter(
            self._tokenizer.target.decode_batch(
                [hypothesis.token_ids for part in parts for hypothesis in part]
            )
        )
        return [[(hypothesis, next(texts)) for hypothesis in part] for part in parts]

    def _choose_hypotheses(
        self, spelled: list[list[SpelledHypothesis]]
    ) -> list[list[SpelledHypothesis]]:
        """Chooses `n_best` hypotheses of each part: by their texts, where that is set."""
        return [self._choose_texts(part) for part in spelled]

    def _choose_texts(self, spelled: list[SpelledHypothesis]) -> list[SpelledHypothesis]:
        """Chooses `n_best` of a part's hypotheses by their texts."""
        if self.config.risk != "none":
            utilities = expected_utilities([text for _, text in spelled], self.config.risk)
            pairs = zip(spelled, utilities, strict=True)
            spelled = [
                (replace(hypothesis, utility=utility), text)
                for (hypothesis, text), utility in pairs
            ]
            spelled.sort(key=lambda pair: -(pair[0].utility or 0.0))
        if self.config.distinct_texts:
            # the first of each text: later entries overwrite, so the best ones come last
            spelled = list({pair[1]: pair for pair in reversed(spelled)}.values())[::-1]
        return spelled[: self.config.n_best]

    def finish(
        self, line: PreparedLine, parts: Sequence[Sequence[SpelledHypothesis]]
    ) -> Translation:
        """Turns the hypotheses of a line's sentences into its translations."""
        texts = self._combine_parts(parts, line.cut.blanks) or (_BLANK,)
        source_ids = tuple(chain.from_iterable(line.cut.parts))
        demands = line.demands
        is_read_plain = self._tokenizer.normalization != "none"
        source = plain(line.source) if is_read_plain else line.source
        broken = [
            unsatisfied_phrases(text.text, demands.required, demands.banned) for text in texts
        ]
        return Translation(
            line.index,
            line.source,
            # A phrase may stand across two sentences of the best, and of no other
            tuple(
                text
                for text, phrases in zip(texts, broken, strict=True)
                if len(phrases) <= len(broken[0])
            ),
            source_ids,
            len(parts),
            line.cut.is_truncated,
            line.cut.is_too_long,
            line.cut.texts if len(parts) > 1 else (),
            (*_missing_prefix(texts[0].text, demands.target_prefix), *broken[0]),
            line.cut.n_sentences,
            _unseen(source, self._seen_words) if line.sentences and self._seen_words else (),
            untrained_characters(line.cut.texts, self._tokenizer.source),
            tuple(map(len, line.cut.parts)) if len(parts) > 1 else (),
        )

    def _combine_parts(
        self, parts: Sequence[Sequence[SpelledHypothesis]], blanks: Sequence[str]
    ) -> tuple[TranslatedText, ...]:
        """Joins the hypotheses of a line's parts: the `n_best` best of all combinations."""
        if len(parts) < 2:
            return tuple(self._join_parts([spelled], (), ()) for part in parts for spelled in part)
        shares = self._shares([part[0][0].n_tokens for part in parts])
        chosen: Iterable[Sequence[SpelledHypothesis]]
        if self.config.sampling and self.config.risk == "none":
            # A sample of a line is one of each of its parts; of some parts fewer may be wanted
            n_samples = max(map(len, parts))
            chosen = zip(*(islice(cycle(part), n_samples) for part in parts), strict=True)
            if self.config.distinct_texts:
                chosen = chain(chosen, product(*parts))
        else:
            values = [
                [h.utility if h.utility is not None else share * h.score for h, _ in part]
                for share, part in zip(shares, parts, strict=True)
            ]
            chosen = (
                [part[place] for part, place in zip(parts, places, strict=True)]
                for places in best_sums(values)
            )
        translations: dict[object, TranslatedText] = {}
        for choice in islice(chosen, MOST_TRIES * self.config.n_best):
            joined = self._join_parts(choice, shares, blanks)
            # Parts that differ may be the same text together
            translations.setdefault(
                joined.text if self.config.distinct_texts else len(translations), joined
            )
            if len(translations) == self.config.n_best:
                break
        return tuple(translations.values())

    def _shares(self, lengths: Sequence[int]) -> list[float]:
        """The weights of the parts' scores in the score of their line.

        They follow from the best hypothesis of each part, whose tokens `lengths` counts: the line's
        score is log p / lp(T) over all its tokens. With the same weights for the others, a line's
        hypotheses keep the order of its parts', and the best is the same for every n-best.
        """
        whole = length_divisor(sum(lengths), self.config)
        return [length_divisor(length, self.config) / whole for length in lengths]

    def _join_parts(
        self, spelled: Sequence[SpelledHypothesis], shares: Sequence[float], blanks: Sequence[str]
    ) -> TranslatedText:
        """Joins the hypotheses of a line's parts with the white space after them, usually a space.

        Where the source has none between sentences, as in Chinese, the translation gets a space.
        """
        if len(spelled) == 1:  # nearly always, and nothing needs to be joined
            ((part, text),) = spelled
            return TranslatedText(
                text.translate(LINE_ENDS),
                part.log_probability,
                part.score,
                part.token_ids,
                part.is_finished,
                (len(part.token_ids),),
                part.token_log_probabilities,
                () if part.attention is None else (part.attention,),
            )
        parts, texts = zip(*spelled, strict=True)
        pairs = zip_longest(texts, (blank or " " for blank in blanks), fillvalue="")
        attention = tuple(part.attention for part in parts if part.attention is not None)
        return TranslatedText(
            "".join(chain.from_iterable(pairs)).translate(LINE_ENDS),
            sum(part.log_probability for part in parts),
            sum(share * part.score for share, part in zip(shares, parts, strict=True)),
            tuple(chain.from_iterable(part.token_ids for part in parts)),
            all(part.is_finished for part in parts),
            tuple(len(part.token_ids) for part in parts),
            tuple(chain.from_iterable(part.token_log_probabilities for part in parts)),
            attention if len(attention) == len(parts) else (),
        )


def _missing_prefix(text: str, prefix: str) -> list[str]:
    """Names a prefix that a text does not begin with, apart from its spaces."""
    if is_blank(prefix):
        return []
    is_there = " ".join(text.split()).startswith(" ".join(prefix.split()))
    return [] if is_there else [prefix]


def _with_shared_phrases(line: PreparedLine) -> PreparedLine:
    """Distributes the required phrases of a line among its sentences."""
    if len(line.sentences) < 2 or not line.demands.required:
        return line
    parts = [
        PartOfLine(**vars(sentence), line=line, number=number)
        for number, sentence in enumerate(line.sentences)
    ]
    return replace(line, sentences=tuple(parts))


def _n_broken(sentence: Sentence, spelled: SpelledHypothesis) -> int:
    """Returns how many constraints on the translation of a sentence a text breaks."""
    constraints = sentence.constraints
    return 0 if constraints is None else constraints.n_broken(spelled[1].translate(LINE_ENDS))


def _least_broken(
    sentence: Sentence, hypotheses: Iterable[SpelledHypothesis]
) -> list[SpelledHypothesis]:
    """Keeps the hypotheses that violate the fewest constraints, the best first."""
    pairs = [(_n_broken(sentence, spelled), spelled) for spelled in hypotheses]
    least = min(n_broken for n_broken, _ in pairs)
    return sorted(
        (spelled for n_broken, spelled in pairs if n_broken == least),
        key=lambda spelled: -spelled[0].score,
    )


def _put_free_first(
    sentence: Sentence,
    free: Sequence[SpelledHypothesis],
    constrained: list[SpelledHypothesis],
    config: DecodingConfig,
) -> list[SpelledHypothesis]:
    """Puts the best hypothesis of the free search first, unless others break fewer constraints."""
    best, text = free[0]
    is_worse = _n_broken(sentence, free[0]) > _n_broken(sentence, constrained[0])
    if is_worse or constrained[0][0] is best:
        return constrained
    behind = [
        (other, its_text)
        for other, its_text in constrained
        if other.token_ids != best.token_ids
        and not (config.distinct_texts and its_text == text)
        # No result of the other search may outrank it
        and (config.risk != "none" or other.score <= best.score)
    ]
    return [(best, text), *behind][: config.n_best]


def _merge_parts(prepared: Sequence[tuple[_Cut, str]]) -> _Cut:
    """Joins sentences and the white space after each into a line."""
    cuts = [(cut, blank) for cut, blank in prepared if cut.parts]
    blanks = chain.from_iterable((*cut.blanks, blank) for cut, blank in cuts)
    return _Cut(
        tuple(chain.from_iterable(cut.parts for cut, _ in cuts)),
        is_truncated=any(cut.is_truncated for cut, _ in cuts),
        texts=tuple(chain.from_iterable(cut.texts for cut, _ in cuts)),
        blanks=tuple(blanks)[:-1],
        is_too_long=any(cut.is_too_long for cut, _ in cuts),
        n_sentences=max(1, len(cuts)),
    )


def _unseen(source: str, seen_words: Container[str]) -> tuple[str, ...]:
    # Tables of languages, which only models that know their training's words need
    from tformer_cli.text.languages import mostly_unseen

    return mostly_unseen(source, seen_words)


def line_key(seed: int, line: int, part: int) -> int:
    """Returns the seed of the samples for a part of a line."""
    from hashlib import blake2b  # for samples: loads a library that a cold line does without

    # Not `hash`, which differs from process to process
    digest = blake2b(f"{seed} {line} {part}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def best_sums(values: Sequence[Sequence[float]]) -> Iterator[tuple[int, ...]]:
    """Yields places of one number in each of several falling lists, the largest sum first.

    As in "Better k-best Parsing" (Huang & Chiang 2005, algorithm 2), only what follows the sums
    that were yielded is looked at. Each follows one: that with one place less in the last list
    that is not at its beginning.
    """

    def entry(places: tuple[int, ...], last: int) -> tuple[float, tuple[int, ...], int]:
        total = sum(row[place] for row, place in zip(values, places, strict=True))
        return -total, places, last

    heap = [entry((0,) * len(values), 0)]
    while heap:
        _, places, last = heappop(heap)
        yield places
        for number in range(last, len(values)):
            if (place := places[number] + 1) < len(values[number]):
                following = (*places[:number], place, *places[number + 1 :])
                heappush(heap, entry(following, number))


def expected_utilities(texts: Sequence[str], utility: Literal["chrf", "bleu"]) -> list[float]:
    """Computes how much all other candidates agree with each: minimum-Bayes-risk decoding.

    Each is compared with every other as if that were the reference; the one with the highest mean
    score is the best (Kumar & Byrne 2004; with samples, Eikema & Aziz 2020). Scores are sacreBLEU's
    for sentences.
    """
    from tformer_cli.metrics.scores import sentence_score

    score = sentence_score(utility)
    # Equal candidates are compared once; with each other they agree by 100
    counts = Counter(texts)
    worth = {
        text: sum(score(text, other) * n for other, n in counts.items() if other != text)
        + 100.0 * (counts[text] - 1)
        for text in counts
    }
    return [worth[text] / max(1, len(texts) - 1) for text in texts]
