"""`tformer export`: a model for another engine or library, or with weights in integers."""

from pathlib import Path
from typing import Literal

from tformer_cli.cli.options import (
    AdapterOption,
    ModelArgument,
    QuietOption,
    option_field,
)
from tformer_cli.cli.streams import note
from tformer_cli.errors import UsageError
from tformer_cli.files.atomic import check_free

TOKENIZER = "tokenizer.json"
Format = Literal["ctranslate2", "huggingface", "marian", "onnx", "int8", "tformer"]


def export(
    model: ModelArgument,
    *,
    output: Path | None = option_field(
        None,
        "Directory to write.",
        "-o",
        shown="MODEL/ctranslate2; the other formats need one",
        role="writes_directory",
    ),
    export_format: Format = option_field(
        "ctranslate2",
        "ctranslate2: a CTranslate2 model. huggingface: a directory for Transformers and the hub. "
        "marian: Marian files. onnx: the graph of an encoder, classifier or tagger. int8: a "
        "tformer model directory, quantized to a quarter of the size. tformer: a model directory "
        "with --adapter merged into the weights.",
        "--format",
    ),
    quantization: Literal["float32", "float16", "bfloat16", "int16", "int8"] | None = option_field(
        None,
        "Type of the weights for ctranslate2, which can convert them when it loads.",
        shown="float32",
    ),
    adapter: AdapterOption = None,
    quiet: QuietOption = False,
) -> None:
    """Export a model to CTranslate2, Hugging Face, Marian, ONNX or int8.

    ctranslate2: load the directory with CTranslate2's Translator, which reads and writes the pieces
    of `tformer tokenize`. huggingface: load it with AutoTokenizer and AutoModelForSeq2SeqLM, a
    language model with AutoModelForCausalLM, others with the class that the export names; its
    README.md is a model card, in which you fill in the license. marian: needs Marian 1.12, which
    reads and writes the same pieces for tformer's own models. onnx: onnx/model.onnx takes input_ids
    and attention_mask; AutoTokenizer loads the tokenizer, and transformers.js loads both. int8: a
    model directory for translate, evaluate, score, benchmark, classify, tag, fill and embed, with
    the results of `--precision int8`.

    Examples:
        tformer export runs/quickstart --format int8 -o quickstart-int8
        tformer export runs/quickstart --format huggingface -o quickstart-hf
        tformer export runs/quickstart
        tformer export runs/quickstart --quantization int8 -o quickstart-ct2
    """
    if export_format == "ctranslate2":
        from tformer_cli.plugins.interchange import export as workflow

        stored = quantization or "float32"
        path = workflow.export(model, output, quantization=stored, adapter=adapter)
        note(f"{path}: {export_format} model, weights in {stored}", quiet=quiet)
        return
    if output is None:
        raise UsageError(
            f"--output: must be given with --format {export_format}; name a new directory"
        )
    # Before the conversion: a directory that is in use is an error at once
    check_free(output)
    if quantization is not None:
        raise UsageError("--quantization: only for --format ctranslate2; omit it")
    note(f"{output}: {_write(model, output, export_format, adapter)}", quiet=quiet)


def _write(model: Path, output: Path, export_format: Format, adapter: Path | None) -> str:
    """Writes a directory and says what it is."""
    from tformer_cli.plugins.interchange import export as workflow

    if export_format == "tformer":
        if adapter is None:
            raise UsageError(
                "--adapter: is missing; without one, MODEL is already the model directory"
            )
        workflow.export_merged(model, output, adapter)
        return "a model directory"
    if export_format == "int8":
        before, after = workflow.export_int8(model, output, adapter)
        return f"int8 weights, {after / 1e6:,.1f} MB instead of {before / 1e6:,.1f} MB"
    if export_format == "onnx":
        outputs = workflow.export_onnx(model, output, adapter)
        return f"ONNX graph that gives {outputs}; README.md shows its use"
    if export_format == "marian":
        workflow.export_marian(model, output, adapter)
        decoder, tokenizer = f"marian-decoder -c {output / 'decoder.yml'}", output / TOKENIZER
        # With one of tformer's tokenizers, Marian reads and writes pieces, not text
        if tokenizer.is_file():
            cut, joined = (f"tformer tokenize {verb} {tokenizer}" for verb in ("encode", "decode"))
            decoder = f"{cut} | {decoder} | {joined}"
        return f"Marian model; to translate with it, `{decoder}`"
    name = workflow.export_hugging_face(model, output, adapter)
    if name == "SentenceTransformer":  # of a classifier, which its user takes for one of a class
        name += (
            ', whose vectors are the logits of the labels (pooling = "first" and pooler = "tanh" '
            "give a classifier of transformers)"
        )
    upload = f"fill in the license in README.md, then `hf upload OWNER/NAME {output}`"
    return f"{name}; to share it, {upload}"
