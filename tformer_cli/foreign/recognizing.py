"""Whose model a directory or file is, and what converts it."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from tformer_cli.artifacts.adapter_directory import (
    ADAPTER_CONFIG,
    ADAPTER_WEIGHTS,
    StoredAdapter,
    read_adapter,
    with_adapter,
)
from tformer_cli.errors import ArtifactError
from tformer_cli.foreign.foreign_model import ForeignModel
from tformer_cli.foreign.formats.weight_files import read_checkpoint
from tformer_cli.foreign.hugging_face import decoders, encoders, translators, vision
from tformer_cli.foreign.hugging_face.families import FAMILIES
from tformer_cli.foreign.hugging_face.family import Source, Task, open_source
from tformer_cli.foreign.hugging_face.pipelines import Pipeline, read_pipeline
from tformer_cli.foreign.keys import read_json_file
from tformer_cli.foreign.readers import READERS, ConvertAs


def recognize(path: Path, find_base: Callable[[str], Path]) -> ConvertAs | None:
    """Finds the converter of a directory or file; None if its kind is unknown.

    The order counts: the weakest sign, the ending of a file, comes last. `find_base` returns the
    path of the model that an adapter names.
    """
    family = find_directory(path) if path.is_dir() else None
    if family is not None:
        return lambda _: family()
    adapter = find_adapter(path)
    if adapter is not None:
        return lambda _: _with_base(adapter, find_base)
    for name in READERS.shipped:
        if convert := READERS[name].find(path):
            return partial(_ignoring_weights, convert)
        if convert_as := READERS[name].find_packed(path):
            return convert_as
    checkpoint = find_checkpoint(path)
    # What ships goes before what was added
    others = (reader.find(path) for reader in READERS.added.values())
    convert = checkpoint or next(filter(None, others), None)
    return None if convert is None else partial(_ignoring_weights, convert)


def _ignoring_weights(convert: Callable[[], ForeignModel], _: object) -> ForeignModel:
    return convert()


# the checkpoint of a directory that is meant if there are several
_BEST = ("model.pt", "checkpoint_best.pt", "checkpoint_last.pt")


def find_checkpoint(path: Path) -> Callable[[], ForeignModel] | None:
    """Finds what converts a checkpoint, or the one in a directory; None: there is none."""
    files = {path.name: path} if path.is_file() else {file.name: file for file in path.glob("*.pt")}
    named = next((files[name] for name in _BEST if name in files and len(files) > 1), None)
    if named is None and len(files) > 1:
        raise ArtifactError(f"{path}: holds {len(files)} checkpoints; name the file of one of them")
    file = named or next(iter(files.values()), path)
    if file.suffix != ".pt" or not file.is_file():
        return None
    checkpoint = read_checkpoint(file)
    sources = (reader.open_checkpoint(file, checkpoint) for reader in READERS.values())
    return next(filter(None, sources), None)


def find_adapter(path: Path) -> StoredAdapter | None:
    """Reads the adapter of peft in a directory; None if it holds a model, or one of tformer's."""
    if not (path / ADAPTER_CONFIG).is_file() or (path / "config.json").is_file():
        return None
    adapter = read_adapter(path)
    if adapter.base_hash:  # next to the model of its run
        return None
    if not adapter.settings.base:
        raise ArtifactError.of(
            "{}: is an adapter that does not name its model; name the model, and the adapter "
            "with {adapter}",
            path,
        )
    return adapter


def _with_base(adapter: StoredAdapter, find_base: Callable[[str], Path]) -> ForeignModel:
    """Converts the model that an adapter names, in float32, and adds the adapter to it."""
    base = adapter.settings.base
    try:
        path = find_base(base)
    except ArtifactError as error:
        raise ArtifactError(f"{adapter.path}: is an adapter for {error}") from None
    convert = None if find_adapter(path) is not None else recognize(path, find_base)
    if convert is None:
        raise ArtifactError.of(
            "{}: is an adapter for {}, which is not a model of Hugging Face; name "
            "the model, and the adapter with {adapter}",
            adapter.path,
            base,
        )
    model = convert("float32")
    note = f"the adapter was trained for {base}; that these are the same weights cannot be verified"
    return replace(
        model,
        kind=f"{model.kind} with an adapter of peft",
        weights=with_adapter(model.weights, model.config, adapter, model.kind),
        files=(*model.files, *(adapter.path / name for name in (ADAPTER_CONFIG, ADAPTER_WEIGHTS))),
        notes=(*model.notes, note),
    )


_READERS: Mapping[Task, Callable[[Source], ForeignModel]] = {
    "encoder": lambda source: encoders.read(source, Pipeline(path=source.path)),
    "decoder": decoders.read,
    "translation": translators.read,
    "t5": translators.read_t5,
    "vision": vision.read,
}


def find_directory(path: Path) -> Callable[[], ForeignModel] | None:
    """Finds the reader of a directory; None if its config.json belongs to no family."""
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
    family = FAMILIES.get(kind)
    if family is None:
        return None
    return lambda: _READERS[family.task](open_source(path, family, settings))


def _read_sentences(path: Path) -> ForeignModel:
    pipeline = read_pipeline(path)
    file = pipeline.path / "config.json"
    settings = read_json_file(file)
    family = FAMILIES.get(encoders.model_type_of(settings))
    if family is None or family.task != "encoder":
        raise ArtifactError(
            f"{file}: model_type = {json.dumps(settings.get('model_type'))[:60]} is not supported; "
            "import a BERT, RoBERTa, DistilBERT, ELECTRA or MegatronBERT"
        )
    source = open_source(pipeline.path, family, settings)
    source.notes = [*pipeline.notes, *source.notes]
    return encoders.read(source, pipeline)
