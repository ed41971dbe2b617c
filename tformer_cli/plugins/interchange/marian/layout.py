"""Names, numbers and settings of Marian's two kinds of Transformer.

``transformer`` is the one that everyone trains: its positions are sinusoids of its own, its norms
have an epsilon of 1e-9. ``transformer-new`` computes the same with an epsilon of 1e-5, and with a
trained table of positions for either side if so configured; its weights have the names of its C++
classes. In both a translation starts from zeros where other models have an embedding of `<s>`.

A lexical shortlist lists for each source token the target tokens that may translate it. Its binary
form is Bergamot's: six 64-bit numbers (magic, checksum, number of the most frequent tokens that
always belong, tokens kept for a source token, number of offsets, number of listed tokens), the
offsets as 64-bit, the lists as 32-bit numbers. The text form has a line ``target source
probability`` for a pair.

Source: Marian 1.12, src/models/transformer.h; src/models/transformer_new.h and src/layers_new.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tformer_cli.errors import ArtifactError, DataError
from tformer_cli.foreign.foreign_model import VocabularyOrder
from tformer_cli.foreign.formats.mapped_file import MappedFile
from tformer_cli.foreign.keys import Setting
from tformer_cli.model.config import ModelConfig
from tformer_cli.plugins.interchange.marian.binary import is_marian_binary, read_yaml
from tformer_cli.search.engine import Shortlist
from tformer_cli.text.lines import read_lines
from tformer_cli.text.tokenizer import UNK_ID

Kind = Literal["transformer", "transformer-new"]  # marian's setting `type`
# added to the variance in layer norms; no setting changes it
EPSILONS: Mapping[Kind, float] = MappingProxyType({"transformer": 1e-9, "transformer-new": 1e-5})
SHAPE = (
    Setting("d_model", "dim-emb"),
    Setting("n_encoder_layers", "enc-depth"),
    Setting("n_decoder_layers", "dec-depth"),
    Setting("n_heads", "transformer-heads"),
    Setting("d_ff", "transformer-dim-ffn"),
    Setting(
        "activation", "transformer-ffn-activation", "swish", {"relu": "relu", "swish": "swish"}
    ),
    Setting(
        "decoder_cell",
        "transformer-decoder-autoreg",
        "self-attention",
        {"self-attention": "attention", "rnn": "ssru"},
    ),
)
EOS_PIECE, UNK_PIECE = "</s>", "<unk>"
# a tokenizer of tformer's next to vocabularies that have the labels of its pieces
TOKENIZER = "tokenizer.json"
# names of the modules of a layer and of the final norms; "pre" is "_pre" in pre-norm
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
_STACKS = MappingProxyType(
    {
        "encoder": "TransformerBatchEncoder->encoder->",
        "decoder": "TransformerBatchDecoder->decoder->",
    }
)
# names of the trained tables of positions
POSITIONS: Mapping[str, str] = MappingProxyType(
    {side: f"{stack}positionEmbedding->embeddings" for side, stack in _STACKS.items()}
)


def table_of(config: ModelConfig, kind: Kind) -> dict[str, tuple[str, ...]]:
    """Names the modules of a model in Marian, in the terms of `build_weights`."""
    if kind == "transformer-new":
        return dict(_class_names(config))
    pre = "_pre" if config.is_pre_norm else ""
    return {
        ours: tuple(name.replace("{pre}", pre) for name in theirs)
        for ours, theirs in _TABLE.items()
    }


def _class_names(config: ModelConfig) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yields the paths of members that lead to the parts of each module."""
    norm = "preprocessor->norm" if config.is_pre_norm else "postprocessor->norm"
    linear = "as<marian::nn::Linear>()"
    # with ReLU the activation is part of the first of two layers, else the second of four
    by_activation = {"relu": ("at(0)->as<marian::nn::LinearReluDropout>()", f"at(1)->{linear}")}
    others = (f"at(0)->{linear}", f"at(3)->{linear}")
    inner, outer = by_activation.get(config.activation, others)
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
            yield f"{side}.{ours}", tuple(f"{layer}{path}->{{part}}" for path in theirs)
        yield f"{side}.input.norm", (f"{stack}preprocessor->norm->{{part}}",)
        yield f"{side}.final_norm", (f"{stack}postprocessor->norm->{{part}}",)


@dataclass(frozen=True, kw_only=True)
class MarianSource:
    """Files of a model."""

    model: Path
    # of source and target: `.spm`, or `.yml` with an `.spm` next to it
    vocabularies: tuple[Path, ...]
    settings: Mapping[str, Any]  # the decoder's settings, if there is such a file
    decoder: Path | None = None


def find_source(path: Path) -> MarianSource | None:
    """Finds the files of a Marian model in a directory, or next to a model's file."""
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
    model = next((file for file in named if file in models), None)
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
    """The files that a setting lists, by their names only: they lie next to the model."""
    listed = settings.get(key)
    texts = [text for text in listed if isinstance(text, str)] if isinstance(listed, list) else []
    return [Path(text.replace("\0", "")).name for text in texts]


MAGIC = 0xF11A48D5013417F5


@dataclass(frozen=True)
class LexicalShortlist:
    """Target tokens by source token."""

    n_frequent: int  # the first ids of the target vocabulary, which belong to every sentence's list
    # (V + 1) where the list of each source token begins in `targets`, and the last one ends
    offsets: NDArray[np.int64]
    targets: NDArray[np.int64]


def read_shortlist(
    source: MarianSource, rows: tuple[VocabularyOrder, VocabularyOrder]
) -> tuple[tuple[Path, ...], Shortlist | None]:
    """Reads the shortlist that the decoder's settings name, in tformer's ids.

    Where both sides have one vocabulary, Marian lets every source token be copied.
    """
    named = names_of(source.settings, "shortlist")
    path = source.model.parent / (named[0] if named else "")
    if not named or not path.is_file():
        return (), None
    sources, targets = (np.array(side.foreign) for side in rows)
    n_targets = int(targets.max()) + 1
    if path.suffix == ".bin":
        read = read_binary_shortlist(path, n_targets)
    else:
        read = _text_shortlist(path, named[1:], rows)
    if len(read.offsets) - 1 < int(sources.max()) + 1:
        raise ArtifactError(f"{path}: was made for another vocabulary; use this model's own")
    ours = np.empty(n_targets, np.int32)
    places = np.flatnonzero(targets >= 0)
    ours[targets[places]] = places
    is_joint = rows[0].pieces == rows[1].pieces
    lists = []
    for place, n in enumerate(sources.tolist()):
        own = ours[read.targets[read.offsets[n] : read.offsets[n + 1]]] if n >= 0 else ours[:0]
        lists.append(np.unique(np.append(own, place) if is_joint and n >= 0 else own))
    # the first foreign ids are among our first: only those of special tokens come before
    first = int(ours[: read.n_frequent].max(initial=-1)) + 1
    offsets = np.cumsum([0, *map(len, lists)], dtype=np.int64)
    return (path,), Shortlist(first, offsets, np.concatenate(lists).astype(np.int32))


def _text_shortlist(
    path: Path, settings: Sequence[str], rows: tuple[VocabularyOrder, VocabularyOrder]
) -> LexicalShortlist:
    numbers = dict(zip(("n_frequent", "n_best", "threshold"), settings, strict=False))
    try:
        n_frequent, n_best = (int(numbers.get(name, 100)) for name in ("n_frequent", "n_best"))
        threshold = float(numbers.get("threshold", 0.0))
    except ValueError:
        raise ArtifactError(
            f"{path}: its settings ({', '.join(settings)}) are not numbers; correct the decoder's "
            "settings"
        ) from None
    ids = [dict(zip(side.pieces, side.foreign, strict=True)) for side in rows]
    unknown = [side.foreign[UNK_ID] for side in rows]
    return read_text_shortlist(
        path,
        lambda piece: ids[0].get(piece, unknown[0]),
        lambda piece: ids[1].get(piece, unknown[1]),
        max(rows[0].foreign) + 1,
        n_frequent=n_frequent,
        n_best=n_best,
        threshold=threshold,
    )


def renumber_shortlist(
    shortlist: Shortlist, sources: NDArray[np.int64], targets: NDArray[np.int64]
) -> LexicalShortlist:
    """Puts a shortlist of tformer's into Marian's ids."""
    theirs = np.full(max(int(targets.max()), int(shortlist.targets.max(initial=0))) + 1, -1)
    theirs[targets] = np.arange(len(targets))
    lists = []
    for token in sources.tolist():
        own = theirs[shortlist.targets[shortlist.offsets[token] : shortlist.offsets[token + 1]]]
        lists.append(np.unique(own[own >= 0]))
    offsets = np.cumsum([0, *map(len, lists)], dtype=np.int64)
    n_frequent = int(theirs[: shortlist.first].max(initial=-1)) + 1
    return LexicalShortlist(n_frequent, offsets, np.concatenate(lists).astype(np.int64))


def read_binary_shortlist(path: Path, n_targets: int) -> LexicalShortlist:
    file = MappedFile(path, "a lexical shortlist")
    magic, _, n_frequent, _, n_offsets, n_listed = file.numbers("<u8", 6)
    if magic != MAGIC:
        raise file.damage_error("it does not begin as one")
    offsets = file.array("<u8", (n_offsets,))
    targets = file.array("<u4", (n_listed,))
    if (
        not n_offsets
        or offsets[0] != 0
        or offsets[-1] != n_listed
        or (offsets[1:] < offsets[:-1]).any()
    ):
        raise file.damage_error("its lists overlap")
    if n_frequent > n_targets or (n_listed and int(targets.max()) >= n_targets):
        raise file.damage_error(f"it lists tokens beyond a vocabulary of {n_targets:,} entries")
    return LexicalShortlist(n_frequent, offsets.astype(np.int64), targets.astype(np.int64))


def binary_shortlist(shortlist: LexicalShortlist) -> bytes:
    """Returns the content of the binary form; its checksum is 0, which readers must not check."""
    n_best = int(np.diff(shortlist.offsets).max(initial=0))
    sizes = len(shortlist.offsets), len(shortlist.targets)
    head = np.array([MAGIC, 0, shortlist.n_frequent, n_best, *sizes], "<u8")
    parts = head, shortlist.offsets.astype("<u8"), shortlist.targets.astype("<u4")
    return b"".join(part.tobytes() for part in parts)


def read_text_shortlist(
    path: Path,
    source_id: Callable[[str], int],
    target_id: Callable[[str], int],
    n_sources: int,
    *,
    n_frequent: int = 100,
    n_best: int = 100,
    threshold: float = 0.0,
) -> LexicalShortlist:
    """Reads the lines ``target source probability`` of Marian's `--shortlist`."""
    lists: defaultdict[int, dict[int, float]] = defaultdict(dict)
    for number, line in enumerate(read_lines(path), start=1):
        fields = line.split()
        try:
            target, source, text = fields
            probability = float(text)
        except ValueError:
            raise _not_an_entry(path, number) from None
        if not math.isfinite(probability):
            raise _not_an_entry(path, number)
        if "NULL" in (target, source) or probability <= threshold:
            continue
        probabilities, key = lists[source_id(source)], target_id(target)
        probabilities[key] = max(probability, probabilities.get(key, 0.0))
    kept = [
        sorted(sorted(entries, key=entries.__getitem__, reverse=True)[:n_best])
        for entries in (lists.get(token, {}) for token in range(n_sources))
    ]
    offsets = np.cumsum([0, *map(len, kept)], dtype=np.int64)
    targets = np.array([target for some in kept for target in some], dtype=np.int64)
    return LexicalShortlist(n_frequent, offsets, targets)


def _not_an_entry(path: Path, number: int) -> DataError:
    return DataError(
        f"{path}, line {number}: is not `target source probability`; copy the shortlist again"
    )
