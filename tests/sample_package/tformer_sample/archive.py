"""Models in one file: a model directory of tformer as a .zip."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING
from zipfile import ZipFile, is_zipfile

from tformer_cli.foreign.readers import ModelReader

if TYPE_CHECKING:
    from tformer_cli.foreign.foreign_model import ForeignModel

FILES = ("config.json", "tokenizer.json", "model.safetensors")


def find(path: Path) -> partial[ForeignModel] | None:
    if path.suffix != ".zip" or not is_zipfile(path):
        return None
    with ZipFile(path) as archive:
        return partial(convert, path) if {*FILES} <= {*archive.namelist()} else None


def convert(path: Path) -> ForeignModel:
    from tformer_cli.artifacts.config_file import TASKS
    from tformer_cli.artifacts.model_directory import read_model_directory
    from tformer_cli.foreign.foreign_model import ForeignModel

    with TemporaryDirectory() as folder, ZipFile(path) as archive:
        for name in FILES:
            archive.extract(name, folder)
        directory, weights = read_model_directory(Path(folder), tasks=TASKS)
    return ForeignModel(
        kind="an archive of tformer",
        config=directory.config,
        weights=weights,
        tokenizer=directory.tokenizer,
        decoding=directory.decoding,
        files=(path,),
        ids=tuple(range(directory.tokenizer.vocab_size)),
    )


READER = ModelReader(find)
