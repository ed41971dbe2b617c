"""Lines in, translations out: tokenizing, batching, search, and back to text in order."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING, Literal

import torch

from tformer_cli.decoding.beam_search import beam_search
from tformer_cli.decoding.greedy import greedy_search
from tformer_cli.decoding.length_penalty import length_penalty
from tformer_cli.decoding.limits import longest_source
from tformer_cli.decoding.source_batches import LARGEST_LOGITS, plan_source_batches, source_batch
from tformer_cli.decoding.splitting import split_line
from tformer_cli.errors import DataError
from tformer_cli.model.runtime import Precision, autocast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from tformer_cli.data.tokenizer import Tokenizer
    from tformer_cli.decoding.config import DecodingConfig
    from tformer_cli.decoding.hypothesis import Hypothesis
    from tformer_cli.model.transformer import Transformer

TooLong = Literal["split", "truncate", "error"]
BUFFER_LINES = 1024
"""Lines that are sorted by length and translated together."""
LONGEST_PART = 128
"""Most tokens of a part of a line that has to be split, or half of what the model takes, whichever
is less: a translation needs room to be longer than its source."""
LINE_ENDS = str.maketrans("\n\r", "  ")


@dataclass(frozen=True, slots=True)
class TranslatedText:
    """One hypothesis as text."""

    text: str
    """The translation; it holds no line end."""
    log_probability: float
    """Σ log p of its tokens and ends of sentence (summed over the parts of a split line)."""
    score: float
    """`log_probability` after the length penalty."""
    token_ids: tuple[int, ...]
    """Its tokens without special tokens."""
    is_finished: bool
    """False where the length limit ended it."""
    part_lengths: tuple[int, ...] = ()
    """How many of the tokens each part of a split line has; one number for a whole line."""


@dataclass(frozen=True, slots=True)
class Translation:
    """A line with its translations."""

    index: int
    """Which line, counted from 0."""
    source: str
    """The line."""
    hypotheses: tuple[TranslatedText, ...]
    """The translations, best first; at least one."""
    source_ids: tuple[int, ...]
    """Tokens of the line as the model read them, without special tokens."""
    n_parts: int
    """Parts it was translated in: 0 for a blank line, over 1 where it was split."""
    is_truncated: bool
    """Whether its end was left out because it was too long."""
    parts: tuple[str, ...] = ()
    """Text of the parts it was translated in; empty where it is whole."""

    @property
    def text(self) -> str:
        """The best translation."""
        return self.hypotheses[0].text


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A line in tokens, in as many parts as it is translated in."""

    parts: tuple[tuple[int, ...], ...]
    is_truncated: bool = False
    texts: tuple[str, ...] = ()


_BLANK = TranslatedText("", 0.0, 0.0, (), is_finished=True)


class Translator:
    """Translates lines with one model; in float32 each line by itself, whatever is beside it."""

    def __init__(
        self,
        model: Transformer,
        tokenizer: Tokenizer,
        config: DecodingConfig,
        *,
        device: torch.device | str,
        too_long: TooLong = "split",
        precision: Precision = "float32",
        before_batch: Callable[[], None] | None = None,
    ) -> None:
        """Connects a model with its tokenizer.

        Args:
            model: in evaluation mode, on `device`.
            tokenizer: the one the model was trained with.
            config: how to search.
            device: where to compute.
            too_long: what to do with a line the model cannot take whole: translate it in parts,
                leave out its end, or raise.
            precision: "bfloat16" computes the products in it.
            before_batch: called before each batch; what it raises ends the translation.
        """
        self.config = config
        self._model = model
        self._tokenizer = tokenizer
        self._device = torch.device(device)
        self._too_long = too_long
        self._precision = precision
        self._before_batch = before_batch

    def translate(self, lines: Sequence[str], first_index: int = 0) -> list[Translation]:
        """Translates lines.

        Args:
            lines: the lines; blank ones have blank translations.
            first_index: number of the first line.

        Returns:
            One translation a line, in order.

        Raises:
            DataError: if a line is too long and `too_long` is "error".
        """
        prepared = self._prepare(lines, first_index)
        parts = [part for line in prepared for part in line.parts]
        found = iter(self._search(parts))
        return [
            self._translation(first_index + i, lines[i], line, list(islice(found, len(line.parts))))
            for i, line in enumerate(prepared)
        ]

    def stream(
        self, lines: Iterable[str], buffer_lines: int = BUFFER_LINES
    ) -> Iterator[Translation]:
        """Translates lines as they come, yielding a buffer's as soon as it is done.

        Args:
            lines: the lines; `buffer_lines` of them are held at a time.
            buffer_lines: lines that are batched together; 1 answers line by line.
        """
        return chain.from_iterable(self.buffers(lines, buffer_lines))

    def buffers(
        self, lines: Iterable[str], buffer_lines: int = BUFFER_LINES
    ) -> Iterator[list[Translation]]:
        """Translates lines as they come, a buffer at a time; see `stream`."""
        lines = iter(lines)
        first_index = 0
        while buffer := list(islice(lines, buffer_lines)):
            yield self.translate(buffer, first_index)
            first_index += len(buffer)

    def _prepare(self, lines: Sequence[str], first_index: int) -> list[_Prepared]:
        """Tokenizes lines and cuts those that are too long."""
        texts = ["" if not line.strip() else line for line in lines]
        longest = longest_source(self._model.config.max_positions)
        prepared = []
        for offset, ids in enumerate(self._tokenizer.encode_batch(texts)):
            if not ids:
                prepared.append(_Prepared(()))
            elif len(ids) <= longest:
                prepared.append(_Prepared((tuple(ids),)))
            else:
                prepared.append(self._fitted(lines[offset], ids, longest, first_index + offset))
        return prepared

    def _fitted(self, line: str, ids: Sequence[int], longest: int, index: int) -> _Prepared:
        """Treats a line that has more than `longest` tokens."""
        if self._too_long == "error":
            raise DataError(
                f"has {len(ids)} tokens where the model takes {longest} (line {index + 1}): "
                "shorten it, or choose --too-long split or truncate"
            )
        if self._too_long == "truncate":
            return _Prepared((tuple(ids[:longest]),), is_truncated=True)
        texts = split_line(line, min(-(-longest // 2), LONGEST_PART), self._count_tokens)
        encoded = zip(texts, self._tokenizer.encode_batch(texts), strict=True)
        kept = [(text, tuple(ids[:longest])) for text, ids in encoded if ids]
        return _Prepared(tuple(ids for _, ids in kept), texts=tuple(text for text, _ in kept))

    def _count_tokens(self, texts: Sequence[str]) -> list[int]:
        return [len(ids) for ids in self._tokenizer.encode_batch(list(texts))]

    def _search(self, parts: Sequence[Sequence[int]]) -> list[list[Hypothesis]]:
        """Finds the hypotheses of each part, batch by batch."""
        search = greedy_search if self.config.beam_size == 1 else beam_search
        most_sentences = LARGEST_LOGITS // (self.config.beam_size * self._model.vocab_size)
        lengths = [len(part) + 1 for part in parts]
        found: dict[int, list[Hypothesis]] = {}
        for batch in plan_source_batches(lengths, self.config.batch_tokens, most_sentences):
            source, source_mask = source_batch(
                [parts[i] for i in batch], self._model.config.max_positions, self._device
            )
            if self._before_batch is not None:
                self._before_batch()
            with autocast(self._device, self._precision):
                hypotheses = search(self._model, source, source_mask, self.config)
            found.update(zip(batch, hypotheses, strict=True))
        return [found[index] for index in range(len(parts))]

    def _translation(
        self, index: int, line: str, prepared: _Prepared, parts: list[list[Hypothesis]]
    ) -> Translation:
        """Turns the hypotheses of a line's parts into its translations."""
        n_best = min(map(len, parts), default=0)
        texts = tuple(self._joined([part[rank] for part in parts]) for rank in range(n_best))
        source_ids = tuple(token for part in prepared.parts for token in part)
        return Translation(
            index,
            line,
            texts or (_BLANK,),
            source_ids,
            len(parts),
            prepared.is_truncated,
            prepared.texts,
        )

    def _joined(self, parts: Sequence[Hypothesis]) -> TranslatedText:
        """Joins the hypotheses of a line's parts by spaces; usually there is one."""
        texts = self._tokenizer.decode_batch([part.token_ids for part in parts])
        log_probability = sum(part.log_probability for part in parts)
        n_tokens = sum(part.n_tokens for part in parts)
        return TranslatedText(
            " ".join(texts).translate(LINE_ENDS),
            log_probability,
            log_probability / length_penalty(n_tokens, self.config.length_penalty),
            tuple(token for part in parts for token in part.token_ids),
            all(part.is_finished for part in parts),
            tuple(len(part.token_ids) for part in parts),
        )
