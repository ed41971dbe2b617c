"""The model directory: `config.json`, `tokenizer.json`, `model.safetensors`; nothing else needed.

A copy of it translates on another machine. torch is imported when a model is needed.
"""

from __future__ import annotations

import json
from dataclasses import asdict, field, fields
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from tformer_cli.artifacts.config_file import (
    COMMANDS,
    CONFIG,
    FORMAT_VERSIONS,
    TOKENIZER,
    TRANSLATORS,
    WEIGHTS,
    AlignmentInfo,
    ImportOrigin,
    ModelInfo,
    TaskKind,
    WeightType,
    check_task,
    read_config,
    read_json,
    task_kind,
)
from tformer_cli.artifacts.weights_file import SCALE, Arrays, read_weights, write_arrays
from tformer_cli.errors import ArtifactError
from tformer_cli.files.atomic import make_directory, write_text, written_aside
from tformer_cli.runtime import require_fast
from tformer_cli.settings import dataclass
from tformer_cli.text.tokenizer import read_tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping

    import torch
    from numpy.typing import NDArray
    from torch import Tensor

    from tformer_cli.fast.quantized import QuantizedMatrix
    from tformer_cli.model.base import Model
    from tformer_cli.model.config import ModelConfig
    from tformer_cli.model.encoder_only import Classifier, EncoderOnly, MaskedLanguageModel
    from tformer_cli.model.transformer import Transformer
    from tformer_cli.search.config import DecodingConfig
    from tformer_cli.text.images.tokenizer import ImageTokenizer
    from tformer_cli.text.tokenizer import Tokenizer


Made = TypeVar("Made")


@dataclass(frozen=True, kw_only=True)
class ModelDirectory:
    """A model directory, read and ready."""

    path: Path
    config: ModelConfig
    load: Callable[[], Model] = field(repr=False)
    """Makes the model, in evaluation mode, on its device."""
    tokenizer: Tokenizer
    decoding: DecodingConfig
    info: ModelInfo
    weight_type: WeightType = "float32"
    """Type of its stored weights; one of "int8" can neither be trained nor inspected."""

    @cached_property
    def any_model(self) -> Transformer | EncoderOnly:
        """The model, in evaluation mode, on its device; made when it is first asked for."""
        return cast("Transformer | EncoderOnly", self.load())

    @property
    def model(self) -> Transformer:
        """The model, if it has a decoder."""
        from tformer_cli.model.transformer import Transformer

        return self._expect(Transformer)

    @property
    def encoder(self) -> EncoderOnly:
        """The model, if it is an encoder, with any head."""
        from tformer_cli.model.encoder_only import EncoderOnly

        return self._expect(EncoderOnly)

    @property
    def classifier(self) -> Classifier:
        from tformer_cli.model.encoder_only import Classifier

        return self._expect(Classifier)

    @property
    def masked_model(self) -> MaskedLanguageModel:
        from tformer_cli.model.encoder_only import MaskedLanguageModel

        return self._expect(MaskedLanguageModel)

    def _expect(self, expected: type[Made]) -> Made:
        model = self.any_model
        if not isinstance(model, expected):
            raise ArtifactError(f"{self.path}: {COMMANDS[task_kind(self.config)]}")
        return model

    @property
    def has_model(self) -> bool:
        """True once the model has been asked for: it may then have been changed, too."""
        return "any_model" in self.__dict__  # to ask for the property would make it


def save_model_directory(
    path: Path,
    weights: Mapping[str, Tensor] | Mapping[str, NDArray[Any]],
    *,
    config: ModelConfig,
    tokenizer: Tokenizer,
    decoding: DecodingConfig,
    info: ModelInfo,
    weight_type: WeightType = "float32",
) -> None:
    """Writes a model directory, each file whole or not at all, `config.json` last."""
    make_directory(path)
    write_text(path / TOKENIZER, tokenizer.to_json())
    _write_weights(path / WEIGHTS, weights)
    known = {key: value for key, value in asdict(info).items() if value not in (None, ())}
    record = {
        "format_version": FORMAT_VERSIONS[weight_type],
        **known,
        # Earlier versions refuse keys that they do not know
        **({} if weight_type == "float32" else {"weight_type": weight_type}),
        "vocab_size": tokenizer.vocab_size,
        "model": asdict(config),
        "decoding": asdict(decoding),
    }
    _write_config(
        path, record
    )  # last: without it a directory does not count as a model, so a kill leaves none


def store_alignment(path: Path, alignment: AlignmentInfo) -> None:
    """Stores the heads that align words in a model directory and changes nothing else in it."""
    read_config(path)  # refuses anything but a model, before it is changed
    _write_config(path, {**read_json(path, path / CONFIG), "alignment": asdict(alignment)})


def store_decoding(path: Path, decoding: DecodingConfig) -> None:
    """Stores the decoding settings of a model directory and changes nothing else in it."""
    if read_config(path).decoding != decoding:
        _write_config(path, {**read_json(path, path / CONFIG), "decoding": asdict(decoding)})


def _write_weights(file: Path, weights: Mapping[str, Tensor] | Mapping[str, NDArray[Any]]) -> None:
    import numpy as np

    arrays = {name: array for name, array in weights.items() if isinstance(array, np.ndarray)}
    if arrays:
        # the largest numbers first: all then lie at multiples of their size
        ordered = dict(sorted(arrays.items(), key=lambda item: -item[1].itemsize))
        with written_aside(file) as aside, aside.open("wb") as stream:
            write_arrays(stream, ordered, _METADATA)
        return
    from tformer_cli.artifacts.tensors import save_tensors  # imports torch, which arrays do without

    save_tensors(file, cast("Mapping[str, Tensor]", weights), _METADATA)


_METADATA = {"format": "pt"}


def _write_config(path: Path, record: Mapping[str, Any]) -> None:
    write_text(path / CONFIG, json.dumps(record, indent=2, ensure_ascii=False) + "\n")


def named_integers(
    weights: Mapping[str, Tensor], matrices: Mapping[str, QuantizedMatrix]
) -> dict[str, Tensor]:
    """Replaces the matrices among weights with integers and their scales."""
    scales = {f"{name}{SCALE}": matrix.scale for name, matrix in matrices.items()}
    integers = {name: matrix.integers for name, matrix in matrices.items()}
    return {**weights, **integers, **scales}


def original_of(origin: ImportOrigin | None) -> str:
    """Advice on which model to name instead of one with int8 weights."""
    if origin is None:
        return "name the model directory that they were exported from"
    return f"import {origin.source} again with --weights float32"


def load_model_directory(
    path: Path,
    device: torch.device | str = "cpu",
    *,
    takes_int8: bool = False,
    adapter: Path | None = None,
    tasks: Container[TaskKind] = TRANSLATORS,
) -> ModelDirectory:
    directory, _ = read_model_directory(
        path, str(device), takes_int8=takes_int8, adapter=adapter, tasks=tasks
    )
    directory.any_model  # noqa: B018 - is made now
    return directory


def read_model_directory(
    path: Path,
    device: str = "cpu",
    *,
    takes_int8: bool = False,
    adapter: Path | None = None,
    tasks: Container[TaskKind] = TRANSLATORS,
) -> tuple[ModelDirectory, Arrays]:
    """Reads a model directory without torch, unless its model is asked for."""
    path = Path(path)
    record = read_config(path)
    check_task(path, record.model, tasks)
    if record.weight_type == "int8" and not device.startswith("cpu"):
        raise ArtifactError.of("{}: holds int8 weights, which need the CPU; add {device cpu}", path)
    if record.weight_type == "int8" and not takes_int8:
        raise ArtifactError(
            f"{path}: holds int8 weights, which this command cannot use; "
            f"{original_of(record.origin)}"
        )
    if not (path / TOKENIZER).is_file():  # nor a pipe, which would be waited for
        raise ArtifactError(f"{path}: {TOKENIZER} is missing; name a complete model directory")
    tokenizer = read_tokenizer(path / TOKENIZER)
    # Copied from another model it would decode to other words without any error
    if tokenizer.vocab_size != record.vocab_size:
        raise ArtifactError(
            f"{path / TOKENIZER}: has {tokenizer.vocab_size} entries, but config.json "
            f"says {record.vocab_size}; restore this model's own tokenizer"
        )
    n_source = record.model.source_vocab_size or record.vocab_size
    if tokenizer.source.vocab_size != n_source:
        raise ArtifactError(
            f"{path / TOKENIZER}: has {tokenizer.source.vocab_size} entries of the source, but "
            f"config.json says {n_source}; restore this model's own tokenizer"
        )
    if has_other_images(tokenizer, record.model):
        raise ArtifactError(
            f"{path / TOKENIZER}: is for other images than config.json says, or for texts; restore "
            "this model's own tokenizer"
        )
    weights: Arrays = read_weights(
        path / WEIGHTS, record.model, record.vocab_size, record.weight_type
    )
    if adapter is not None:  # few are: a cold line does without the modules of adapters and images
        from tformer_cli.artifacts.adapter_directory import merge_adapter

        kind = record.origin.kind if record.origin else ""
        weights = merge_adapter(path, record.model, weights, adapter, kind)
    directory = ModelDirectory(
        path=path,
        config=record.model,
        load=partial(make_model, weights, record.model, record.vocab_size, device),
        tokenizer=tokenizer,
        decoding=record.decoding,
        info=ModelInfo(**{entry.name: getattr(record, entry.name) for entry in fields(ModelInfo)}),
        weight_type=record.weight_type,
    )
    return directory, weights


def has_other_images(tokenizer: Tokenizer, config: ModelConfig) -> bool:
    """Tells whether a tokenizer makes images of another size than a model reads, or texts."""
    size: tuple[int, ...] = ()
    patch = 0  # as of a model of texts
    if tokenizer.algorithm == "images":
        images = cast("ImageTokenizer", tokenizer)
        size, patch = images.scaling.size, images.patch_size
    return (size, patch) != (config.image_size, config.patch_size)


def make_model(
    weights: Arrays, config: ModelConfig, vocab_size: int, device: torch.device | str
) -> Model:
    """Makes a model of stored weights, in evaluation mode, to compute in float32 or integers."""
    import torch

    from tformer_cli.artifacts.tensors import shapes_alone
    from tformer_cli.model.encoder_only import model_of
    from tformer_cli.model.transformer import Transformer

    arrays = weights
    with shapes_alone():  # the weights are those of the file
        model = model_of(config, vocab_size)
    in_integers = [name for name in arrays if f"{name}{SCALE}" in arrays]
    tensors = {
        name: torch.from_numpy(arrays[name]).to(device)
        if name not in in_integers
        else torch.empty(arrays[name].shape, device="meta")  # put in below, and never as floats
        for name in model.state_dict()
    }
    model.load_state_dict(tensors, assign=True)  # copies to "meta" are lost
    model.eval().requires_grad_(requires_grad=False)
    if in_integers:
        require_fast("int8 weights")
        from tformer_cli.fast.products import encode_in_integers, use_integers
        from tformer_cli.fast.quantized import QuantizedMatrix

        pairs = ((name, arrays[name], arrays[f"{name}{SCALE}"]) for name in in_integers)
        matrices = {
            name: QuantizedMatrix(torch.from_numpy(integers), torch.from_numpy(scale))
            for name, integers, scale in pairs
        }
        if isinstance(model, Transformer):
            use_integers(model, matrices)
        else:
            encode_in_integers(model, matrices)
    return model
