"""Making a model compute in a precision."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING

from tformer_cli.acceleration import has_fast, require_fast
from tformer_cli.artifacts.model_directory import original_of
from tformer_cli.errors import ArtifactError, UsageError

if TYPE_CHECKING:
    from tformer_cli.artifacts.model_directory import ModelDirectory
    from tformer_cli.model.encoder_only import EncoderOnly
    from tformer_cli.model.transformer import Transformer
    from tformer_cli.search.config import PrecisionChoice
    from tformer_cli.search.opening import OpeningSettings


def choose_precision(
    directory: ModelDirectory, wanted: PrecisionChoice, device: str
) -> PrecisionChoice:
    """Chooses the precision of a model: "auto" is the type that its weights are stored in.

    Args:
        directory: the model.
        wanted: the value of `--precision`.
        device: where the model is or is to be.

    Raises:
        ArtifactError: if int8 weights are to compute in anything else.
        UsageError: if int8 is wanted on a GPU, or what computes in it is missing.
    """
    stored = directory.weight_type
    chosen = stored if wanted == "auto" else wanted
    if stored == "int8" and chosen != "int8":
        raise ArtifactError(
            f"{directory.path}: holds int8 weights, but {wanted} needs the original ones; "
            f"{original_of(directory.info.origin)}"
        )
    if chosen == "int8" and device != "cpu":
        raise UsageError("--precision: int8 is computed on the CPU; add --device cpu")
    if chosen == "int8":
        require_fast("--precision int8")
    return chosen


def in_precision(
    directory: ModelDirectory,
    precision: PrecisionChoice,
    settings: OpeningSettings,
    *,
    may_change: bool,
) -> ModelDirectory:
    """Makes a directory whose model, once it is asked for, computes in a precision.

    Args:
        directory: the directory.
        precision: from `choose_precision`.
        settings: what is to happen before torch computes.
        may_change: whether the directory's own model may be changed; if not, a copy is.
    """

    def load() -> Transformer | EncoderOnly:
        settings.prepare_torch()
        if directory.config.is_encoder_only:  # looked into in float32 alone
            return directory.encoder
        return computing_in(directory.model, precision, may_change=may_change)

    weight_type = "int8" if precision == "int8" else directory.weight_type
    return replace(directory, load=load, weight_type=weight_type)


def computing_in(
    model: Transformer, precision: PrecisionChoice, *, may_change: bool
) -> Transformer:
    """Gives a model the products of a precision.

    Args:
        model: in evaluation mode.
        precision: from `choose_precision`.
        may_change: whether the model may compute otherwise from then on; if not, a copy does.

    Returns:
        The model, or its copy.
    """
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
