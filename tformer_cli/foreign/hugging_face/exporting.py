"""A model as a directory that Hugging Face's library loads: the tables of families, read backwards.

One of tformer's tokenizers is stored in the format of Hugging Face `tokenizers`, which needs no
SentencePiece.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tformer_cli.allow_list import unknown_setting
from tformer_cli.artifacts.config_file import CONFIG, WEIGHTS
from tformer_cli.artifacts.model_directory import ModelDirectory
from tformer_cli.artifacts.tensors import save_tensors
from tformer_cli.errors import UsageError
from tformer_cli.files.atomic import directory_aside, write_text
from tformer_cli.foreign.hugging_face import decoders, encoders, t5, translators, vision
from tformer_cli.foreign.hugging_face.family import Family
from tformer_cli.foreign.hugging_face.model_card import model_card


def export_hugging_face(directory: ModelDirectory, path: Path) -> str:
    """Writes a directory for Hugging Face's library, whole or not at all.

    Args:
        directory: the model.
        path: folder to write; it must not exist, or be empty.

    Returns:
        The class that loads it.

    Raises:
        UsageError: if the model has a setting or tokenizer that the class cannot hold.
        ArtifactError: if the folder cannot be written.
    """
    config = directory.config
    if config.is_encoder_only:
        module = vision if config.reads_images else encoders
    elif config.is_decoder_only:
        module = decoders
    else:
        module = t5 if config.positions == "relative" else translators
    family = module.family_of(directory)
    head = config.head if config.is_encoder_only else ""
    name: str = family.classes[head]
    _check(directory, family, name)
    parts = module.write(directory, family)
    files = dict(parts.files)
    texts = {
        CONFIG: _json({"architectures": [name], "model_type": family.model_type, **parts.settings}),
        "README.md": model_card(directory, name),
    }
    if parts.layout is not None:
        files |= parts.layout.files
        limits = {
            "model_input_names": ["input_ids", "attention_mask"],
            "model_max_length": config.max_positions,
            "clean_up_tokenization_spaces": False,
        }
        texts["tokenizer_config.json"] = _json({**parts.layout.settings, **limits})
    if parts.generation is not None:
        texts["generation_config.json"] = _json(parts.generation)
    weights = family.prefixed(parts.weights, has_head=head != "none")
    with directory_aside(path) as aside:
        for file, content in files.items():
            (aside / file).write_bytes(content)
        for file, text in texts.items():
            write_text(aside / file, text)
        save_tensors(aside / WEIGHTS, weights, {"format": "pt"})
    return name


def _check(directory: ModelDirectory, family: Family, name: str) -> None:
    """Refuses a model that has more than its family's class."""
    config = directory.config
    unknown = unknown_setting(config, family.known)
    if unknown is not None:
        # only translation models can be written in CTranslate2's format
        translates = not (config.is_encoder_only or config.is_decoder_only)
        way = "export with --format ctranslate2" if translates else "use it here"
        raise UsageError(f"{directory.path}: {name} of Hugging Face has no {unknown}; {way}")
    if {n for layers in config.layer_heads for n in layers} != {config.n_heads}:
        raise UsageError(
            f"{directory.path}: some heads are pruned, but {name} of Hugging Face needs the same "
            "number in every layer; export the unpruned model"
        )


def _json(values: Mapping[str, Any]) -> str:
    return json.dumps(values, indent=2, ensure_ascii=False) + "\n"
