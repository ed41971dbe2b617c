"""A model in another form: for another engine or library, or with int8 weights."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tformer_cli.artifacts.config_file import (
    CONFIG,
    TASKS,
    TRANSLATORS,
    WEIGHTS,
    TaskKind,
    WeightType,
    check_model,
    may_be_ours,
    read_config,
    task_kind,
)
from tformer_cli.artifacts.doubt_file import copy_calibration
from tformer_cli.artifacts.model_directory import (
    ModelDirectory,
    load_model_directory,
    named_integers,
    read_model_directory,
    save_model_directory,
)
from tformer_cli.artifacts.shortlist_file import copy_shortlist
from tformer_cli.artifacts.tensors import save_tensors
from tformer_cli.errors import ArtifactError, UsageError
from tformer_cli.files.atomic import check_free, directory_aside, write_text
from tformer_cli.files.regular_file import MIB, read_regular
from tformer_cli.foreign.hugging_face import decoders, encoders, pipelines, translators, vision
from tformer_cli.foreign.hugging_face.family import written_labels
from tformer_cli.foreign.import_model import resolve_model
from tformer_cli.model.weight_shapes import parameter_count
from tformer_cli.plugins.interchange.ctranslate2.exporting import (
    EXPORT,
    KNOWN_MODELS,
    ORIGIN,
    export_ctranslate2,
)
from tformer_cli.runtime import require_fast
from tformer_cli.settings import unknown_setting
from tformer_cli.text.sentencepiece.tokenizer import SentencePieceTokenizer
from tformer_cli.text.tokenizer import PAD_ID

if TYPE_CHECKING:
    from tformer_cli.foreign.hugging_face.family import Family
    from tformer_cli.foreign.hugging_face.layout import Layout
    from tformer_cli.model.config import ModelConfig

# tasks whose models Hugging Face's library gets
EXPORTED: tuple[TaskKind, ...] = tuple(TASKS)
# tasks whose models compute in int8
QUANTIZED: tuple[TaskKind, ...] = (*TRANSLATORS, "classify", "tag", "masked", "image", "embed")
# tasks whose models become an ONNX graph
GRAPHS: tuple[TaskKind, ...] = ("classify", "tag", "masked", "embed")
Quantization = Literal["float32", "float16", "bfloat16", "int16", "int8"]


def export(
    model: Path | str,
    output: Path | None = None,
    *,
    quantization: Quantization = "float32",
    adapter: Path | None = None,
) -> Path:
    """Writes a model for CTranslate2, whole or not at all."""
    source = _source(model)
    own = source / EXPORT
    path = own if output is None else Path(output)
    if adapter is not None and path.resolve() == own.resolve():
        raise UsageError(f"--output: {own} is for MODEL without --adapter; name another directory")
    check_free(path, unless=ORIGIN)
    export_ctranslate2(load_model_directory(source, adapter=adapter), path, quantization)
    return path


def export_int8(
    model: Path | str, output: Path | str, adapter: Path | None = None
) -> tuple[int, int]:
    """Writes a model directory whose matrices are 8-bit integers, whole or not at all.

    It computes as `--precision int8` does with the model itself, to the last bit.
    """
    require_fast("--format int8")
    from tformer_cli.fast.products import quantized_matrices

    directory = _load_directory(model, output, adapter, tasks=QUANTIZED)
    weights = directory.any_model.state_dict()
    integers = named_integers(weights, quantized_matrices(weights))
    _save(directory, Path(output), integers, "int8", keeps_doubt=adapter is None)
    before, after = ((place / WEIGHTS).stat().st_size for place in (directory.path, Path(output)))
    return before, after


def export_merged(model: Path | str, output: Path | str, adapter: Path) -> None:
    """Writes a model directory with an adapter added to its weights, whole or not at all."""
    directory = _load_directory(model, output, adapter)
    _save(directory, Path(output), directory.model.state_dict(), "float32")


def _source(
    model: Path | str,
    tasks: Container[TaskKind] = TRANSLATORS,
    weights: Literal["float32"] | None = "float32",
) -> Path:
    """Finds the directory of a model; the error for another kind names formats that fit."""
    source = resolve_model(model, weights=weights)
    try:
        check_model(source, tasks)
    except ArtifactError as error:
        if tasks is EXPORTED or not may_be_ours(source):
            raise
        is_graph = task_kind(read_config(source).model) in GRAPHS
        more = " or onnx" if is_graph and tasks is not GRAPHS else ""
        raise ArtifactError(f"{error}; export with --format huggingface{more}") from None
    return source


def _load_directory(
    model: Path | str,
    output: Path | str,
    adapter: Path | None,
    tasks: Container[TaskKind] = TRANSLATORS,
) -> ModelDirectory:
    check_free(Path(output))
    return load_model_directory(_source(model, tasks), adapter=adapter, tasks=tasks)


def _save(
    directory: ModelDirectory,
    path: Path,
    weights: Mapping[str, Any],
    weight_type: WeightType,
    *,
    keeps_doubt: bool = False,
) -> None:
    with directory_aside(path) as aside:
        save_model_directory(
            aside,
            weights,
            config=directory.config,
            tokenizer=directory.tokenizer,
            decoding=directory.decoding,
            # its scores belong to other weights: float32, or without the adapter
            info=replace(directory.info, scores={}),
            weight_type=weight_type,
        )
        if weight_type == "int8":
            copy_shortlist(directory.path, aside)
        if keeps_doubt:  # with an adapter other translations would be doubtful
            copy_calibration(directory.path, aside)


def export_marian(model: Path | str, output: Path | str, adapter: Path | None = None) -> None:
    """Writes a directory that Marian loads, whole or not at all."""
    from tformer_cli.plugins.interchange.marian import exporting as marian

    check_free(Path(output))
    directory, weights = read_model_directory(
        _source(model, weights=None), takes_int8=True, adapter=adapter
    )
    marian.export_marian(directory, weights, Path(output))


def export_hugging_face(model: Path | str, output: Path | str, adapter: Path | None = None) -> str:
    """Writes a directory that Hugging Face's library loads; returns the class that loads it.

    The table of the model's family is read backwards. One of tformer's tokenizers is stored in the
    format of Hugging Face `tokenizers`, which needs no SentencePiece. Encoders that no class pools
    as they are pooled here become a pipeline of sentence-transformers.
    """
    directory = _load_directory(model, output, adapter, tasks=EXPORTED)
    config = directory.config
    if config.is_encoder_only:
        module = vision if config.reads_images else encoders
    elif config.is_decoder_only:
        module = decoders
    else:
        module = translators
    family = module.family_of(directory)
    head = config.head if config.is_encoder_only else ""
    if pipelines.is_written(config, family.pooler):
        head = "none"
    name: str = family.classes[head]
    _check(directory, family, name)
    parts = module.write(directory, family)
    settings = {"architectures": [name], "model_type": family.model_type, **parts.settings}
    weights: dict[str, Mapping[str, Any]] = {}
    weights[WEIGHTS] = family.add_prefix(parts.weights, has_head=head != "none")
    if head == "none" and config.head == "labels":
        name = pipelines.CLASS
    texts = {CONFIG: _json(settings), "README.md": model_card(directory, name)}
    if parts.pipeline is not None:
        texts |= {file: _json(content) for file, content in parts.pipeline.texts.items()}
        weights |= parts.pipeline.weights
    if parts.generation is not None:
        texts["generation_config.json"] = _json(parts.generation)
    _write(Path(output), texts, weights, parts.files, parts.layout, config.max_positions)
    return name


def export_onnx(model: Path | str, output: Path | str, adapter: Path | None = None) -> str:
    """Writes an ONNX graph of an encoder with its tokenizer; returns the names of its outputs."""
    from tformer_cli.foreign.hugging_face.families import FAMILIES, HEAD_CLASSES
    from tformer_cli.foreign.hugging_face.layout import encoder_layout, with_whole_tokenizer
    from tformer_cli.plugins.interchange import onnx_graph
    from tformer_cli.text.foreign_pieces import BytePieceTokenizer

    directory = _load_directory(model, output, adapter, tasks=GRAPHS)
    if directory.config.reads_images:
        raise UsageError(
            f"{directory.path}: reads images; export with --format huggingface, whose library "
            "prepares them"
        )
    layout = with_whole_tokenizer(directory, encoder_layout(directory))
    config = directory.config
    # programs choose by the family how to read the outputs; the graph has the layers themselves
    kind = "roberta" if isinstance(directory.tokenizer, BytePieceTokenizer) else "bert"
    settings = {
        **FAMILIES[kind].write(config),
        "model_type": kind,
        "architectures": [f"{kind.title()}{HEAD_CLASSES[config.head]}"],
        "vocab_size": layout.sizes[0],
        "max_position_embeddings": config.max_positions,
        "pad_token_id": layout.ids[PAD_ID],
        **written_labels(directory.info.labels),
    }
    texts = {
        CONFIG: _json(settings),
        "README.md": model_card(directory, _GRAPH),
    }
    save = onnx_graph.graph_writer(directory, layout)

    def write_graph(aside: Path) -> None:
        file = aside / onnx_graph.GRAPH
        file.parent.mkdir()
        save(file)

    _write(Path(output), texts, {}, {}, layout, config.max_positions, write_graph)
    return " and ".join(onnx_graph.outputs_of(directory))


def _write(
    output: Path,
    texts: Mapping[str, str],
    weights: Mapping[str, Mapping[str, Any]],
    files: Mapping[str, bytes],
    layout: Layout | None,
    longest: int,
    write_more: Callable[[Path], object] = lambda _: None,
) -> None:
    """Writes the files of an export, by their paths in its directory."""
    if layout is not None:
        files = {**files, **layout.files}
        limits = {
            "model_input_names": ["input_ids", "attention_mask"],
            "model_max_length": longest,
            "clean_up_tokenization_spaces": False,
        }
        texts = {**texts, "tokenizer_config.json": _json({**layout.settings, **limits})}
    # next to its place first, so that an interrupted export leaves nothing
    with directory_aside(output) as aside:
        for file in (*files, *texts, *weights):
            (aside / file).parent.mkdir(exist_ok=True)
        for file, content in files.items():
            (aside / file).write_bytes(content)
        for file, text in texts.items():
            write_text(aside / file, text)
        for file, tensors in weights.items():
            save_tensors(aside / file, tensors, {"format": "pt"})
        write_more(aside)


def _check(directory: ModelDirectory, family: Family, name: str) -> None:
    """Refuses a model that has more than its family's class."""
    config = directory.config
    unknown = unknown_setting(config, family.known)
    if unknown is not None:
        # which only translation models can be
        has_way = unknown_setting(config, KNOWN_MODELS) is None
        way = f"export with --format {'ctranslate2' if has_way else 'int8'}"
        if config.is_encoder_only or config.is_decoder_only:
            way = "use it here"
        if not config.reads_images and config.is_encoder_only:
            way = f"{_way(unknown, family)}, or export with --format onnx"
        elif config.is_decoder_only:
            way = f"{_way(unknown, family)}, or use it here"
        raise UsageError(f"{directory.path}: {name} of Hugging Face has no {unknown}; {way}")
    if {n for layers in config.layer_heads for n in layers} != {config.n_heads}:
        raise UsageError(
            f"{directory.path}: some heads are pruned, but {name} of Hugging Face needs the same "
            "number in every layer; export the unpruned model"
        )


def _way(unknown: str, family: Family) -> str:
    """Says which values of a setting an encoder's family has."""
    setting = unknown.partition(" ")[0]
    if setting == "embedding_norm" and family.fixed[setting]:
        return 'train with embedding_norm = true or norm = "pre"'
    values = family.known.get(setting, ())
    values = values if isinstance(values, Iterable) else ()
    # a table of positions is imported, never trained
    shown = " or ".join(json.dumps(value) for value in values if value != "table")
    return f"train with {setting} = {shown}" if shown else f"train without {setting}"


def _json(values: Mapping[str, Any]) -> str:
    return json.dumps(values, indent=2, ensure_ascii=False) + "\n"


_GRAPH = "ONNX graph"
_TITLES = {
    "labels": "Classifier",
    "tags": "Tagger",
    "tokens": "Masked language model",
    "none": "Encoder",
}
# tags of the hub, by the task of a model
_PIPELINES = {
    "translate": "translation",
    "language-model": "text-generation",
    "classify": "text-classification",
    "tag": "token-classification",
    "masked": "fill-mask",
    "image": "image-classification",
    "embed": "feature-extraction",
}
_EXAMPLE = """\
```python
from transformers import {imports}

path = "."  # this directory, or its name on the hub
{tokenizer} = Auto{tokenizer_class}.from_pretrained(path{source})
model = {model}.from_pretrained(path)
{use}
```"""
_IMAGE = """\
photo = Image.open("photo.jpg").convert("{mode}")
print(model(**processor(photo, return_tensors="pt"))[0])"""
_CHANNELS = (
    'It reads pictures of mode "{mode}". `pipeline("image-classification")` of transformers makes '
    "every picture RGB and fails; use the lines above."
)
_SENTENCES = """\
```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer(".")  # this directory, or its name on the hub
{use}
```"""
_LOGITS = """\
logits = model.encode(["A text"])  # its vectors are the logits of the labels
print([model[0].auto_model.config.id2label[int(row.argmax())] for row in logits])"""
_ONNX = """\
```python
import onnxruntime
from transformers import AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained(".")
graph = onnxruntime.InferenceSession("onnx/model.onnx")
batch = tokenizer(["A text"], padding=True, truncation=True, return_tensors="np")
names = [one.name for one in graph.get_inputs()]
print(graph.run(None, {{name: batch[name] for name in names}}))
```"""
_GENERATE = """\
batch = tokenizer({text}, return_tensors="pt"{padding})
{target}print(tokenizer.batch_decode(model.generate(**batch), skip_special_tokens=True))"""


def model_card(directory: ModelDirectory, name: str) -> str:
    """The README.md of an export: what its directory says of languages, size, scores, recipe."""
    info, config = directory.info, directory.config
    languages = info.source_language, info.target_language
    # quoted, since YAML reads no as a boolean
    codes = [f"- {json.dumps(code)}" for code in languages if code]
    images = "image-" if config.reads_images and config.head == "none" else ""
    head = [
        "---",
        f"library_name: {_library(config, name)}",
        f"pipeline_tag: {images}{_PIPELINES[task_kind(config)]}",
        *(["language:", *codes] if codes else []),
        "tags:",
        "- tformer",
        "# license: fill in an identifier, such as apache-2.0 or cc-by-4.0",
        "---",
    ]
    encoder, decoder = f"{config.n_encoder_layers} encoder", f"{config.n_decoder_layers} decoder"
    if config.is_encoder_only:
        title, layers = _TITLES[config.head], encoder
    elif config.is_decoder_only:
        title, layers = "Language model", decoder
    else:
        title = f"Translation {' → '.join(languages)}" if all(languages) else "Translation model"
        layers = f"{encoder} and {decoder}"
    size = parameter_count(config, directory.tokenizer.vocab_size)
    blocks = [
        "\n".join(head),
        f"# {title}",
        (
            f"A Transformer with {layers} layers, {config.n_heads} heads, width {config.d_model} "
            f"and {size:,} parameters, exported by tformer as {_with_article(name)}."
        ),
    ]
    if info.origin is not None:
        origin = f"`{info.origin.source}` ({info.origin.kind})"
        blocks.append(f"It comes from {origin}, whose license applies.")
    elif info.start is not None:
        start = f"`{info.start.model}`"
        blocks.append(f"It was trained from {start}; that model's license applies, too.")
    blocks.append(_example(directory, name))
    if info.scores:
        rows = [f"| {measure} | {score:.6g} |" for measure, score in info.scores.items()]
        blocks += ["## Validation scores", "\n".join(["| measure | score |", "|---|---|", *rows])]
    return "\n\n".join([*blocks, *_recipe(directory.path)]) + "\n"


def _with_article(name: str) -> str:
    """Puts a or an before the name of a class, or of a graph."""
    shown = name if name == _GRAPH else f"`{name}`"
    return f"{'an' if re.match('[AEIO]|M2M|MBart|MT5', name) else 'a'} {shown}"


def _library(config: ModelConfig, name: str) -> str:
    if name == _GRAPH:
        return "onnx"
    return "sentence-transformers" if _is_pipeline(config, name) else "transformers"


def _is_pipeline(config: ModelConfig, name: str) -> bool:
    is_bare = config.is_encoder_only and config.head == "none" and not config.reads_images
    return is_bare or name == pipelines.CLASS


def _example(directory: ModelDirectory, name: str) -> str:
    config, tokenizer = directory.config, directory.tokenizer
    if name == _GRAPH:
        return _ONNX.format()
    if _is_pipeline(config, name):
        use = _LOGITS if config.head == "labels" else 'print(model.encode(["A text", "Another"]))'
        return _SENTENCES.format(use=use)
    about = {"tokenizer": "tokenizer", "tokenizer_class": "Tokenizer", "source": "", "model": name}
    if config.is_encoder_only and config.reads_images:
        about |= {"tokenizer": "processor", "tokenizer_class": "ImageProcessor"}
        imports = f"AutoImageProcessor, {name}\nfrom PIL import Image"
        mode = {1: "L", 2: "LA", 3: "RGB"}.get(config.image_size[2], "RGBA")
        example = _EXAMPLE.format(imports=imports, use=_IMAGE.format(mode=mode), **about)
        return example if mode == "RGB" else f"{example}\n\n{_CHANNELS.format(mode=mode)}"
    if config.is_encoder_only:
        use = 'print(model(**tokenizer("A text", return_tensors="pt"))[0])'
        return _EXAMPLE.format(imports=f"AutoTokenizer, {name}", use=use, **about)
    about["model"] = f"AutoModelFor{'CausalLM' if config.is_decoder_only else 'Seq2SeqLM'}"
    text, padding, target = '"A text"', "", ""
    if not config.is_decoder_only:
        text, padding = '["A sentence."]', ", padding=True"
        if isinstance(tokenizer, SentencePieceTokenizer) and tokenizer.languages.has_source:
            # any two languages make an example where the model has chosen none
            languages, codes = tokenizer.languages, list(tokenizer.languages.tokens)
            about["source"] = f', src_lang="{languages.source or codes[0]}"'
            piece = languages.tokens[languages.target or codes[-1]]
            forced = f'tokenizer.convert_tokens_to_ids("{piece}")'
            target = f'batch["forced_bos_token_id"] = {forced}\n'
    use = _GENERATE.format(text=text, padding=padding, target=target)
    return _EXAMPLE.format(imports=f"{about['model']}, AutoTokenizer", use=use, **about)


def _recipe(path: Path) -> list[str]:
    file = path / "recipe.toml"
    if not file.is_file():
        return []
    try:
        text = read_regular(file, MIB).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise ArtifactError(f"{file}: cannot be read ({reason.lower()}); restore it") from None
    trained = "Trained with `tformer train` and this recipe:"
    return ["## Recipe", trained, f"~~~toml\n{text.rstrip()}\n~~~"]
