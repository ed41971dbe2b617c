"""GPT-2's and RoBERTa's tokenizers: BPE on bytes, of text as it is, behind a pattern of words.

Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", section 2.2. No space is
put before a text, in contrast to tformer's own "bpe", so a text's first word has no space. Those of
encoders (Liu et al. 2019, RoBERTa) begin texts with `<s>`.
"""

from collections.abc import Sequence
from functools import cached_property
from itertools import chain
from typing import Any, ClassVar, Self

from tokenizers import Tokenizer as HuggingFaceTokenizer
from tokenizers import decoders, models, pre_tokenizers

from tformer_cli.data.foreign_pieces import N_SPECIAL, ForeignPieceTokenizer, is_vocabulary
from tformer_cli.data.labels import BYTE_CHARACTERS, bytes_of, label_of
from tformer_cli.data.pipelines import SPECIAL_PIECES
from tformer_cli.data.tokenizer import BOS_ID, FILE_NAME
from tformer_cli.errors import DataError


class BytePieceTokenizer(ForeignPieceTokenizer):
    """The tokenizer of a foreign language model or encoder."""

    kind: ClassVar[str] = "bytes"
    model_kind: ClassVar[str] = "language model"
    merges: tuple[tuple[str, str], ...]
    """Pairs of pieces that are merged, the earlier the better."""

    def __init__(
        self,
        pieces: Sequence[str],
        merges: Sequence[tuple[str, str]],
        where: str = FILE_NAME,
        mask: str = "",
    ) -> None:
        """Makes a tokenizer."""
        merged = chain.from_iterable((*pair, "".join(pair)) for pair in merges)
        if not is_vocabulary(pieces, mask, {*BYTE_CHARACTERS, *merged}):
            raise DataError(
                f"{where}: its vocabulary is damaged or lacks bytes or merged pieces; use this "
                "model's own files"
            )
        self.all_pieces, self.merges = tuple(pieces), tuple(merges)
        places = {piece: place for place, piece in enumerate(pieces)}
        tokenizer = HuggingFaceTokenizer(models.BPE(vocab=places, merges=list(merges)))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        self._tokenizer = tokenizer
        if mask:
            self.mask, self.start = mask, (BOS_ID,)

    @classmethod
    def _parsed(cls, data: dict[str, Any], where: str) -> Self | None:
        pairs = [(left, right) for left, right in data["merges"]]
        mask = data.get("mask", "")
        if not all(type(part) is str for part in (mask, *chain.from_iterable(pairs))):
            return None
        return cls(data["pieces"], pairs, where, mask)

    def _stored(self) -> dict[str, Any]:
        mask = {"mask": self.mask} if self.mask else {}
        return {**mask, "pieces": self.all_pieces, "merges": self.merges}

    def encode_gaps(self, parts: Sequence[str]) -> list[int]:
        """See `TokenizerSide`; a gap takes the spaces before it, as `<mask>` of RoBERTa does."""
        return super().encode_gaps([*(part.rstrip() for part in parts[:-1]), parts[-1]])

    def decode(self, ids: Sequence[int]) -> str:
        texts = self.piece_bytes
        return b"".join([texts[number] for number in ids]).decode(errors="replace")

    @cached_property
    def piece_bytes(self) -> list[bytes]:
        """See `TokenizerSide`; a name that is not of bytes has no text."""
        alphabet = set(BYTE_CHARACTERS)
        found = [b""] * N_SPECIAL
        for piece in self.all_pieces[N_SPECIAL:]:
            found.append(bytes_of(piece) if alphabet.issuperset(piece) else b"")
        return found

    @cached_property
    def _labels(self) -> list[str]:
        rest = zip(self.all_pieces[N_SPECIAL:], self.piece_bytes[N_SPECIAL:], strict=True)
        return [*SPECIAL_PIECES, *(label_of(text) if text else piece for piece, text in rest)]
