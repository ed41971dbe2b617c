"""Translation models of the library, both ways: Marian, M2M-100, NLLB, mBART, Pegasus, and T5's.

The first share the names of weights. Marian is post-norm and starts from the row of `<pad>`, which
is zero; the others are pre-norm with final norms. Positions are sines in one half and cosines in
the other, with the paper's frequencies (Marian, Pegasus) or tensor2tensor's from position 2
(M2M-100), or learned ones from row 2 (mBART). Post-norm models are exported as Marian, pre-norm
ones as Pegasus: both read their positions from the weights file if it has them, so that no formula
has to agree, and both add `final_logits_bias`. What was imported as M2M-100, NLLB or mBART becomes
that again, as long as it has its positions and no more biases.

T5, T5 1.1, mT5, ByT5 and MADLAD-400 are pre-norm with RMS norms and no biases; scores are not
divided by √d_k, and a table of biases by distance, one for each stack, takes the place of
positions. T5 has one matrix for embeddings and output and multiplies the last hidden states by
d_model^-0.5, which is folded into the weights of the decoder's final norm; the others have an
output matrix of their own.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tformer_cli.errors import ArtifactError, UsageError
from tformer_cli.foreign.foreign_model import (
    BANNED_BIAS,
    ForeignModel,
    VocabularyOrder,
    model_config,
    output_bias,
    paper_halves,
    reorder_vocabulary,
    tensor2tensor_halves,
)
from tformer_cli.foreign.hugging_face.families import FAMILIES, PROJECTIONS, T5_MODULES
from tformer_cli.foreign.hugging_face.family import (
    Family,
    Parts,
    Source,
    check_no_biases,
    finish,
    named_weights,
    position_rows,
)
from tformer_cli.foreign.hugging_face.generation import (
    own_settings,
    read_generation,
    written_search,
)
from tformer_cli.foreign.hugging_face.spm_tokenizers import read_t5_vocabulary
from tformer_cli.foreign.hugging_face.tokenizers import read_vocabulary
from tformer_cli.foreign.keys import number
from tformer_cli.model.methods import POSITIONS
from tformer_cli.text.tokenizer import BOS_ID, EOS_ID, PAD_ID

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from torch import Tensor

    from tformer_cli.artifacts.model_directory import ModelDirectory
    from tformer_cli.foreign.formats.mapped_file import Array
    from tformer_cli.foreign.hugging_face.layout import Layout
    from tformer_cli.foreign.hugging_face.tokenizers import Vocabulary
    from tformer_cli.model.config import ModelConfig, TiedEmbeddings
    from tformer_cli.model.transformer import Transformer

# Row of the first token in mBART's table of positions, and its position in M2M-100's models with
# padding's usual id, 1.
_OFFSET = 2
_ROUNDING = 1e-6  # sines of two libraries differ by less
_SIDES = ("encoder", "decoder")


def read(source: Source) -> ForeignModel:
    file, settings = source.file, source.settings
    generation = read_generation(source.path, settings)
    # generation_config.json's padding fills translations that have ended, and nothing else
    padding = {k: v for k, v in settings.items() if k == "pad_token_id" and v is not None}
    settings = {**settings, **generation.special_ids, **padding}
    vocabulary = read_vocabulary(source.path, settings)
    sides = _rows(file, settings, vocabulary)
    sides = sides[0], generation.ban_tokens(sides[1])
    is_shared = bool(settings.get("share_encoder_decoder_embeddings", True))
    config = model_config(
        file,
        **source.shape(),
        tied_embeddings="all" if is_shared else "decoder",
        source_vocab_size=0 if is_shared else len(sides[0].pieces),
        source_eos=not vocabulary.languages.after_source,
    )
    pad = number(file, settings, "pad_token_id")
    used = {settings[f"{name}_token_id"] for name in ("eos", "decoder_start")} | {vocabulary.unk}
    if source.family.model_type == "m2m_100" and pad in used:
        raise ArtifactError(
            f"{file}: pad_token_id = {pad} is a token of texts, which would have no positions; use "
            "this model's own settings"
        )
    decoding, of_search = generation.search(config)
    own = generation.read_exported(settings, config.max_positions, has_source=True)
    forced = generation.check_forced(settings["eos_token_id"], vocabulary.language_ids)
    return finish(
        source,
        config,
        _outer(source, config, sides, pad + 1),
        ids=sides[1].foreign,
        tokenizer=vocabulary.tokenizer(sides),
        files=(*vocabulary.files, *generation.files),
        notes=(*vocabulary.notes, *generation.notes, *([] if own else of_search), *forced),
        decoding=own or decoding,
        languages=vocabulary.language_codes,
    )


def _rows(
    file: Path, settings: Mapping[str, Any], vocabulary: Vocabulary
) -> tuple[VocabularyOrder, VocabularyOrder]:
    pad, eos, start = (
        number(file, settings, f"{name}_token_id") for name in ("pad", "eos", "decoder_start")
    )
    source_size = target_size = number(file, settings, "vocab_size")
    if settings.get("decoder_vocab_size"):
        target_size = number(file, settings, "decoder_vocab_size")
    orders = []
    for pieces, size in (
        (vocabulary.pieces(vocabulary.source, source_size), source_size),
        (vocabulary.pieces(vocabulary.target, target_size), target_size),
    ):
        unk = vocabulary.unk
        if not all(0 <= n < size for n in (pad, eos, start, unk)):
            raise ArtifactError(
                f"{file}: special tokens have the ids {pad}, {unk}, {start}, {eos}, but the "
                f"vocabulary has {size} entries; use this model's own files"
            )
        orders.append(reorder_vocabulary(pieces, pad, unk, start, eos))
    return orders[0], orders[1]


def _outer(
    source: Source, config: ModelConfig, sides: tuple[VocabularyOrder, VocabularyOrder], first: int
) -> dict[str, Any]:
    """Reads the weights around the stacks; M2M-100 counts positions from the one after padding."""
    reader, family, weights = source.reader, source.family, dict[str, Any]()
    target = ["decoder.embed_tokens.weight", "lm_head.weight"]
    if config.tied_embeddings == "all":
        names = ["shared.weight", "encoder.embed_tokens.weight", *target]
        weights["source_embedding.weight"] = sides[1].of(reader.take_first(names))
    else:
        own = reader.take("encoder.embed_tokens.weight")
        weights["source_embedding.weight"] = sides[0].of(own)
        weights["target_embedding.weight"] = sides[1].of(reader.take_first(target))
    bias = family.outer.get("output_bias", "")
    weights["output_bias"] = output_bias(sides[1], reader.take(bias) if bias in reader else None)
    for side in _SIDES:
        name = f"{side}.embed_positions.weight"
        weights[f"{side}_input.positions.table"] = _positions(source, config, name, first)
    return weights


def _positions(source: Source, config: ModelConfig, name: str, first: int) -> Array:
    if not POSITIONS[config.positions].is_fixed:
        return source.reader.take(name)[_OFFSET:]
    if source.family.model_type == "m2m_100":  # its files hold no positions
        return tensor2tensor_halves(config.max_positions, config.d_model, first)
    if name in source.reader:  # older files have it; it counts
        return source.reader.take(name)
    return paper_halves(config.max_positions, config.d_model)


def family_of(directory: ModelDirectory) -> Family:
    config = directory.config
    t5 = FAMILIES["t5"]
    known = t5.known["positions"]
    if config.positions in known:
        return replace(t5, modules=T5_MODULES[config.gated])
    if not config.is_pre_norm:
        return FAMILIES["marian"]
    if config.embedding_norm:
        return FAMILIES["mbart"]
    return FAMILIES["m2m_100" if _is_m2m(directory.model) else "pegasus"]


def _is_m2m(model: Transformer) -> bool:
    """Returns whether a model has M2M-100's positions, which no file holds, and no output bias."""
    bias, config = model.output_bias, model.config
    has_bias = bias is not None and bool(bias[bias != BANNED_BIAS].any())
    is_fixed = POSITIONS[config.positions].is_fixed
    if not is_fixed or config.tied_embeddings != "all" or has_bias:
        return False
    table = tensor2tensor_halves(config.max_positions, config.d_model, _OFFSET)
    tables = [position_rows(layer, config) for layer in (model.encoder_input, model.decoder_input)]
    return all(np.abs(rows.numpy() - table).max() < _ROUNDING for rows in tables)


def write(directory: ModelDirectory, family: Family) -> Parts:
    from tformer_cli.foreign.hugging_face.layout import layout_of

    config, is_t5 = directory.config, family.task == "t5"
    if is_t5 and (config.activation, config.gated) not in PROJECTIONS.values():
        raise UsageError(
            f'{directory.path}: T5 of Hugging Face has no activation = "{config.activation}" with '
            "a gate; export with --format int8"
        )
    layout = layout_of(directory, family.model_type)
    generation = _generation(directory, layout)
    is_shared, bias = config.tied_embeddings == "all", directory.model.output_bias
    if is_t5:
        sizes = {"vocab_size": layout.sizes[1], "tie_word_embeddings": is_shared}
        never = [] if bias is None else (bias == BANNED_BIAS).nonzero().flatten().tolist()
        banned = {*generation["suppress_tokens"], *(layout.ids[token] for token in never)}
        generation["suppress_tokens"] = sorted(banned)
    else:
        sizes = {
            "vocab_size": layout.sizes[0],
            **({} if config.is_pre_norm else {"decoder_vocab_size": layout.sizes[1]}),
            **({} if is_shared else {"share_encoder_decoder_embeddings": False}),
        }
    return Parts(
        settings={
            **sizes,
            **family.write(config),
            **_special_ids(layout),
            **own_settings(directory.decoding),
        },
        weights=(_t5_weights if is_t5 else _weights)(directory, family, layout),
        layout=layout,
        generation=generation,
    )


def _special_ids(layout: Layout) -> dict[str, int | None]:
    return {
        "pad_token_id": layout.ids[PAD_ID],
        "bos_token_id": layout.ids[BOS_ID],
        "eos_token_id": layout.ids[EOS_ID],
        "decoder_start_token_id": layout.ids[BOS_ID],
        # the classes' default may be another token
        "forced_eos_token_id": None,
    }


def _generation(directory: ModelDirectory, layout: Layout) -> dict[str, Any]:
    """Returns the defaults of the search, as far as the library has them."""
    return {
        **_special_ids(layout),
        **written_search(directory.decoding, directory.config.max_positions, has_source=True),
        # tformer's search never writes them, either
        "suppress_tokens": sorted({*layout.ids[:EOS_ID]} - {layout.ids[EOS_ID]}),
        **({} if layout.first_token is None else {"forced_bos_token_id": layout.first_token}),
        **({"renormalize_logits": True} if layout.renormalizes else {}),
    }


def _weights(directory: ModelDirectory, family: Family, layout: Layout) -> dict[str, Tensor]:
    import torch

    model, config = directory.model, directory.config
    weights: dict[str, Tensor] = {}
    sources = layout.ordered_source(model.source_embedding.weight)
    if config.tied_embeddings == "all":
        weights["shared.weight"] = sources
    else:
        weights["encoder.embed_tokens.weight"] = sources
        weights["decoder.embed_tokens.weight"] = layout.order_rows(model.target_matrix)
    if "output_bias" in family.outer:  # M2M-100 has neither it nor positions
        bias = torch.zeros(model.vocab_size) if model.output_bias is None else model.output_bias
        weights[family.outer["output_bias"]] = layout.order_rows(bias)[None]
        for side, layer in zip(_SIDES, (model.encoder_input, model.decoder_input), strict=True):
            rows = position_rows(layer, config)
            before = rows.new_zeros(_OFFSET if family.model_type == "mbart" else 0, config.d_model)
            weights[f"{side}.embed_positions.weight"] = torch.cat([before, rows])
    ours = model.state_dict()
    return weights | named_weights(family, config, ours, model.vocab_size, directory.path)


# biases of distances of a stack
_BIASES = "{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
_FINAL_NORM = "decoder.final_layer_norm.weight"


def read_t5(source: Source) -> ForeignModel:
    file, settings, reader = source.file, source.settings, source.reader
    generation = read_generation(source.path, settings, _translation(settings))
    size = number(file, settings, "vocab_size")
    vocabulary = read_t5_vocabulary(source.path, settings, size)
    special = {k: v for k, v in settings.items() if k.endswith("_token_id") and v is not None}
    ids = {"pad_token_id": 0, "eos_token_id": 1, **special, **generation.special_ids}
    ids = {"decoder_start_token_id": ids["pad_token_id"], **ids}
    pad, start, end = (number(file, ids, f"{n}_token_id") for n in ("pad", "decoder_start", "eos"))
    rows = generation.ban_tokens(vocabulary.rows(size, pad, start, end, str(file)))
    forced = generation.check_forced(end)
    weights, tied = _t5_outer(source, rows)
    config = model_config(file, **source.shape(), tied_embeddings=tied)
    source.family = replace(source.family, modules=T5_MODULES[config.gated])
    decoding, of_search = generation.search(config)
    own = generation.read_exported(settings, config.max_positions, has_source=True)
    notes = [*vocabulary.notes, *generation.notes, *([] if own else of_search), *forced]
    if _is_scaled(settings):
        factor = np.float32(config.d_model**-0.5)
        weights["decoder.final_norm.weight"] = reader.take(_FINAL_NORM) * factor
        notes.append("the factor d_model^-0.5 of its logits is in the decoder's final norm")
    return finish(
        source,
        config,
        weights,
        ids=rows.foreign,
        tokenizer=vocabulary.tokenizer(rows),
        files=(*vocabulary.files, *generation.files),
        notes=notes,
        decoding=own or decoding,
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


def _t5_outer(source: Source, rows: VocabularyOrder) -> tuple[dict[str, Any], TiedEmbeddings]:
    """Reads the weights around the stacks, and finds the tied ones."""
    reader = source.reader
    names = ["shared.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight"]
    embedding = source.read_embedding(names, "lm_head.weight")
    output = source.read_output("lm_head.weight", embedding)
    weights: dict[str, Any] = {
        "source_embedding.weight": rows.of(embedding),
        "output_bias": output_bias(rows, None),
    }
    for side in ("encoder", "decoder"):
        weights[f"{side}_input.positions.table"] = reader.take(_BIASES.format(side=side))
    if np.array_equal(output, embedding):
        return weights, "all"
    weights["output_projection.weight"] = rows.of(output)
    return weights, "inputs"


def _translation(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """The settings of the search that T5's config.json has for a translation."""
    tasks = settings.get("task_specific_params")
    task = tasks.get("translation_en_to_de") if isinstance(tasks, dict) else None
    return task if isinstance(task, dict) else {}


def _t5_weights(directory: ModelDirectory, family: Family, layout: Layout) -> dict[str, Tensor]:
    model, config = directory.model, directory.config
    check_no_biases(
        directory,
        family,
        'train it again with model.frozen = ["output_bias"], or export with --format int8',
    )
    foreign = {"shared.weight": layout.order_rows(model.target_matrix)}
    if config.tied_embeddings == "inputs":
        foreign["lm_head.weight"] = layout.order_rows(model.output_matrix)
    weights = dict(model.state_dict())
    if config.tied_embeddings == "all":  # the class multiplies by the factor folded into this norm
        norm = weights["decoder.final_norm.weight"]
        weights["decoder.final_norm.weight"] = norm * config.d_model**0.5
    for side in ("encoder", "decoder"):
        foreign[_BIASES.format(side=side)] = weights[f"{side}_input.positions.table"]
    foreign |= named_weights(family, config, weights, model.vocab_size, directory.path)
    scale = model.decoder.layers[0].self_attention.similarity.scale
    if scale != 1.0:  # which the class does not do
        queries = [name for name in foreign if name.endswith(".q.weight")]
        foreign |= {name: foreign[name] * scale for name in queries}
    return foreign
