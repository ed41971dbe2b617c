"""Tokenizers of Hugging Face's Marian, M2M-100, NLLB, mBART and Pegasus directories.

Marian numbers the pieces of two SentencePiece models by a vocab.json; M2M-100 those of one, with
languages behind it. NLLB and mBART number them as fairseq does: four special tokens first, so that
piece i of the SentencePiece model has the id i + 1, with languages behind. Pegasus has tokens of
its pre-training before them. The first mBART, of 25 languages, ends sources with `</s>` and their
language, and begins translations with theirs in place of a start; mBART-50 begins both. A directory
that tformer has exported has one of its own tokenizers.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tokenizers import Regex, decoders

from tformer_cli.errors import ArtifactError, DataError
from tformer_cli.foreign.foreign_model import MOST_ROWS, VocabularyOrder, names_of_rows
from tformer_cli.foreign.hugging_face.keys import (
    ROLES,
    TOKENIZER_CONFIGS,
    added_tokens,
    check_added,
    check_class,
    read_tokenizer_files,
    surrounding,
)
from tformer_cli.foreign.hugging_face.spm_tokenizers import check_whole
from tformer_cli.foreign.keys import read_bytes, read_json_file
from tformer_cli.text.joint_tokenizer import BY_WORDS, MASK, JointTokenizer, blank_tokenizer
from tformer_cli.text.sentencepiece.spm_file import read_spm
from tformer_cli.text.sentencepiece.tokenizer import NO_LANGUAGES, Languages, SentencePieceTokenizer
from tformer_cli.text.tokenizer import UNK_ID, Tokenizer

FAIRSEQ_FIRST = ("<s>", "<pad>", "</s>", "<unk>")
M2M_TOKEN = re.compile("__.+__")  # how M2M-100 names languages
# languages of the first mBART, in the order of their ids; its files do not name them
_MBART_25 = (
    "ar_AR", "cs_CZ", "de_DE", "en_XX", "es_XX", "et_EE", "fi_FI", "fr_XX", "gu_IN", "hi_IN",
    "it_IT", "ja_XX", "kk_KZ", "ko_KR", "lt_LT", "lv_LV", "my_MM", "ne_NP", "nl_XX", "ro_RO",
    "ru_RU", "si_LK", "tr_TR", "vi_VN", "zh_CN",
)  # fmt: skip
_TAG = re.compile(r">>(.+)<<")
_JOINT_SPM = ("sentencepiece.bpe.model", "spm.model")
# ids 0 to 104 of Pegasus; the third piece of its SentencePiece model, `<unk>`, has the next
_PEGASUS_FIRST = ("<pad>", "</s>", "<mask_1>", "<mask_2>", *(f"<unk_{n}>" for n in range(2, 103)))


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """Pieces by their foreign ids, and what cuts text into them."""

    source: Mapping[str, int]
    target: Mapping[str, int]
    files: tuple[Path, ...]
    spms: tuple[Path, Path | None] | None = None  # of source and target; None: the first file
    joint: JointTokenizer | None = None  # one of tformer's own, in a directory that it has exported
    unk: int = UNK_ID
    languages: Languages = NO_LANGUAGES
    language_codes: tuple[str, str] = ("", "")
    notes: tuple[str, ...] = ()

    @property
    def language_ids(self) -> dict[str, int]:
        return {code: self.target[token] for code, token in self.languages.tokens.items()}

    def pieces(self, ids: Mapping[str, int], size: int) -> list[str]:
        """The pieces of a side by their ids; ids without a piece get a name."""
        if self.joint is None:
            return names_of_rows(ids, size, self.files[0])
        if size != self.joint.vocab_size:
            raise ArtifactError(
                f"{self.files[0]}: has {self.joint.vocab_size:,} entries, but the model has "
                f"{size:,} rows; use this model's own files"
            )
        return self.joint.pieces(range(size))

    def tokenizer(self, sides: tuple[VocabularyOrder, VocabularyOrder]) -> Tokenizer:
        """Makes the tokenizer of a model whose rows are in the order of `sides`."""
        if self.joint is not None:  # their ids must already be those of the rows
            if any(rows.foreign != tuple(range(self.joint.vocab_size)) for rows in sides):
                raise ArtifactError(
                    f"{self.files[0]}: the ids of special tokens are not 0 to 3; use this model's "
                    "own files"
                )
            return self.joint
        source, target = self.spms or (self.files[0], None)
        return SentencePieceTokenizer.build(
            read_bytes(source),
            None if target is None else read_bytes(target),
            sides[0].pieces,
            None if self.source is self.target else sides[1].pieces,
            languages=self.languages,
            where=str(source),
        )


@dataclass(frozen=True, kw_only=True)
class Exported:
    """One of tformer's own tokenizers, in a directory that it has exported."""

    joint: JointTokenizer
    files: tuple[Path, ...]
    notes: tuple[str, ...]
    around: tuple[Sequence[str], Sequence[str]]  # tokens before and after a text
    longest: int = 0  # the table of positions says it
    # settings of a language model, which its other files say
    texts: Mapping[str, bool] = field(default_factory=dict)

    def rows(self, size: int, where: str) -> VocabularyOrder:
        if size != self.joint.vocab_size:
            raise ArtifactError(
                f"{where}: has {size:,} rows, but {self.files[0]} {self.joint.vocab_size:,} "
                "entries; use this model's own files"
            )
        return VocabularyOrder(tuple(range(size)), tuple(self.joint.pieces(range(size))))

    def tokenizer(self, rows: VocabularyOrder, where: str) -> Tokenizer:  # noqa: ARG002 - as others have it
        return self.joint


def read_vocabulary(path: Path, settings: Mapping[str, Any]) -> Vocabulary:
    exported = read_exported(path)
    if exported is not None:
        return Vocabulary(
            source={},
            target={},
            files=exported.files,
            joint=exported.joint,
            notes=exported.notes,
        )
    if settings["model_type"] == "marian":
        return _read_marian(path, settings)
    if settings["model_type"] == "pegasus":
        return _read_pegasus(path)
    own, notes, own_files = read_tokenizer_files(path, TOKENIZER_CONFIGS["m2m_100"])
    own = {**own, "tokenizer_class": own.get("tokenizer_class") or settings.get("tokenizer_class")}
    # M2M-100 numbers its pieces by a file
    names = ["M2M100"] if (path / "vocab.json").is_file() else ["Nllb"]
    names = ["MBart", "MBart50"] if settings["model_type"] == "mbart" else names
    check_class(path, own["tokenizer_class"], *names)
    spm = next((path / name for name in _JOINT_SPM if (path / name).is_file()), None)
    if spm is None:
        raise ArtifactError(
            f"{path}: has no {_JOINT_SPM[0]}; download the whole model, its SentencePiece file "
            "included"
        )
    numbered = path / "vocab.json"
    if numbered.is_file():  # M2M-100
        ids = _numbers(numbered)
        first = len(ids)
    else:
        pieces = read_spm(read_bytes(spm), str(spm)).pieces
        ids = {piece: number for number, piece in enumerate(FAIRSEQ_FIRST)}
        ids |= {piece: number + 1 for number, piece in enumerate(pieces) if number >= 3}
        first = len(pieces) + 1
    tokens = _language_tokens(path, settings, own)
    ids |= {token: first + number for number, token in enumerate(tokens) if token not in ids}
    added = added_tokens(path, own)
    ids |= {token: n for token, n in added.items() if token in tokens and n is not None}
    check_added(path, added, ids, {*tokens, *FAIRSEQ_FIRST, "<mask>", *_values(own)})
    target = _start_language(path, settings, own, {token: ids[token] for token in tokens})
    known = {**{token: n for token, n in added.items() if n is not None}, **ids}
    more, whole = check_whole(path, "spm", read_spm(read_bytes(spm), str(spm)), known)
    return Vocabulary(
        source=ids,
        target=ids,
        unk=ids.get("<unk>", -1),
        languages=Languages(
            tokens={token.strip("_"): token for token in tokens if token != target},
            before_source="source",
            after_source=_has_legacy_prompt(own) or target is not None,
            before_target=target is None,
        ),
        files=(spm, *([numbered] if numbered.is_file() else []), *own_files, *whole),
        language_codes=("", target or ""),
        notes=(*notes, *more),
    )


# Stands for the space before several words, which is removed. Of no byte, so that what it begins is
# text, not bytes.
_SPACE_BEFORE = "\u2063"


def word_decoder(algorithm: str) -> decoders.Decoder:
    """Makes the decoder of an exported tagger.

    The library's pipeline decodes the pieces of each word, and then these words together. A word
    keeps the space before it, or nothing would be between two of them. A "word" tokenizer hands on
    unknown words as they stand in the text, with that space.
    """
    if algorithm == "word":
        return decoders.ByteLevel()
    steps = [
        decoders.Fuse(),
        decoders.Replace(Regex("^ "), _SPACE_BEFORE),
        decoders.ByteLevel(),
        decoders.Replace(_SPACE_BEFORE, ""),
    ]
    return decoders.Sequence(steps)


def read_exported(path: Path) -> Exported | None:
    """Reads the tokenizer of a directory that tformer has exported; None: it has another."""
    file = path / "tokenizer.json"
    if not file.is_file():
        return None
    data = read_json_file(file)
    # here the model, not the tokenizer, decides the tokens around a text
    processor, data["post_processor"] = data.get("post_processor"), None
    for algorithm in BY_WORDS:
        blank = blank_tokenizer(algorithm)
        own, blank.decoder = json.loads(blank.to_str()), word_decoder(algorithm)
        # A tokenizer of words has the decoder of bytes
        is_same_model = isinstance(data.get("model"), dict) and (
            data["model"].get("type") == own["model"]["type"]
        )
        if is_same_model and data.get("decoder") == json.loads(blank.to_str())["decoder"]:
            data["decoder"] = own["decoder"]
    added = data.get("added_tokens")
    if isinstance(added, list):  # to other libraries the piece of gaps is an added token
        data["added_tokens"] = [
            token
            for token in added
            if not (isinstance(token, dict) and token.get("content") == MASK)
        ]
    try:
        joint = JointTokenizer.parse(json.dumps(data, ensure_ascii=False), str(file))
    except DataError:
        return None
    _, notes, files = read_tokenizer_files(path, TOKENIZER_CONFIGS["exported"])
    return Exported(
        joint=joint,
        files=(file, *files),
        notes=tuple(notes),
        around=surrounding(file, processor),
    )


def _read_pegasus(path: Path) -> Vocabulary:
    spm = path / "spiece.model"
    own, notes, files = read_tokenizer_files(path, TOKENIZER_CONFIGS["pegasus"])
    model = read_spm(read_bytes(spm), str(spm))
    ids = {piece: n for n, piece in enumerate((*_PEGASUS_FIRST, *model.pieces[2:]))}
    check_added(path, added_tokens(path, own), ids, {*_PEGASUS_FIRST, "<unk>"})
    more, whole = check_whole(path, "spm", model, ids, ((), ("</s>",)))
    return Vocabulary(
        source=ids,
        target=ids,
        unk=ids.get("<unk>", -1),
        languages=NO_LANGUAGES,
        files=(spm, *files, *whole),
        notes=(*notes, *more),
    )


def _read_marian(path: Path, settings: Mapping[str, Any]) -> Vocabulary:
    files = [path / "source.spm", path / "target.spm", path / "vocab.json"]
    missing = next((file for file in files if not file.is_file()), None)
    if missing is not None:
        raise ArtifactError(
            f"{missing}: no such file; download the whole model (models with BPE and Moses instead "
            "of SentencePiece are not supported)"
        )
    source = _numbers(files[2])
    target = source
    if not settings.get("share_encoder_decoder_embeddings", True):
        files.append(path / "target_vocab.json")
        target = _numbers(files[3])
    tokens = {m[1]: piece for piece in source if (m := _TAG.fullmatch(piece))}
    languages = NO_LANGUAGES
    if tokens:
        languages = Languages(tokens=tokens, before_source="target", in_text=True)
    names, notes, own_files = read_tokenizer_files(path, TOKENIZER_CONFIGS["marian"])
    check_added(
        path, added_tokens(path, names), source, {*languages.tokens.values(), *_values(names)}
    )
    codes = [names.get(f"{side}_lang") for side in ("source", "target")]
    named = [code if isinstance(code, str) else "" for code in codes]
    return Vocabulary(
        spms=(files[0], files[1]),
        source=source,
        target=target,
        unk=source.get("<unk>", -1),
        languages=languages,
        files=(*files, *own_files),
        language_codes=(named[0], named[1]),
        notes=tuple(notes),
    )


def _numbers(file: Path) -> dict[str, int]:
    numbers = read_json_file(file)
    if not all(type(n) is int and 0 <= n < MOST_ROWS for n in numbers.values()):
        raise ArtifactError(f"{file}: has ids that are not whole numbers; download it again")
    return numbers


def _values(own: Mapping[str, Any]) -> set[str]:
    return {"</s>", "<unk>", "<pad>", *(str(own[role]) for role in ROLES if role in own)}


def _has_legacy_prompt(own: Mapping[str, Any]) -> bool:
    """Returns whether an NLLB tokenizer ends sources with `</s>` and the language."""
    is_nllb = str(own["tokenizer_class"]).startswith("Nllb")
    return is_nllb and own.get("legacy_behaviour") is True


def _is_of(name: str, own: Mapping[str, Any]) -> bool:
    """Returns whether a directory names a tokenizer class, in its fast form or not."""
    return own["tokenizer_class"] in (name, f"{name}Fast")


def _start_language(
    path: Path, settings: Mapping[str, Any], own: Mapping[str, Any], ids: Mapping[str, int]
) -> str | None:
    """Returns the language that an mBART of 25 languages writes; None of other models."""
    if settings["model_type"] != "mbart":
        return None
    start = settings.get("decoder_start_token_id")
    language = next((token for token, number in ids.items() if number == start), None)
    is_first = tuple(ids) == _MBART_25 or _is_of("MBartTokenizer", own)
    if language is None and is_first:
        token, number = next(iter(ids.items()))
        raise ArtifactError(
            f"{path}: is an mBART of 25 languages, which begins a translation with its language, "
            "but decoder_start_token_id is not one; set it in config.json to the language that is "
            f"written, such as {number} for {token}"
        )
    if language is not None and _is_of("MBart50Tokenizer", own):
        raise ArtifactError(
            f"{path}: has the tokenizer of mBART-50, but begins translations with {language} as "
            "the mBART of 25 languages does; use this model's own settings"
        )
    return language


def _language_tokens(
    path: Path, settings: Mapping[str, Any], own: Mapping[str, Any]
) -> Sequence[str]:
    """Reads the tokens that name languages, in the order of their ids."""
    for key in ("additional_special_tokens", "extra_special_tokens"):
        tokens = own.get(key)
        if isinstance(tokens, list) and tokens:
            return [str(t.get("content") if isinstance(t, dict) else t) for t in tokens]
    special = (settings.get(f"{name}_token_id") for name in ("decoder_start", "eos"))
    starts_otherwise = len({*special}) > 1
    if settings["model_type"] == "mbart" and (_is_of("MBartTokenizer", own) or starts_otherwise):
        return _MBART_25
    raise ArtifactError(
        f"{path}: names no language tokens in special_tokens_map.json; download the whole model"
    )
