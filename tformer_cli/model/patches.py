"""Images as tokens: square patches, each a row of pixels that one product embeds.

Dosovitskiy et al. 2021, "An Image is Worth 16x16 Words", section 3.1 and equation 1.
"""

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from tformer_cli.model.base import N_SPECIAL_TOKENS
from tformer_cli.model.config import ModelConfig
from tformer_cli.model.embedding import PositionedEmbedding
from tformer_cli.model.norms import Norm
from tformer_cli.model.operations import Linear
from tformer_cli.model.positions import Positions

LARGEST_PIXEL = 255
"""Largest byte of a stored pixel."""


def patches_of(images: Tensor, size: int) -> Tensor:
    """Cuts images (B, C, H, W) into patches (B, N, C·P·P), row by row.

    The vector of a patch has its channels one after the other, in each the rows of pixels.
    """
    n_images, n_channels, height, width = images.shape
    # (B, C, H, W) -> (B, C, h, P, w, P) -> (B, h, w, C, P, P) -> (B, h·w, C·P·P)
    cells = images.view(n_images, n_channels, height // size, size, width // size, size)
    return cells.permute(0, 2, 4, 1, 3, 5).reshape(n_images, -1, n_channels * size * size)


class PatchedImages(PositionedEmbedding):
    """W·patch + b for each patch, perhaps a class token in front, plus positions, then dropout."""

    def __init__(self, config: ModelConfig, positions: Positions, norm: Norm | None) -> None:
        """Creates the input of a stack.

        Args:
            config: with the size of images, and the mean and deviation of their channels.
            positions: of the patches, row by row; the class token is at the first.
            norm: of the sum; None: there is none.

        Raises:
            ValueError: if one of these is not known.
        """
        for name in ("image_size", "image_mean", "image_std"):
            if not getattr(config, name):
                raise ValueError(f"{name}: a model of images needs it")
        super().__init__(
            config.d_model, config.n_positions, positions, norm=norm, dropout=config.dropout
        )
        self._size, self._patch = config.image_size, config.patch_size
        self._shift, self._flips = config.image_shift, config.image_flip
        self.patches = Linear(config.ids_per_token, config.d_model, bias=config.bias)
        token = nn.Parameter(torch.zeros(config.d_model)) if config.class_token else None
        self.class_token = token
        self._scales = config.image_mean, config.image_std

    def images(self, source: Tensor) -> Tensor:
        """Turns the ids of pixels into numbers.

        Args:
            source: (B, H·W·C) bytes row by row, each plus the number of special tokens.

        Returns:
            (B, C, H, W) normalized, and in training changed at random.
        """
        # (B, H·W·C) -> (B, H, W, C) -> (B, C, H, W)
        # The special tokens come first in every vocabulary, in that of pixels, too
        pixels = (source - N_SPECIAL_TOKENS).view(-1, *self._size).permute(0, 3, 1, 2)
        if self.training and (self._shift or self._flips):
            pixels = augment_images(pixels, self._shift, flips=self._flips)
        # (C) -> (C, 1, 1)
        mean, std = (torch.tensor(s, device=pixels.device).view(-1, 1, 1) for s in self._scales)
        return (pixels.to(mean.dtype) / LARGEST_PIXEL - mean) / std

    def embed(self, images: Tensor) -> Tensor:
        """Embeds images (B, C, H, W) as (B, T, D): the class token, if any, and the patches."""
        embedded = self.patches(patches_of(images, self._patch))
        if self.class_token is not None:
            first = self.class_token.to(embedded.dtype).expand(len(images), 1, -1)
            embedded = torch.cat((first, embedded), dim=1)
        return self.add_positions(embedded)

    def forward(self, source: Tensor) -> Tensor:  # type: ignore[override]  # has no vocabulary
        """Embeds (B, H·W·C) ids of pixels as (B, T, D); see `images` and `embed`."""
        return self.embed(self.images(source))

    if TYPE_CHECKING:
        __call__ = forward  # type: ignore[assignment]  # as above


def augment_images(pixels: Tensor, shift: int, *, flips: bool) -> Tensor:
    """Moves and mirrors images (B, C, H, W) at random, each by itself.

    The numbers come from torch's generator on the CPU, as those of dropout there do, so that a
    run that resumes sees the images that it would have seen.

    Args:
        pixels: the images.
        shift: pixels that an image is moved by at most, down or up and to either side. What comes
            in at an edge repeats it.
        flips: whether half of the images are mirrored, left to right.
    """
    n_images, _, height, width = pixels.shape
    moves = torch.randint(-shift, shift + 1, (2, n_images, 1))
    rows = (torch.arange(height) + moves[0]).clamp(0, height - 1)
    columns = (torch.arange(width) + moves[1]).clamp(0, width - 1)
    if flips:
        columns = torch.where(torch.rand(n_images, 1) < 0.5, columns.flip(1), columns)
    # (B, H, 1) and (B, 1, W) name the pixel that each pixel takes
    places = (rows * width).unsqueeze(2) + columns.unsqueeze(1)
    flat = places.flatten(1).unsqueeze(1).to(pixels.device).expand(-1, pixels.shape[1], -1)
    return pixels.flatten(2).gather(2, flat).view(pixels.shape)
