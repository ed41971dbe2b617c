"""Checkpoint averaging."""

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from tformer_cli.artifacts.tensors import load_tensors


def average_weights(files: Sequence[Path]) -> dict[str, Tensor]:
    """Averages the weights of several safetensors files (Vaswani et al. 2017, section 6.1).

    Sums run in float64, so that the order of the files leaves no trace.

    Args:
        files: weights of the same model; at least one.

    Raises:
        ArtifactError: if a file is missing or damaged.
        ValueError: if there is no file, or the files hold different tensors.
    """
    if not files:
        raise ValueError("there is no checkpoint to average")
    first = load_tensors(files[0])
    sums = {name: tensor.double() for name, tensor in first.items()}
    for file in files[1:]:
        tensors = load_tensors(file)
        if tensors.keys() != sums.keys():
            raise ValueError(f"{file} and {files[0]} hold different tensors")
        for name, tensor in tensors.items():
            sums[name] += tensor.double()
    return {name: (total / len(files)).to(first[name].dtype) for name, total in sums.items()}
