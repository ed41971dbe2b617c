"""What computes the probabilities of labels: the compiled kernels where they can, else torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tformer_cli.acceleration import has_fast
from tformer_cli.kinds.opening.stored_model import DirectoryModel

if TYPE_CHECKING:
    from tformer_cli.artifacts.model_directory import ModelDirectory
    from tformer_cli.artifacts.weights_file import StoredWeights
    from tformer_cli.model.config import Precision
    from tformer_cli.search.opening import OpeningSettings

LabelScorer = Callable[[Sequence[Sequence[int]]], list[list[float]]]
"""Computes the probability of every label for each of N lists of ids: (N, L)."""


def label_scorer(
    directory: ModelDirectory,
    weights: StoredWeights,
    place: str,
    precision: Precision,
    settings: OpeningSettings,
) -> LabelScorer:
    """Chooses what labels texts or images; in float32 torch is not imported for texts on a CPU.

    Args:
        directory: of a classifier.
        weights: what it stores.
        place: the device.
        precision: of the products.
        settings: threads, and who is told that there are no kernels.
    """
    if place == "cpu" and precision == "float32" and has_fast():
        from tformer_cli.fast.native_encoder import compiled_encoder
        from tformer_cli.search.pooled import LabelHead

        model = DirectoryModel(directory, weights, in_integers=False)
        encoder = compiled_encoder(model, settings.tell, settings.threads)
        if not isinstance(encoder, str):
            head = LabelHead(directory.config, weights.arrays)
            return lambda texts: encoder.each(texts, lambda _, hidden: head.probabilities(hidden))

    def by_torch(texts: Sequence[Sequence[int]]) -> list[list[float]]:
        from tformer_cli.search.encoding import label_probabilities

        return label_probabilities(directory.classifier, texts, precision)

    return by_torch
