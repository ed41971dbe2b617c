"""Checkpoints of nanoGPT, `ckpt.pt`, and of minGPT, `model.pt` with its `config.json` beside it.

The models are GPT-2's, minGPT's with the activation by tanh. minGPT stores no vocabulary. Sources:
nanoGPT, model.py; minGPT, mingpt/model.py, mingpt/utils.py (`setup_logging`) and
projects/chargpt/chargpt.py.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from tformer_cli.errors import ArtifactError
from tformer_cli.foreign.assembly import Reader
from tformer_cli.foreign.foreign_model import ForeignModel, number, read_bytes, read_json_file
from tformer_cli.foreign.formats.lazy_arrays import LazyArrays
from tformer_cli.foreign.formats.torch_checkpoint import named_tensors
from tformer_cli.foreign.hugging_face.byte_pieces import (
    ByteVocabulary,
    find_vocabulary,
    read_vocabulary,
)
from tformer_cli.foreign.hugging_face.decoders import put_together
from tformer_cli.foreign.hugging_face.families import FAMILIES
from tformer_cli.foreign.hugging_face.family import renamed

MODEL_ARGS = ("block_size", "n_embd", "n_head", "n_layer")
"""Settings of nanoGPT's checkpoints that are needed."""
HEADS: Mapping[str, int] = {
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
"""Heads of the models that minGPT has names for."""
# Linear layers of both are (out, in), in contrast to GPT-2's in the library
_FAMILY = replace(FAMILIES["gpt2"], transposed=False)
_EPSILON = 1e-5
_LAYER = re.compile(r"h\.(\d+)\.attn\.c_attn\.weight")
_MASK = "h.0.attn.bias"
_COMPILED = "_orig_mod."
_LARGEST_TEXT = 1 << 30


def open_source(path: Path, checkpoint: Any) -> Callable[[], ForeignModel] | None:  # noqa: ANN401
    """Recognizes a checkpoint of nanoGPT or minGPT by its names; returns what converts it."""
    if isinstance(checkpoint, dict) and {"model", "model_args"} <= checkpoint.keys():
        arrays = _short(named_tensors(checkpoint["model"]))
        if not isinstance(checkpoint["model_args"], dict) or "wte.weight" not in arrays:
            return None
        return partial(_nanogpt, path, checkpoint["model_args"], arrays)
    arrays = _short(named_tensors(checkpoint))
    # minGPT saves the causal mask
    is_mingpt = {"wte.weight", "lm_head.weight", _MASK} <= set(arrays)
    return partial(_mingpt, path, arrays) if is_mingpt else None


def convert(source: Callable[[], ForeignModel]) -> ForeignModel:
    return source()


def _short(arrays: LazyArrays) -> LazyArrays:
    return renamed(arrays, lambda n: n.removeprefix(_COMPILED).removeprefix(_FAMILY.prefix))


def _nanogpt(path: Path, settings: Mapping[str, Any], arrays: LazyArrays) -> ForeignModel:
    if not settings.keys() & set(MODEL_ARGS):
        names = ", ".join(sorted(map(str, settings))[:8]) or "empty"
        raise ArtifactError(
            f"{path}: its model_args are {names}, not {', '.join(MODEL_ARGS)}, so it is of another "
            "program; checkpoints of nanoGPT and minGPT are read, and Hugging Face's directories"
        )
    width = number(path, settings, "n_embd")
    vocabulary = read_vocabulary(path.parent)
    shape = {
        "d_model": width,
        "d_ff": 4 * width,
        "n_heads": number(path, settings, "n_head"),
        "n_decoder_layers": number(path, settings, "n_layer"),
        "max_positions": number(path, settings, "block_size"),
        "activation": "gelu",
        "norm_epsilon": _EPSILON,
        "bias": "ln_f.bias" in arrays,
    }
    files = (path, *vocabulary.files)
    return _put_together("nanoGPT", arrays, path, shape, vocabulary, files)


def _put_together(
    kind: str,
    arrays: LazyArrays,
    path: Path,
    shape: Mapping[str, Any],
    vocabulary: ByteVocabulary,
    files: tuple[Path, ...],
) -> ForeignModel:
    reader = Reader(arrays, str(path))
    shape = {**_FAMILY.fixed, **shape}
    return put_together(kind, _FAMILY, reader, path, shape, vocabulary, files)


def _mingpt(path: Path, arrays: LazyArrays) -> ForeignModel:
    file = path.parent / "config.json"
    positions, width = _shape(arrays, "wpe.weight", path)
    n_rows, _ = _shape(arrays, "wte.weight", path)
    given = find_vocabulary(path.parent) or _characters(path.parent, n_rows)
    vocabulary = given or _numbers(n_rows)
    shape = {
        "d_model": width,
        "d_ff": 4 * width,
        "n_heads": _n_heads(file, width),
        "n_decoder_layers": sum(_LAYER.fullmatch(name) is not None for name in arrays),
        "max_positions": positions,
        "activation": "gelu-tanh",
        "norm_epsilon": _EPSILON,
    }
    files = (path, file, *vocabulary.files)
    model = _put_together("minGPT", arrays, path, shape, vocabulary, files)
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


def _characters(path: Path, n_rows: int) -> ByteVocabulary | None:
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
    return ByteVocabulary(
        pieces={piece: place for place, piece in enumerate(found)}, merges=None, files=(file,)
    )


def _numbers(n_rows: int) -> ByteVocabulary:
    """Names tokens by their numbers, as words."""
    pieces = {f"Ġ{place}": place for place in range(n_rows)}
    return ByteVocabulary(pieces=pieces, merges=None, files=(), algorithm="word")
