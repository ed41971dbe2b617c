"""GPT-2's and RoBERTa's tokenizers: BPE on bytes, of text as it is, behind a pattern of words.

Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", section 2.2. No space is
put before a text, in contrast to tformer's own "bpe", so a text's first word has no space. Those of
encoders (Liu et al. 2019, RoBERTa) begin texts with `<s>`.
"""

import json
from collections.abc import Sequence
from functools import cached_property
from itertools import chain

from tokenizers import Tokenizer as HuggingFaceTokenizer
from tokenizers import decoders, models, pre_tokenizers

from tformer_cli.data.config import MOST_PIECES
from tformer_cli.data.labels import BYTE_CHARACTERS, bytes_of, label_of
from tformer_cli.data.lines import without_surrogates
from tformer_cli.data.pipelines import SPECIAL_PIECES
from tformer_cli.data.tokenizer import (
    BOS_ID,
    FILE_NAME,
    VERSION,
    Span,
    Tokenizer,
    TokenizerSide,
)
from tformer_cli.errors import DataError

_N_SPECIAL = len(SPECIAL_PIECES)


class BytePieceTokenizer(Tokenizer, TokenizerSide):
    """The tokenizer of a foreign language model or encoder, on both sides the same."""

    all_pieces: tuple[str, ...]
    """Pieces by their ids."""
    merges: tuple[tuple[str, str], ...]
    """Pairs of pieces that are merged, the earlier the better."""

    def __init__(
        self,
        pieces: Sequence[str],
        merges: Sequence[tuple[str, str]],
        where: str = FILE_NAME,
        mask: str = "",
    ) -> None:
        """Makes a tokenizer.

        Args:
            pieces: by their ids; the first are `<pad> <unk> <s> </s>`, the others in GPT-2's
                alphabet of bytes, or names that no text has.
            merges: pairs of pieces, the earlier the better.
            where: what messages call the file.
            mask: the piece that stands for a gap, of an encoder, whose texts begin with `<s>`;
                empty: of a language model.

        Raises:
            DataError: if they are damaged.
        """
        places = {piece: place for place, piece in enumerate(pieces)}
        known = set(chain.from_iterable((*pair, "".join(pair)) for pair in merges))
        if (
            len(places) != len(pieces)
            or len(pieces) > MOST_PIECES
            or tuple(pieces[:_N_SPECIAL]) != SPECIAL_PIECES
            or (mask and mask not in places)
            or not {*BYTE_CHARACTERS, *known} <= places.keys()
        ):
            raise DataError(
                f"{where}: its vocabulary is damaged or lacks bytes or merged pieces; use this "
                "model's own files"
            )
        self.all_pieces, self.merges = tuple(pieces), tuple(merges)
        tokenizer = HuggingFaceTokenizer(models.BPE(vocab=places, merges=list(merges)))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        self._tokenizer = tokenizer
        if mask:
            self.mask, self.start = mask, (BOS_ID,)

    @classmethod
    def parse(cls, text: str, where: str = FILE_NAME) -> "BytePieceTokenizer":
        """Reads the text of a `tokenizer.json`; `where` names it in messages.

        Raises:
            DataError: if it is damaged.
        """
        try:
            data = json.loads(text)
            pieces, merges = data["pieces"], data["merges"]
            is_sound = data["tformer_tokenizer"] == VERSION
            is_sound = is_sound and all(type(piece) is str for piece in pieces)
            pairs = [(left, right) for left, right in merges]
            is_sound = is_sound and all(type(part) is str for pair in pairs for part in pair)
            mask = data.get("mask", "")
            is_sound = is_sound and type(mask) is str
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            is_sound, pieces, pairs, mask = False, [], [], ""
        if not is_sound:
            raise DataError(f"{where}: is damaged; restore the file")
        return cls(pieces, pairs, where, mask)

    def to_json(self) -> str:
        """The text of a `tokenizer.json`; its beginning says what it is."""
        data = {
            "tformer_tokenizer": VERSION,
            "kind": "bytes",
            **({"mask": self.mask} if self.mask else {}),
            "pieces": self.all_pieces,
            "merges": self.merges,
        }
        return json.dumps(data, ensure_ascii=False) + "\n"

    @property
    def vocab_size(self) -> int:
        """See `TokenizerSide`."""
        return len(self.all_pieces)

    @property
    def algorithm(self) -> str:
        """Always "bytes"."""
        return "bytes"

    @property
    def is_lossless(self) -> bool:
        """See `Tokenizer`: every byte is a piece."""
        return True

    @property
    def source(self) -> "BytePieceTokenizer":
        """Itself: both sides are alike."""
        return self

    target = source

    @property
    def new_tokens(self) -> tuple[str, ...]:
        """None; see `Tokenizer`."""
        return ()

    def with_new_tokens(self, words: Sequence[str]) -> Tokenizer:
        """See `Tokenizer`.

        Raises:
            DataError: always.
        """
        raise DataError(
            f"the vocabulary of an imported language model takes no new tokens such as {words[0]}; "
            "omit them"
        )

    def encode_phrases(self, texts: Sequence[str]) -> list[list[int]]:
        """See `TokenizerSide`."""
        clean = [without_surrogates(text) for text in texts]
        return [one.ids for one in self._tokenizer.encode_batch(clean, add_special_tokens=False)]

    def encode_with_spans(self, texts: Sequence[str]) -> list[tuple[list[int], list[Span]]]:
        """See `TokenizerSide`."""
        clean = [without_surrogates(text) for text in texts]
        found = self._tokenizer.encode_batch(clean, add_special_tokens=False)
        return [
            ([*self.start, *one.ids], [*[(0, 0)] * len(self.start), *one.offsets])
            if one.ids
            else ([], [])
            for one in found
        ]

    def encode_gaps(self, parts: Sequence[str]) -> list[int]:
        """See `TokenizerSide`; a gap takes the spaces before it, as `<mask>` of RoBERTa does."""
        return super().encode_gaps([*(part.rstrip() for part in parts[:-1]), parts[-1]])

    def decode(self, ids: Sequence[int]) -> str:
        """See `TokenizerSide`."""
        texts = self.piece_bytes
        return b"".join([texts[number] for number in ids]).decode(errors="replace")

    @cached_property
    def piece_bytes(self) -> list[bytes]:
        """See `TokenizerSide`; a name that is not of bytes has no text."""
        alphabet = set(BYTE_CHARACTERS)
        found = [b""] * _N_SPECIAL
        for piece in self.all_pieces[_N_SPECIAL:]:
            found.append(bytes_of(piece) if alphabet.issuperset(piece) else b"")
        return found

    @cached_property
    def _labels(self) -> list[str]:
        rest = zip(self.all_pieces[_N_SPECIAL:], self.piece_bytes[_N_SPECIAL:], strict=True)
        return [*SPECIAL_PIECES, *(label_of(text) if text else piece for piece, text in rest)]
