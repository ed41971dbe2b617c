"""BERT's tokenizers: words of WordPiece, the longest pieces first.

Text is cleaned, perhaps lower-cased and freed of accents, cut at white space, punctuation and
Chinese characters, and each word into the longest pieces of the vocabulary from its beginning;
pieces inside a word begin with ``##`` (Devlin et al. 2019, section 3; Wu et al. 2016, section 4).
A vocabulary without such pieces, as of molecules, has its words between spaces.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any, ClassVar, Self

from tokenizers import Tokenizer as HuggingFaceTokenizer
from tokenizers import decoders, models, normalizers, pre_tokenizers

from tformer_cli.data.foreign_pieces import N_SPECIAL, ForeignPieceTokenizer, is_vocabulary
from tformer_cli.data.pipelines import UNKNOWN_PIECE
from tformer_cli.data.tokenizer import BOS_ID, FILE_NAME
from tformer_cli.errors import DataError

NAMES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
"""BERT's names of padding, the unknown word, and of what stands before and behind a text."""
PREFIX = "##"
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


class WordPieceTokenizer(ForeignPieceTokenizer):
    """The tokenizer of a foreign encoder."""

    kind: ClassVar[str] = "wordpiece"
    model_kind: ClassVar[str] = "encoder"
    start = (BOS_ID,)
    rules: WordRules
    """How text becomes words."""

    def __init__(
        self, pieces: Sequence[str], rules: WordRules, mask: str = "", where: str = FILE_NAME
    ) -> None:
        """Makes a tokenizer."""
        if not (is_vocabulary(pieces, mask) and 0 < rules.longest_word <= _LONGEST_WORD):
            raise DataError(f"{where}: its vocabulary is damaged; use this model's own files")
        self.all_pieces, self.rules, self.mask = tuple(pieces), rules, mask
        places = {piece: place for place, piece in enumerate(pieces)}
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
    def _parsed(cls, data: dict[str, Any], where: str) -> Self | None:
        kinds = {field.name: type(field.default) for field in fields(WordRules)}
        mask, rules = data["mask"], data["rules"]
        is_sound = {name: type(value) for name, value in rules.items()} == kinds
        if not (is_sound and type(mask) is str):
            return None
        return cls(data["pieces"], WordRules(**rules), mask, where)

    def _stored(self) -> dict[str, Any]:
        return {"mask": self.mask, "rules": asdict(self.rules), "pieces": self.all_pieces}

    def decode(self, ids: Sequence[int]) -> str:
        return self._tokenizer.decode([one for one in ids if one >= N_SPECIAL])

    @cached_property
    def piece_bytes(self) -> list[bytes]:
        texts = (
            piece.removeprefix(PREFIX) if piece.startswith(PREFIX) else f" {piece}"
            for piece in self.all_pieces[N_SPECIAL:]
        )
        return [*[b""] * N_SPECIAL, *(text.encode() for text in texts)]

    @cached_property
    def _labels(self) -> list[str]:
        return [*NAMES, *self.all_pieces[N_SPECIAL:]]
