"""Making a loaded model compute as a precision says."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING

from tformer_cli.acceleration import has_fast, require_fast
from tformer_cli.errors import ArtifactError, UsageError

if TYPE_CHECKING:
    from tformer_cli.artifacts.model_directory import ModelDirectory
    from tformer_cli.workflows.translation_options import PrecisionChoice


def choose_numbers(
    directory: ModelDirectory, asked: PrecisionChoice, device: str
) -> PrecisionChoice:
    """Describes what "auto" is for a model: what its weights are held in.

    Args:
        directory: the model.
        asked: the value of `--precision`.
        device: where the model is or is to be.

    Raises:
        ArtifactError: if weights in integers are asked to be anything else.
        UsageError: if integers are wanted on a GPU.
    """
    held = directory.weight_type
    chosen = held if asked == "auto" else asked
    if held == "int8" and chosen != "int8":
        raise ArtifactError(
            f"{directory.path}: holds int8 weights, but {asked} needs the original ones; "
            "name the model directory that they were exported from"
        )
    if chosen == "int8" and device != "cpu":
        raise UsageError("--precision: int8 is computed on the CPU; add --device cpu")
    return chosen


def computing_in(
    directory: ModelDirectory, precision: PrecisionChoice, *, may_change: bool
) -> ModelDirectory:
    """Gives a model the products of a precision.

    Args:
        directory: the model, in evaluation mode.
        precision: from `choose_numbers`.
        may_change: whether the model may compute otherwise from then on; if not, a copy does.

    Returns:
        The directory, or one with the copy.
    """
    if not has_fast():  # products are torch's own, under autocast if need be
        if precision == "int8":
            require_fast("--precision int8")
        return directory
    from tformer_cli.fast.packed import can_pack
    from tformer_cli.fast.products import pack, quantized_matrices, unpack, use_integers

    model = directory.model
    is_on_cpu = next(model.parameters()).device.type == "cpu"
    if not is_on_cpu:
        return _rounded_or_not(directory, precision == "bfloat16", may_change=may_change)
    if precision == "float32" and can_pack():
        pack(model)
    elif precision == "bfloat16":  # the model may have been packed for float32 before
        unpack(model)
    if precision == "int8" and directory.weight_type == "float32":
        model = model if may_change else deepcopy(model)
        use_integers(model, quantized_matrices(model.state_dict()))
        return replace(directory, load=lambda: model, weight_type="int8")
    return directory


def _rounded_or_not(
    directory: ModelDirectory, is_rounded: bool, *, may_change: bool
) -> ModelDirectory:
    """Gives a model on a GPU products in bfloat16, or takes them away."""
    from tformer_cli.fast.products import RoundedProduct, unpack, use_bfloat16

    model = directory.model
    if isinstance(model.output_product, RoundedProduct) == is_rounded:
        return directory
    model = model if may_change else deepcopy(model)
    if is_rounded:
        use_bfloat16(model)
    else:
        unpack(model)
    return replace(directory, load=lambda: model)
