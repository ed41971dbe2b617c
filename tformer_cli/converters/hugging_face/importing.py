"""Hugging Face's Marian (OPUS-MT), M2M-100, NLLB, mBART and Pegasus directories.

They share the names of weights. Marian is post-norm and starts from the row of `<pad>`, which is
zero; the others are pre-norm with final norms. Positions are sines in one half and cosines in the
other, with the paper's frequencies (Marian, Pegasus) or tensor2tensor's from position 2 (M2M-100),
or learned ones from row 2 (mBART).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from tformer_cli.artifacts.library_names import MODULES
from tformer_cli.converters.assembly import Reader, Rows, arranged, assembled, output_bias
from tformer_cli.converters.foreign_model import (
    ForeignModel,
    model_config,
    number,
    read_json_file,
)
from tformer_cli.converters.formats.lazy_arrays import Array
from tformer_cli.converters.formats.weight_files import read_weights_of
from tformer_cli.converters.hugging_face.generation import IN_CONFIG, read_generation
from tformer_cli.converters.hugging_face.keys import CONFIG_ROWS, rows_of
from tformer_cli.converters.hugging_face.tokenizers import (
    CLASSES,
    HuggingFaceVocabulary,
    JointVocabulary,
    read_vocabulary,
)
from tformer_cli.converters.keys import USED, Keys, no_effect, only
from tformer_cli.converters.positions import paper_halves, tensor2tensor_halves
from tformer_cli.errors import ArtifactError
from tformer_cli.model.config import ModelConfig

TABLE: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        **{
            ours: tuple(f"model.{{side}}.layers.{{n}}.{name}.{{part}}" for name in theirs)
            for ours, theirs in MODULES.items()
        },
        "final_norm": ("model.{side}.layer_norm.{part}",),
        "input.norm": ("model.{side}.layernorm_embedding.{part}",),
    }
)
"""Foreign names of the modules of a layer and of the norms around the stacks."""


@dataclass(frozen=True, kw_only=True)
class Family:
    """What one kind of model has that others have not."""

    title: str
    """Name for users."""
    norm: Literal["post", "pre"]
    positions: Literal["paper", "offset", "learned"]
    embedding_norm: bool = False
    has_bias: bool = True
    scale_embedding: bool = False
    """Default of the setting of that name."""
    activation: str = "gelu"
    """Default of activation_function."""
    spare_rows: int = 0
    """Rows of the vocabulary that the tokenizer has no piece for."""


FAMILIES: Mapping[str, Family] = MappingProxyType(
    {
        "marian": Family(title="Marian (OPUS-MT)", norm="post", positions="paper"),
        "m2m_100": Family(
            title="M2M-100 / NLLB",
            norm="pre",
            positions="offset",
            has_bias=False,
            scale_embedding=True,
            activation="relu",
            spare_rows=8,  # M2M-100's made-up words; NLLB has three
        ),
        "pegasus": Family(title="Pegasus", norm="pre", positions="paper"),
        "mbart": Family(
            title="mBART", norm="pre", positions="learned", embedding_norm=True, spare_rows=1
        ),
    }
)
"""Families by the model_type of config.json."""
ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "swish": "swish", "silu": "swish"}
CONFIG = Keys(
    "config.json",
    "Marian, M2M-100, NLLB, mBART, Pegasus",
    {
        **CONFIG_ROWS,
        **IN_CONFIG,
        **rows_of("vocab_size decoder_vocab_size d_model max_position_embeddings", USED),
        **rows_of("encoder_layers decoder_layers encoder_attention_heads", USED),
        **rows_of("decoder_attention_heads encoder_ffn_dim decoder_ffn_dim", USED),
        "tokenizer_class": CLASSES,
        "is_encoder_decoder": only(True),
        "is_decoder": only(False),
        "add_cross_attention": only(False, True),
        "tie_word_embeddings": only(True),
        "activation_function": only(*ACTIVATIONS),
        "scale_embedding": only(False, True),
        "share_encoder_decoder_embeddings": only(False, True),
        "add_bias_logits": only(False),
        "extra_pos_embeddings": only(0, 1, 2),
        "static_position_embeddings": no_effect("the family says which positions it has"),
        **rows_of(
            "normalize_before normalize_embedding add_final_layer_norm",
            no_effect("the family says where its norms are"),
        ),
        "num_hidden_layers": no_effect("encoder_layers and decoder_layers say it"),
        "force_bos_token_to_be_generated": only(None, False),
        "save_step": no_effect("of training"),
    },
)
OFFSET = 2
"""Row of the first token in mBART's table of positions, and its position in M2M-100's models with
padding's usual id, 1."""


def is_hugging_face(path: Path) -> bool:
    """Returns whether a directory holds a model of one of the families."""
    file = path / "config.json"
    kind = read_json_file(file).get("model_type") if file.is_file() else None
    return isinstance(kind, str) and kind in FAMILIES


def convert(path: Path) -> ForeignModel:
    """Converts a directory."""
    file = path / "config.json"
    settings = read_json_file(file)
    family = FAMILIES[settings["model_type"]]
    notes = CONFIG.read(file, settings)
    generation = read_generation(path, settings)
    arrays, weight_files = read_weights_of(path)
    reader = Reader(arrays, str(path))
    with_ids = {**settings, **generation.special_ids}
    vocabulary = read_vocabulary(path, with_ids)
    sides = _rows(file, with_ids, vocabulary)
    sides = sides[0], generation.banned(sides[1])
    config = _config(file, settings, family, sides, source_eos=not vocabulary.has_own_source_end)
    first_position = number(file, with_ids, "pad_token_id") + 1
    given = _outer(reader, settings, family, config, sides, first_position)
    weights = assembled(config, len(sides[1].pieces), TABLE, reader.take, given, str(path))
    reader.ignore(n for n in arrays if n.endswith("embed_positions.weight"))
    reader.check_all_taken()
    decoding, of_search = generation.search(config)
    forced = generation.check_forced(with_ids["eos_token_id"], vocabulary.language_ids)
    return ForeignModel(
        kind=f"Hugging Face {family.title}",
        config=config,
        weights=weights,
        tokenizer=vocabulary.tokenizer(sides),
        decoding=decoding,
        files=(file, *weight_files, *vocabulary.files, *generation.files),
        ids=sides[1].foreign,
        languages=vocabulary.language_codes,
        spare_rows=family.spare_rows,
        notes=(*notes, *vocabulary.notes, *generation.notes, *of_search, *forced),
    )


def _rows(
    file: Path,
    settings: Mapping[str, Any],
    vocabulary: HuggingFaceVocabulary | JointVocabulary,
) -> tuple[Rows, Rows]:
    """Orders the source's and the target's vocabulary."""
    pad, eos, start = (
        number(file, settings, f"{name}_token_id") for name in ("pad", "eos", "decoder_start")
    )
    source_size = number(file, settings, "vocab_size")
    target_size = source_size
    if settings.get("decoder_vocab_size"):
        target_size = number(file, settings, "decoder_vocab_size")
    found = []
    for pieces, size in (
        (vocabulary.source_pieces(source_size), source_size),
        (vocabulary.target_pieces(target_size), target_size),
    ):
        unk = vocabulary.unk
        if not all(0 <= n < size for n in (pad, eos, start, unk)):
            raise ArtifactError(
                f"{file}: special tokens have the ids {pad}, {unk}, {start}, {eos}, but the "
                f"vocabulary has {size} entries; use this model's own files"
            )
        found.append(arranged(pieces, pad, unk, start, eos))
    return found[0], found[1]


def _config(
    file: Path,
    settings: Mapping[str, Any],
    family: Family,
    sides: tuple[Rows, Rows],
    *,
    source_eos: bool,
) -> ModelConfig:
    heads = number(file, settings, "encoder_attention_heads")
    width = number(file, settings, "encoder_ffn_dim")
    for name, value in (("attention_heads", heads), ("ffn_dim", width)):
        if number(file, settings, f"decoder_{name}") != value:
            raise ArtifactError(
                f"{file}: encoder and decoder differ in {name}, which is not supported; import "
                "another model"
            )
    is_shared = settings.get("share_encoder_decoder_embeddings", True)
    return model_config(
        file,
        d_model=number(file, settings, "d_model"),
        n_heads=heads,
        d_ff=width,
        n_encoder_layers=number(file, settings, "encoder_layers"),
        n_decoder_layers=number(file, settings, "decoder_layers"),
        norm=family.norm,
        activation=ACTIVATIONS[settings.get("activation_function", family.activation)],
        positions="learned" if family.positions == "learned" else "table",
        max_positions=number(file, settings, "max_position_embeddings"),
        tied_embeddings="all" if is_shared else "decoder",
        source_vocab_size=0 if is_shared else len(sides[0].pieces),
        output_bias=True,
        embedding_norm=family.embedding_norm,
        scale_embeddings=bool(settings.get("scale_embedding", family.scale_embedding)),
        source_eos=source_eos,
    )


def _outer(
    reader: Reader,
    settings: Mapping[str, Any],
    family: Family,
    config: ModelConfig,
    sides: tuple[Rows, Rows],
    first_position: int,
) -> dict[str, Any]:
    """Reads the weights around the stacks; M2M-100 counts positions from the one behind padding."""
    given: dict[str, Any] = {}
    target = ["model.decoder.embed_tokens.weight", "lm_head.weight"]
    if settings.get("share_encoder_decoder_embeddings", True):
        names = ["model.shared.weight", "model.encoder.embed_tokens.weight", *target]
        given["source_embedding.weight"] = sides[1].of(reader.take_first(names))
    else:
        given["source_embedding.weight"] = sides[0].of(
            reader.take("model.encoder.embed_tokens.weight")
        )
        given["target_embedding.weight"] = sides[1].of(reader.take_first(target))
    bias = "final_logits_bias"
    has_bias = family.has_bias and bias in reader
    given["output_bias"] = output_bias(sides[1], reader.take(bias) if has_bias else None)
    for side in ("encoder", "decoder"):
        name = f"model.{side}.embed_positions.weight"
        table = _positions(reader, family, config, name, first_position)
        given[f"{side}_input.positions.table"] = table
    return given


def _positions(reader: Reader, family: Family, config: ModelConfig, name: str, first: int) -> Array:
    if family.positions == "learned":
        return reader.take(name)[OFFSET:]
    if family.positions == "paper":
        if name in reader:  # older files have it; it counts
            return reader.take(name)
        return paper_halves(config.max_positions, config.d_model)
    return tensor2tensor_halves(config.max_positions, config.d_model, first)
