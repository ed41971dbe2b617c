"""Argos Translate's packages: a CTranslate2 model, a SentencePiece model and a metadata.json.

A package is a zip with one directory inside, or that directory. Source: Argos Translate 1.9,
argostranslate/package.py and translate.py.
"""

import errno
import shutil
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from tformer_cli.errors import ArtifactError, DataError
from tformer_cli.files.atomic import scratch_directory, scratch_errors
from tformer_cli.files.regular_file import open_regular
from tformer_cli.foreign.ctranslate2 import importing as ctranslate2
from tformer_cli.foreign.foreign_model import ForeignModel, check_settings, read_json_file
from tformer_cli.foreign.formats.marian_binary import FREE_BYTES, MOST_EXPANSION
from tformer_cli.search.config import DecodingConfig

ENDING = ".argosmodel"
METADATA = "metadata.json"
MODEL = "model"
"""Directory of the CTranslate2 model."""
DECODING = DecodingConfig(beam_size=4, length_penalty=0.2)
"""Argos divides by T^0.2; ((5 + T)/6)^0.2 ranks nearly alike."""
_NOTE = "length_penalty is 0.2 as in Argos, but of ((5 + T)/6)^0.2 instead of T^0.2"
_MOST_ENTRIES = 10_000


@dataclass(frozen=True)
class Package:
    """A package that was found."""

    path: Path
    """A zip, or a directory."""


def find_source(path: Path) -> Package | None:
    """Finds a package; None: it is something else."""
    if path.is_dir():
        is_package = (path / METADATA).is_file() and (path / MODEL).is_dir()
    else:
        is_package = path.suffix == ENDING
    return Package(path) if is_package else None


def convert(package: Package, weights: Literal["float32", "int8"] | None = None) -> ForeignModel:
    if package.path.is_dir():
        return _converted(package.path, weights)
    with scratch_directory() as directory:
        with scratch_errors():
            _extract(package.path, directory)
        try:
            model = _converted(directory, weights)
        except (ArtifactError, DataError) as error:
            # the user knows the package, not where it was unpacked
            message = str(error).replace(str(directory), str(package.path))
            raise ArtifactError(message) from None
    return replace(model, files=(package.path,))


def _converted(path: Path, weights: Literal["float32", "int8"] | None) -> ForeignModel:
    metadata = read_json_file(path / METADATA)
    check_settings(path / METADATA, metadata, {"type": ("translate",)})
    source = ctranslate2.find_source(path / MODEL)
    if source is None:
        raise ArtifactError(f"{path / MODEL}: holds no model.bin; download the package again")
    prefix = metadata.get("target_prefix") or ""
    if not isinstance(prefix, str):
        raise ArtifactError(f"{path / METADATA}: target_prefix is not text; download it again")
    model = ctranslate2.convert(source, weights, texts=path, target_prefix=prefix)
    return replace(
        model,
        kind="Argos",
        decoding=DECODING,
        files=(path / METADATA, *model.files),
        languages=(_code(metadata, "from_code"), _code(metadata, "to_code")),
        notes=(*model.notes, _NOTE),
    )


def _code(metadata: Mapping[str, Any], name: str) -> str:
    code = metadata.get(name)
    return code if isinstance(code, str) else ""


def _extract(package: Path, directory: Path) -> None:
    """Unpacks what a model needs; names in the package decide no place outside of `directory`."""
    try:
        with open_regular(package) as stream, zipfile.ZipFile(stream) as archive:
            entries = _wanted(package, archive)
            (directory / MODEL).mkdir()
            for name, entry in entries.items():
                with archive.open(entry) as packed, (directory / name).open("wb") as file:
                    shutil.copyfileobj(packed, file)
    except ArtifactError:
        raise
    # besides its own error, zipfile raises those of the decompressors and of the system
    except Exception as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise _damaged(package, error) from None


def _wanted(package: Path, archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """Finds the files of a model by their names inside the package's only directory."""
    entries = archive.infolist()
    if len(entries) > _MOST_ENTRIES:
        raise _damaged(package, f"it has {len(entries):,} files")
    found: dict[str, zipfile.ZipInfo] = {}
    for entry in entries:
        parts = PurePosixPath(entry.filename).parts
        if ".." in parts or entry.filename.startswith("/") or "\\" in entry.filename:
            raise _damaged(package, f"it has a file outside of itself: {entry.filename[:60]}")
        name = "/".join(parts[1:])
        is_text = len(parts) == 2 and name.endswith((".json", ".model"))
        is_model = (
            len(parts) == 3 and parts[1] == MODEL and name.endswith((".bin", ".json", ".txt"))
        )
        if (is_text or is_model) and not entry.is_dir():
            if name in found:
                raise _damaged(package, f"it has {name[:60]} twice")
            found[name] = entry
    if METADATA not in found:
        raise _damaged(package, f"it has no {METADATA}")
    compressed = sum(entry.compress_size for entry in found.values())
    size = sum(entry.file_size for entry in found.values())
    if size > MOST_EXPANSION * compressed + FREE_BYTES:
        raise _damaged(package, f"{compressed:,} bytes would become {size:,}")
    return found


def _damaged(package: Path, reason: object) -> ArtifactError:
    text = " ".join(str(reason).split())[:200] or type(reason).__name__
    return ArtifactError(
        f"{package}: is damaged or not a package of Argos ({text}); download it again"
    )
