"""Files of a Marian model, and which of them belong together."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tformer_cli.converters.formats.marian_binary import is_marian_binary
from tformer_cli.converters.formats.yaml_text import read_yaml
from tformer_cli.errors import ArtifactError


@dataclass(frozen=True, kw_only=True)
class MarianSource:
    """Files of a model."""

    model: Path
    """The `.npz` or `.bin`."""
    vocabularies: tuple[Path, ...]
    """Of source and target: `.spm`, or `.yml` with an `.spm` beside it."""
    settings: Mapping[str, Any]
    """The decoder's settings, if there is such a file."""
    decoder: Path | None = None
    """That file."""


def find_source(path: Path) -> MarianSource | None:
    """Finds the files of a Marian model in a directory, or beside a model's file."""
    directory = path if path.is_dir() else path.parent
    if path.is_file():
        models = [path] if path.suffix in (".npz", ".bin") else []
    else:
        models = [*directory.glob("*.npz"), *directory.glob("model.*.bin")]
    if not models:
        return None
    decoder = [*directory.glob("*decoder.yml"), *directory.glob("config*.yml")]
    own = path.with_name(f"{path.name}.decoder.yml")  # as training writes one of each model
    decoder = [own] if own in decoder else decoder
    settings = read_yaml(decoder[0]) if len(decoder) == 1 else {}
    settings = settings if isinstance(settings, dict) else {}
    named = [directory / name for name in names_of(settings, "models")]
    model = next((one for one in named if one in models), None)
    if model is None and len(models) > 1:
        raise ArtifactError(
            f"{directory}: holds {len(models)} models; name the file of one of them"
        )
    vocabularies = [directory / name for name in names_of(settings, "vocabs")]
    if len(vocabularies) != 2:
        vocabularies = sorted(directory.glob("*.spm")) or sorted(directory.glob("*vocab*.yml"))
    if not 1 <= len(vocabularies) <= 2:
        if models == [path] and path.suffix == ".bin" and not is_marian_binary(path):
            return None  # many tools call their files so
        raise ArtifactError(
            f"{directory}: has no decoder.yml that names two vocabularies; add them to it"
        )
    return MarianSource(
        model=model or models[0],
        vocabularies=tuple(vocabularies),
        settings=settings,
        decoder=decoder[0] if len(decoder) == 1 else None,
    )


def names_of(settings: Mapping[str, Any], key: str) -> list[str]:
    """The files that a setting lists, by their names alone: they lie beside the model."""
    listed = settings.get(key)
    texts = [text for text in listed if isinstance(text, str)] if isinstance(listed, list) else []
    return [Path(text.replace("\0", "")).name for text in texts]
