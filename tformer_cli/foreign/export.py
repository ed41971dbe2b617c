"""A model in another form: for another engine, or with int8 weights."""

from dataclasses import replace
from pathlib import Path
from typing import Literal

from tformer_cli.acceleration import require_fast
from tformer_cli.artifacts.config_file import TASKS, WEIGHTS, TaskKind
from tformer_cli.artifacts.model_directory import (
    load_model_directory,
    named_integers,
    read_model_directory,
    save_model_directory,
)
from tformer_cli.artifacts.shortlist_file import copy_shortlist
from tformer_cli.errors import UsageError
from tformer_cli.files.atomic import check_free, directory_aside
from tformer_cli.foreign.ctranslate2.exporting import EXPORT, ORIGIN, export_ctranslate2
from tformer_cli.foreign.import_model import resolve_model

EXPORTED: tuple[TaskKind, ...] = tuple(kind for kind, row in TASKS.items() if row.has_export)
"""Tasks whose models Hugging Face's library gets."""
Quantization = Literal["float32", "float16", "bfloat16", "int16", "int8"]


def export(
    model: Path | str,
    output: Path | None = None,
    *,
    quantization: Quantization = "float32",
    adapter: Path | None = None,
) -> Path:
    """Writes a model for CTranslate2, whole or not at all."""
    source = resolve_model(model, weights="float32")
    own = source / EXPORT
    path = own if output is None else Path(output)
    if adapter is not None and path.resolve() == own.resolve():
        raise UsageError(f"--output: {own} is for MODEL without --adapter; name another directory")
    check_free(path, unless=ORIGIN)
    directory = load_model_directory(source, adapter=adapter)
    export_ctranslate2(directory, path, quantization)
    return path


def export_int8(
    model: Path | str, output: Path | str, adapter: Path | None = None
) -> tuple[int, int]:
    """Writes a model directory whose matrices are 8-bit integers, whole or not at all.

    It translates and scores as `--precision int8` does with the model itself, to the last bit.
    Scores are omitted, for they are those of the float32 weights.
    """
    path = Path(output)
    require_fast("--format int8")
    from tformer_cli.fast.products import quantized_matrices

    check_free(path)
    directory = load_model_directory(resolve_model(model, weights="float32"), adapter=adapter)
    weights = directory.model.state_dict()
    with directory_aside(path) as aside:
        save_model_directory(
            aside,
            named_integers(weights, quantized_matrices(weights)),
            config=directory.model.config,
            tokenizer=directory.tokenizer,
            decoding=directory.decoding,
            info=replace(directory.info, scores={}),
            weight_type="int8",
        )
        copy_shortlist(directory.path, aside)
    before, after = ((place / WEIGHTS).stat().st_size for place in (directory.path, path))
    return before, after


def export_merged(model: Path | str, output: Path | str, adapter: Path) -> None:
    """Writes a model directory with an adapter added to its weights, whole or not at all.

    Scores are omitted, for they are those of the model without the adapter.
    """
    path = Path(output)
    check_free(path)
    directory = load_model_directory(resolve_model(model, weights="float32"), adapter=adapter)
    with directory_aside(path) as aside:
        save_model_directory(
            aside,
            directory.model.state_dict(),
            config=directory.config,
            tokenizer=directory.tokenizer,
            decoding=directory.decoding,
            info=replace(directory.info, scores={}),
        )


def export_hugging_face(model: Path | str, output: Path | str, adapter: Path | None = None) -> str:
    """Writes a directory that Hugging Face's library loads, whole or not at all."""
    from tformer_cli.foreign.hugging_face import exporting as hugging_face_export

    path = Path(output)
    check_free(path)
    directory = load_model_directory(
        resolve_model(model, weights="float32"), adapter=adapter, tasks=EXPORTED
    )
    return hugging_face_export.export_hugging_face(directory, path)


def export_marian(model: Path | str, output: Path | str, adapter: Path | None = None) -> None:
    """Writes a directory that Marian loads, whole or not at all."""
    from tformer_cli.foreign.marian import exporting as marian

    path = Path(output)
    check_free(path)
    directory, weights = read_model_directory(
        resolve_model(model), takes_int8=True, adapter=adapter
    )
    marian.export_marian(directory, weights, path)
