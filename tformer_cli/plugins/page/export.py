"""A model as one HTML page that computes it: `tformer export --format page`.

The page is the live page of `inspect/frame.py` with another client: in place of a service, an
engine in JavaScript answers. It holds two texts, gzip in base85: what is written about the model
(`describe_model`), and its weights as a safetensors file. `KNOWN_MODELS` and
`KNOWN_SEARCH` list what the engine computes; `tokenizer_json` does for tokenizers. Whatever they
do not know is refused by its name before anything is written. Nothing here needs torch.
"""

import base64
import gzip
import io
import json
import re
from collections.abc import Callable, Container, Mapping
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from tformer_cli.api.calls import log_note
from tformer_cli.artifacts.config_file import DOUBT, TASKS
from tformer_cli.artifacts.doubt_file import Calibration
from tformer_cli.artifacts.model_directory import ModelDirectory, read_model_directory
from tformer_cli.artifacts.shortlist_file import load_frequencies
from tformer_cli.artifacts.weights_file import SCALE, write_arrays
from tformer_cli.errors import ArtifactError, UsageError
from tformer_cli.files.atomic import write_text
from tformer_cli.foreign.import_model import resolve_model
from tformer_cli.heads.names import KINDS, HeadLayout, layout_of
from tformer_cli.heads.roles import FREQUENT
from tformer_cli.inspect.alignment import choose_heads
from tformer_cli.inspect.data import get_attributes
from tformer_cli.inspect.doubt import IS_TERM, calibration_of
from tformer_cli.inspect.frame import live_modules, live_page, report_texts
from tformer_cli.inspect.jobs.heads import summary_of
from tformer_cli.kinds import kind_of
from tformer_cli.kinds.translate import trained_on_sentences
from tformer_cli.plugins.page.tokenizer_json import page_tokenizer
from tformer_cli.search.config import BEAM_SEARCH, PLAIN_SEARCH
from tformer_cli.search.sentences import ABBREVIATIONS, BEFORE_NUMBERS
from tformer_cli.settings import ANY, unknown_setting
from tformer_cli.text.foreign_pieces import PREFIX, BytePieceTokenizer
from tformer_cli.text.joint_tokenizer import BY_WORDS, JointTokenizer
from tformer_cli.text.tokenizer import TokenizerSide
from tformer_cli.wording import SPACE_LABEL

Precision = Literal["int10", "float16", "float32"]
TEXT_TASKS = tuple(kind for kind, row in TASKS.items() if row.reads != "images")
"""Tasks whose models the page computes."""
LARGEST = 40_000_000
"""Bytes of a page that is written without being asked twice; a browser holds each weight twice."""
_NUMBERS = (
    *("d_model", "n_heads", "d_head", "n_key_heads", "d_ff", "n_encoder_layers"),
    *("n_decoder_layers", "dropout", "attention_dropout", "activation_dropout", "norm_epsilon"),
    *("max_positions", "n_labels", "source_vocab_size", "memory", "relative_buckets"),
    *("relative_distance", "rotary_base"),
    *("encoder_heads", "decoder_heads", "cross_heads", "bias_heads"),
)
_CHOICES = (
    *("bias", "gated", "projections", "output_bias", "embedding_norm", "scale_embeddings"),
    *("source_eos", "target_bos", "target_eos", "unit_length"),
)
KNOWN_MODELS: Mapping[str, Container[Any]] = MappingProxyType(
    {
        **dict.fromkeys(_NUMBERS, ANY),
        **dict.fromkeys(_CHOICES, (False, True)),
        "norm": ("post", "pre"),
        "norm_kind": ("layer", "rms"),
        "activation": ("relu", "gelu", "gelu-tanh", "swish"),
        "positions": (
            *("sinusoidal", "learned", "rotary", "relative", "alibi"),
            *("segments", "none", "table"),
        ),
        "similarity": ("scaled", "dot", "cosine", "distance", "additive"),
        "tied_embeddings": ("all", "decoder", "inputs", "none"),
        "final_norm": ("pre-norm", "always"),
        "decoder_cell": ("attention", "ssru"),
        "head": ("labels", "tags", "tokens", "none"),
        "pooling": ("mean", "first"),
        "pooler": ("none", "tanh", "relu"),
        # Only models of images have others
        **{name: (0,) for name in ("patch_size", "image_shift")},
        **{name: ((),) for name in ("image_size", "image_mean", "image_std")},
        **{name: (False,) for name in ("class_token", "image_flip")},
    }
)
"""Settings of models that `engine/model.js` computes."""
KNOWN_SEARCH: Mapping[str, Container[Any]] = MappingProxyType(
    {
        **BEAM_SEARCH,
        "length_normalization": PLAIN_SEARCH["length_normalization"],
        **dict.fromkeys(("min_length", "min_length_ratio"), ANY),
        **dict.fromkeys(("no_repeat_ngram", "repetition_penalty"), ANY),
    }
)
"""Settings of the search that `engine/search.js` knows."""
KNOWN_SIGNALS = (
    *("probability", "uncertainty", "tokens", "length", "pieces", "names", "copied", "repeated"),
    "word-length",
)
"""Signals of doubt that `doubt.js` computes."""
_USED = (
    *("beam_size", "length_penalty", "length_normalization", "n_best", "max_length"),
    *("max_length_ratio", "min_length", "min_length_ratio", "no_repeat_ngram"),
    "repetition_penalty",
)
"""Those that it looks at; a language model's page samples by itself."""


def _log_warning(message: str) -> None:
    log_note(message, "warning")


def export_page(
    model: Path | str,
    output: Path,
    *,
    precision: Precision = "int10",
    adapter: Path | None = None,
    takes_any_size: bool = False,
    warn: Callable[[str], None] = _log_warning,
) -> int:
    """Writes a model as a page, whole or not at all, and returns its size in bytes.

    Warns of a calibration of doubt that the page omits, for another model or for sampling.

    Raises:
        UsageError: The page cannot compute the model, or has more than `LARGEST` bytes.
    """
    directory, weights = read_model_directory(
        resolve_model(model), takes_int8=True, adapter=adapter, tasks=TEXT_TASKS
    )
    page = make_page(directory, weights, precision)
    if len(page) > LARGEST and not takes_any_size:
        raise UsageError(
            f"--format page: {output} would have {len(page) / 1e6:,.0f} MB, which browsers load "
            "slowly; add --force to write it, or choose a smaller model"
        )
    write_text(output, page)
    if problem := _calibration_of(directory)[1]:
        warn(f"no doubt scores in the page: {problem}")
    return len(page)


def make_page(
    directory: ModelDirectory, weights: Mapping[str, np.ndarray[Any, Any]], precision: Precision
) -> str:
    """Makes the page of a model; the same model gives the same bytes."""
    check_model(directory)
    facts = json.dumps(describe_model(directory), ensure_ascii=False, separators=(",", ":"))
    stream = io.BytesIO()
    write_arrays(stream, stored_weights(weights, precision), {})
    blocks = {"model": _pack(facts.encode("utf-8")), "weights": _pack(stream.getvalue())}
    title = directory.path.resolve().name or "tformer"
    return live_page(title, report_texts(), live_modules(read_scripts()), blocks)


def read_scripts() -> dict[str, str]:
    """Returns the modules of the client and of the engine by their names."""
    folder = files("tformer_cli.plugins.page")
    return {
        path.name: path.read_text(encoding="utf-8")
        for place in (folder, folder.joinpath("engine"))
        for path in place.iterdir()
        if path.name.endswith(".js")
    }


def check_model(directory: ModelDirectory) -> None:
    """Refuses a model, or the settings of its search, that the engine does not know."""
    unknown = unknown_setting(directory.config, KNOWN_MODELS)
    verbs = kind_of(directory.config).verbs
    if unknown is None and "translate" in verbs:
        setting = unknown_setting(directory.decoding, KNOWN_SEARCH)
        unknown = setting and f"decoding.{setting}"
    if unknown is not None:
        raise UsageError(
            f"{directory.path}: the page cannot compute {unknown}; use `tformer serve`"
        )


def stored_weights(
    weights: Mapping[str, np.ndarray[Any, Any]], precision: Precision
) -> dict[str, np.ndarray[Any, Any]]:
    """Returns weights in the type of the page; those of an int8 model stay integers."""
    if any(array.dtype == np.int8 for array in weights.values()):
        return dict(weights)
    if precision == "int10":
        return round_weights(weights)
    return {name: array.astype(precision) for name, array in weights.items()}


def round_weights(
    weights: Mapping[str, np.ndarray[Any, Any]],
) -> dict[str, np.ndarray[Any, Any]]:
    """Rounds matrices to integers of 10 bits with a scale for each row, which `weights.js` reads.

    With 8 bits the quickstart's model writes other words in up to 6 of 1,000 sentences, with 9 in
    up to 3, with 10 in up to one.

    Returns:
        For a matrix (N, K) its upper 8 bits as int8 (N, K), its scales (N), and the bits below
        them, the higher ones first, as uint8 (2, N·K / 8), eight to a byte from its lowest bit on.
    """
    stored = dict(weights)
    for name, matrix in weights.items():
        if name.endswith(".weight") and matrix.ndim == 2 and matrix.size:
            values = np.asarray(matrix, np.float32)
            largest = np.abs(values).max(axis=1, keepdims=True)
            scale = np.where(largest > 0, largest, np.float32(1)) / np.float32(511)
            integers = np.rint(values / scale).astype(np.int16)
            bits = [integers.ravel() >> place & 1 for place in (1, 0)]
            stored[name] = (integers >> 2).astype(np.int8)
            stored[f"{name}{SCALE}"] = scale[:, 0]
            stored[f"{name}_below"] = np.packbits(np.stack(bits), axis=1, bitorder="little")
    return stored


def describe_model(directory: ModelDirectory) -> dict[str, Any]:
    """Returns what the client reads besides the weights, as JSON data."""
    config, info, source = directory.config, directory.info, directory.tokenizer.source
    target = directory.tokenizer.target
    layout = layout_of(config)
    counts = load_frequencies(directory.path, source.vocab_size)
    splits = {"always": sorted(ABBREVIATIONS), "beforeNumbers": sorted(BEFORE_NUMBERS)}
    return {
        "name": directory.path.resolve().name,
        "verbs": [kind_of(config).verbs[0]],
        "languages": {
            "source_language": info.source_language,
            "target_language": info.target_language,
        },
        "summary": vars(summary_of(directory)),
        "config": asdict(config),
        "decoding": {name: getattr(directory.decoding, name) for name in _USED},
        "tokenizer": page_tokenizer(directory.tokenizer),
        "begins": target.start,
        "spelling": {"source": spelling_of(source), "target": spelling_of(target)},
        "labels": info.labels or None,
        "heads": [str(head) for head in layout],
        "layout": {kind: layout.of(kind) for kind in KINDS},
        "alignment": _alignment(directory, layout),
        "splits": splits if trained_on_sentences(directory) else None,
        "counts": None if counts is None else _rarity(counts),
        "gaps": _gaps(directory),
        "doubt": _doubt(directory),
    }


def _alignment(directory: ModelDirectory, layout: HeadLayout) -> dict[str, Any] | None:
    if not any(layout.cross):
        return None
    try:
        choice = choose_heads(layout, directory.info.alignment)
    except UsageError:  # stored heads that were pruned since
        choice = choose_heads(layout, None)
    return {"heads": list(map(str, choice.members)), "convention": choice.convention}


def _doubt(directory: ModelDirectory) -> dict[str, Any] | None:
    """Calibration of the model's doubt; None if it has none that is for the page's search.

    As in the service, one of another step or version is none.
    """
    calibration, _ = _calibration_of(directory)
    if calibration is None:
        return None
    if unknown := [name for name in calibration.signals if name not in KNOWN_SIGNALS]:
        raise UsageError(f"{directory.path}: the page cannot compute the doubt's {unknown[0]}")
    weights = np.where(IS_TERM, calibration.weights, 0.0).tolist()
    usual = {"usual": calibration.log_ratio, "weights": weights}
    return get_attributes(calibration, "signals means deviations intercept") | usual


def _calibration_of(directory: ModelDirectory) -> tuple[Calibration | None, str]:
    """Reads the calibration of a translator, or says why the page cannot use it."""
    has_file = (directory.path / DOUBT).is_file()
    if not has_file or kind_of(directory.config).measured_by != "translations":
        return None, ""
    try:
        calibration = calibration_of(directory.path, directory.info.step)
    except ArtifactError as error:
        return None, str(error)
    if calibration is not None and calibration.search.get("sampling"):
        return None, "they are calibrated for sampling, and the page searches by beams"
    return calibration, ""


def _rarity(counts: np.ndarray[Any, Any]) -> dict[str, Any]:
    order = np.argsort(-counts, kind="stable")
    return {"ofToken": counts.tolist(), "frequent": order[:FREQUENT].tolist()}


def _gaps(directory: ModelDirectory) -> dict[str, Any] | None:
    """Names of gaps, their token, how texts around them are encoded, and what never fills one."""
    if "fill" not in kind_of(directory.config).verbs:
        return None
    from tformer_cli.kinds.lines.fill import gap_names, unused_tokens

    side = directory.tokenizer.source
    is_joint = isinstance(side, JointTokenizer)
    return {
        "mask": side.mask_id,
        "names": gap_names(side),
        "never": unused_tokens(side),
        "isWhole": is_joint,
        "takesSpace": is_joint and directory.tokenizer.algorithm in BY_WORDS,
        "trims": isinstance(side, BytePieceTokenizer),
    }


def spelling_of(side: TokenizerSide) -> dict[str, Any]:
    """Says how the bytes of pieces follow from their labels, and lists those that do not.

    The bytes of an exception are characters of Latin-1.
    """
    labels = side.pieces(range(side.vocab_size))
    rules = {name: [rule(label) for label in labels] for name, rule in SPELLINGS.items()}
    exceptions = {
        name: {
            number: wanted.decode("latin-1")
            for number, (spelled, wanted) in enumerate(
                zip(rules[name], side.piece_bytes, strict=True)
            )
            if spelled != wanted
        }
        for name in rules
    }
    rule = min(exceptions, key=lambda name: len(exceptions[name]))
    return {"rule": rule, "exceptions": exceptions[rule]}


def _spell_label(label: str) -> bytes:
    byte = _BYTE.fullmatch(label)
    return bytes.fromhex(byte[1]) if byte else label.replace(SPACE_LABEL, " ").encode("utf-8")


def _spell_word_piece(label: str) -> bytes:
    is_inner = label.startswith(PREFIX)
    return (label.removeprefix(PREFIX) if is_inner else f" {label}").encode("utf-8")


_BYTE = re.compile("<0x([0-9A-F]{2})>")
SPELLINGS: Mapping[str, Callable[[str], bytes]] = MappingProxyType(
    {"label": _spell_label, "wordpiece": _spell_word_piece}
)
"""Rules of `alignment.js` by which labels become bytes."""


def _pack(content: bytes) -> str:
    # Without the time, which would make other bytes
    packed = base64.b85encode(gzip.compress(content, 9, mtime=0)).decode("ascii")
    return packed.replace("<", ",")  # it would begin a tag
