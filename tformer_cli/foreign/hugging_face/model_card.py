"""The README.md of an exported model: a model card as the Hugging Face hub shows it."""

import json
from collections.abc import Iterator
from pathlib import Path

from tformer_cli.artifacts.config_file import task_kind
from tformer_cli.artifacts.model_directory import ModelDirectory
from tformer_cli.errors import ArtifactError
from tformer_cli.files.regular_file import MIB, read_regular
from tformer_cli.model.weight_shapes import parameter_count
from tformer_cli.text.sentencepiece.tokenizer import SentencePieceTokenizer

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
"""Tags of the hub, by the task of a model."""


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
