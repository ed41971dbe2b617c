"""Encoders, classifiers, taggers and masked models as ONNX graphs, written by torch's exporter.

Inputs and outputs have the names that sentence-transformers and transformers give them, so that
programs made for those graphs take these.
"""

from __future__ import annotations

import logging
import warnings
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tformer_cli.artifacts.model_directory import ModelDirectory
    from tformer_cli.foreign.hugging_face.layout import Layout
    from tformer_cli.model.encoder_only import EncoderOnly

GRAPH = "onnx/model.onnx"  # where transformers.js and optimum look for it
INPUTS = ["input_ids", "attention_mask"]
_LOUD = "torch.onnx._internal.exporter._registration"  # warns of packages that no model here needs


class _Graph(nn.Module):
    """Outputs of a graph: logits, or the states and the vectors of a bare encoder."""

    def __init__(self, model: EncoderOnly) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        model, mask = self.model, attention_mask.bool()
        if model.config.head != "none":
            logits: Tensor = model(input_ids, mask)
            return logits
        hidden = model.encode(input_ids, mask)
        return hidden, model.predicting(hidden, mask).squeeze(1)


def outputs_of(directory: ModelDirectory) -> list[str]:
    is_bare = directory.config.head == "none"
    return ["token_embeddings", "sentence_embedding"] if is_bare else ["logits"]


def graph_writer(directory: ModelDirectory, layout: Layout) -> Callable[[Path], object]:
    """Makes the graph of a model, with the ids of a layout; consumes the model.

    Batches may have any number of texts, of any length that the model takes.
    """
    model = directory.encoder
    _reorder(model, layout)
    ids = torch.full((2, 3), layout.ids[-1])
    dims = {
        0: torch.export.Dim("batch"),
        1: torch.export.Dim("sequence", max=directory.config.max_positions),
    }
    logger = logging.getLogger(_LOUD)
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        # with gradients the model takes plain products, without what keeps rows independent
        with warnings.catch_warnings(), torch.enable_grad():
            warnings.simplefilter("ignore")  # of torch's own code
            program = torch.onnx.export(
                _Graph(model).eval(),
                (ids, torch.ones_like(ids)),
                dynamo=True,
                dynamic_shapes=(dims, dims),
                input_names=INPUTS,
                output_names=outputs_of(directory),
                verbose=False,
            )
    finally:
        logger.setLevel(level)
    if program is None:  # never of this exporter, as far as its types know
        raise RuntimeError("torch returned no program")
    return program.save


def _reorder(model: EncoderOnly, layout: Layout) -> None:
    """Gives the rows of the vocabulary their exported ids."""
    rows = {"source_embedding.weight": model.source_embedding.weight}
    if model.config.head == "tokens":
        owned = ("output_projection.weight", "output_bias")
        rows |= {name: weight for name, weight in model.named_parameters() if name in owned}
    for name, weight in rows.items():
        owner, _, attribute = name.rpartition(".")
        ordered = nn.Parameter(layout.order_rows(weight.detach()), requires_grad=False)
        setattr(model.get_submodule(owner), attribute, ordered)
