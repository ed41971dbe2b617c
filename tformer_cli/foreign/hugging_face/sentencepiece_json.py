"""A tokenizer.json of a SentencePiece model: whether it cuts text as that model does."""

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tformer_cli.errors import ArtifactError
from tformer_cli.foreign.foreign_model import read_json_file
from tformer_cli.foreign.hugging_face.keys import (
    TOKENIZER,
    added_of,
    check_surrounding,
    rows_of,
    tokenizer_config,
    whole_tokenizer,
)
from tformer_cli.foreign.keys import USED, Keys, Parts, Rows, no_effect, noted, only
from tformer_cli.text.sentencepiece.spm_file import NORMAL, SPACE, SpmModel

# runs of spaces, and newlines, which no line has
_REPLACED = only({"Regex": " {2,}"}, {"String": " "}, {"Regex": r"\n"})
_ROUNDING = 1e-3
NORMALIZER = Parts(
    {
        None: {},
        "Precompiled": {"precompiled_charsmap": USED},
        "Replace": {"pattern": _REPLACED, "content": only(" ", SPACE)},
        "Prepend": {"prepend": only(SPACE)},
        "Strip": rows_of("strip_left strip_right", no_effect("texts lose spaces at their ends")),
    },
    in_sequence=True,
)
PRE_TOKENIZER = Parts(
    {
        None: {},
        "WhitespaceSplit": {},
        "Metaspace": {
            **rows_of("replacement str_rep", only(SPACE)),
            "add_prefix_space": only(True),
            "prepend_scheme": only("always", "first"),
            "split": no_effect("pieces do not cross spaces, or the model has those that do"),
        },
    },
    in_sequence=True,
)


def model_rows(*, byte_fallback: bool) -> Rows:
    """The rows of the model in a tokenizer.json, of unigram pieces or merges."""
    return {
        "type": only("Unigram", "BPE"),
        **rows_of("vocab unk_id unk_token", USED),
        "merges": no_effect("the SentencePiece model has them"),
        "byte_fallback": only(byte_fallback, *(() if byte_fallback else (None,))),
        "dropout": only(None, 0.0),
        **rows_of("continuing_subword_prefix end_of_word_suffix", only(None, "")),
        "fuse_unk": only(True),
        "ignore_merges": only(False),
    }


def check_whole(
    path: Path,
    table: Keys,
    spm: SpmModel,
    ids: Mapping[str, int],
    around: tuple[Sequence[str], Sequence[str]] | None = None,
) -> tuple[list[str], list[Path]]:
    """Checks the tokenizer.json beside a SentencePiece model, if there is one."""
    file = path / TOKENIZER
    if not file.is_file():
        return [], []
    parts = read_json_file(file)
    notes = table.read(file, parts)
    if around is not None:
        check_surrounding(file, parts, *around)
    model = parts.get("model")
    vocab = model.get("vocab") if isinstance(model, dict) else None
    try:
        named = (
            {str(piece): place for place, (piece, _) in enumerate(vocab)}
            if isinstance(vocab, list)
            else dict(vocab)  # type: ignore[arg-type]
        )
    except (TypeError, ValueError):
        raise ArtifactError(f"{file}: has no vocabulary; download it again") from None
    other = next(
        (one for one, place in {**named, **added_of(parts, file)}.items() if ids.get(one) != place),
        None,
    )
    if other is not None or len(named) < len(spm.pieces):
        which = "fewer pieces" if other is None else f"another id of {ascii(other)[:60]}"
        raise ArtifactError(
            f"{file}: has {which} than the SentencePiece model beside it; use the files of one "
            "model"
        )
    if isinstance(vocab, list):
        scores = dict(zip(spm.pieces, spm.scores, strict=True))
        normal = spm.of_type(NORMAL)
        other = next((p for p, n in vocab if p in normal and abs(n - scores[p]) > _ROUNDING), None)
        if other is not None:
            raise ArtifactError(
                f"{file}: has another score of {ascii(other)[:60]} than the SentencePiece model "
                "beside it; use the files of one model"
            )
    check_space(file, parts, has_space=spm.add_dummy_prefix)
    if charsmap_of(parts.get("normalizer")) != spm.charsmap:
        raise ArtifactError(
            f"{file}: normalizer replaces other characters than the SentencePiece model beside it; "
            "use the files of one model"
        )
    return notes, [file]


def check_space(file: Path, parts: Mapping[str, Any], *, has_space: bool = True) -> None:
    """Refuses a tokenizer.json that does not put a space before texts where one is put here."""
    sections = [*_parts(parts.get("normalizer")), *_parts(parts.get("pre_tokenizer"))]
    if any(one.get("type") in ("Prepend", "Metaspace") for one in sections) != has_space:
        raise ArtifactError(
            f"{file}: normalizer and pre_tokenizer put {'no' if has_space else 'a'} space before "
            "texts, which is not supported; import another model"
        )


def _parts(section: object) -> list[Mapping[str, Any]]:
    """A section of a tokenizer.json, or the parts of a sequence."""
    if not isinstance(section, dict):
        return []
    inner = (value for value in section.values() if isinstance(value, list))
    return [section, *(part for parts in inner for one in parts for part in _parts(one))]


def charsmap_of(part: object) -> bytes:
    """The table of replacements in a normalizer of a tokenizer.json; empty: it has none."""
    if not isinstance(part, dict):
        return b""
    if part.get("type") == "Precompiled":
        return base64.b64decode(str(part.get("precompiled_charsmap") or ""))
    inner = part.get("normalizers")
    return b"".join(map(charsmap_of, inner)) if isinstance(inner, list) else b""


LLAMA_TOKENIZER = tokenizer_config(
    "LLaMA",
    ("LlamaTokenizer",),
    **rows_of("add_bos_token add_prefix_space add_dummy_prefix_space", only(None, True)),
    add_eos_token=only(None, False),
    sp_model_kwargs=only(None, {}),
    unk_id=no_effect("the SentencePiece model has it"),
    clean_up_tokenization_spaces=noted("texts keep the spaces that their pieces have", False),
)
SPM_WHOLE = whole_tokenizer(
    "NLLB, mBART, Pegasus (beside a SentencePiece model)",
    normalizer=NORMALIZER,
    pre_tokenizer=PRE_TOKENIZER,
    model=model_rows(byte_fallback=False),
)
LLAMA_WHOLE = whole_tokenizer(
    "LLaMA (beside a SentencePiece model)",
    normalizer=NORMALIZER,
    pre_tokenizer=PRE_TOKENIZER,
    model=model_rows(byte_fallback=True),
)
