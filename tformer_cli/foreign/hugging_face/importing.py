"""Directories of the library: which family they hold, by their config.json, and what reads them."""

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from tformer_cli.errors import ArtifactError
from tformer_cli.foreign.foreign_model import ForeignModel, read_json_file
from tformer_cli.foreign.hugging_face import decoders, encoders, t5, translators, vision
from tformer_cli.foreign.hugging_face.families import FAMILIES
from tformer_cli.foreign.hugging_face.family import Source, Task, open_source
from tformer_cli.foreign.hugging_face.sentences import Pipeline, read_pipeline

_READERS: Mapping[Task, Callable[[Source], ForeignModel]] = {
    "decoder": decoders.read,
    "translation": translators.read,
    "t5": t5.read,
    "vision": vision.read,
}


def find_directory(path: Path) -> Callable[[], ForeignModel] | None:
    """Finds what reads a directory; None if its config.json is of no family."""
    file = path / "config.json"
    if (path / "modules.json").is_file():
        return partial(_read_sentences, path)
    if not file.is_file():
        return None
    settings = read_json_file(file)
    if vision.is_timm(settings.get("architecture")):
        return partial(vision.read_timm, file, settings)
    kind = encoders.model_type_of(settings)
    if kind in vision.UNSUPPORTED:
        raise ArtifactError(f"{file}: model_type = {json.dumps(kind)} {vision.UNSUPPORTED[kind]}")
    return partial(_read, path, kind, settings) if kind in FAMILIES else None


def _read(path: Path, kind: str, settings: dict[str, Any]) -> ForeignModel:
    family = FAMILIES[kind]
    source = open_source(path, family, settings)
    if family.task == "encoder":
        return encoders.read(source, Pipeline(path=path))
    return _READERS[family.task](source)


def _read_sentences(path: Path) -> ForeignModel:
    pipeline = read_pipeline(path)
    file = pipeline.path / "config.json"
    settings = read_json_file(file)
    family = FAMILIES.get(encoders.model_type_of(settings))
    if family is None or family.task != "encoder":
        raise ArtifactError(
            f"{file}: model_type = {json.dumps(settings.get('model_type'))[:60]} is not supported; "
            "import a BERT, RoBERTa, DistilBERT or ELECTRA"
        )
    source = open_source(pipeline.path, family, settings)
    source.notes = [*pipeline.notes, *source.notes]
    return encoders.read(source, pipeline)
