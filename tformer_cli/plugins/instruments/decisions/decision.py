"""A decision of a model between two tokens or labels, and how words name one.

d = logit(A) − logit(B) at one position, after a prefix that both continue. d > 0: the model prefers
A. It is the difference of log-probabilities too, as the softmax takes the same sum from both.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from tformer_cli.errors import DataError, Setting, UsageError
from tformer_cli.heads.names import Inspected
from tformer_cli.inspect.record import HeadsRecord
from tformer_cli.plugins.instruments.views.logits import LogitsRecord, PositionLogits
from tformer_cli.text.batching import Batch
from tformer_cli.text.tokenizer import TokenizerSide

Ids = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Decision:
    """A choice between A and B, of one text."""

    batch: Batch  # The text and the prefix: one row
    position: int  # Index among the hidden states (T) of the one that decides
    ids: tuple[int, int]  # Rows of the output matrix of A and of B

    def of(self, model: Inspected, hidden: Tensor) -> Tensor:
        """Computes (R) d of rows of last hidden states (R, T, D), in float64."""
        # Two rows of the output matrix: thousands of others would be computed for nothing
        ids = torch.tensor(self.ids, device=hidden.device)
        bias = None if model.output_bias is None else model.output_bias[ids]
        logits = functional.linear(hidden[:, self.position], model.output_matrix[ids], bias)
        return logits[:, 0].double() - logits[:, 1].double()

    @property
    def source_ids(self) -> list[int]:
        ids: list[int] = self.batch.source[0].tolist()
        return ids

    @property
    def prefix_ids(self) -> list[int]:
        ids: list[int] = self.batch.target_input[0].tolist()
        return ids


def decision_of(
    record: HeadsRecord, position: int, prefix: Sequence[int], ids: tuple[int, int], device: object
) -> Decision:
    """Makes the decision of a captured text; an encoder without decoder has no prefix."""
    maps = record.captured
    # Positions of an image are those of its patches, which are fewer than its ids
    n_positions = maps.enc[0].shape[-1] if maps.enc else len(maps.source_ids)
    source = torch.tensor([maps.source_ids], dtype=torch.long)
    mask = torch.ones(1, n_positions, dtype=torch.bool)
    target = torch.tensor([list(prefix)], dtype=torch.long) if prefix else source
    parts = (tensor.to(str(device)) for tensor in (source, mask, target, target))
    return Decision(batch=Batch(*parts), position=position, ids=ids)


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """A place of a text, and the tokens or labels between which is decided there."""

    number: int  # Among the places of the text
    ids: tuple[int, int]
    shared: Ids = ()  # Pieces that both words begin with; they end the prefix


def places_of(record: LogitsRecord) -> list[int]:
    """Returns the numbers of the positions at which something was decided.

    Of a text that a language model reads that is only the token after it: the others are given.
    """
    n_positions = len(record.positions)
    return [n_positions - 1] if _is_given(record) else list(range(n_positions))


def _is_given(record: LogitsRecord) -> bool:
    """True of a text that is read by a language model, which has decided nothing of it."""
    return not record.sentence.has_both_sides and record.sentence.model.n_encoder_layers == 0


def chosen_at(record: LogitsRecord, number: int) -> int:
    """Returns the id that stands at a place, or after a text the most probable one."""
    position = record.positions[number]
    return position.top[0].id if _is_given(record) else position.chosen.id


def rival_of(position: PositionLogits, chosen: int) -> int:
    """Returns the most probable id other than the one that was chosen."""
    rival = next((candidate.id for candidate in position.top if candidate.id != chosen), None)
    if rival is None:
        raise DataError("MODEL: has only one label, so it decides nothing; name another model")
    return rival


class DecidedAlike(DataError):  # noqa: N818 - of many pairs some are, and are skipped
    """Two texts are decided alike."""


def parting(first: LogitsRecord, second: LogitsRecord) -> Chosen:
    """Finds the place where the outputs for two texts part; they are equal up to there."""
    for number, other in zip(places_of(first), places_of(second), strict=False):
        ids = chosen_at(first, number), chosen_at(second, other)
        if ids[0] != ids[1]:
            return Chosen(number=number, ids=ids)
    raise DecidedAlike.of(
        "SENTENCE, OTHER: the model decides alike for both; name two words with {target} and {foil}"
    )


class Words:
    """Finds places and ids by the words of users: pieces of text, or labels."""

    def __init__(self, record: LogitsRecord, side: TokenizerSide, labels: Sequence[str]) -> None:
        self._record, self._side, self._labels = record, side, labels
        self._sentence = record.sentence
        self._written = self._sentence.captured.target_ids

    def choose_decision(self, target: str | None, foil: str | None) -> Chosen:
        """Finds the decision of one text; the model's own logits choose what is not named."""
        number = min(places_of(self._record), key=self._margin)
        if self._sentence.gives_labels:
            return self._of_labels(number, target, foil)
        if self._sentence.has_both_sides and target is not None:
            return self._of_written(target, foil)
        chosen = chosen_at(self._record, number)
        before = self._written[:number] if self._sentence.has_both_sides else ()
        first = (chosen,) if target is None else self._ids(target, chosen, before)
        second = None if foil is None else self._ids(foil, chosen, before)
        return self._first_difference(number, first, second)

    def _margin(self, number: int) -> float:
        """How much more probable what stands at a place is than anything else."""
        position = self._record.positions[number]
        chosen = chosen_at(self._record, number)
        probable = {candidate.id: candidate.probability for candidate in position.top}
        return probable.get(chosen, 0.0) / max(probable[rival_of(position, chosen)], 1e-30)

    def _of_labels(self, number: int, target: str | None, foil: str | None) -> Chosen:
        names_label = target is not None and self._sentence.is_labeled
        if target is not None and not names_label:
            number = self._word(target)
        chosen = chosen_at(self._record, number)
        if target is not None and names_label:
            chosen = self._label(target, "target")
        second = None if foil is None else (self._label(foil, "foil"),)
        return self._first_difference(number, (chosen,), second)

    def _label(self, name: str, setting: str) -> int:
        if name in self._labels:
            return self._labels.index(name)
        most = 10
        more = f" and {len(self._labels) - most} more" if len(self._labels) > most else ""
        known = ", ".join(self._labels[:most])
        raise UsageError.of(
            '{}: "{}" is not a label; the labels are {}{}', Setting(setting), name, known, more
        )

    def _word(self, name: str) -> int:
        """Finds the place of a word of a text each of whose words has a label."""
        words = self._sentence.source.split()
        if name in words:
            return words.index(name)
        raise UsageError.of('{target}: "{}" is not a word of the text; name one of its words', name)

    def _of_written(self, target: str, foil: str | None) -> Chosen:
        """Finds the place in a translation where one of the words is written."""
        for word, other in ((target, foil), (foil, target)):
            span = None if word is None else self._span(word)
            if span is None:
                continue
            written, before = self._written[slice(*span)], self._written[: span[0]]
            rival = None if other is None else self._ids(other, written[0], before)
            if word == target or rival is None:
                return self._first_difference(span[0], written, rival)
            return self._first_difference(span[0], rival, written)
        raise UsageError.of(
            '{target}: "{}" is not in "{}"; name a word or a piece of it, or a {foil} that is',
            target,
            self._sentence.target,
        )

    def _span(self, word: str) -> tuple[int, int] | None:
        """Finds the first tokens that spell a word, or a part of one, such as il of qu'il."""
        pieces = [self._side.piece_bytes[token] for token in self._written]
        wanted = word.strip().encode("utf-8", "replace")
        for start, first in enumerate(pieces):
            spelled = b""
            for end in range(start, len(pieces)):
                spelled += pieces[end]
                if spelled.strip() == wanted and first.strip():
                    return start, end + 1
        return None

    def _ids(self, word: str, like: int, before: Sequence[int]) -> Ids:
        """Returns the ids of a word where another token stands, as one token if there is one.

        It stands after a space if that token does; in front of everything either may be missing.
        """
        pieces, wanted = self._side.piece_bytes, word.strip().encode("utf-8", "replace")
        leads = (b" ", b"") if pieces[like][:1] == b" " or not before else (b"", b" ")
        for lead in leads:
            if lead + wanted in pieces:
                return (pieces.index(lead + wanted),)
        spelled = b"".join(pieces[token] for token in before) + leads[0] + wanted
        (ids,) = self._side.encode_phrases([spelled.decode("utf-8", "replace").strip()])
        own = [token for token in before if pieces[token]]
        if ids[: len(own)] != own:  # The word would change how the text before it is cut
            (ids,), own = self._side.encode_phrases([word.strip()]), []
        if len(ids) == len(own):
            raise UsageError(f'"{word}": the tokenizer cannot encode it; name another word')
        return tuple(ids[len(own) :])

    def _first_difference(self, number: int, first: Ids, second: Ids | None) -> Chosen:
        """Goes to the first piece at which two words differ."""
        if second is None:
            rival = rival_of(self._record.positions[number], first[0])
            return Chosen(number=number, ids=(first[0], rival))
        if first == second:
            raise UsageError.of(
                "{foil}: the model decides for it; name another word, or make it {target} and "
                "name another foil"
            )
        pairs = enumerate(zip(first, second, strict=False))
        n_shared = next((n for n, (a, b) in pairs if a != b), None)
        if n_shared is None:
            raise UsageError.of(
                "{target}, {foil}: one word begins with all pieces of the other; name two words "
                "that differ before one of them ends"
            )
        if n_shared and self._sentence.has_places:
            raise UsageError.of("{foil}: begins like the other word, but a gap holds one token")
        ids = first[n_shared], second[n_shared]
        return Chosen(number=number, ids=ids, shared=first[:n_shared])


def match_positions(first: Sequence[int], second: Sequence[int]) -> list[tuple[int, int]]:
    """Pairs the positions of two texts: what begins and ends alike, and middles as long.

    A position of a longer middle has no partner.
    """
    shorter = min(len(first), len(second))
    start = 0
    while start < shorter and first[start] == second[start]:
        start += 1
    end = 0
    while end < shorter - start and first[-1 - end] == second[-1 - end]:
        end += 1
    pairs = [(place, place) for place in range(start)]
    if len(first) == len(second):
        pairs += [(place, place) for place in range(start, len(first) - end)]
    tail = zip(range(len(first) - end, len(first)), range(len(second) - end, len(second)))
    return [*pairs, *tail]
