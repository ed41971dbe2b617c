"""The row of a map that belongs to the vector that an encoder alone pools."""

from torch import Tensor

from tformer_cli.model.config import ModelConfig


def pooled_row(rows: Tensor, config: ModelConfig) -> Tensor:
    """Takes out of a map (S, S) the row (S) of the pooled vector.

    It is the first row, the mean of all, or of images that of the patches' rows. Where a vector has
    the class token's state and that mean one behind the other, it is halfway between both rows.
    """
    mean = rows[int(config.class_token) :].mean(dim=0)
    if config.pooling == "first-and-mean":
        return (rows[0] + mean) / 2
    return rows[0] if config.pooling == "first" else mean


def pooled_name(config: ModelConfig) -> str:
    """Says which row that is, of images."""
    names = {"first": "class token", "first-and-mean": "class token and mean of the patches"}
    is_first = config.pooling == "first"
    if is_first and not config.class_token:
        return "first patch"
    return names.get(config.pooling, "mean of the patches")
