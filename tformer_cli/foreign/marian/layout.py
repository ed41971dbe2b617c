"""Names, numbers and settings of Marian's two kinds of Transformer.

``transformer`` is the one that everyone trains: its positions are sinusoids of its own, its norms
have an epsilon of 1e-9. ``transformer-new`` computes the same with an epsilon of 1e-5, and with a
trained table of positions for either side if it is told to; its weights are named as its C++
classes are. In both a translation starts from zeros where other models have an embedding of `<s>`.

Source: Marian 1.12, src/models/transformer.h; src/models/transformer_new.h and src/layers_new.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from tformer_cli.errors import ArtifactError
from tformer_cli.foreign.formats.marian_binary import is_marian_binary
from tformer_cli.foreign.formats.yaml_text import read_yaml
from tformer_cli.model.config import ModelConfig

Kind = Literal["transformer", "transformer-new"]
"""Marian's setting `type`."""
EPSILONS: Mapping[Kind, float] = MappingProxyType({"transformer": 1e-9, "transformer-new": 1e-5})
"""Added to the variance in layer norms; no setting changes it."""
EOS_PIECE, UNK_PIECE = "</s>", "<unk>"
TOKENIZER = "tokenizer.json"
"""A tokenizer of tformer's beside vocabularies that have the labels of its pieces."""
_TABLE: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "self_attention.in_projection": tuple(f"{{side}}_l{{n1}}_self_{{W}}{x}" for x in "qkv"),
        "self_attention.out_projection": ("{side}_l{n1}_self_{W}o",),
        "self_attention_norm": ("{side}_l{n1}_self_Wo_ln_{scale}{pre}",),
        "recurrence.input": ("{side}_l{n1}_rnn_W",),
        "recurrence.forget": ("{side}_l{n1}_rnn_{W}f",),
        "recurrence_norm": ("{side}_l{n1}_rnn_ffn_ln_{scale}{pre}",),
        "cross_attention.in_projection": tuple(f"{{side}}_l{{n1}}_context_{{W}}{x}" for x in "qkv"),
        "cross_attention.out_projection": ("{side}_l{n1}_context_{W}o",),
        "cross_attention_norm": ("{side}_l{n1}_context_Wo_ln_{scale}{pre}",),
        "feed_forward.inner": ("{side}_l{n1}_ffn_{W}1",),
        "feed_forward.outer": ("{side}_l{n1}_ffn_{W}2",),
        "feed_forward_norm": ("{side}_l{n1}_ffn_ffn_ln_{scale}{pre}",),
        "final_norm": ("{side}_top_ln_{scale}",),
    }
)
"""Names of the modules of a layer and of the final norms; "pre" is "_pre" in pre-norm."""
_STACKS = MappingProxyType(
    {
        "encoder": "TransformerBatchEncoder->encoder->",
        "decoder": "TransformerBatchDecoder->decoder->",
    }
)
POSITIONS: Mapping[str, str] = MappingProxyType(
    {side: f"{stack}positionEmbedding->embeddings" for side, stack in _STACKS.items()}
)
"""Names of the trained tables of positions."""


def table_of(config: ModelConfig, kind: Kind) -> dict[str, tuple[str, ...]]:
    """Names the modules of a model in Marian, in the terms of `assembly.assembled`."""
    if kind == "transformer-new":
        return dict(_class_names(config))
    pre = "_pre" if config.norm == "pre" else ""
    return {
        ours: tuple(name.replace("{pre}", pre) for name in theirs)
        for ours, theirs in _TABLE.items()
    }


def _class_names(config: ModelConfig) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yields the paths of members that lead to the parts of each module."""
    norm = "preprocessor->norm" if config.norm == "pre" else "postprocessor->norm"
    linear = "as<marian::nn::Linear>()"
    # with ReLU the activation is part of the first of two layers, else the second of four
    inner, outer = f"at(0)->{linear}", f"at(3)->{linear}"
    if config.activation == "relu":
        inner, outer = "at(0)->as<marian::nn::LinearReluDropout>()", f"at(1)->{linear}"
    for side, stack in _STACKS.items():
        is_encoder = side == "encoder"
        name = (
            "TransformerEncoderLayer" if is_encoder else "TransformerDecoderLayerWithCrossAttention"
        )
        own = "selfAttentionBlock" if is_encoder else "autoRegressiveBlock"
        modules: dict[str, tuple[str, ...]] = {
            "feed_forward.inner": (f"filterBlock->layers->{inner}",),
            "feed_forward.outer": (f"filterBlock->layers->{outer}",),
            "feed_forward_norm": (f"filterBlock->{norm}",),
            "recurrence.input": (f"{own}->rnn->cell->iProj",),
            "recurrence.forget": (f"{own}->rnn->cell->fProj",),
            "recurrence_norm": (f"{own}->{norm}",),
        }
        for kind, block in (("self", own), ("cross", "crossAttentionBlock")):
            attention = f"{block}->{kind}Attention"
            modules |= {
                f"{kind}_attention.in_projection": tuple(f"{attention}->{x}Proj" for x in "qkv"),
                f"{kind}_attention.out_projection": (f"{attention}->oProj",),
                f"{kind}_attention_norm": (f"{block}->{norm}",),
            }
        for ours, theirs in modules.items():
            layer = f"{stack}layers->at({{n}})->as<marian::nn::{name}>()->"
            yield f"{side}.{ours}", tuple(f"{layer}{one}->{{part}}" for one in theirs)
        yield f"{side}.input.norm", (f"{stack}preprocessor->norm->{{part}}",)
        yield f"{side}.final_norm", (f"{stack}postprocessor->norm->{{part}}",)


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
    """The files that a setting lists, by their names only: they lie beside the model."""
    listed = settings.get(key)
    texts = [text for text in listed if isinstance(text, str)] if isinstance(listed, list) else []
    return [Path(text.replace("\0", "")).name for text in texts]
