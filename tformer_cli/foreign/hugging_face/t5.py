"""T5, T5 1.1, mT5, ByT5 and MADLAD-400 of the library, both ways.

Pre-norm stacks with RMS norms and no biases; scores are not divided by √d_k, and a table of biases
by distance, one for each stack, takes the place of positions. T5 has one matrix for embeddings and
output and multiplies the last hidden states by d_model^-0.5, which is folded into the weights of
the decoder's final norm; the others have an output matrix of their own.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tformer_cli.errors import UsageError
from tformer_cli.foreign.assembly import NEVER, Rows, assembled, output_bias
from tformer_cli.foreign.foreign_model import ForeignModel, model_config, number
from tformer_cli.foreign.hugging_face import translators
from tformer_cli.foreign.hugging_face.families import FAMILIES, PROJECTIONS, T5_MODULES
from tformer_cli.foreign.hugging_face.family import (
    Family,
    Parts,
    Source,
    check_no_biases,
    named_weights,
)
from tformer_cli.foreign.hugging_face.generation import read_generation
from tformer_cli.foreign.hugging_face.t5_tokenizers import read_vocabulary

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from tformer_cli.artifacts.model_directory import ModelDirectory
    from tformer_cli.foreign.hugging_face.layout import Layout
    from tformer_cli.model.config import TiedEmbeddings

_BIASES = "{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
"""Biases of distances of a stack."""
_IGNORED = "EncDecAttention.relative_attention_bias.weight"
"""Ends the name of a tensor of older files that nothing reads."""
_FINAL_NORM = "decoder.final_layer_norm.weight"


def read(source: Source) -> ForeignModel:
    """Reads a directory of the library."""
    file, settings, reader = source.file, source.settings, source.reader
    generation = read_generation(source.path, settings, _translation(settings))
    size = number(file, settings, "vocab_size")
    vocabulary = read_vocabulary(source.path, settings, size)
    special = {k: v for k, v in settings.items() if k.endswith("_token_id") and v is not None}
    ids = {"pad_token_id": 0, "eos_token_id": 1, **special, **generation.special_ids}
    ids = {"decoder_start_token_id": ids["pad_token_id"], **ids}
    pad, start, end = (number(file, ids, f"{n}_token_id") for n in ("pad", "decoder_start", "eos"))
    rows = generation.banned(vocabulary.rows(size, pad, start, end, str(file)))
    forced = generation.check_forced(end)
    given, tied = _outer(source, rows)
    config = model_config(file, **source.shape(), tied_embeddings=tied)
    is_scaled = _is_scaled(settings)
    if is_scaled:
        factor = np.float32(config.d_model**-0.5)
        given["decoder.final_norm.weight"] = reader.take(_FINAL_NORM) * factor
    table = T5_MODULES[config.gated]
    weights = assembled(config, len(rows.pieces), table, reader.take, given, str(source.path))
    reader.ignore([name for name in reader.arrays if name.endswith(_IGNORED)])
    reader.check_all_taken()
    decoding, of_search = generation.search(config)
    notes = [*source.notes, *vocabulary.notes, *generation.notes, *of_search, *forced]
    if is_scaled:
        notes.append("the factor d_model^-0.5 of its logits is in the decoder's final norm")
    return ForeignModel(
        kind=f"Hugging Face {source.family.title}",
        config=config,
        weights=weights,
        tokenizer=vocabulary.tokenizer(rows),
        decoding=decoding,
        files=(file, *source.weight_files, *vocabulary.files, *generation.files),
        ids=rows.foreign,
        notes=tuple(notes),
    )


def _is_scaled(settings: Mapping[str, Any]) -> bool:
    """Returns whether the last hidden states are multiplied by d_model^-0.5.

    Version 5 of the library writes that all models are tied and says of T5 by a setting of its own
    whether they are scaled; of mT5 it scales none.
    """
    is_tied = bool(settings.get("tie_word_embeddings", settings["model_type"] == "t5"))
    version = str(settings.get("transformers_version", ""))
    if settings["model_type"] == "mt5" and version.partition(".")[0] == "5":
        return False
    return bool(settings.get("scale_decoder_outputs", is_tied))


def _outer(source: Source, rows: Rows) -> tuple[dict[str, Any], TiedEmbeddings]:
    """Reads the weights around the stacks, and finds what is tied."""
    reader, settings = source.reader, source.settings
    names = ["shared.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight"]
    embedding = reader.take_first(names)
    output = embedding
    if "lm_head.weight" in reader or settings.get("tie_word_embeddings") is False:
        output = reader.take("lm_head.weight")
    given: dict[str, Any] = {
        "source_embedding.weight": rows.of(embedding),
        "output_bias": output_bias(rows, None),
    }
    for side in ("encoder", "decoder"):
        given[f"{side}_input.positions.table"] = reader.take(_BIASES.format(side=side))
    if np.array_equal(output, embedding):
        return given, "all"
    given["output_projection.weight"] = rows.of(output)
    return given, "inputs"


def _translation(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """The settings of the search that T5's config.json has for a translation."""
    tasks = settings.get("task_specific_params")
    found = tasks.get("translation_en_to_de") if isinstance(tasks, dict) else None
    return found if isinstance(found, dict) else {}


def family_of(directory: ModelDirectory) -> Family:
    return replace(FAMILIES["t5"], modules=T5_MODULES[directory.config.gated])


def write(directory: ModelDirectory, family: Family) -> Parts:
    """Makes the parts of an export."""
    from tformer_cli.foreign.hugging_face.layout import layout_of

    config = directory.config
    if (config.activation, config.gated) not in PROJECTIONS.values():
        raise UsageError(
            f'{directory.path}: T5 of Hugging Face has no activation = "{config.activation}" with '
            "a gate; export with --format int8"
        )
    layout = layout_of(directory, "t5")
    generation = translators.generation_of(directory, layout)
    bias = directory.model.output_bias
    never = [] if bias is None else (bias == NEVER).nonzero().flatten().tolist()
    banned = {*generation["suppress_tokens"], *(layout.ids[token] for token in never)}
    settings = {
        "vocab_size": layout.sizes[1],
        "tie_word_embeddings": config.tied_embeddings == "all",
        **family.write(config),
        **translators.special_ids(layout),
    }
    return Parts(
        settings=settings,
        weights=_weights(directory, family, layout),
        layout=layout,
        generation={**generation, "suppress_tokens": sorted(banned)},
    )


def _weights(directory: ModelDirectory, family: Family, layout: Layout) -> dict[str, Tensor]:
    model, config = directory.model, directory.config
    check_no_biases(
        directory,
        family,
        'train it again with model.frozen = ["output_bias"], or export with --format int8',
    )
    found = {"shared.weight": layout.ordered(model.target_matrix)}
    if config.tied_embeddings == "inputs":
        found["lm_head.weight"] = layout.ordered(model.output_matrix)
    weights = dict(model.state_dict())
    if config.tied_embeddings == "all":  # the class multiplies by what is folded into this norm
        norm = weights["decoder.final_norm.weight"]
        weights["decoder.final_norm.weight"] = norm * config.d_model**0.5
    for side in ("encoder", "decoder"):
        found[_BIASES.format(side=side)] = weights[f"{side}_input.positions.table"]
    found |= named_weights(family, config, weights, model.vocab_size, directory.path)
    if config.similarity == "scaled":  # which the class does not do
        queries = [name for name in found if name.endswith(".q.weight")]
        found |= {name: found[name] * config.head_width**-0.5 for name in queries}
    return found
