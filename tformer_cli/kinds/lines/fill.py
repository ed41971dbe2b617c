"""Filling gaps in texts with a masked language model."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, cast

from tformer_cli.errors import ArtifactError
from tformer_cli.foreign.foreign_model import UNUSED
from tformer_cli.kinds.kind import FilledGap
from tformer_cli.kinds.lines.job import LineResult, fitting
from tformer_cli.search.formats import TSV_ENDS
from tformer_cli.search.hypothesis import Several
from tformer_cli.show.notebook import html_table
from tformer_cli.text.tokenizer import EOS_ID
from tformer_cli.wording import is_blank

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from tformer_cli.kinds.lines.job import TooLong
    from tformer_cli.kinds.stored_model import Opened
    from tformer_cli.search.pooled import Candidates, TokenHead
    from tformer_cli.text.tokenizer import TokenizerSide

FillFormat = Literal["text", "tsv", "jsonl"]
MASKS = ("[MASK]", "<mask>")
"""Names of gaps that every model takes, in addition to its own."""
TOP = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A token that may fill a gap."""

    token: str
    """Its text, without the space before it; pieces inside a word keep their mark."""
    piece: str
    """Its label in the vocabulary."""
    probability: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FilledText(LineResult, Several[tuple[Candidate, ...]]):
    """A text and what may fill its gaps."""

    filled: str
    """With each gap filled by its first candidate."""
    gaps: tuple[tuple[Candidate, ...], ...]
    """The candidates of each gap; none for a gap beyond the model's longest input."""

    @property
    def is_unchanged(self) -> bool:
        return not (self.gaps or is_blank(self.text))

    @property
    def _held(self) -> tuple[tuple[Candidate, ...], ...]:
        return self.gaps

    def __str__(self) -> str:
        return self.line("text")

    def _repr_html_(self) -> str:
        rows = [
            (number, candidate.token, candidate.probability)
            for number, gap in enumerate(self.gaps, 1)
            for candidate in gap
        ]
        return html_table(self.text, ("gap", "token", "probability"), rows)

    def line(self, output_format: FillFormat) -> str:
        """Writes it as a line, without its end."""
        if output_format == "text":
            return self.filled.translate(TSV_ENDS) if "\n" in self.filled else self.filled
        if output_format == "tsv":
            cells = [str(self.index), self.text.translate(TSV_ENDS)]
            for candidate in (candidate for gap in self.gaps for candidate in gap):
                cells += [candidate.token.translate(TSV_ENDS), f"{candidate.probability:.6f}"]
            return "\t".join(cells)
        gaps = [
            [
                {
                    "token": candidate.token,
                    "piece": candidate.piece,
                    "probability": candidate.probability,
                }
                for candidate in gap
            ]
            for gap in self.gaps
        ]
        return self.object_line({"filled": self.filled, "gaps": gaps})


def gap_names(side: TokenizerSide) -> list[str]:
    """Lists the names of gaps in texts, the model's own first."""
    return list(dict.fromkeys((side.mask, *MASKS)))


def unused_tokens(side: TokenizerSide) -> list[int]:
    """Lists tokens that never fill a gap: they have a probability, but no text."""
    unused = (n for n in range(side.vocab_size) if side.pieces([n])[0].startswith(UNUSED))
    return [*range(EOS_ID + 1), *(() if side.mask_id is None else (side.mask_id,)), *unused]


class GapFiller:
    """Fills gaps with an opened model."""

    def __init__(self, opened: Opened) -> None:
        self._opened = opened
        self._side = side = opened.directory.tokenizer.source
        mask = side.mask_id
        if mask is None:
            raise ArtifactError(
                f"{opened.directory.path}: its tokenizer has no token for gaps; name another model"
            )
        self.mask_id = mask
        """Id of the gap token."""
        self._gap = re.compile("|".join(map(re.escape, gap_names(side))))
        self._pieces = side.pieces(range(side.vocab_size))
        self._never = unused_tokens(side)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Encodes texts as ids, with a mask for each gap."""
        return [self._side.encode_gaps(self._gap.split(text)) for text in texts]

    def fill(
        self,
        texts: Sequence[str],
        top: int = TOP,
        too_long: TooLong = "truncate",
        first_index: int = 0,
    ) -> list[FilledText]:
        """Fills the gaps of texts, each as if the others of its text stayed open."""
        parts = [self._gap.split(text) for text in texts]
        # Others need no pass
        there = [number for number, part in enumerate(parts) if len(part) > 1]
        ids = [self._side.encode_gaps(part) if len(part) > 1 else [] for part in parts]
        read = fitting(self._opened.directory, ids, too_long, first_index)
        rows = self._candidates([read[number] for number in there], top or len(self._pieces))
        by_number = dict(zip(there, rows, strict=True))
        results = []
        for number, text in enumerate(texts):
            candidates = by_number.get(number, [])
            n_gaps = len(parts[number]) - 1
            # Gaps beyond the model's longest input have no candidates
            gaps = [*candidates, *[[]] * (n_gaps - len(candidates))]
            results.append(
                FilledText(
                    index=first_index + number,
                    text=text,
                    filled=self._fill_gaps(text, [gap[0][0] if gap else None for gap in gaps]),
                    gaps=tuple(tuple(self._candidate(*pair) for pair in gap) for gap in gaps),
                    is_truncated=len(read[number]) < len(ids[number]),
                )
            )
        return results

    def predict_places(self, text: str, ids: Sequence[int]) -> tuple[str, tuple[FilledGap, ...]]:
        """Fills the gaps of a text, for its inspection; see `PlacePredictor`."""
        (result,) = self.fill([text], top=1)
        places = [place for place, token in enumerate(ids) if token == self.mask_id]
        gaps = tuple(
            FilledGap(
                position=place,
                piece=best.piece,
                id=self._side.id_of(best.piece) or 0,
                probability=best.probability,
            )
            for place, (best, *_) in zip(places, result.gaps, strict=True)
        )
        return result.filled, gaps

    def _candidates(self, texts: Sequence[Sequence[int]], top: int) -> list[list[Candidates]]:
        """Finds candidates for the gaps of each text, by the kernels if they can."""
        compiled = self._opened.compiled
        if compiled is None:
            from tformer_cli.search.encoding import gap_candidates

            model, precision = self._opened.directory.masked_model, self._opened.products
            return gap_candidates(model, texts, self.mask_id, top, self._never, precision=precision)
        head = cast("TokenHead", self._opened.head)

        def fill(number: int, hidden: NDArray[np.float32]) -> list[Candidates]:
            gaps = (place for place, token in enumerate(texts[number]) if token == self.mask_id)
            return [head.candidates(hidden[place], top, self._never) for place in gaps]

        return compiled.each(texts, fill)

    def _candidate(self, number: int, probability: float) -> Candidate:
        piece = self._pieces[number]
        text = self._side.piece_bytes[number].decode(errors="replace")
        is_inside = self._is_wordpiece and not text.startswith(" ")
        token = piece if is_inside else text.removeprefix(" ") or piece
        return Candidate(token=token, piece=piece, probability=probability)

    @property
    def _is_wordpiece(self) -> bool:
        return self._opened.directory.tokenizer.algorithm == "wordpiece"

    def _fill_gaps(self, text: str, best: Sequence[int | None]) -> str:
        """Puts tokens in the place of gaps; None leaves a gap as it is."""
        filled, last = "", 0
        for match, number in zip(self._gap.finditer(text), best, strict=True):
            filled, last = filled + text[last : match.start()], match.end()
            if number is None:
                filled += match[0]
                continue
            piece = self._side.piece_bytes[number].decode(errors="replace")
            word = piece.removeprefix(" ")
            if word == piece:  # it continues the word before, so no space may stay between
                filled = filled.rstrip() + word
            elif self._is_wordpiece or not filled or filled[-1].isspace():
                filled += word
            else:
                filled += piece
        return filled + text[last:]
