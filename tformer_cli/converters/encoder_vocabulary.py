"""Vocabularies of BERT's family: tokenizer.json, vocab.txt, or RoBERTa's vocab.json and merges.txt.

What stands around a text, truncation and padding in a tokenizer.json do not count: models say it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tformer_cli.converters import gpt2
from tformer_cli.converters.assembly import Rows, arranged, names_of_rows
from tformer_cli.converters.foreign_model import check_settings, read_json_file, read_lines
from tformer_cli.data.byte_pieces import BytePieceTokenizer
from tformer_cli.data.tokenizer import Tokenizer
from tformer_cli.data.word_pieces import NAMES, PREFIX, WordPieceTokenizer, WordRules
from tformer_cli.errors import ArtifactError

ROLES = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
"""Settings that name the special tokens, in tformer's order; the mask is last."""
_WORD_NAMES = (*NAMES, "[MASK]")
_BYTE_NAMES = ("<pad>", "<unk>", "<s>", "</s>", "<mask>")
KNOWN_TOKENIZER: Mapping[str, Mapping[str, tuple[Any, ...]]] = MappingProxyType(
    {
        "normalizer": {"type": ("BertNormalizer",)},
        "pre_tokenizer": {"type": ("BertPreTokenizer",)},
        "model": {"type": ("WordPiece",), "continuing_subword_prefix": (PREFIX,)},
    }
)
"""Settings in the parts of a tokenizer.json, with the values that BERT's cutting of text has."""


@dataclass(frozen=True, kw_only=True)
class EncoderVocabulary:
    """Pieces by their foreign ids, and what cuts text into them."""

    pieces: Mapping[str, int]
    """Ids of the pieces."""
    special: tuple[str, ...]
    """Pieces of padding, unknown, beginning, end and gap."""
    rules: WordRules | None
    """How text becomes words; None: BPE on bytes."""
    merges: tuple[tuple[str, str], ...]
    """Merges of BPE on bytes."""
    files: tuple[Path, ...]
    """Files that were read."""

    def rows(self, size: int, where: str) -> Rows:
        """Orders the rows of a model.

        Raises:
            ArtifactError: if the model has fewer rows than there are pieces, or the special tokens
                are missing.
        """
        names = names_of_rows(self.pieces, size, where)
        missing = [name for name in self.special[:4] if name not in self.pieces]
        if missing:
            raise ArtifactError(
                f"{self.files[0]}: has no piece {missing[0][:40]}; use this model's own files"
            )
        pad, unk, start, end = (self.pieces[name] for name in self.special[:4])
        return arranged(names, pad, unk, start, end)

    def tokenizer(self, rows: Rows, where: str) -> Tokenizer:
        """Makes the tokenizer of a model whose rows are in this order."""
        mask = self.special[4] if self.special[4] in self.pieces else ""
        if self.rules is not None:
            return WordPieceTokenizer(rows.pieces, self.rules, mask, where)
        if not mask:
            raise ArtifactError(
                f"{self.files[0]}: has no piece {self.special[4][:40]}; use this model's own files"
            )
        return BytePieceTokenizer(rows.pieces, self.merges, where, mask)


def read_vocabulary(path: Path, *, lowercase: bool) -> EncoderVocabulary:
    """Reads the tokenizer's files of a directory.

    Args:
        path: the directory.
        lowercase: whether texts are made small, whatever the files say.

    Raises:
        ArtifactError: if they are missing or damaged, or cut text in another way.
    """
    whole, words, numbered = (path / name for name in ("tokenizer.json", "vocab.txt", "vocab.json"))
    settings = _settings(path)
    model = read_json_file(whole).get("model") if whole.is_file() else None
    is_words = isinstance(model, dict) and model.get("type") == "WordPiece"
    if is_words or (words.is_file() and not whole.is_file()):
        found = _read_whole(whole) if is_words else _read_words(words, settings)
        pieces, rules, file = found
        if lowercase and not rules.lowercase:
            rules = WordRules(**{**vars(rules), "lowercase": True})
        return EncoderVocabulary(
            pieces=pieces,
            special=_special(settings, _WORD_NAMES),
            rules=rules,
            merges=(),
            files=(file,),
        )
    if lowercase:
        raise ArtifactError(f"{path}: do_lower_case = true is not supported; import another model")
    bytes_of = gpt2.find_vocabulary(path) if whole.is_file() or numbered.is_file() else None
    if bytes_of is None or bytes_of.merges is None:
        raise ArtifactError(
            f"{path}: has no tokenizer; put tokenizer.json, vocab.txt, or vocab.json and "
            "merges.txt beside the model"
        )
    added = _added(read_json_file(whole)) if whole.is_file() else {}
    return EncoderVocabulary(
        pieces={**bytes_of.pieces, **added},
        special=_special(settings, _BYTE_NAMES),
        rules=None,
        merges=bytes_of.merges,
        files=bytes_of.files,
    )


def _settings(path: Path) -> dict[str, Any]:
    """Reads what the files beside a vocabulary say; the later file counts."""
    found: dict[str, Any] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        if (path / name).is_file():
            found |= read_json_file(path / name)
    return found


def _special(settings: Mapping[str, Any], default: tuple[str, ...]) -> tuple[str, ...]:
    names = []
    for role, name in zip(ROLES, default, strict=True):
        token = settings.get(role, name)
        token = token.get("content") if isinstance(token, dict) else token
        names.append(token if isinstance(token, str) else name)
    return tuple(names)


def _added(parts: Mapping[str, Any]) -> dict[str, int]:
    """Pieces of a tokenizer.json besides those of its model."""
    return {one["content"]: one["id"] for one in parts.get("added_tokens") or ()}


def _read_whole(file: Path) -> tuple[dict[str, int], WordRules, Path]:
    """Reads a tokenizer.json that cuts text as BERT does.

    Raises:
        ArtifactError: if it is damaged, or cuts text in another way.
    """
    parts = read_json_file(file)
    for name, known in KNOWN_TOKENIZER.items():
        part = parts.get(name)
        part = part if isinstance(part, dict) else {"type": None}
        check_settings(
            file,
            {f"{name}.{key}": value for key, value in part.items()},
            {f"{name}.{key}": values for key, values in known.items()},
        )
    model, normalizer = parts["model"], parts["normalizer"]
    pieces = {**model["vocab"], **_added(parts)}
    if not all(type(place) is int and place >= 0 for place in pieces.values()):
        raise ArtifactError(f"{file}: has ids that are not whole numbers; download it again")
    lowercase = bool(normalizer.get("lowercase", True))
    strips = normalizer.get("strip_accents")
    rules = WordRules(
        lowercase=lowercase,
        strip_accents=lowercase if strips is None else bool(strips),
        chinese=bool(normalizer.get("handle_chinese_chars", True)),
        clean=bool(normalizer.get("clean_text", True)),
        longest_word=int(model.get("max_input_chars_per_word", 100)),
    )
    return pieces, rules, file


def _read_words(file: Path, settings: Mapping[str, Any]) -> tuple[dict[str, int], WordRules, Path]:
    """Reads a vocab.txt, a piece a line.

    Where no file says it, text is lower-cased if no piece has a capital letter. Without pieces for
    the inside of words, words are what stands between spaces.

    Raises:
        ArtifactError: if it is damaged.
    """
    names = read_lines(file)
    while names and not names[-1]:
        names.pop()
    pieces = {name: place for place, name in enumerate(names)}
    special = _special(settings, _WORD_NAMES)
    plain = [name for name in pieces if name not in special and not name.startswith("[unused")]
    has_capitals = any(name != name.lower() for name in plain)
    lowercase = settings.get("do_lower_case")
    is_small = lowercase if isinstance(lowercase, bool) else not has_capitals
    strips = settings.get("strip_accents")
    rules = WordRules(
        lowercase=is_small,
        strip_accents=strips if isinstance(strips, bool) else is_small,
        chinese=settings.get("tokenize_chinese_chars", True) is True,
        between_spaces=not any(name.startswith(PREFIX) for name in plain),
    )
    return pieces, rules, file
