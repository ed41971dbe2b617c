"""The vocabulary of a model as Hugging Face's library has it: order of ids, and files.

tformer's own tokenizers keep their ids. An imported model gets its own ids back, and the
SentencePiece files that it was imported with.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import torch
from tokenizers import AddedToken, processors
from tokenizers import Tokenizer as HuggingFaceTokenizer
from torch import Tensor

from tformer_cli.artifacts.config_file import TOKENIZER
from tformer_cli.artifacts.model_directory import ModelDirectory
from tformer_cli.errors import UsageError
from tformer_cli.foreign.foreign_model import BANNED_BIAS, UNUSED, original_piece
from tformer_cli.foreign.hugging_face.byte_pieces import END
from tformer_cli.foreign.hugging_face.tokenizers import M2M_TOKEN, word_decoder
from tformer_cli.text.foreign_pieces import (
    NAMES,
    BytePieceTokenizer,
    ForeignPieceTokenizer,
    LibraryTokenizer,
    WordPieceTokenizer,
)
from tformer_cli.text.joint_tokenizer import BY_WORDS, JointTokenizer
from tformer_cli.text.sentencepiece.tokenizer import SentencePieceSide, SentencePieceTokenizer
from tformer_cli.text.tokenizer import BOS_ID, EOS_ID, PAD_ID, SPECIAL_PIECES, UNK_ID, Tokenizer

_N_SPECIAL = len(SPECIAL_PIECES)
# name of the piece `<s>` of a model whose translations begin with another token
_START = "<foreign <s>>"


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Ids and files of an exported vocabulary."""

    # the exported id of each of tformer's ids; the start may share that of padding or the end
    ids: tuple[int, ...]
    source_ids: tuple[int, ...] = ()  # the same of the source's vocabulary, if that is another
    files: Mapping[str, bytes]
    settings: Mapping[str, Any]  # what tokenizer_config.json says besides what all have
    renormalizes: bool = False  # probabilities are only of tokens that can be written
    # the exported id of the language that translations begin with, if one is set
    first_token: int | None = None

    @property
    def sizes(self) -> tuple[int, int]:
        """Rows of the exported vocabularies of source and target."""
        return max(self.source_ids or self.ids) + 1, max(self.ids) + 1

    def ordered_source(self, rows: Tensor) -> Tensor:
        """Puts rows (V, …) of the source's vocabulary in the exported order; see `order_rows`."""
        return _reorder_rows(rows, self.source_ids or self.ids)

    def order_rows(self, rows: Tensor) -> Tensor:
        """Puts rows (V, …) in the exported order.

        Ids without a token get zeros. Where start and padding share a row it is the start's, for
        padding is never looked at; where start and end do it is the end's. A bias that bans a token
        becomes 0.
        """
        return _reorder_rows(rows, self.ids)


def _reorder_rows(rows: Tensor, ids: Sequence[int]) -> Tensor:
    rows = torch.where(rows == BANNED_BIAS, 0.0, rows)
    reordered = rows.new_zeros(max(ids) + 1, *rows.shape[1:])
    places = [token for token, number in enumerate(ids) if number >= 0]
    reordered[[ids[token] for token in places]] = rows[places]
    for token in (BOS_ID, EOS_ID):
        if ids[token] >= 0:
            reordered[ids[token]] = rows[token]
    return reordered


def decoder_layout(directory: ModelDirectory) -> Layout:
    """Decides how the vocabulary of a language model is exported."""
    tokenizer, config = directory.tokenizer, directory.config
    ids = tuple(original_ids(directory)) or tuple(range(tokenizer.vocab_size))
    matrix = directory.model.target_matrix
    is_shared = ids[BOS_ID] == ids[EOS_ID] >= 0
    if is_shared and config.target_bos and not torch.equal(matrix[BOS_ID], matrix[EOS_ID]):
        raise UsageError(
            f"{directory.path}: its start and its end share a row in the model it was imported "
            "from, but training has made them two; use it here"
        )
    if isinstance(tokenizer, JointTokenizer):
        before = SPECIAL_PIECES[BOS_ID] if config.target_bos else ""
        return _joint(tokenizer, before=before)
    if isinstance(tokenizer, BytePieceTokenizer):
        name = {"gpt2": "GPT2Tokenizer", "qwen2": "Qwen2Tokenizer"}[tokenizer.words]
        settings: dict[str, Any] = {"tokenizer_class": name, "add_prefix_space": False}
        names = dict.fromkeys(SPECIAL_PIECES)
        if ids[EOS_ID] >= 0:
            names[SPECIAL_PIECES[EOS_ID]] = END
            settings |= dict.fromkeys(("bos_token", "eos_token", "unk_token"), END)
        return _byte_pieces(tokenizer, ids, settings, names)
    if isinstance(tokenizer, LibraryTokenizer):
        ends = {"bos_token": BOS_ID, "eos_token": EOS_ID}
        return Layout(
            ids=ids,
            files={TOKENIZER: _json(tokenizer.content)},
            settings={
                "tokenizer_class": "PreTrainedTokenizerFast",
                **{n: tokenizer.name_of(token) for n, token in ends.items() if ids[token] >= 0},
            },
        )
    if isinstance(tokenizer, SentencePieceTokenizer):
        return Layout(
            ids=ids,
            files={"tokenizer.model": tokenizer.target.file.data},
            settings={
                "tokenizer_class": "LlamaTokenizer",
                "bos_token": "<s>",
                "eos_token": "</s>",
                "unk_token": "<unk>",
                "add_bos_token": True,
                "add_eos_token": False,
                "legacy": True,
            },
        )
    raise UsageError(
        f"{directory.path}: --format huggingface cannot write its kind of tokenizer; use "
        "the model it was imported from"
    )


def encoder_layout(directory: ModelDirectory) -> Layout:
    """Decides how the vocabulary of an encoder is exported: with the ids that it came with."""
    tokenizer = directory.tokenizer
    ids = tuple(original_ids(directory)) or tuple(range(tokenizer.vocab_size))
    if isinstance(tokenizer, WordPieceTokenizer):
        rules = tokenizer.rules
        if rules.between_spaces or rules.longest_word != 100 or not rules.clean:
            raise UsageError(
                f"{directory.path}: its words are cut in a way that --format huggingface cannot "
                "write; use the model it was imported from"
            )
        pieces = [*NAMES, *map(original_piece, tokenizer.all_pieces[_N_SPECIAL:])]
        lines = "".join(f"{piece}\n" for _, piece in sorted(zip(ids, pieces, strict=True)))
        settings = {
            "tokenizer_class": "BertTokenizer",
            "do_lower_case": rules.lowercase,
            "strip_accents": rules.strip_accents,
            "tokenize_chinese_chars": rules.chinese,
        }
        return Layout(ids=ids, files={"vocab.txt": lines.encode()}, settings=settings)
    if isinstance(tokenizer, JointTokenizer):
        _check_no_new_tokens(tokenizer)
        has_words = directory.config.head == "tags" and tokenizer.algorithm in BY_WORDS
        return _joint(tokenizer, behind=SPECIAL_PIECES[EOS_ID], has_words=has_words)
    if not isinstance(tokenizer, BytePieceTokenizer) or not tokenizer.mask:
        raise UsageError(
            f"{directory.path}: --format huggingface cannot write its kind of tokenizer "
            "for encoders; use it here"
        )
    settings = {"tokenizer_class": "RobertaTokenizer", "mask_token": tokenizer.mask}
    return _byte_pieces(tokenizer, ids, settings, {})


def with_whole_tokenizer(directory: ModelDirectory, layout: Layout) -> Layout:
    """Adds the tokenizer.json of an encoder, for programs that read no other file."""
    tokenizer = directory.tokenizer
    if TOKENIZER in layout.files or not isinstance(tokenizer, ForeignPieceTokenizer):
        return layout
    content = json.loads(tokenizer.library_json)
    is_words = isinstance(tokenizer, WordPieceTokenizer)
    first = NAMES if is_words else SPECIAL_PIECES
    names = [*first, *map(original_piece, tokenizer.all_pieces[_N_SPECIAL:])]
    ids = dict(zip(names, layout.ids, strict=True))
    content["model"] |= {"vocab": ids, "unk_token": first[UNK_ID] if is_words else None}
    library = HuggingFaceTokenizer.from_str(json.dumps(content))
    library.add_special_tokens(list(first))
    if tokenizer.mask:  # RoBERTa's takes the space before it
        library.add_special_tokens([AddedToken(tokenizer.mask, lstrip=not is_words, special=True)])
    start, end = first[BOS_ID], first[EOS_ID]
    library.post_processor = processors.TemplateProcessing(
        single=f"{start} $A {end}",
        pair=f"{start} $A {end} $B {end}",
        special_tokens=[(piece, ids[piece]) for piece in (start, end)],
    )
    whole = (library.to_str(pretty=True) + "\n").encode()
    roles = (
        "pad_token",
        "unk_token",
        *(("cls_token", "sep_token") if is_words else ("bos_token", "eos_token")),
    )
    named = dict(zip(roles, first, strict=True))
    return replace(
        layout,
        files={**layout.files, TOKENIZER: whole},
        settings={
            **named,
            **({"mask_token": tokenizer.mask} if tokenizer.mask else {}),
            **layout.settings,
        },
    )


def _byte_pieces(
    tokenizer: BytePieceTokenizer,
    ids: tuple[int, ...],
    settings: Mapping[str, Any],
    names: Mapping[str, str | None],
) -> Layout:
    """GPT-2's files: pieces with their exported ids, and merges.

    `names` are other names of pieces; the files do not list those whose name is None.
    """
    numbered = {
        str(names.get(piece, original_piece(piece))): number
        for piece, number in zip(tokenizer.all_pieces, ids, strict=True)
        if number >= 0 and names.get(piece, piece) and not piece.startswith(UNUSED)
    }
    merges = "".join(f"{left} {right}\n" for left, right in tokenizer.merges)
    files = {
        "vocab.json": _json(dict(sorted(numbered.items(), key=lambda item: item[1]))),
        "merges.txt": b"#version: 0.2\n" + merges.encode(),
    }
    return Layout(ids=ids, files=files, settings=settings)


def layout_of(directory: ModelDirectory, kind: str) -> Layout:
    tokenizer = directory.tokenizer
    if kind == "t5" and (ids := original_ids(directory)):
        return _t5(directory, tokenizer, ids)
    _check_no_new_tokens(tokenizer)
    if isinstance(tokenizer, JointTokenizer):
        return _joint(tokenizer, behind=SPECIAL_PIECES[EOS_ID])
    if isinstance(tokenizer, SentencePieceTokenizer):
        languages = tokenizer.languages
        has_marian_tags = languages.before_source == "target" and languages.in_text
        if kind == "marian" and (has_marian_tags or not languages.tokens):
            return _marian(directory, tokenizer)
        is_joint = tokenizer.source.vocabulary is tokenizer.target.vocabulary
        if kind != "marian" and is_joint and languages.before_source == "source":
            return _multilingual(directory, tokenizer, kind)
    raise UsageError(
        f"{directory.path}: has a SentencePiece tokenizer that no {kind} model of Hugging Face "
        "has; use the model it was imported from"
    )


def _t5(directory: ModelDirectory, tokenizer: Tokenizer, ids: list[int]) -> Layout:
    """The vocabulary of an imported model of T5's family: its SentencePiece file, or bytes."""
    matrix, start = directory.model.target_matrix, ids[BOS_ID]
    same = [n for n, number in enumerate(ids) if number == start and n not in (PAD_ID, BOS_ID)]
    if tokenizer.new_tokens or any(not torch.equal(matrix[n], matrix[BOS_ID]) for n in same):
        raise UsageError(
            f"{directory.path}: has new tokens, or a start of translations that training has made "
            "another token; export with --format int8"
        )
    if isinstance(tokenizer, SentencePieceTokenizer):
        files = {"spiece.model": tokenizer.target.file.data}
        names = ("pad_token", "unk_token", "eos_token")
        pieces = tokenizer.target.file.model.pieces
        named = {
            n: pieces[ids[token]] for n, token in zip(names, (PAD_ID, UNK_ID, EOS_ID), strict=True)
        }
        # the tokens for omitted spans are pieces of the file
        settings = {"tokenizer_class": "T5Tokenizer", "extra_ids": 0, **named}
        return Layout(ids=tuple(ids), files=files, settings=settings)
    return Layout(ids=tuple(ids), files={}, settings={"tokenizer_class": "ByT5Tokenizer"})


def _check_no_new_tokens(tokenizer: Tokenizer) -> None:
    if tokenizer.new_tokens:
        raise UsageError(
            f"--format: the library would cut the new tokens {', '.join(tokenizer.new_tokens)}; "
            "export with --format ctranslate2"
        )


def _joint(
    tokenizer: JointTokenizer, *, before: str = "", behind: str = "", has_words: bool = False
) -> Layout:
    """The unchanged tokenizer, with special tokens around every text; sources end with one.

    With `has_words` pieces stand where their letters do, without the space before them, and the
    library can join the words of a tagger.
    """
    library = HuggingFaceTokenizer.from_str(
        tokenizer.source_json() if behind else tokenizer.to_json()
    )
    pad, unk, bos, eos = SPECIAL_PIECES
    around = [piece for piece in (before, behind) if piece]
    if around:
        library.post_processor = processors.TemplateProcessing(
            single=f"{before} $A {behind}".strip(),
            pair=f"{before} $A $B {behind}".strip(),
            special_tokens=[(piece, SPECIAL_PIECES.index(piece)) for piece in around],
        )
    if has_words:
        trimmed = processors.ByteLevel(add_prefix_space=True, trim_offsets=True)
        library.post_processor = processors.Sequence([trimmed, library.post_processor])
        library.decoder = word_decoder(tokenizer.algorithm)
    # "</s>" in a text is four characters, not the token
    special: dict[str, Any] = {"split_special_tokens": True}
    if tokenizer.mask:
        # found in normalized text, for each part of a text that is cut before would get a space
        library.add_tokens([AddedToken(tokenizer.mask, normalized=True, special=True)])
        # the library finds either all special tokens in a text or none
        special = {"split_special_tokens": False, "mask_token": tokenizer.mask}
    return Layout(
        ids=tuple(range(tokenizer.vocab_size)),
        files={TOKENIZER: (library.to_str(pretty=True) + "\n").encode()},
        settings={
            "tokenizer_class": "PreTrainedTokenizerFast",
            "pad_token": pad,
            "unk_token": unk,
            "bos_token": bos,
            "eos_token": eos,
            **special,
        },
    )


def _marian(directory: ModelDirectory, tokenizer: SentencePieceTokenizer) -> Layout:
    """The vocabularies of a Marian model; without an origin numbered as those of OPUS-MT are."""
    source, target = tokenizer.source, tokenizer.target
    is_shared = source.vocabulary is target.vocabulary
    rest = range(_N_SPECIAL, target.vocab_size)
    # of two vocabularies of different sizes the last ids differ, but padding has one id
    order = [EOS_ID, UNK_ID, *rest, PAD_ID] if is_shared else [EOS_ID, UNK_ID, PAD_ID, *rest]
    pieces = target.vocabulary.pieces
    ids = _settle_ids(directory, pieces, original_ids(directory) or _by_order(order, PAD_ID))
    source_ids: list[int] = []
    files = {"source.spm": source.file.data, "target.spm": target.file.data}
    if is_shared:
        files["vocab.json"] = _number_pieces(target, ids)
    else:
        first = ids[:_N_SPECIAL]
        others = (n for n in range(source.vocab_size) if n not in first)
        source_ids = [*first, *islice(others, source.vocab_size - _N_SPECIAL)]
        files["vocab.json"] = _number_pieces(source, source_ids)
        files["target_vocab.json"] = _number_pieces(target, ids)
    return Layout(
        ids=tuple(ids),
        source_ids=tuple(source_ids),
        files=files,
        settings={
            "tokenizer_class": "MarianTokenizer",
            "source_lang": directory.info.source_language or None,
            "target_lang": directory.info.target_language or None,
            "separate_vocabs": not is_shared,
        },
        renormalizes=True,
    )


_CLASSES = {"m2m_100": "NllbTokenizer", "pegasus": "NllbTokenizer", "mbart": "MBart50Tokenizer"}


def _multilingual(
    directory: ModelDirectory, tokenizer: SentencePieceTokenizer, kind: str
) -> Layout:
    """The vocabulary of M2M-100, NLLB or mBART-50, numbered as fairseq does."""
    side, languages = tokenizer.target, tokenizer.languages
    pieces = side.vocabulary.pieces
    ids = original_ids(directory)
    if not ids and _START in pieces:
        begin = pieces.index(_START)
        rest = (n for n in range(_N_SPECIAL, side.vocab_size) if n != begin)
        ids = _by_order([begin, PAD_ID, EOS_ID, UNK_ID, *rest], EOS_ID)
    ids = _settle_ids(directory, pieces, ids)
    tokens = list(languages.tokens.values())
    is_m2m = all(map(M2M_TOKEN.fullmatch, tokens))
    bos, pad, eos, unk = "<s>", "<pad>", "</s>", "<unk>"
    special = {"bos_token": bos, "pad_token": pad, "eos_token": eos, "unk_token": unk}
    special |= {"sep_token": eos, "cls_token": bos, "mask_token": "<mask>"}
    named = {**special, "additional_special_tokens": tokens}
    files = {"sentencepiece.bpe.model": side.file.data, "special_tokens_map.json": _json(named)}
    if is_m2m:
        first = min(ids[pieces.index(token)] for token in tokens)
        files["vocab.json"] = _number_pieces(side, ids, first)
    start = tokenizer.target.start
    # by its own counting the library would put <mask> before the languages
    places = {original_piece(p): n for p, n in zip(pieces, ids, strict=True)}
    places = {token: places[token] for token in (pad, eos, unk, *tokens)}
    places["<mask>"] = max(places.values()) + 1
    added = {
        str(number): {"content": token, "normalized": False, "special": True}
        for token, number in places.items()
    }
    return Layout(
        ids=tuple(ids),
        files=files,
        settings={
            "tokenizer_class": "M2M100Tokenizer" if is_m2m else _CLASSES[kind],
            "src_lang": languages.source,
            "tgt_lang": languages.target,
            **named,
            **({} if is_m2m else {"added_tokens_decoder": added}),
        },
        # a start that training has made of the end would take half of its probability
        renormalizes=ids[BOS_ID] != ids[EOS_ID],
        first_token=ids[start[0]] if start else None,
    )


def original_ids(directory: ModelDirectory) -> list[int]:
    """The ids of the model that this one was imported from; none if it was not."""
    origin = directory.info.origin
    runs = origin.ids if origin is not None else ()
    return [first + n if first >= 0 else -1 for first, length in runs for n in range(length)]


def _by_order(order: Sequence[int], start: int) -> list[int]:
    """The exported id of each token, from all but `<s>` in the order of those ids."""
    numbers = {token: number for number, token in enumerate(order)}
    numbers[BOS_ID] = numbers[start]
    return [numbers[token] for token in range(len(numbers))]


def _settle_ids(directory: ModelDirectory, pieces: Sequence[str], ids: list[int]) -> list[int]:
    """Finds an id for the start of translations, and refuses ids that two tokens share.

    It may share that of padding, which is never written, or of the end, as long as they are one
    token. Training makes two of them; then the start gets the id of `<s>`, which nothing uses.
    """
    matrix = directory.model.target_matrix
    written = [*ids[UNK_ID:BOS_ID], *ids[EOS_ID:]]
    is_end = len(ids) > EOS_ID and ids[BOS_ID] == ids[EOS_ID]
    is_same = torch.equal(matrix[BOS_ID], matrix[EOS_ID])
    if is_end and not is_same and _START in pieces:
        return [*ids[:BOS_ID], ids[pieces.index(_START)], *ids[EOS_ID:]]
    if (
        len(ids) != len(pieces)
        or min(ids) < 0
        or len({*written}) < len(written)
        or ids[PAD_ID] in written
        or (ids[BOS_ID] in written and not (is_end and is_same))
    ):
        raise UsageError(
            f"{directory.path}: its special tokens share rows in the model it was imported from, "
            "which --format huggingface cannot write; use that model"
        )
    return ids


def _number_pieces(side: SentencePieceSide, ids: Sequence[int], end: int | None = None) -> bytes:
    """A vocab.json: pieces with their exported ids, those below `end`."""
    shared = (ids[PAD_ID], ids[EOS_ID])
    pieces = {
        original_piece(piece): number
        for token, (piece, number) in enumerate(zip(side.vocabulary.pieces, ids, strict=True))
        if not piece.startswith(UNUSED)
        and (end is None or number < end)
        # a start that shares a row has that row's name
        and not (token == BOS_ID and number in shared)
    }
    return _json(dict(sorted(pieces.items(), key=lambda item: item[1])))


def _json(values: Mapping[str, Any]) -> bytes:
    return (json.dumps(values, ensure_ascii=False, indent=1) + "\n").encode()
