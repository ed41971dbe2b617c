"""BERT's tokenizers: words of WordPiece, the longest pieces first.

Text is cleaned, perhaps lower-cased and freed of accents, cut at white space, punctuation and
Chinese characters, and each word into the longest pieces of the vocabulary from its beginning;
pieces inside a word begin with ``##`` (Devlin et al. 2019, section 3; Wu et al. 2016, section 4).
A vocabulary without such pieces, as of molecules, has its words between spaces.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property

from tokenizers import Tokenizer as HuggingFaceTokenizer
from tokenizers import decoders, models, normalizers, pre_tokenizers

from tformer_cli.data.config import MOST_PIECES
from tformer_cli.data.lines import without_surrogates
from tformer_cli.data.pipelines import SPECIAL_PIECES, UNKNOWN_PIECE
from tformer_cli.data.tokenizer import (
    BOS_ID,
    FILE_NAME,
    VERSION,
    Span,
    Tokenizer,
    TokenizerSide,
)
from tformer_cli.errors import DataError

NAMES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
"""BERT's names of padding, the unknown word, and of what stands before and behind a text."""
PREFIX = "##"
_N_SPECIAL = len(SPECIAL_PIECES)
_LONGEST_WORD = 1 << 16


@dataclass(frozen=True, kw_only=True)
class WordRules:
    """How text becomes words."""

    lowercase: bool = True
    """Letters are made small."""
    strip_accents: bool = True
    """Accents are removed."""
    chinese: bool = True
    """Chinese characters are words of their own."""
    clean: bool = True
    """Control characters are removed, all white space is a space."""
    between_spaces: bool = False
    """Words are what stands between spaces, as it is; the other rules are not applied."""
    longest_word: int = 100
    """Characters of the longest word that is cut; others are unknown."""


class WordPieceTokenizer(Tokenizer, TokenizerSide):
    """The tokenizer of a foreign encoder, on both sides the same."""

    start = (BOS_ID,)
    all_pieces: tuple[str, ...]
    """Pieces by their ids."""

    def __init__(
        self, pieces: Sequence[str], rules: WordRules, mask: str = "", where: str = FILE_NAME
    ) -> None:
        """Makes a tokenizer.

        Args:
            pieces: by their ids; the first are `<pad> <unk> <s> </s>`.
            rules: how text becomes words.
            mask: the piece that stands for a gap; empty: there is none.
            where: what messages call the file.

        Raises:
            DataError: if they are damaged.
        """
        places = {piece: place for place, piece in enumerate(pieces)}
        if (
            len(places) != len(pieces)
            or len(pieces) > MOST_PIECES
            or tuple(pieces[:_N_SPECIAL]) != SPECIAL_PIECES
            or (mask and mask not in places)
            or not 0 < rules.longest_word <= _LONGEST_WORD
        ):
            raise DataError(f"{where}: its vocabulary is damaged; use this model's own files")
        self.all_pieces, self._rules, self.mask = tuple(pieces), rules, mask
        tokenizer = HuggingFaceTokenizer(
            models.WordPiece(
                vocab=places,
                unk_token=UNKNOWN_PIECE,
                max_input_chars_per_word=rules.longest_word,
                continuing_subword_prefix=PREFIX,
            )
        )
        if rules.between_spaces:
            tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        else:
            tokenizer.normalizer = normalizers.BertNormalizer(
                clean_text=rules.clean,
                handle_chinese_chars=rules.chinese,
                strip_accents=rules.strip_accents,
                lowercase=rules.lowercase,
            )
            tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        tokenizer.decoder = decoders.WordPiece(prefix=PREFIX, cleanup=not rules.between_spaces)
        self._tokenizer = tokenizer

    @classmethod
    def parse(cls, text: str, where: str = FILE_NAME) -> "WordPieceTokenizer":
        """Reads the text of a `tokenizer.json`; `where` names it in messages.

        Raises:
            DataError: if it is damaged.
        """
        kinds = {field.name: type(field.default) for field in fields(WordRules)}
        try:
            data = json.loads(text)
            pieces, mask, rules = data["pieces"], data["mask"], data["rules"]
            is_sound = data["tformer_tokenizer"] == VERSION and type(mask) is str
            is_sound = is_sound and all(type(piece) is str for piece in pieces)
            is_sound = is_sound and {name: type(value) for name, value in rules.items()} == kinds
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            is_sound, pieces, mask, rules = False, [], "", {}
        if not is_sound:
            raise DataError(f"{where}: is damaged; restore the file")
        return cls(pieces, WordRules(**rules), mask, where)

    def to_json(self) -> str:
        """The text of a `tokenizer.json`; its beginning says what it is."""
        data = {
            "tformer_tokenizer": VERSION,
            "kind": "wordpiece",
            "mask": self.mask,
            "rules": asdict(self._rules),
            "pieces": self.all_pieces,
        }
        return json.dumps(data, ensure_ascii=False) + "\n"

    @property
    def rules(self) -> WordRules:
        """How text becomes words."""
        return self._rules

    @property
    def vocab_size(self) -> int:
        """See `TokenizerSide`."""
        return len(self.all_pieces)

    @property
    def algorithm(self) -> str:
        """Always "wordpiece"."""
        return "wordpiece"

    @property
    def source(self) -> "WordPieceTokenizer":
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
            f"the vocabulary of an imported encoder takes no new tokens such as {words[0]}; "
            "omit them"
        )

    def encode_phrases(self, texts: Sequence[str]) -> list[list[int]]:
        """See `TokenizerSide`."""
        clean = [without_surrogates(text) for text in texts]
        found = self._tokenizer.encode_batch_fast(clean, add_special_tokens=False)
        return [one.ids for one in found]

    def encode_with_spans(self, texts: Sequence[str]) -> list[tuple[list[int], list[Span]]]:
        """See `TokenizerSide`."""
        clean = [without_surrogates(text) for text in texts]
        found = self._tokenizer.encode_batch(clean, add_special_tokens=False)
        return [
            ([*self.start, *one.ids], [(0, 0), *one.offsets]) if one.ids else ([], [])
            for one in found
        ]

    def decode(self, ids: Sequence[int]) -> str:
        """See `TokenizerSide`."""
        return self._tokenizer.decode([one for one in ids if one >= _N_SPECIAL])

    @cached_property
    def piece_bytes(self) -> list[bytes]:
        """See `TokenizerSide`."""
        texts = (
            piece.removeprefix(PREFIX) if piece.startswith(PREFIX) else f" {piece}"
            for piece in self.all_pieces[_N_SPECIAL:]
        )
        return [*[b""] * _N_SPECIAL, *(text.encode() for text in texts)]

    @cached_property
    def _labels(self) -> list[str]:
        return [*NAMES, *self.all_pieces[_N_SPECIAL:]]
