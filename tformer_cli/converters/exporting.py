"""A model in another form: for another engine or library, or with int8 weights."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from tformer_cli.acceleration import require_fast
from tformer_cli.allow_list import unknown_setting
from tformer_cli.artifacts.config_file import CONFIG, WEIGHTS, TaskKind, task_kind
from tformer_cli.artifacts.model_directory import (
    ModelDirectory,
    load_model_directory,
    named_integers,
    read_model_directory,
    save_model_directory,
)
from tformer_cli.artifacts.shortlist_file import copy_shortlist
from tformer_cli.artifacts.tensors import save_tensors
from tformer_cli.converters.ctranslate2.exporting import EXPORT, ORIGIN, export_ctranslate2
from tformer_cli.converters.hugging_face import decoders, encoders, t5, translators, vision
from tformer_cli.converters.hugging_face.family import Family
from tformer_cli.converters.importing import resolve_model
from tformer_cli.data.sentencepiece.tokenizer import SentencePieceTokenizer
from tformer_cli.errors import ArtifactError, UsageError
from tformer_cli.files.atomic import check_free, directory_aside, write_text
from tformer_cli.files.regular_file import MIB, read_regular
from tformer_cli.model.weight_shapes import parameter_count

EXPORTED: tuple[TaskKind, ...] = (
    "translate",
    "language-model",
    "classify",
    "image",
    "masked",
    "embed",
)
Quantization = Literal["float32", "float16", "bfloat16", "int16", "int8"]


def export(
    model: Path | str,
    output: Path | None = None,
    *,
    quantization: Quantization = "float32",
    adapter: Path | None = None,
) -> Path:
    """Writes a model for CTranslate2, whole or not at all."""
    source = resolve_model(model, weights="float32")
    own = source / EXPORT
    path = own if output is None else Path(output)
    if adapter is not None and path.resolve() == own.resolve():
        raise UsageError(f"--output: {own} is for MODEL without --adapter; name another directory")
    check_free(path, unless=ORIGIN)
    directory = load_model_directory(source, adapter=adapter)
    export_ctranslate2(directory, path, quantization)
    return path


def export_int8(
    model: Path | str, output: Path | str, adapter: Path | None = None
) -> tuple[int, int]:
    """Writes a model directory whose matrices are 8-bit integers, whole or not at all.

    It translates and scores as `--precision int8` does with the model itself, to the last bit.
    Scores are omitted, for they are those of the float32 weights.
    """
    path = Path(output)
    require_fast("--format int8")
    from tformer_cli.fast.products import quantized_matrices

    check_free(path)
    directory = load_model_directory(resolve_model(model, weights="float32"), adapter=adapter)
    weights = directory.model.state_dict()
    with directory_aside(path) as aside:
        save_model_directory(
            aside,
            named_integers(weights, quantized_matrices(weights)),
            config=directory.model.config,
            tokenizer=directory.tokenizer,
            decoding=directory.decoding,
            info=replace(directory.info, scores={}),
            weight_type="int8",
        )
        copy_shortlist(directory.path, aside)
    before, after = ((place / WEIGHTS).stat().st_size for place in (directory.path, path))
    return before, after


def export_merged(model: Path | str, output: Path | str, adapter: Path) -> None:
    """Writes a model directory with an adapter added to its weights, whole or not at all.

    Scores are omitted, for they are those of the model without the adapter.
    """
    path = Path(output)
    check_free(path)
    directory = load_model_directory(resolve_model(model, weights="float32"), adapter=adapter)
    with directory_aside(path) as aside:
        save_model_directory(
            aside,
            directory.model.state_dict(),
            config=directory.config,
            tokenizer=directory.tokenizer,
            decoding=directory.decoding,
            info=replace(directory.info, scores={}),
        )


def export_hugging_face(model: Path | str, output: Path | str, adapter: Path | None = None) -> str:
    """Writes a directory that Hugging Face's library loads, whole or not at all."""
    path = Path(output)
    check_free(path)
    directory = load_model_directory(
        resolve_model(model, weights="float32"), adapter=adapter, tasks=EXPORTED
    )
    return _write_hugging_face(directory, path)


def export_marian(model: Path | str, output: Path | str, adapter: Path | None = None) -> None:
    """Writes a directory that Marian loads, whole or not at all."""
    from tformer_cli.converters.marian import exporting as marian

    path = Path(output)
    check_free(path)
    directory, weights = read_model_directory(
        resolve_model(model), takes_int8=True, adapter=adapter
    )
    marian.export_marian(directory, weights, path)


def _write_hugging_face(directory: ModelDirectory, path: Path) -> str:
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


_RECIPE = "recipe.toml"
_TITLES = {"labels": "Classifier", "tokens": "Masked language model", "none": "Encoder"}
_PIPELINES = {
    "translate": "translation",
    "language-model": "text-generation",
    "classify": "text-classification",
    "masked": "fill-mask",
    "image": "image-classification",
    "embed": "feature-extraction",
}


def model_card(directory: ModelDirectory, class_name: str) -> str:
    """Describes a model with what its directory says: languages, size, scores, recipe."""
    return "\n".join([*_header(directory), *_body(directory, class_name), *_recipe(directory.path)])


def _header(directory: ModelDirectory) -> Iterator[str]:
    info = directory.info
    codes = [code for code in (info.source_language, info.target_language) if code]
    yield "---"
    yield "library_name: transformers"
    config = directory.config
    images = "image-" if config.reads_images and config.head == "none" else ""
    yield f"pipeline_tag: {images}{_PIPELINES[task_kind(config)]}"
    if codes:
        yield "language:"
        # quoted, since YAML reads no as a boolean
        yield from (f"- {json.dumps(code)}" for code in codes)
    yield "tags:"
    yield "- tformer"
    yield "# license: fill in an identifier, such as apache-2.0 or cc-by-4.0"
    yield "---"
    yield ""


def _body(directory: ModelDirectory, class_name: str) -> Iterator[str]:
    info, config = directory.info, directory.config
    source, target = info.source_language, info.target_language
    size = parameter_count(config, directory.tokenizer.vocab_size)
    title = f"Translation {source} → {target}" if source and target else "Translation model"
    if config.is_decoder_only:
        title = "Language model"
    if config.is_encoder_only:
        title = _TITLES[config.head]
    yield f"# {title}"
    yield ""
    decoder = f"{config.n_decoder_layers} decoder"
    layers = f"{config.n_encoder_layers} encoder and {decoder}"
    if config.is_decoder_only or config.is_encoder_only:
        layers = decoder if config.is_decoder_only else f"{config.n_encoder_layers} encoder"
    yield (
        f"A Transformer with {layers} layers, {config.n_heads} heads, width "
        f"{config.d_model} and {size:,} parameters, exported by tformer as a "
        f"`{class_name}`."
    )
    yield ""
    if info.origin is not None:
        yield f"It comes from `{info.origin.source}` ({info.origin.kind}), whose license applies."
        yield ""
    elif info.start is not None:
        yield f"It was trained from `{info.start.model}`; that model's license applies, too."
        yield ""
    yield "```python"
    if config.is_encoder_only:
        yield from (_seeing if config.reads_images else _encoding)(class_name)
    else:
        yield from _generating() if config.is_decoder_only else _translating(directory)
    yield "```"
    if info.scores:
        yield ""
        yield "## Validation scores"
        yield ""
        yield "| measure | score |"
        yield "|---|---|"
        yield from (f"| {name} | {score:.6g} |" for name, score in info.scores.items())
    yield ""


def _encoding(class_name: str) -> Iterator[str]:
    yield f"from transformers import AutoTokenizer, {class_name}"
    yield ""
    yield 'path = "."  # this directory, or its name on the hub'
    yield "tokenizer = AutoTokenizer.from_pretrained(path)"
    yield f"model = {class_name}.from_pretrained(path)"
    yield 'print(model(**tokenizer("A text", return_tensors="pt"))[0])'


def _seeing(class_name: str) -> Iterator[str]:
    yield f"from transformers import AutoImageProcessor, {class_name}"
    yield "from PIL import Image"
    yield ""
    yield 'path = "."  # this directory, or its name on the hub'
    yield "processor = AutoImageProcessor.from_pretrained(path)"
    yield f"model = {class_name}.from_pretrained(path)"
    yield 'print(model(**processor(Image.open("photo.jpg"), return_tensors="pt"))[0])'


def _generating() -> Iterator[str]:
    yield "from transformers import AutoModelForCausalLM, AutoTokenizer"
    yield ""
    yield 'path = "."  # this directory, or its name on the hub'
    yield "tokenizer = AutoTokenizer.from_pretrained(path)"
    yield "model = AutoModelForCausalLM.from_pretrained(path)"
    yield 'batch = tokenizer("A text", return_tensors="pt")'
    yield "print(tokenizer.batch_decode(model.generate(**batch), skip_special_tokens=True))"


def _translating(directory: ModelDirectory) -> Iterator[str]:
    languages = _languages(directory)
    yield "from transformers import AutoModelForSeq2SeqLM, AutoTokenizer"
    yield ""
    yield 'path = "."  # this directory, or its name on the hub'
    options = "" if languages is None else f', src_lang="{languages[0]}"'
    yield f"tokenizer = AutoTokenizer.from_pretrained(path{options})"
    yield "model = AutoModelForSeq2SeqLM.from_pretrained(path)"
    yield 'batch = tokenizer(["A sentence."], return_tensors="pt", padding=True)'
    if languages is not None:
        yield f'batch["forced_bos_token_id"] = tokenizer.convert_tokens_to_ids("{languages[1]}")'
    yield "print(tokenizer.batch_decode(model.generate(**batch), skip_special_tokens=True))"


def _languages(directory: ModelDirectory) -> tuple[str, str] | None:
    """An example of a source language's code and a target language's token, if there are such."""
    tokenizer = directory.tokenizer
    if not isinstance(tokenizer, SentencePieceTokenizer) or not tokenizer.languages.has_source:
        return None
    languages = tokenizer.languages
    codes = list(languages.tokens)
    return languages.source or codes[0], languages.tokens[languages.target or codes[-1]]


def _recipe(path: Path) -> Iterator[str]:
    file = path / _RECIPE
    if not file.is_file():
        return
    try:
        text = read_regular(file, MIB).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise ArtifactError(f"{file}: cannot be read ({reason.lower()}); restore it") from None
    yield "## Recipe"
    yield ""
    yield "Trained with `tformer train` and this recipe:"
    yield ""
    yield "~~~toml"
    yield text.rstrip()
    yield "~~~"
    yield ""
