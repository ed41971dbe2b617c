"""Vocabularies of BERT's family: tokenizer.json, vocab.txt, or RoBERTa's vocab.json and merges.txt.

What stands around a text, truncation and padding in a tokenizer.json do not count: models say it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from tformer_cli.errors import ArtifactError
from tformer_cli.foreign.assembly import Rows, arranged, names_of_rows
from tformer_cli.foreign.foreign_model import read_json_file, read_lines, shown
from tformer_cli.foreign.hugging_face.byte_pieces import find_vocabulary
from tformer_cli.foreign.hugging_face.keys import (
    TOKENIZER,
    added_of,
    added_tokens,
    check_added,
    check_surrounding,
    read_tokenizer_files,
    rows_of,
    tokenizer_config,
    whole_tokenizer,
)
from tformer_cli.foreign.keys import USED, Parts, only
from tformer_cli.text.foreign_pieces import (
    NAMES,
    PREFIX,
    BytePieceTokenizer,
    WordPieceTokenizer,
    WordRules,
)
from tformer_cli.text.tokenizer import Tokenizer

ROLES = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
"""Settings that name the special tokens, in tformer's order; the mask is last."""
_NO_LIMIT = 1 << 24
"""Above it a largest length says that there is none."""
_WORD_NAMES = (*NAMES, "[MASK]")
_BYTE_NAMES = ("<pad>", "<unk>", "<s>", "</s>", "<mask>")
_CLASSES = ("BertTokenizer", "DistilBertTokenizer", "RobertaTokenizer", "ElectraTokenizer")
TOKENIZER_CONFIG = tokenizer_config(
    "BERT, RoBERTa, DistilBERT",
    _CLASSES,
    **rows_of("do_lower_case strip_accents tokenize_chinese_chars model_max_length", USED),
    max_len=USED,
    add_prefix_space=only(None, False),
    do_basic_tokenize=only(None, True),
    never_split=only(None, []),
)
CLASSES = TOKENIZER_CONFIG.rows["tokenizer_class"]
"""Values of tokenizer_class."""
WORDS = whole_tokenizer(
    "BERT, DistilBERT",
    normalizer=Parts(
        {"BertNormalizer": rows_of("clean_text handle_chinese_chars strip_accents lowercase", USED)}
    ),
    pre_tokenizer=Parts({"BertPreTokenizer": {}}),
    model={
        "type": only("WordPiece"),
        "vocab": USED,
        "unk_token": USED,
        "continuing_subword_prefix": only(PREFIX),
        "max_input_chars_per_word": USED,
    },
)


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
    longest: int = 0
    """Tokens of the longest text, which sentence-transformers cuts off; 0: no file says it."""
    notes: tuple[str, ...] = ()
    """About settings that are omitted."""

    def rows(self, size: int, where: str) -> Rows:
        """Orders the rows of a model."""
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

    Where there is a tokenizer.json, it counts, and the other files must agree with it.
    """
    whole, words, numbered = (path / name for name in (TOKENIZER, "vocab.txt", "vocab.json"))
    settings, notes, files = read_tokenizer_files(path, TOKENIZER_CONFIG)
    parts = read_json_file(whole) if whole.is_file() else {}
    model = parts.get("model")
    is_words = isinstance(model, dict) and model.get("type") == "WordPiece"
    rules, merges = None, cast("tuple[tuple[str, str], ...]", ())
    if is_words or (words.is_file() and not whole.is_file()):
        special = _special(settings, _WORD_NAMES)
        if is_words:
            pieces, rules, more = _read_whole(whole, parts)
            notes += more
            _check_agrees(path, settings, rules, pieces, words)
        else:
            pieces, rules = _read_words(words, settings)
        read = [whole if is_words else words]
        if lowercase and not rules.lowercase:
            rules = WordRules(**{**vars(rules), "lowercase": True})
    elif lowercase:
        raise ArtifactError(f"{path}: do_lower_case = true is not supported; import another model")
    else:
        bytes_of = find_vocabulary(path) if whole.is_file() or numbered.is_file() else None
        if bytes_of is None or bytes_of.merges is None:
            raise ArtifactError(
                f"{path}: has no tokenizer; put tokenizer.json, vocab.txt, or vocab.json and "
                "merges.txt beside the model"
            )
        special = _special(settings, _BYTE_NAMES)
        pieces, merges, read = dict(bytes_of.pieces), bytes_of.merges, [*bytes_of.files]
        notes += bytes_of.notes
    if whole.is_file():
        check_surrounding(whole, parts, special[2:3], special[3:4])
    added = added_tokens(path, settings)
    unused = (name for name in added if name.startswith("[unused"))
    known = {*special, *unused, *(str(settings.get(role)) for role in ROLES)}
    check_added(path, added, pieces, known)
    pieces |= {token: place for token, place in added.items() if place is not None}
    longest = settings.get("model_max_length", settings.get("max_len"))
    return EncoderVocabulary(
        pieces=pieces,
        special=special,
        rules=rules,
        merges=merges,
        files=(*read, *files),
        longest=longest if type(longest) is int and longest < _NO_LIMIT else 0,
        notes=tuple(notes),
    )


def _check_agrees(
    path: Path,
    settings: Mapping[str, Any],
    rules: WordRules,
    pieces: Mapping[str, int],
    words: Path,
) -> None:
    """Refuses files beside a tokenizer.json that say something else than it."""
    for name, own in (
        ("do_lower_case", rules.lowercase),
        ("strip_accents", rules.strip_accents),
        ("tokenize_chinese_chars", rules.chinese),
    ):
        if settings.get(name, own) != own:
            raise ArtifactError(
                f"{path}: tokenizer_config.json says {name} = {shown(settings[name])}, but "
                f"{TOKENIZER} has {shown(own)}; correct one of the two"
            )
    listed = _listed(words) if words.is_file() else {}
    other = next((name for name, place in listed.items() if pieces.get(name) != place), None)
    if other is not None:
        raise ArtifactError(
            f"{words}: gives {ascii(other)[:60]} another id than {TOKENIZER}; use the files of one "
            "tokenizer"
        )


def _special(settings: Mapping[str, Any], default: tuple[str, ...]) -> tuple[str, ...]:
    names = []
    for role, name in zip(ROLES, default, strict=True):
        token = settings.get(role, name)
        token = token.get("content") if isinstance(token, dict) else token
        names.append(token if isinstance(token, str) else name)
    return tuple(names)


def _read_whole(
    file: Path, parts: Mapping[str, Any]
) -> tuple[dict[str, int], WordRules, list[str]]:
    """Reads a tokenizer.json that cuts text as BERT does; the last are notes."""
    notes = WORDS.read(file, parts)
    if not (isinstance(parts.get("normalizer"), dict) and "pre_tokenizer" in parts):
        raise ArtifactError(
            f"{file}: has no normalizer or pre_tokenizer, but BERT cuts text into words; import "
            "another model"
        )
    model, normalizer = parts["model"], parts["normalizer"]
    pieces = {**model["vocab"], **added_of(parts, file)}
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
    return pieces, rules, notes


def _listed(file: Path) -> dict[str, int]:
    """The pieces of a vocab.txt with their lines."""
    names = read_lines(file)
    while names and not names[-1]:
        names.pop()
    return {name: place for place, name in enumerate(names)}


def _read_words(file: Path, settings: Mapping[str, Any]) -> tuple[dict[str, int], WordRules]:
    """Reads a vocab.txt, a piece a line.

    Where no file says it, text is lower-cased if no piece has a capital letter. Without pieces for
    the inside of words, words are what stands between spaces.
    """
    pieces = _listed(file)
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
    return pieces, rules
