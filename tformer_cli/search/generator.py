"""Prompts in, texts out: what a language model writes after each prompt, in order.

The searches are those of translations; see `search.engine`.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tformer_cli.errors import UsageError
from tformer_cli.search.config import DecodingConfig
from tformer_cli.search.engine import PromptedModel, Searcher, Sentence
from tformer_cli.search.hypothesis import Hypothesis, Several, length_conflict
from tformer_cli.search.translator import line_key
from tformer_cli.text.tokenizer import BOS_ID, UNK_ID
from tformer_cli.wording import is_blank

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tformer_cli.search.engine import SearchedModel, SearchEngine
    from tformer_cli.search.text_windows import TextScorer
    from tformer_cli.text.tokenizer import Tokenizer

DEFAULT_LENGTH = 200
"""Tokens that follow a prompt at most, where nothing else is set."""
ANY_RATIO = 1e9
"""`max_length_ratio` by which a prompt's length does not limit what follows it."""


@dataclass(frozen=True, slots=True)
class GeneratedText:
    """One continuation of a prompt."""

    text: str
    """The text after the prompt."""
    token_ids: tuple[int, ...]
    """Its tokens."""
    log_probability: float
    """Σ log p of its tokens and, if it is finished, of the end of the text."""
    score: float
    """The score that ranks the texts of a prompt in beam search; see `Hypothesis`."""
    is_finished: bool
    """False where the length limit ended it, or a text that stops it."""

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Generation(Several[GeneratedText]):
    """A prompt with its continuations."""

    index: int
    """Number of the prompt, from 0."""
    prompt: str
    """The prompt."""
    texts: tuple[GeneratedText, ...]
    """Its continuations, best first; samples in the order drawn."""
    is_truncated: bool = False
    """True if its beginning was cut off because it was too long."""
    n_unknown: int = 0
    """Tokens of the prompt that the model does not know; it reads `<unk>` in their place."""
    n_tokens: int = 0
    """Tokens of the prompt."""

    @property
    def _held(self) -> tuple[GeneratedText, ...]:
        return self.texts

    @property
    def text(self) -> str:
        """The prompt with its best continuation."""
        return self.prompt + self.texts[0].text

    def __str__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        from tformer_cli.show.notebook import html_table

        rows = [(text.score, text.text) for text in self.texts]
        return html_table(self.prompt, ("score", "continuation"), rows)


class StoppedError(Exception):
    """Ends a search once its text reaches a stop text."""


_BLANK = GeneratedText("", (), 0.0, 0.0, is_finished=True)


class Generator:
    """Continues prompts with one language model; in float32 each independently of the others."""

    def __init__(
        self,
        model: SearchedModel,
        tokenizer: Tokenizer,
        config: DecodingConfig,
        *,
        engines: Sequence[SearchEngine],
        target_bos: bool = True,
        target_eos: bool = True,
        seed: int = 1,
        stops: Sequence[str] = (),
        before_batch: Callable[[], None] | None = None,
    ) -> None:
        """Connects a language model with its tokenizer."""
        self._prompted = PromptedModel(model)
        self._searcher = Searcher(self._prompted, engines, before_batch)
        self._side = tokenizer.target
        self._begin = (BOS_ID,) if target_bos else ()
        self._has_beginning = target_bos or target_eos
        self._seed = seed
        self._choose(config, stops)

    def _choose(self, config: DecodingConfig, stops: Sequence[str]) -> None:
        if not all(stops):
            raise UsageError.of("{stops}: is empty; give the text to stop at")
        self.config = replace(
            config,
            max_length=config.max_length or max(DEFAULT_LENGTH, config.min_length),
            # The length of a prompt says nothing about the length of its continuation
            max_length_ratio=ANY_RATIO,
        )
        if conflict := length_conflict(1, self.config, self._prompted.max_positions):
            raise conflict
        self._stops = tuple(stops)
        self._searcher.check(self.config, Sentence(tokens=()))

    def with_config(
        self, config: DecodingConfig, stops: Sequence[str], seed: int | None = None
    ) -> Generator:
        """Returns a generator with other search settings and stop texts, but the same engines."""
        other = copy(self)
        other._seed = self._seed if seed is None else seed
        other._choose(config, stops)
        return other

    @property
    def writes_straight(self) -> bool:
        """True if a text can be streamed: a beam's text may still change."""
        config = self.config
        return (config.sampling or config.beam_size == 1) and config.n_searched == 1

    def generate(
        self,
        prompts: Sequence[str],
        numbers: Sequence[int] | None = None,
        on_text: Callable[[str], None] | None = None,
    ) -> list[Generation]:
        """Continues prompts; an empty one is the beginning of a text."""
        numbers = range(len(prompts)) if numbers is None else numbers
        encoded = self._side.encode_phrases(prompts)
        if not self._has_beginning and not all(encoded):
            raise UsageError(
                "PROMPT: is empty, but this model has no token to begin a text; give a prompt"
            )
        longest = self._longest_prompt() - len(self._begin)
        kept = [ids[max(0, len(ids) - longest) :] for ids in encoded]
        sentences = [
            Sentence(tokens=self._read(ids), key=line_key(self._seed, number, 0))
            for number, ids in zip(numbers, kept, strict=True)
        ]
        listener = None if on_text is None else _Told(self, kept[0], on_text)
        continuations = [
            tuple(self._text(ids, hypothesis) for hypothesis in hypotheses)
            for ids, hypotheses in zip(
                kept, self._search_sentences(sentences, listener), strict=True
            )
        ]
        if listener is not None:
            listener.finish(continuations[0][0].text)
        return [
            Generation(number, prompt, texts, len(ids) > longest, ids.count(UNK_ID), len(ids))
            for number, prompt, texts, ids in zip(
                numbers, prompts, continuations, encoded, strict=True
            )
        ]

    def continue_lines(self, lines: Sequence[str], first_index: int) -> list[Generation]:
        """Continues lines, the first of which has this number; blank ones stay blank."""
        there = {
            number: line for number, line in enumerate(lines, first_index) if not is_blank(line)
        }
        generations = iter(self.generate(list(there.values()), list(there)))
        return [
            next(generations) if number in there else Generation(number, line, (_BLANK,))
            for number, line in enumerate(lines, first_index)
        ]

    def compiled_scorer(self) -> TextScorer | None:
        """Returns what scores texts in place of torch; None: nothing does."""
        settings = DecodingConfig(batch_tokens=self.config.batch_tokens)
        if self._searcher.choice(settings, Sentence(tokens=())).name != "compiled":
            return None

        def score(
            contexts: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
        ) -> list[list[float]]:
            hypotheses = self._searcher.score(contexts, targets, settings)
            return [list(hypothesis.token_log_probabilities) for hypothesis in hypotheses]

        return score

    def _longest_prompt(self) -> int:
        """Tokens of a prompt that leaves room for the text, or for half of what the model takes."""
        most = self._prompted.max_positions
        return most - max(self.config.min_length, min(self.config.max_length, most // 2))

    def _read(self, ids: Sequence[int]) -> tuple[int, ...]:
        """Returns the tokens to read before the first new one; a text begins with something."""
        return (*self._begin, *ids) or (BOS_ID,)

    def _search_sentences(
        self, sentences: Sequence[Sentence], listener: _Told | None
    ) -> list[list[Hypothesis]]:
        self._prompted.on_token = listener
        try:
            return self._searcher.search(sentences, self.config)
        # Not an error: the listener ends the search where a stop text was written
        except StoppedError:
            ids = () if listener is None else tuple(listener.ids)
            # Their probabilities are unknown
            return [[Hypothesis(ids, math.nan, math.nan, (math.nan,) * len(ids), False)]]
        finally:
            self._prompted.on_token = None

    def _text(self, prompt: Sequence[int], hypothesis: Hypothesis) -> GeneratedText:
        """Converts a hypothesis to a text, cut off at a stop text."""
        ids = hypothesis.token_ids
        is_finished = hypothesis.is_finished
        text = self.after(prompt, ids)
        end = min((at for stop in self._stops if (at := text.find(stop)) >= 0), default=None)
        if end is not None:
            # A text that holds a stop holds it when longer, too, so halving finds the place
            n_tokens = bisect_left(
                range(len(ids)), True, key=lambda n: self.stops_in(self.after(prompt, ids[:n]))
            )
            ids, text, is_finished = ids[:n_tokens], text[:end], False
        steps = hypothesis.token_log_probabilities[: len(ids) + is_finished]
        return GeneratedText(text, ids, math.fsum(steps), hypothesis.score, is_finished)

    @property
    def longest_stop(self) -> int:
        """Characters of the longest text that stops one; 1 if there is none."""
        return max(map(len, self._stops), default=1)

    def stops_in(self, text: str) -> bool:
        """Returns whether a text holds one of those that stop it."""
        return any(stop in text for stop in self._stops)

    def after(self, prompt: Sequence[int], ids: Sequence[int]) -> str:
        """The text of tokens after a prompt; its beginning may depend on the prompt."""
        before, whole = self._side.decode_batch([prompt, [*prompt, *ids]])
        if prompt and not before:  # unknown words, which have no text: the space behind them counts
            before, whole = self._side.decode_batch([ids, [*ids, *ids]])
        return whole[len(before) :] if whole.startswith(before) else self._side.decode(ids)


class _Told:
    """Streams a text while it is written; holds back pieces that may still change."""

    def __init__(
        self, generator: Generator, prompt: Sequence[int], on_text: Callable[[str], None]
    ) -> None:
        self.ids: list[int] = []
        self._generator, self._prompt, self._on_text = generator, prompt, on_text
        self._n_told = 0

    def __call__(self, tokens: Sequence[int]) -> None:
        """Takes the token that was chosen."""
        self.ids += tokens
        text = self._generator.after(self._prompt, self.ids)
        if self._generator.stops_in(text):
            raise StoppedError
        # a character whose last bytes are to come is U+FFFD until then A stop text may have begun
        # in the last characters, so they are held back
        self._tell(text[: len(text) - self._generator.longest_stop + 1].rstrip("\ufffd"))

    def finish(self, text: str) -> None:
        """Streams the rest of the text."""
        self._tell(text)

    def _tell(self, text: str) -> None:
        if len(text) > self._n_told:
            self._on_text(text[self._n_told :])
            self._n_told = len(text)
