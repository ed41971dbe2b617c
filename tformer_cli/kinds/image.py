"""Classifiers of images: the name of a picture in, the probabilities of labels out."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tformer_cli.errors import DataError
from tformer_cli.kinds.classify import Classification, Classify
from tformer_cli.kinds.kind import Examples, with_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tformer_cli.kinds.kind import Progress
    from tformer_cli.model.config import ModelConfig
    from tformer_cli.recipe import Recipe
    from tformer_cli.text.config import CorpusConfig
    from tformer_cli.text.corpora import SentencePair
    from tformer_cli.text.images.tokenizer import ImageTokenizer
    from tformer_cli.text.tokenizer import Tokenizer

LARGEST_PIXEL = 255
_DIGITS = 6
"""Decimals of pixel means and deviations."""


class ImageClassification(Classification):
    """Images to labels, by an encoder of patches."""

    examples = Examples("image", "image", "prediction", "label", are_texts=False)
    head = None

    def complete_recipe(self, recipe: Recipe, progress: Progress | None) -> Recipe:
        """Finds the labels, and the size, mean and deviation of images if the recipe omits them."""
        recipe = super().complete_recipe(with_fields(recipe, _with_image_field), progress)
        model = _set_image_size(recipe)
        # An image is read whole: its patches are its tokens
        data = replace(recipe.data, max_length=model.grid[0] * model.grid[1])
        recipe = replace(recipe, model=model, data=data)
        if model.image_mean and model.image_std:
            return recipe
        mean, std = _statistics(recipe, progress)
        # What the recipe names stays as it is
        model = replace(
            model, image_mean=model.image_mean or mean, image_std=model.image_std or std
        )
        return replace(recipe, model=model)

    def texts(self, pair: SentencePair) -> Iterable[str]:  # noqa: ARG002 - there is no vocabulary
        return ()

    def make_tokenizer(self, recipe: Recipe, make: Callable[[], Tokenizer]) -> Tokenizer:  # noqa: ARG002
        return image_tokenizer(recipe)


def image_tokenizer(recipe: Recipe) -> ImageTokenizer:
    """Returns the image tokenizer of a completed recipe."""
    from tformer_cli.text.images.decoding import Scaling
    from tformer_cli.text.images.tokenizer import ImageTokenizer

    height, width, channels = recipe.model.image_size
    resize = (height, width) if recipe.data.scale_images else ()
    scaling = Scaling(size=(height, width, channels), resize=resize)
    return ImageTokenizer(scaling, recipe.model.patch_size, recipe.data.pixel_max)


def _with_image_field(corpus: CorpusConfig) -> CorpusConfig:
    if corpus.format != "dataset" or corpus.source_field:
        return corpus
    # The usual name in datasets of images
    return replace(corpus, source_field="image")


def _set_image_size(recipe: Recipe) -> ModelConfig:
    """The model with the size of the first training image, if the recipe names none."""
    from tformer_cli.text.corpora import corpus_name, read_corpus
    from tformer_cli.text.images.named import count_values, is_row, read_image

    model = recipe.model
    if model.image_size:
        return model
    first = None
    for corpus in recipe.data.train:
        first = first or next(read_corpus(corpus, recipe.data.directory), None)
    if first is None:
        raise DataError("data.train: has no images; name another corpus")
    if is_row(first.source):
        n_values = count_values(first.source)
        # A row of a table has no shape: only a square can be guessed
        side = round(n_values**0.5)
        size = (side, n_values // max(1, side), 1)
        if side * side != n_values:
            raise DataError(
                f"{corpus_name(recipe.data.train[0])}: {n_values:,} pixel values do not make a "
                "square; set model.image_size = [height, width, channels]"
            )
    else:
        size = read_image(first.source, (1, 1, 1)).shape
    try:
        return replace(model, image_size=tuple(size))
    except ValueError as error:
        raise DataError(f"data.train: model.{error}") from None


def _statistics(
    recipe: Recipe, progress: Progress | None
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each channel of the training images, of pixels from 0 to 1."""
    import numpy as np

    from tformer_cli.text.corpora import read_corpus

    tokenizer = image_tokenizer(recipe)
    # Sums of whole numbers are exact, so that the order of the images leaves no trace
    sums = np.zeros((2, tokenizer.scaling.size[2]), np.int64)
    n_images = 0
    for corpus in recipe.data.train:
        for pair in read_corpus(corpus, recipe.data.directory):
            pixels = tokenizer.pixels(pair.source).astype(np.int64)  # squares of bytes overflow
            sums += np.stack([pixels.sum((0, 1)), (pixels**2).sum((0, 1))])
            n_images += 1
            if progress is not None and n_images % 1000 == 0:
                progress("measuring images", n_images)
    height, width, _ = tokenizer.scaling.size
    mean, square = sums / (n_images * height * width) / [[LARGEST_PIXEL], [LARGEST_PIXEL**2]]
    std = np.sqrt(np.maximum(square - mean**2, 0.0))
    # Images are divided by the deviations
    if not (np.round(std, _DIGITS) > 0.0).all():
        raise DataError("data.train: all pixels of a channel are equal; give other images")
    return tuple(np.round(mean, _DIGITS).tolist()), tuple(np.round(std, _DIGITS).tolist())


class Image(Classify):
    """A classifier that reads patches of pixels."""

    name = "image"
    training = ImageClassification()


KIND = Image()
