"""Pipelines of sentence-transformers, both ways: an encoder, a pooling, and its head.

Sources: sentence-transformers 5.1 and 6.2, models/Pooling.py and models/Dense.py. What is read is
an encoder, its pooling and perhaps a norm. What is written may also be a classifier that no class
of transformers computes: its labels' rows are a Dense module, whose vectors are the logits.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tformer_cli.artifacts.config_file import TASKS, task_kind
from tformer_cli.errors import ArtifactError
from tformer_cli.foreign.foreign_model import Reader
from tformer_cli.foreign.formats.weight_files import read_weights_of
from tformer_cli.foreign.keys import (
    USED,
    Keys,
    no_effect,
    omit,
    only,
    parse_json,
    quote,
    read_bytes,
    read_json_file,
    rows_of,
    unsupported_error,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from torch import Tensor

    from tformer_cli.artifacts.model_directory import ModelDirectory
    from tformer_cli.foreign.formats.mapped_file import Array
    from tformer_cli.model.config import ModelConfig, Pooler
    from tformer_cli.model.methods import Pooling


MODULES = Keys(
    "modules.json",
    "sentence-transformers",
    {"type": USED, "path": USED, **rows_of("idx name", no_effect("the order is that of the list"))},
)
TRANSFORMER = Keys(
    "sentence_bert_config.json",
    "sentence-transformers",
    {
        "max_seq_length": USED,
        "do_lower_case": USED,
        "transformer_task": only(None, "feature-extraction"),
        "modality_config": only(
            None, {"text": {"method": "forward", "method_output_name": "last_hidden_state"}}
        ),
        "module_output_name": only(None, "token_embeddings"),
        "unpad_inputs": no_effect("how batches are computed"),
    },
)
POOLING = Keys(
    "1_Pooling/config.json",
    "sentence-transformers",
    {
        **rows_of(
            "pooling_mode pooling_mode_cls_token pooling_mode_mean_tokens pooling_mode_max_tokens"
            " pooling_mode_mean_sqrt_len_tokens pooling_mode_weightedmean_tokens"
            " pooling_mode_lasttoken",
            USED,
        ),
        **rows_of(
            "word_embedding_dimension embedding_dimension", no_effect("the width determines it")
        ),
        "include_prompt": USED,
    },
)
NORMALIZE = Keys(
    "2_Normalize/config.json",
    "sentence-transformers",
    rows_of("module_input_name module_output_name", only("sentence_embedding")),
)
DROPOUT = Keys(
    "2_Dropout/config.json", "sentence-transformers", {"dropout": no_effect("of training")}
)
PIPELINE = Keys(
    "config_sentence_transformers.json",
    "sentence-transformers",
    {
        "__version__": no_effect("the origin of the model"),
        "model_type": only(None, "SentenceTransformer"),
        "similarity_fn_name": omit("vectors are written, and none is compared", "cosine"),
        "prompts": USED,
        "default_prompt_name": USED,
        "truncate_dim": only(None),
    },
)
DENSE = Keys(
    "2_Dense/config.json",
    "sentence-transformers, of classifiers that tformer has exported",
    {
        "activation_function": USED,
        **rows_of("in_features out_features bias", no_effect("the tensors determine it")),
        **rows_of("module_input_name module_output_name", only(None, "sentence_embedding")),
    },
)


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """Pooling of an encoder's states by sentence-transformers."""

    path: Path
    pooling: Pooling = "mean"
    unit_length: bool = False
    longest: int = 0  # tokens of the longest text (0: as long as there are positions)
    lowercase: bool = False  # texts are made small before they are cut
    files: tuple[Path, ...] = ()
    notes: list[str] = field(default_factory=list)
    is_sentence: bool = False
    dense: tuple[Path, ...] = ()  # of a classifier that was exported: the directories of its layers


def read_pipeline(path: Path) -> Pipeline:
    """Reads the modules of sentence-transformers; a directory without them is the encoder."""
    file = path / "modules.json"
    if not file.is_file():
        return Pipeline(path=path)
    notes: list[str] = []
    try:
        rows = parse_json(read_bytes(file))
        for row in rows:
            notes += MODULES.read(file, row)
        modules = [(str(row["type"]).rpartition(".")[2], path / str(row["path"])) for row in rows]
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise ArtifactError(f"{file}: is not a list of modules; download it again") from None
    settings_file = path / PIPELINE.file
    pipeline = read_json_file(settings_file) if settings_file.is_file() else {}
    if pipeline.get("model_type") not in (None, CLASS):
        raise unsupported_error(settings_file, "model_type", pipeline["model_type"])
    names = ", ".join(kind for kind, _ in modules if kind != "Dropout")
    dense = tuple(inner for kind, inner in modules[2:] if kind == "Dense")
    modules = [*modules[:2], *(module for module in modules[2:] if module[0] != "Dense")]
    kinds = [kind for kind, _ in modules if kind != "Dropout"]
    known: list[list[str]] = [[]] if dense else [[], ["Normalize"]]
    if kinds[:2] != ["Transformer", "Pooling"] or kinds[2:] not in known:
        raise ArtifactError(
            f"{file}: the modules {names[:60]} are not supported, only Transformer, "
            "Pooling, Dropout and Normalize, in this order; import another model"
        )
    inside = (*(inner for _, inner in modules), *dense)
    if not all(inner.resolve().is_relative_to(path.resolve()) for inner in inside):
        raise ArtifactError(f"{file}: names a directory that is not in it; download it again")
    tables = [
        (modules[1][1] / "config.json", POOLING),
        (modules[0][1] / "sentence_bert_config.json", TRANSFORMER),
        (settings_file, PIPELINE),
        *(
            (inner / "config.json", NORMALIZE if kind == "Normalize" else DROPOUT)
            for kind, inner in modules[2:]
        ),
    ]
    values: dict[str, dict[str, Any]] = {}
    for table_file, table in tables:
        is_read = table_file.is_file() or table is POOLING
        values[table.file] = read_json_file(table_file) if is_read else {}
        notes += table.read(table_file, values[table.file])
    pooling_file = tables[0][0]
    settings = values[TRANSFORMER.file]
    is_included = values[POOLING.file].get("include_prompt") is not False
    notes += _prompts(settings_file, pipeline, is_included=is_included)
    longest = settings.get("max_seq_length")
    return Pipeline(
        path=modules[0][1],
        pooling=_pooling_of(pooling_file, values[POOLING.file]),
        unit_length="Normalize" in kinds,
        longest=longest if type(longest) is int else 0,
        lowercase=settings.get("do_lower_case") is True,
        files=(file, *(table_file for table_file, _ in tables if table_file.is_file())),
        notes=notes,
        is_sentence=True,
        dense=dense,
    )


def read_classifier(
    pipeline: Pipeline, labels: object
) -> tuple[Pooler, dict[str, Array], list[Path]]:
    """Reads the layers of a classifier that `write_pipeline` has written; the last are files.

    A layer after an encoder that makes other vectors is refused: its outputs have no names.
    """
    weights: dict[str, Array] = {}
    files: list[Path] = []
    names: list[str] = []
    modules = ["pooler", "output"][-len(pipeline.dense) :]
    is_ours = len(pipeline.dense) == len(modules) and isinstance(labels, dict)
    for module, folder in zip(modules, pipeline.dense if is_ours else (), strict=is_ours):
        settings = read_json_file(folder / "config.json")
        DENSE.read(folder / "config.json", settings)
        arrays, weight_files = read_weights_of(folder)
        reader = Reader(arrays, str(folder))
        matrix = reader.take("linear.weight")
        bias = np.zeros(len(matrix), np.float32)
        if "linear.bias" in reader:
            bias = reader.take("linear.bias")
        reader.check_all_taken()
        is_last = module == "output"
        weights[f"{module}{'_projection' if is_last else ''}.weight"] = matrix
        weights["output_bias" if is_last else "pooler.bias"] = bias
        names.append(str(settings.get("activation_function")))
        files += [folder / "config.json", *weight_files]
    poolers = {activation: pooler for pooler, activation in _ACTIVATIONS.items()}
    named = labels if isinstance(labels, dict) else {}
    is_ours = is_ours and len(named) == len(weights["output_bias"])
    if not is_ours or names[-1] != _NO_ACTIVATION or not poolers.keys() >= {*names[:-1]}:
        kinds = ", ".join(["Transformer", "Pooling", *["Dense"] * len(pipeline.dense)])
        raise ArtifactError(
            f"{pipeline.files[0]}: the modules {kinds} are supported only for a classifier "
            "that tformer has exported, with a label for each output; import another model"
        )
    return poolers[names[0]] if names[1:] else "none", weights, files


def _prompts(file: Path, values: Mapping[str, Any], *, is_included: bool) -> list[str]:
    """Refuses a prompt that is added to every text; notes those that a caller chooses."""
    prompts, name = values.get("prompts") or {}, values.get("default_prompt_name")
    if not isinstance(prompts, dict):
        raise ArtifactError(f"{file}: prompts is not an object; download it again")
    if name is not None and prompts.get(str(name)) != "":
        raise ArtifactError(
            f"{file}: default_prompt_name = {quote(name)} puts a text before every text, which is "
            "not supported; set it to null and write the text before yours"
        )
    named = [quote(prompt) for prompt in prompts if prompts[prompt]][:4]
    if not named:
        return []
    if not is_included:
        shown_names = ", ".join(named)
        return [f"prompts ({shown_names}) are not supported: the pooling leaves them out"]
    return [f"prompts ({', '.join(named)}) are not added to texts; write them before yours"]


def _pooling_of(file: Path, settings: Mapping[str, Any]) -> Pooling:
    """Reads a pooling, by one key since version 5.7 and by one for each before."""
    modes = settings.get("pooling_mode")
    if modes is None:
        modes = [n for n, value in settings.items() if n.startswith("pooling_mode") and value]
    modes = modes if isinstance(modes, list) else [modes]
    if len(modes) != 1 or modes[0] not in _POOLINGS:
        raise ArtifactError(
            f"{file}: its pooling ({', '.join(map(str, modes))[:100]}) is not supported, only the "
            "mean or the first token's state; import another model"
        )
    return _POOLINGS[modes[0]]


CLASS = "SentenceTransformer"  # loads a pipeline


def is_written(config: ModelConfig, pooler: str) -> bool:
    """Tells whether a model is exported as a pipeline, for no class has its pooling and head.

    `pooler` is that of the classes of its family.
    """
    # A pipeline reads tokens, which images have none of
    if TASKS[task_kind(config)].head is None or config.patch_size:
        return False
    if config.head == "none":  # a class would lose how states become a vector
        return True
    return config.head == "labels" and (config.pooler, config.pooling) != (pooler, "first")


@dataclass(frozen=True, kw_only=True)
class Written:
    """The files of a pipeline besides those of its encoder, by their paths in the directory."""

    texts: Mapping[str, Any]
    weights: Mapping[str, Mapping[str, Tensor]]


_ACTIVATIONS: Mapping[Pooler, str] = {
    "tanh": "torch.nn.modules.activation.Tanh",
    "relu": "torch.nn.modules.activation.ReLU",
}
_NO_ACTIVATION = "torch.nn.modules.linear.Identity"
_WRITTEN_POOLINGS: Mapping[str, Pooling] = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "first",
}
_POOLINGS: Mapping[str, Pooling] = {**_WRITTEN_POOLINGS, "mean": "mean", "cls": "first"}


def write_pipeline(directory: ModelDirectory) -> Written:
    config = directory.config
    dense = _dense(directory)
    kinds = ["Transformer", "Pooling", *["Dense"] * len(dense)]
    if config.head == "none" and config.unit_length:
        kinds.append("Normalize")
    # the encoder lies in the directory itself, so that transformers finds it, too
    paths = ["", *(f"{place}_{kind}" for place, kind in enumerate(kinds[1:], 1))]
    modules = [
        # the names of release 2 to 5, which later ones know, too
        {"idx": n, "name": str(n), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for n, (kind, path) in enumerate(zip(kinds, paths, strict=True))
    ]
    pooling = {mode: pooled == config.pooling for mode, pooled in _WRITTEN_POOLINGS.items()}
    texts: dict[str, Any] = {
        "modules.json": modules,
        TRANSFORMER.file: {"max_seq_length": config.max_positions, "do_lower_case": False},
        POOLING.file: {"word_embedding_dimension": config.d_model, **pooling},
    }
    weights = {}
    for path, (settings, tensors) in zip(paths[2:], dense, strict=False):
        texts[f"{path}/config.json"] = settings
        weights[f"{path}/model.safetensors"] = tensors
    return Written(texts=texts, weights=weights)


def _dense(directory: ModelDirectory) -> list[tuple[dict[str, Any], dict[str, Tensor]]]:
    """The pooler and the labels' rows of a classifier as modules: their settings and weights."""
    config = directory.config
    if config.head != "labels":
        return []
    ours = directory.encoder.state_dict()
    layers = [("output_projection.weight", "output_bias", _NO_ACTIVATION)]
    if config.pooler != "none":
        layers.insert(0, ("pooler.weight", "pooler.bias", _ACTIVATIONS[config.pooler]))
    modules = []
    for matrix, bias, activation in layers:
        tensors = {"linear.weight": ours[matrix], "linear.bias": ours.get(bias)}
        n_outputs, n_inputs = ours[matrix].shape
        settings = {
            "in_features": n_inputs,
            "out_features": n_outputs,
            "bias": bias in ours,
            "activation_function": activation,
        }
        stored = {
            n: tensor.clone().contiguous() for n, tensor in tensors.items() if tensor is not None
        }
        modules.append((settings, stored))
    return modules
