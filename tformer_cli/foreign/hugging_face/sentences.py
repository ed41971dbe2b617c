"""Pipelines of sentence-transformers: an encoder, a pooling, and perhaps a norm.

Source: sentence-transformers 5.1, models/Pooling.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tformer_cli.errors import ArtifactError
from tformer_cli.foreign.foreign_model import parse_json, read_bytes, read_json_file, shown
from tformer_cli.foreign.hugging_face.keys import rows_of
from tformer_cli.foreign.keys import USED, Keys, no_effect, noted, only
from tformer_cli.model.config import Pooling

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
        **rows_of("word_embedding_dimension embedding_dimension", no_effect("the width says it")),
        "include_prompt": no_effect("there are no prompts"),
    },
)
NORMALIZE = Keys("2_Normalize/config.json", "sentence-transformers", {})
PIPELINE = Keys(
    "config_sentence_transformers.json",
    "sentence-transformers",
    {
        "__version__": no_effect("the origin of the model"),
        "model_type": only(None, "SentenceTransformer"),
        "similarity_fn_name": noted("vectors are written, and none is compared", "cosine"),
        "prompts": USED,
        "default_prompt_name": USED,
        "truncate_dim": only(None),
    },
)


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """What sentence-transformers makes of an encoder's states."""

    path: Path
    """Directory of the encoder."""
    pooling: Pooling = "mean"
    unit_length: bool = False
    longest: int = 0
    """Tokens of the longest text (0: as long as there are positions)."""
    lowercase: bool = False
    """Texts are made small before they are cut."""
    files: tuple[Path, ...] = ()
    """Files that were read."""
    notes: list[str] = field(default_factory=list)
    """About settings that are omitted."""
    is_sentence: bool = False
    """The directory is of sentence-transformers."""


def read_pipeline(path: Path) -> Pipeline:
    """Reads the modules of sentence-transformers; a directory without them is the encoder."""
    file = path / "modules.json"
    if not file.is_file():
        return Pipeline(path=path)
    notes: list[str] = []
    try:
        found = parse_json(read_bytes(file))
        for one in found:
            notes += MODULES.read(file, one)
        modules = [(str(one["type"]).rpartition(".")[2], path / str(one["path"])) for one in found]
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise ArtifactError(f"{file}: is no list of modules; download it again") from None
    kinds = [kind for kind, _ in modules]
    if kinds[:2] != ["Transformer", "Pooling"] or kinds[2:] not in ([], ["Normalize"]):
        raise ArtifactError(
            f"{file}: the modules {', '.join(kinds)[:60]} are not supported, only Transformer, "
            "Pooling and Normalize; import another model"
        )
    if not all(inner.resolve().is_relative_to(path.resolve()) for _, inner in modules):
        raise ArtifactError(f"{file}: names a directory that is not in it; download it again")
    tables = [
        (modules[1][1] / "config.json", POOLING),
        (modules[0][1] / "sentence_bert_config.json", TRANSFORMER),
        (path / PIPELINE.file, PIPELINE),
        *((inner / "config.json", NORMALIZE) for _, inner in modules[2:]),
    ]
    values: dict[str, dict[str, Any]] = {}
    for one, table in tables:
        values[table.file] = read_json_file(one) if one.is_file() or table is POOLING else {}
        notes += table.read(one, values[table.file])
    pooling_file = tables[0][0]
    settings = values[TRANSFORMER.file]
    notes += _prompts(path / PIPELINE.file, values[PIPELINE.file])
    longest = settings.get("max_seq_length")
    return Pipeline(
        path=modules[0][1],
        pooling=_pooling(pooling_file, values[POOLING.file]),
        unit_length="Normalize" in kinds,
        longest=longest if type(longest) is int else 0,
        lowercase=settings.get("do_lower_case") is True,
        files=(file, *(one for one, _ in tables if one.is_file())),
        notes=notes,
        is_sentence=True,
    )


def _prompts(file: Path, values: Mapping[str, Any]) -> list[str]:
    """Refuses a prompt that is put before every text; notes those that a caller chooses."""
    prompts, name = values.get("prompts") or {}, values.get("default_prompt_name")
    if not isinstance(prompts, dict):
        raise ArtifactError(f"{file}: prompts is not an object; download it again")
    if name is not None and prompts.get(str(name)) != "":
        raise ArtifactError(
            f"{file}: default_prompt_name = {shown(name)} puts a text before every text, which is "
            "not supported; set it to null and write the text before yours"
        )
    named = [shown(one) for one in prompts if prompts[one]][:4]
    if not named:
        return []
    return [f"prompts ({', '.join(named)}) are not put before texts; write them before yours"]


def _pooling(file: Path, settings: Mapping[str, Any]) -> Pooling:
    known: Mapping[str, Pooling] = {
        "pooling_mode_mean_tokens": "mean",
        "pooling_mode_cls_token": "first",
    }
    modes = [n for n, value in settings.items() if n.startswith("pooling_mode_") and value is True]
    if not modes and settings.get("pooling_mode") in ("mean", "cls"):
        return "mean" if settings["pooling_mode"] == "mean" else "first"
    if len(modes) != 1 or modes[0] not in known:
        raise ArtifactError(
            f"{file}: {', '.join(modes)[:100] or 'its pooling'} is not supported, only the mean or "
            "the first token's state; import another model"
        )
    return known[modes[0]]
