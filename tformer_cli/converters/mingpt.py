"""Checkpoints of minGPT: its weights alone, `model.pt`, with its `config.json` beside them.

The models are GPT-2's with the activation by tanh; the vocabulary is not stored. Source: minGPT,
mingpt/model.py, mingpt/utils.py (`setup_logging`) and projects/chargpt/chargpt.py.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tformer_cli.converters.assembly import Reader
from tformer_cli.converters.foreign_model import (
    ForeignModel,
    number,
    read_bytes,
    read_json_file,
)
from tformer_cli.converters.formats.lazy_arrays import LazyArrays
from tformer_cli.converters.formats.torch_checkpoint import named_tensors
from tformer_cli.converters.gpt2 import NANO_EPSILON, Vocabulary, converted, find_vocabulary
from tformer_cli.errors import ArtifactError

HEADS: Mapping[str, int] = MappingProxyType(
    {
        "openai-gpt": 12,
        "gpt2": 12,
        "gpt2-medium": 16,
        "gpt2-large": 20,
        "gpt2-xl": 25,
        "gopher-44m": 16,
        "gpt-mini": 6,
        "gpt-micro": 4,
        "gpt-nano": 3,
    }
)
"""Heads of the models that minGPT has names for."""
_LAYER = re.compile(r"transformer\.h\.(\d+)\.attn\.c_attn\.weight")
_MASK = "transformer.h.0.attn.bias"
_LARGEST_TEXT = 1 << 30


@dataclass(frozen=True, kw_only=True)
class MinGptSource:
    """A checkpoint of minGPT, opened."""

    path: Path
    """Its file."""
    arrays: LazyArrays
    """Its weights."""


def open_source(path: Path, checkpoint: Any) -> MinGptSource | None:  # noqa: ANN401
    """Recognizes a checkpoint of minGPT: weights of GPT-2's names, the causal mask among them."""
    arrays = named_tensors(checkpoint)
    is_ours = {"transformer.wte.weight", "lm_head.weight", _MASK} <= set(arrays)
    return MinGptSource(path=path, arrays=arrays) if is_ours else None


def convert(source: MinGptSource) -> ForeignModel:
    """Converts a checkpoint of minGPT."""
    path, arrays = source.path, source.arrays
    file = path.parent / "config.json"
    positions, width = _shape(arrays, "transformer.wpe.weight", path)
    n_rows, _ = _shape(arrays, "transformer.wte.weight", path)
    given = find_vocabulary(path.parent) or _characters(path.parent, n_rows)
    vocabulary = given or _numbers(n_rows)
    model = converted(
        "minGPT",
        Reader(arrays, str(path)),
        path,
        {
            "d_model": width,
            "d_ff": 4 * width,
            "n_heads": _n_heads(file, width),
            "n_decoder_layers": sum(_LAYER.fullmatch(name) is not None for name in arrays),
            "max_positions": positions,
            "activation": "gelu-tanh",
            "norm_epsilon": NANO_EPSILON,
        },
        vocabulary,
        (path, file, *vocabulary.files),
        is_transposed=False,
    )
    if given is not None:
        return model
    note = f"has no vocabulary beside it: a text is the numbers of its tokens, 0 to {n_rows - 1}"
    return replace(model, notes=(*model.notes, note))


def _shape(arrays: LazyArrays, name: str, path: Path) -> tuple[int, int]:
    shape = arrays[name].shape if name in arrays else ()
    if len(shape) != 2:
        raise ArtifactError(f"{path}: {name} is no matrix; save the model again")
    return shape[0], shape[1]


def _n_heads(file: Path, width: int) -> int:
    """Reads how many heads there are, which the weights do not tell."""
    settings = read_json_file(file).get("model")
    if not isinstance(settings, dict):
        raise ArtifactError(f"{file}: has no settings of a model; put minGPT's own file there")
    told = settings.get("n_embd")
    if told is not None and number(file, settings, "n_embd") != width:
        raise ArtifactError(
            f"{file}: n_embd is {told}, but the weights are {width} wide; put the file of the same "
            "run there"
        )
    named = settings.get("model_type")
    if settings.get("n_head") is None and isinstance(named, str) and named in HEADS:
        return HEADS[named]
    return number(file, settings, "n_head")


def _characters(path: Path, n_rows: int) -> Vocabulary | None:
    """Makes the vocabulary that chargpt makes of its text, in order of the code points."""
    file = path / "input.txt"
    if not file.is_file():
        return None
    text = read_bytes(file, _LARGEST_TEXT).decode("utf-8", "replace")
    found = sorted(set(text.replace("\r\n", "\n").replace("\r", "\n")))
    if len(found) != n_rows:
        raise ArtifactError(
            f"{file}: has {len(found):,} different characters, but the model {n_rows:,}; put the "
            "text that it was trained on there, or none"
        )
    return Vocabulary(
        pieces={piece: place for place, piece in enumerate(found)}, merges=None, files=(file,)
    )


def _numbers(n_rows: int) -> Vocabulary:
    """Names tokens by their numbers, as words."""
    pieces = {f"Ġ{place}": place for place in range(n_rows)}
    return Vocabulary(pieces=pieces, merges=None, files=(), algorithm="word")
