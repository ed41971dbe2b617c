"""A model directory on the CPU as engines search with it: torch knows it when one asks for that."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from tformer_cli.artifacts.model_directory import ModelDirectory
    from tformer_cli.artifacts.weights_file import StoredWeights
    from tformer_cli.model.config import ModelConfig
    from tformer_cli.model.transformer import Transformer

GPU_FILES = ("nvidia*", "dxg", "kfd")
"""Devices in /dev of Nvidia's driver, of Windows' for Linux, and of AMD's."""


@dataclass(frozen=True)
class DirectoryModel:
    """A `StoredModel` of a model directory."""

    directory: ModelDirectory
    """The directory; its own model computes in the same numbers."""
    weights: StoredWeights
    """What it stores."""
    in_integers: bool
    """True if it computes in int8."""

    @property
    def config(self) -> ModelConfig:
        """See `StoredModel`."""
        return self.directory.config

    @property
    def vocab_size(self) -> int:
        """See `SearchedModel`."""
        return self.directory.tokenizer.vocab_size

    @property
    def max_positions(self) -> int:
        """See `SearchedModel`."""
        return self.config.longest_text

    @property
    def source_eos(self) -> bool:
        """See `SearchedModel`."""
        return self.config.source_eos

    @contextmanager
    def arrays(self) -> Iterator[Mapping[str, NDArray[Any]]]:
        """See `StoredModel`; the memory of the file is given back in the end."""
        from tformer_cli.fast.native.weights import in_integers

        arrays = self.weights.arrays
        is_stored = any(array.dtype == "int8" for array in arrays.values())
        is_stored = is_stored or not self.in_integers
        yield arrays if is_stored else in_integers(arrays, self.release)
        self.weights.free_pages()

    def release(self, array: NDArray[Any]) -> None:
        """See `StoredModel`."""
        self.weights.free_pages(array)

    def made(self) -> Transformer | None:
        """See `StoredModel`."""
        return self.directory.model if self.directory.has_model else None

    def make(self) -> Transformer:
        """See `StoredModel`."""
        return self.directory.model


def is_cpu(device: str) -> bool:
    """Returns whether a value of `--device` is the CPU as far as is known without torch."""
    if device == "auto":
        return "torch" not in sys.modules and not may_have_gpu()
    return device == "cpu"


def may_have_gpu(devices: Path = Path("/dev"), system: str = sys.platform) -> bool:
    """Returns whether torch has to be asked about GPUs: only where a driver's device is there."""
    if system == "linux":
        return any(any(devices.glob(name)) for name in GPU_FILES)
    return system != "darwin"  # where there is no CUDA
