"""A model's weights in the format of the CTranslate2 engine.

The engine's own package writes its files; here its specification of a Transformer is filled in by
the table that `importing` reads. Embeddings are scaled by √D here and there, and positions are
exported as a table, so that no formula has to agree.
"""

import json
from collections.abc import Container, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from tformer_cli.artifacts.config_file import TOKENIZER, WEIGHTS
from tformer_cli.artifacts.model_directory import ModelDirectory
from tformer_cli.errors import UsageError
from tformer_cli.files.atomic import directory_aside, write_text
from tformer_cli.files.regular_file import hash_file
from tformer_cli.foreign.foreign_model import HELD_BY_EXPORTS, foreign_names
from tformer_cli.plugins.interchange.ctranslate2.importing import TABLE
from tformer_cli.plugins.interchange.ctranslate2.settings import SIDES
from tformer_cli.settings import ANY, unknown_setting
from tformer_cli.text.tokenizer import BOS_ID, EOS_ID, UNK_ID
from tformer_cli.wording import installing

EXPORT = "ctranslate2"  # folder of the export inside a model directory, unless another one is named
ORIGIN = "origin.json"  # file with the hashes of the exported weights and their tokenizer
KNOWN_MODELS: Mapping[str, Container[Any]] = MappingProxyType(
    {
        **HELD_BY_EXPORTS,
        "norm_epsilon": ANY,
        "norm": ("post", "pre"),
        "activation": ("relu", "gelu", "swish"),
        "positions": ("sinusoidal", "learned", "rotary", "table"),
        "tied_embeddings": ("all", "decoder", "none"),
        **dict.fromkeys(
            ("bias", "output_bias", "embedding_norm", "scale_embeddings", "source_eos"),
            (False, True),
        ),
        "final_norm": ("pre-norm",),
        "source_vocab_size": ANY,
    }
)


def import_ctranslate2() -> Any:  # noqa: ANN401  # the package has no types
    try:
        import ctranslate2
    except ImportError:
        raise UsageError(
            f"--format ctranslate2: the package is not installed; {installing('ctranslate2')}"
        ) from None
    return ctranslate2


def export_ctranslate2(directory: ModelDirectory, path: Path, quantization: str) -> None:
    """Writes a model for the engine, whole or not at all; an earlier export is replaced."""
    specs = import_ctranslate2().specs
    config = directory.model.config
    unknown = unknown_setting(config, KNOWN_MODELS)
    if unknown is not None:
        raise UsageError(
            f"{directory.path}: the export to CTranslate2 does not know {unknown}; use "
            "`tformer translate`"
        )
    if {n for layers in config.layer_heads for n in layers} != {config.n_heads}:
        raise UsageError(
            f"{directory.path}: some heads are pruned, but CTranslate2 needs the same number "
            "in every layer; export the unpruned model"
        )
    # the engine and the model give activations the same names
    activation = getattr(specs.Activation, config.activation.upper(), None)
    if activation is None:
        raise UsageError(
            f'{directory.path}: CTranslate2 has no activation "{config.activation}"; use '
            "`tformer translate`"
        )
    spec = specs.TransformerSpec.from_config(
        (config.n_encoder_layers, config.n_decoder_layers),
        config.n_heads,
        pre_norm=config.is_pre_norm,
        activation=activation,
        layernorm_embedding=config.embedding_norm,
    )
    for side in (spec.encoder, spec.decoder):
        side.scale_embeddings = config.scale_embeddings
    # The engine turns halves of a head's width, as the model does, not neighboring pairs
    if directory.model.decoder_input.positions.turns:
        for layer in (*spec.encoder.layer, *spec.decoder.layer):
            turned = specs.attention_spec.MultiHeadAttentionSpec(
                self_attention=True,
                rotary_dim=config.head_width,
                rotary_interleave=False,
                rotary_base=config.rotary_base,
            )
            layer.self_attention = turned
    _set_vocabulary(spec, directory)
    _fill(spec, directory)
    # Missing or misshapen weights are found here, before anything is written
    spec.validate()
    spec.optimize(quantization)  # the engine converts again when it loads
    hashes = {name: hash_file(directory.path / name) for name in (WEIGHTS, TOKENIZER)}
    with directory_aside(path) as aside:
        spec.save(str(aside))
        write_text(aside / TOKENIZER, directory.tokenizer.source_json())
        write_text(aside / ORIGIN, json.dumps(hashes) + "\n")


def _set_vocabulary(spec: Any, directory: ModelDirectory) -> None:  # noqa: ANN401 - the engine's
    tokenizer = directory.tokenizer
    # Labels, not pieces: the engine's vocabulary files hold one readable token a line
    vocabulary = tokenizer.target.pieces(range(tokenizer.vocab_size))
    source = tokenizer.source
    spec.register_source_vocabulary(source.pieces(range(source.vocab_size)))
    spec.register_target_vocabulary(vocabulary)
    spec.config.add_source_eos = directory.config.source_eos
    spec.config.bos_token, spec.config.eos_token = vocabulary[BOS_ID], vocabulary[EOS_ID]
    spec.config.unk_token = vocabulary[UNK_ID]
    spec.config.decoder_start_token = vocabulary[BOS_ID]
    spec.config.layer_norm_epsilon = directory.config.norm_epsilon


def _fill(spec: Any, directory: ModelDirectory) -> None:  # noqa: ANN401
    """Puts the weights where the table of the import reads them from."""
    model, config = directory.model, directory.model.config
    spec.encoder.embeddings[0].weight = _array(model.source_embedding.weight)
    spec.decoder.embeddings.weight = _array(model.target_matrix)
    spec.decoder.projection.weight = _array(model.output_matrix)
    if model.output_bias is not None:
        spec.decoder.projection.bias = _array(model.output_bias)
    for side in SIDES:
        positions = getattr(model, f"{side}_input").positions
        rows = positions.rows(0, config.max_positions, torch.device("cpu"))
        if rows is None:  # the engine adds some in any case
            rows = torch.zeros(config.max_positions, config.d_model)
        getattr(spec, side).position_encodings.encodings = _array(rows)
    for name, weight in model.state_dict().items():
        names = foreign_names(name, TABLE)
        # (3·D, D) of a cross-attention: the queries' rows are one matrix, keys and values another
        parts = (
            [weight] if len(names) == 1 else [weight[: config.d_model], weight[config.d_model :]]
        )
        for foreign, part in zip(names, parts, strict=bool(names)):
            _set(spec, foreign, part)
            if foreign.endswith("/gamma") and not config.bias:  # the engine's norms have a bias
                _set(spec, foreign.replace("/gamma", "/beta"), torch.zeros_like(part))


def _set(spec: Any, name: str, weight: Tensor) -> None:  # noqa: ANN401
    """Sets an array by its name in the file: ``layer_0`` is the first of a list ``layer``."""
    *path, last = name.split("/")
    for part in path:
        if hasattr(spec, part):
            spec = getattr(spec, part)
        else:
            several, _, number = part.rpartition("_")
            spec = getattr(spec, several)[int(number)]
    setattr(spec, last, _array(weight))


def _array(tensor: Tensor) -> Any:  # noqa: ANN401  # numpy's, which only the engine looks at
    return tensor.detach().float().cpu().contiguous().numpy()
