"""A stored model, opened in a precision, with torch only on demand."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from tformer_cli.artifacts.model_directory import original_of
from tformer_cli.errors import ArtifactError, Setting, UsageError
from tformer_cli.runtime import has_fast, require_fast
from tformer_cli.settings import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import torch
    from numpy.typing import NDArray

    from tformer_cli.artifacts.model_directory import ModelDirectory
    from tformer_cli.artifacts.weights_file import Arrays
    from tformer_cli.fast.native_encoder import CompiledEncoder
    from tformer_cli.model.config import ModelConfig, Precision
    from tformer_cli.model.encoder_only import EncoderOnly
    from tformer_cli.model.transformer import Transformer
    from tformer_cli.search.config import Engine, PrecisionChoice
    from tformer_cli.search.generator import Generator
    from tformer_cli.search.opening import OpeningSettings
    from tformer_cli.search.pooled import LabelHead, TokenHead
    from tformer_cli.search.translator import Translator

GPU_FILES = ("nvidia*", "dxg", "kfd")
"""Devices in /dev of Nvidia's driver, of Windows' for Linux, and of AMD's."""


@dataclass(frozen=True)
class DirectoryModel:
    """A `StoredModel` of a model directory, which searches on the CPU without torch."""

    directory: ModelDirectory
    """The directory; its own model computes in the same numbers."""
    weights: Arrays
    in_integers: bool
    """True if it computes in int8."""

    @property
    def config(self) -> ModelConfig:
        return self.directory.config

    @property
    def vocab_size(self) -> int:
        return self.directory.tokenizer.vocab_size

    @property
    def max_positions(self) -> int:
        return self.config.longest_text

    @property
    def source_eos(self) -> bool:
        return self.config.source_eos

    @contextmanager
    def arrays(self) -> Iterator[Mapping[str, NDArray[Any] | memoryview]]:
        """Yields the weights, each tensor once, however many layers have it."""
        from tformer_cli.artifacts.weights_file import SCALE, StoredArrays
        from tformer_cli.fast.native.weights import in_integers

        weights = self.weights
        # An export in int8 has its integers; others are rounded here, a matrix at a time
        if self.in_integers and not any(name.endswith(SCALE) for name in weights):
            yield in_integers(weights)
        elif isinstance(weights, StoredArrays):
            yield {name: weights.memory(name) for name in weights}
        else:
            yield dict(weights)

    def head_arrays(self) -> Mapping[str, NDArray[Any]]:
        """Returns the weights of an encoder's head; int8 weights are dequantized.

        A text has one vector, or a few, so integer products would save nothing.
        """
        from tformer_cli.artifacts.weights_file import SCALE

        arrays = self.weights
        if not self.in_integers:
            return arrays
        names = ("pooler.", "transform", "output_", "source_embedding.")
        head_arrays: Mapping[str, NDArray[Any]] = {
            name: arrays[name] for name in arrays if name.startswith(names)
        }
        if self.directory.weight_type != "int8":
            from tformer_cli.fast.native.weights import in_integers

            head_arrays = in_integers(head_arrays)
        return {
            name: array if array.dtype != "int8" else array * head_arrays[f"{name}{SCALE}"][:, None]
            for name, array in head_arrays.items()
        }

    def release(self, array: NDArray[Any] | memoryview) -> None:
        from tformer_cli.artifacts.weights_file import StoredArrays, free_pages

        if isinstance(self.weights, StoredArrays):  # else others may have the same array
            free_pages(array)

    def existing_model(self) -> Transformer | None:
        # An encoder that is inspected is never searched, but its engines are asked all the same
        return self.make() if self.directory.has_model else None

    def make(self) -> Transformer:
        return cast("Transformer", self.directory.any_model)


class Opening(NamedTuple):
    """A stored model and how it is wanted; its kind makes an `Opened` of it."""

    directory: ModelDirectory
    weights: Arrays | None
    """None: the caller has made the model, and may go on to use it."""
    place: str
    settings: OpeningSettings
    overrides: Mapping[str, Any]
    """Settings of the search that differ from the model's own."""
    stops: Sequence[str] = ()
    by_kernels: bool = True


@dataclass(frozen=True, kw_only=True)
class Opened:
    """A model ready to compute, and where and how it does."""

    directory: ModelDirectory
    place: str
    """Name of the device."""
    precision: PrecisionChoice
    engine: Engine = "tformer"
    search: Translator | Generator | None = None
    """Translates, or continues prompts; None with an encoder."""
    compiled: CompiledEncoder | None = None
    """The kernels, where they compute an encoder's hidden states in place of torch."""
    head: LabelHead | TokenHead | None = None
    """Stands on the kernels' states, if the model has labels or predicts tokens."""

    @property
    def translator(self) -> Translator:
        return cast("Translator", self.search)

    @property
    def generator(self) -> Generator:
        return cast("Generator", self.search)

    @property
    def device(self) -> torch.device:
        """The device, as torch knows it."""
        import torch

        return torch.device(self.place)

    @property
    def products(self) -> Precision:
        """Precision of torch's own products; other code makes those of int8."""
        return "bfloat16" if self.precision == "bfloat16" else "float32"

    @property
    def config(self) -> ModelConfig:
        return self.directory.config


def is_cpu(device: str) -> bool:
    """Returns whether a value of `--device` is the CPU as far as is known without torch."""
    if device == "auto":  # a program that has torch loaded may as well ask it
        return "torch" not in sys.modules and not may_have_gpu()
    return device == "cpu"


def may_have_gpu(devices: Path = Path("/dev"), system: str = sys.platform) -> bool:
    """Returns whether torch has to be asked about GPUs: only where a driver's device is there."""
    if system == "linux":
        return any(any(devices.glob(name)) for name in GPU_FILES)
    return system != "darwin"  # there is no CUDA on a Mac


def choose_precision(
    directory: ModelDirectory, wanted: PrecisionChoice, device: str
) -> PrecisionChoice:
    """Chooses the precision of a model: "auto" is the type that its weights are stored in."""
    stored = directory.weight_type
    chosen = stored if wanted == "auto" else wanted
    if stored == "int8" and chosen != "int8":
        raise ArtifactError(
            f"{directory.path}: holds int8 weights, but {wanted} needs the original ones; "
            f"{original_of(directory.info.origin)}"
        )
    if chosen == "int8" and device != "cpu":  # its products are instructions of CPUs
        raise UsageError.of("{precision}: int8 runs only on the CPU; add {device cpu}")
    if chosen == "int8":
        require_fast(Setting("precision int8"))
    return chosen


def in_precision(
    directory: ModelDirectory,
    precision: PrecisionChoice,
    settings: OpeningSettings,
    *,
    may_change: bool,
) -> ModelDirectory:
    """Returns a directory whose model, or a copy of it, computes in a precision."""

    def load() -> Transformer | EncoderOnly:
        settings.prepare_torch()
        if directory.config.is_encoder_only:  # inspected in float32, and never packed
            return directory.encoder
        return computing_in(directory.model, precision, may_change=may_change)

    weight_type = "int8" if precision == "int8" else directory.weight_type
    return replace(directory, load=load, weight_type=weight_type)


def computing_in(
    model: Transformer, precision: PrecisionChoice, *, may_change: bool
) -> Transformer:
    """Sets the precision of a model's products; works on a copy unless the model may change."""
    if not has_fast():  # products are torch's own, under autocast if need be
        return model
    from tformer_cli.fast.products import (
        RoundedProduct,
        can_pack,
        pack,
        quantized_matrices,
        unpack,
        use_bfloat16,
        use_integers,
    )
    from tformer_cli.fast.quantized import QuantizedProduct

    # Every layer has products of the kind that the output has
    product = model.output_product
    if next(model.parameters()).device.type != "cpu":
        is_rounded = precision == "bfloat16"
        if isinstance(product, RoundedProduct) != is_rounded:
            model = model if may_change else deepcopy(model)
            (use_bfloat16 if is_rounded else unpack)(model)
    elif precision == "int8":
        if not isinstance(product, QuantizedProduct):
            model = model if may_change else deepcopy(model)
            use_integers(model, quantized_matrices(model.state_dict()))
    elif precision == "bfloat16":  # the model may have been packed for float32 before
        unpack(model)
    elif can_pack():
        pack(model)
    return model
