"""Checks of a recipe, without reading any text."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from tformer_cli.errors import DataError, TformerError
from tformer_cli.files.remote import exists, place_in
from tformer_cli.recipe import Recipe, find_recipe, load_recipe
from tformer_cli.text.config import CorpusConfig, DataConfig
from tformer_cli.text.corpora import corpus_file, text_files
from tformer_cli.train.start import check_start, completion
from tformer_cli.trainer.distillation import DistillationConfig


def check_recipe(name: str, *, has_files: bool, say: Callable[[str], None]) -> Recipe:
    """Reads a recipe as a training would, and the settings of the model that it starts from.

    Raises the error of the training, which names the recipe. Unless `has_files`, the model and the
    corpora may be elsewhere.
    """
    path = find_recipe(name)
    if not has_files:
        return load_recipe(name)
    try:
        recipe = load_recipe(name, complete=completion(Path(), say, fresh=True))
        check_start(replace(recipe, distillation=DistillationConfig()))
        check_files(recipe)
        check_files_of("distillation.test", recipe.distillation.test, recipe.data)
    except TformerError as error:
        if str(error).startswith(f"{path}:"):
            raise
        raise type(error)(f"{path}: {error}") from error
    return recipe


def check_files(recipe: Recipe) -> None:
    """Checks that the files of all corpora exist, before reading any."""
    check_files_of("data.train", recipe.data.train, recipe.data)
    check_files_of("data.valid", recipe.data.valid, recipe.data)


def check_files_of(key: str, corpora: Sequence[CorpusConfig], data: DataConfig) -> None:
    """Checks that the files of the corpora under a recipe's key exist."""
    for corpus in corpora:
        for name in filter(None, (*text_files(corpus), corpus.images, corpus.labels)):
            place = place_in(data.directory, name)
            if not exists(place):
                origin = f". {data.origin}" if data.origin else ""
                raise DataError.of(
                    "{}: no such file {}; set data.directory ({changes} "
                    "data.directory=DIR) to the folder that holds it{}",
                    key,
                    place,
                    origin,
                )
            # One at a URL is copied when it is read
            if isinstance(place, Path) and not (place.is_dir() and name == corpus.images):
                corpus_file(name, data.directory)
