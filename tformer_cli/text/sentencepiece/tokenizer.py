"""Tokenizers of foreign models: SentencePiece cuts the text, a list of pieces numbers it."""

import base64
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import asdict, dataclass, field, replace
from difflib import get_close_matches
from functools import cached_property
from typing import Any, Literal

from tformer_cli.errors import DataError, Setting, UsageError
from tformer_cli.structure import structure
from tformer_cli.text.sentencepiece.spm_file import SPACE, SpmFile
from tformer_cli.text.tokenizer import (
    FILE_NAME,
    UNK_ID,
    VERSION,
    VERSION_WITH_NEW_TOKENS,
    Span,
    Tokenizer,
    TokenizerSide,
    stored_new_tokens,
)
from tformer_cli.text.vocabulary import NewTokens, Vocabulary

_SHOWN = 6  # known codes that a message names


@dataclass(frozen=True, kw_only=True)
class Languages:
    """Tokens and prompts that name the language a model reads or writes."""

    tokens: Mapping[str, str] = field(default_factory=dict)  # piece of each language, by its code
    # language whose token begins every source sentence, if set
    before_source: Literal["none", "source", "target"] = "none"
    # True if the source's language token instead follows `</s>` at the end of a source sentence, as
    # in older NLLB prompts; the model itself adds no `</s>`.
    after_source: bool = False
    before_target: bool = False  # true if every translation begins with the token of its language
    in_text: bool = False  # true if `>>code<<` at the beginning of a source text is such a token
    # Text that source sentences begin with to be translated, by the code of the language that is
    # written: "translate English to German: " of T5, "<2de>" of MADLAD-400. Its models have no
    # tokens of languages; what a text begins with by itself stays as it is.
    prompts: Mapping[str, str] = field(default_factory=dict)
    source: str | None = None  # code of the language that is read; None: not set
    target: str | None = None  # code of the language that is written; None: not set

    def __post_init__(self) -> None:
        for code in (self.source, self.target):
            if code is not None and code not in self.codes:
                raise ValueError(f"has no token for its language {code}")

    @property
    def codes(self) -> Collection[str]:
        return (self.prompts or self.tokens).keys()

    @property
    def prompt(self) -> str:
        """The text that source sentences begin with; empty if there is none or it is not chosen."""
        return self.prompts.get(self.target or "", "")

    @property
    def source_pieces(self) -> tuple[str, ...]:
        if self.before_source == "none" or self.after_source or self.prompts:
            return ()
        return self._piece(self.source if self.before_source == "source" else self.target)

    @property
    def source_end_pieces(self) -> tuple[str, ...]:
        return ("</s>", *self._piece(self.source)) if self.after_source else ()

    @property
    def target_pieces(self) -> tuple[str, ...]:
        return self._piece(self.target) if self.before_target else ()

    @property
    def has_source(self) -> bool:
        return bool(self.tokens) and self.before_source == "source"

    @property
    def has_target(self) -> bool:
        has_tokens = bool(self.tokens) and (self.before_target or self.before_source == "target")
        return has_tokens or bool(self.prompts)

    def choose_languages(self, source: str | None, target: str | None) -> "Languages":
        """The same with other languages; None keeps one."""
        for side, code, can in (
            ("source", source, self.has_source),
            ("target", target, self.has_target),
        ):
            if code is not None and not can:
                raise UsageError.of(
                    "{}: this model has no tokens for the language of its {}; omit it",
                    Setting(f"{side}_language"),
                    side,
                )
            if code is not None and code not in self.codes:
                raise UsageError.of(
                    '{}: this model does not know "{}"; {}',
                    Setting(f"{side}_language"),
                    code,
                    self._suggest_codes(code),
                )
        return replace(self, source=source or self.source, target=target or self.target)

    def check(self) -> None:
        for side, code, is_needed in (
            ("source", self.source, self.has_source),
            ("target", self.target, self.before_target),
        ):
            if is_needed and code is None:
                raise UsageError.of(
                    "{}: this model knows {} languages, but none is chosen; {}",
                    Setting(f"{side}_language"),
                    len(self.codes),
                    self._suggest_codes(""),
                )

    def _suggest_codes(self, code: str) -> str:
        near = get_close_matches(code, self.codes, n=_SHOWN, cutoff=0.4)
        named = [*near, *(known for known in sorted(self.codes) if known not in near)][:_SHOWN]
        rest = len(self.codes) - len(named)
        more = f" or one of {rest} others" if rest else ""
        return f"choose {', '.join(named)}{more}"

    def _piece(self, code: str | None) -> tuple[str, ...]:
        return () if code is None else (self.tokens[code],)


NO_LANGUAGES = Languages()  # of a model that translates from one language to another


class SentencePieceSide(TokenizerSide):
    """The tokenizer of a foreign model's source or target."""

    def __init__(
        self,
        file: SpmFile,
        vocabulary: Vocabulary,
        start: tuple[int, ...] = (),
        end: tuple[int, ...] = (),
        *,
        takes_tags: bool = False,
        prompts: Collection[str] = (),
    ) -> None:
        self.file = file
        self.vocabulary = vocabulary
        self.start, self.end = start, end
        self.takes_tags = takes_tags
        self.prompts = tuple(sorted(prompts, key=len, reverse=True))

    @property
    def vocab_size(self) -> int:
        return len(self.vocabulary.pieces)

    @cached_property
    def piece_ids(self) -> list[int]:
        find = self.vocabulary.ids_in_text.get
        ids = [find(piece, UNK_ID) for piece in self.file.model.pieces]
        ids[self.file.unknown] = UNK_ID
        return ids

    @cached_property
    def _new_tokens(self) -> NewTokens | None:
        words = self.vocabulary.new_tokens
        if not words:
            return None
        return NewTokens(words, keeps_space_behind=not self.file.model.add_dummy_prefix)

    def _parts(self, text: str) -> list[tuple[int, str, bool]]:
        """Splits a text: the beginning of each part, the part, and True for a new token."""
        new = self._new_tokens
        return [(0, text, False)] if new is None or not new.are_in(text) else new.split(text)

    def encode_phrases(self, texts: Sequence[str]) -> list[list[int]]:
        if self._new_tokens is None or not any(map(self._new_tokens.are_in, texts)):
            return self._encode_parts(texts)
        rows = [self._parts(text) for text in texts]
        plain = [part for row in rows for _, part, is_new in row if not is_new]
        encoded, find = iter(self._encode_parts(plain)), self.vocabulary.new_tokens
        return [
            [
                token
                for _, part, is_new in row
                for token in ([find[part]] if is_new else next(encoded))
            ]
            for row in rows
        ]

    def _encode_parts(self, texts: Sequence[str]) -> list[list[int]]:
        id_of, unknown = self.piece_ids, self.file.unknown
        return [
            self._by_text(text) if unknown in row else [id_of[n] for n in row]
            for text, row in zip(texts, self.file.encode_batch(texts), strict=True)
        ]

    def _by_text(self, text: str) -> list[int]:
        """Ids of a text with pieces that this model lacks, but a shared vocabulary may have."""
        find = self.vocabulary.ids_in_text.get
        return [find(piece, UNK_ID) for piece in self.file.encode_as_texts(text)]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        tags = [self._tag(text) for text in texts] if self.takes_tags or self.prompts else []
        if not any(tags):
            return super().encode_batch(texts)
        phrases = self.encode_phrases(
            [text[len(tag) :] for text, tag in zip(texts, tags, strict=True)]
        )
        return [
            [*self._start_of(tag), *ids, *self.end] if ids or tag else []
            for tag, ids in zip(tags, phrases, strict=True)
        ]

    def encode_with_spans(self, texts: Sequence[str]) -> list[tuple[list[int], list[Span]]]:
        """See `TokenizerSide`; a language token's span is empty, or where the text has it."""
        return [self._with_spans(text) for text in texts]

    def _with_spans(self, text: str) -> tuple[list[int], list[Span]]:
        tag = self._tag(text)
        n = len(tag)
        tokens = [
            (token, (n + first, n + end)) for token, first, end in self._with_places(text[n:])
        ]
        if not tokens and not tag:
            return [], []
        start = self._start_of(tag)
        ends = [(len(text), len(text))] * len(self.end)
        return (
            [*start, *(token for token, _ in tokens), *self.end],
            [*((0, n) for _ in start), *(span for _, span in tokens), *ends],
        )

    def _with_places(self, text: str) -> Iterator[tuple[int, int, int]]:
        """The ids of a text, each with where its characters begin and end."""
        for start, part, is_new in self._parts(text):
            if is_new:
                yield self.vocabulary.new_tokens[part], start, start + len(part)
                continue
            places = self.file.encode_with_places(part)
            for token, (_, first, end) in zip(self._by_text(part), places, strict=True):
                yield token, start + first, start + end

    def _tag(self, text: str) -> str:
        """The beginning of a text that names a language: `>>code<<` or a prompt; may be empty."""
        if self.takes_tags:
            end = text.find("<<") + 2 if text.startswith(">>") else 0
            return text[:end] if end >= 2 else ""
        if not text.startswith(self.prompts):
            return ""
        return next(prompt for prompt in self.prompts if text.startswith(prompt))

    def _start_of(self, tag: str) -> tuple[int, ...]:
        if not tag:
            return self.start
        if not self.takes_tags:
            return tuple(self.encode_phrases([tag])[0])
        new = self.vocabulary.new_tokens.get(tag, UNK_ID)
        return (self.vocabulary.ids.get(tag, new),)

    def for_parts_of(self, line: str) -> "SentencePieceSide":
        tag = self._tag(line)
        if not tag:
            return self
        side = copy(self)
        side.start = self._start_of(tag)
        return side

    def decode(self, ids: Sequence[int]) -> str:
        """See `TokenizerSide`; spaces around the text are removed, as SentencePiece adds one."""
        texts = self.vocabulary.bytes
        # each byte that is not UTF-8 is one character, as in SentencePiece
        text = b"".join([texts[i] for i in ids]).decode("utf-8", "surrogateescape")
        if not text.isascii():
            text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        return text.strip()

    @property
    def piece_bytes(self) -> list[bytes]:
        return self.vocabulary.bytes

    @property
    def _labels(self) -> list[str]:
        return self.vocabulary.labels


def _read_side(side: Mapping[str, Any]) -> tuple[bytes | None, list[str] | None]:
    """The SentencePiece model and the vocabulary of a side in a file; None: the source's."""
    spm, pieces = side["spm"], side["pieces"]
    if not isinstance(spm, str | None) or not isinstance(pieces, list | None):
        raise TypeError
    return None if spm is None else base64.b64decode(spm, validate=True), pieces


class SentencePieceTokenizer(Tokenizer):
    """The tokenizer of a foreign model."""

    algorithm = "sentencepiece"
    _source: SentencePieceSide
    _target: SentencePieceSide

    def __init__(
        self,
        files: tuple[SpmFile, SpmFile],
        vocabularies: tuple[Vocabulary, Vocabulary],
        languages: Languages,
    ) -> None:
        """Joins source and target, the same twice if they share; use `build`."""
        self.languages = languages
        self._files, self._vocabularies = files, vocabularies
        self.new_tokens = tuple(vocabularies[0].new_tokens)
        starts = [
            tuple(vocabulary.id_of_token(piece) for piece in pieces)
            for vocabulary, pieces in zip(
                vocabularies, (languages.source_pieces, languages.target_pieces), strict=True
            )
        ]
        end = tuple(map(vocabularies[0].id_of_token, languages.source_end_pieces))
        self._source = SentencePieceSide(
            files[0],
            vocabularies[0],
            starts[0],
            end,
            takes_tags=languages.in_text,
            prompts=languages.prompts.values(),
        )
        if languages.prompt:
            self._source.start = tuple(self._source.encode_phrases([languages.prompt])[0])
        self._target = SentencePieceSide(files[1], vocabularies[1], starts[1])

    @classmethod
    def build(
        cls,
        source_spm: bytes,
        target_spm: bytes | None,
        pieces: Sequence[str],
        target_pieces: Sequence[str] | None = None,
        *,
        languages: Languages = NO_LANGUAGES,
        where: str = FILE_NAME,
    ) -> "SentencePieceTokenizer":
        tokenizer = cls._join_sides(source_spm, target_spm, pieces, target_pieces, languages, where)
        for side in (tokenizer.source, tokenizer.target):
            side.encode("")  # reads what is otherwise read when it is first used
        return tokenizer

    @classmethod
    def _join_sides(
        cls,
        source_spm: bytes,
        target_spm: bytes | None,
        pieces: Sequence[str],
        target_pieces: Sequence[str] | None,
        languages: Languages,
        where: str,
        new_tokens: Sequence[str] = (),
    ) -> "SentencePieceTokenizer":
        named = frozenset(languages.tokens.values())
        settings = named, where, new_tokens, SPACE
        file, vocabulary = SpmFile(source_spm, where), Vocabulary(pieces, *settings)
        is_same = target_spm is None or target_spm == source_spm
        files = file, file if is_same else SpmFile(target_spm or b"", where)
        others = vocabulary if target_pieces is None else Vocabulary(target_pieces, *settings)
        return cls(files, (vocabulary, others), languages)

    def with_new_tokens(self, words: Sequence[str]) -> "SentencePieceTokenizer":
        """See `Tokenizer`. The SentencePiece models stay, so all other text is cut as before."""
        source, target = self._vocabularies
        longer = source.extend(words)
        others = longer if target is source else target.extend(words)
        return type(self)(self._files, (longer, others), self.languages)

    @classmethod
    def parse(cls, text: str, where: str = FILE_NAME) -> "SentencePieceTokenizer":
        """Reads the text of a `tokenizer.json`; `where` names it in messages."""
        try:
            data = json.loads(text)
            if data["kind"] != "sentencepiece":
                raise DataError(
                    f"{where}: was written by another version of tformer; update tformer"
                )
            new_tokens = stored_new_tokens(data, where)
            languages = structure(Languages, data["languages"])
            spm, pieces = _read_side(data["source"])
            others = _read_side(data["target"])
        except (ValueError, KeyError, TypeError, RecursionError):
            raise DataError(f"{where}: is damaged; restore the file") from None
        if spm is None or pieces is None:
            raise DataError(f"{where}: is damaged, its source lacks a part; restore the file")
        return cls._join_sides(spm, others[0], pieces, others[1], languages, where, new_tokens)

    def to_json(self) -> str:
        """The text of a `tokenizer.json`; its beginning says what it is."""
        return self._json

    @cached_property
    def _json(self) -> str:
        spms: list[str | None] = [base64.b64encode(file.data).decode() for file in self._files]
        pieces: list[list[str] | None] = [vocabulary.pieces for vocabulary in self._vocabularies]
        if self._files[0] is self._files[1]:
            spms[1] = None
        if self._vocabularies[0] is self._vocabularies[1]:
            pieces[1] = None
        data: dict[str, Any] = {
            "tformer_tokenizer": VERSION_WITH_NEW_TOKENS if self.new_tokens else VERSION,
            "kind": "sentencepiece",
            "languages": asdict(self.languages),
            "source": {"spm": spms[0], "pieces": pieces[0]},
            "target": {"spm": spms[1], "pieces": pieces[1]},
        }
        if self.new_tokens:
            data["new_tokens"] = self.new_tokens
        return json.dumps(data, ensure_ascii=False) + "\n"

    @property
    def source(self) -> SentencePieceSide:
        return self._source

    @property
    def target(self) -> SentencePieceSide:
        return self._target

    @property
    def language_codes(self) -> tuple[str, ...]:
        return tuple(sorted(self.languages.codes))

    @property
    def has_language_tokens(self) -> tuple[bool, bool]:
        return self.languages.has_source, self.languages.has_target

    def for_languages(self, source: str | None, target: str | None) -> "SentencePieceTokenizer":
        chosen = self.languages.choose_languages(source, target)
        if chosen == self.languages:
            return self
        return type(self)(self._files, self._vocabularies, chosen)

    def check_languages(self) -> None:
        self.languages.check()
