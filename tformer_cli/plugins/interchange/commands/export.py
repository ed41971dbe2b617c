"""`tformer export`: a model for another library, with weights in integers, or as a page."""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Literal, NamedTuple

from tformer_cli.cli.options import (
    AdapterOption,
    ModelArgument,
    QuietOption,
    option_field,
)
from tformer_cli.cli.streams import note, warn
from tformer_cli.errors import UsageError
from tformer_cli.files.atomic import check_free
from tformer_cli.sockets import load_place

TOKENIZER = "tokenizer.json"
Format = Literal["ctranslate2", "huggingface", "marian", "onnx", "int8", "tformer", "page"]
PAGE = "tformer_cli.plugins.page.export:export_page"

Quantization = Literal["float32", "float16", "bfloat16", "int16", "int8"]


class Job(NamedTuple):
    """A model, and where and how it is written."""

    model: Path
    output: Path
    adapter: Path | None
    precision: Literal["int10", "float16", "float32"] | None
    takes_any_size: bool


def export(
    model: ModelArgument,
    *,
    output: Path | None = option_field(
        None,
        "Directory to write; for page, the HTML file.",
        "-o",
        shown="MODEL/ctranslate2; the other formats need one",
        role="writes_directory",
    ),
    export_format: Format = option_field(
        "ctranslate2",
        "ctranslate2: a CTranslate2 model. huggingface: a directory for Transformers and the hub. "
        "marian: Marian files. onnx: the graph of an encoder, classifier or tagger. int8: a "
        "tformer model directory, quantized to a quarter of the size. tformer: a model directory "
        "with --adapter merged into the weights. page: one HTML file that holds the model and "
        "computes it in a browser, without a network.",
        "--format",
    ),
    quantization: Quantization | None = option_field(
        None,
        "Type of the weights for ctranslate2, which can convert them when it loads.",
        shown="float32",
    ),
    precision: Literal["int10", "float16", "float32"] | None = option_field(
        None,
        "Type of the weights in a page; int10 has integers with a scale for each row.",
        shown="int10",
    ),
    takes_any_size: bool = option_field(False, "Write a page of more than 40 MB, too.", "--force"),
    adapter: AdapterOption = None,
    quiet: QuietOption = False,
) -> None:
    """Export a model to CTranslate2, Hugging Face, Marian, ONNX, int8 or a web page.

    ctranslate2: load the directory with CTranslate2's Translator, which reads and writes the pieces
    of `tformer tokenize`. huggingface: load it with AutoTokenizer and AutoModelForSeq2SeqLM, a
    language model with AutoModelForCausalLM, others with the class that the export names; its
    README.md is a model card, in which you fill in the license. marian: needs Marian 1.12, which
    reads and writes the same pieces for tformer's own models. onnx: onnx/model.onnx takes input_ids
    and attention_mask; AutoTokenizer loads the tokenizer, and transformers.js loads both. int8: a
    model directory for translate, evaluate, score, benchmark, classify, tag, fill and embed, with
    the results of `--precision int8`. page: a file to open, mail or put on any site; it translates
    as you type and shows all heads, the search and the next words, as `tformer serve` does.

    Examples:
        tformer export runs/quickstart --format page -o model.html
        tformer export runs/quickstart --format int8 -o quickstart-int8
        tformer export runs/quickstart --format huggingface -o quickstart-hf
        tformer export runs/quickstart
        tformer export runs/quickstart --quantization int8 -o quickstart-ct2
    """
    _check_page_options(export_format, precision, takes_any_size=takes_any_size)
    if export_format == "ctranslate2":
        note(_write_ctranslate2(model, output, adapter, quantization or "float32"), quiet=quiet)
        return
    place = _free_place(export_format, output)
    _check_quantization(quantization)
    job = Job(model, place, adapter, precision, takes_any_size)
    note(f"{place}: {WRITERS[export_format](job)}", quiet=quiet)


def _check_page_options(
    export_format: Format, precision: str | None, *, takes_any_size: bool
) -> None:
    if export_format != "page" and (precision is not None or takes_any_size):
        option = "--force" if precision is None else "--precision"
        raise UsageError(f"{option}: only for --format page; omit it")


def _free_place(export_format: Format, output: Path | None) -> Path:
    """Returns the place to write; before the conversion, one that is in use is an error at once."""
    is_page = export_format == "page"
    if output is None:
        what = "file, such as model.html" if is_page else "directory"
        raise UsageError(
            f"--output: must be given with --format {export_format}; name a new {what}"
        )
    # A model that was trained on has another page in the place of its first
    if not (is_page and _is_exported_page(output)):
        check_free(output, names="file" if is_page else "directory")
    return output


def _is_exported_page(path: Path) -> bool:
    """Returns whether a file begins as pages with a model do."""
    from tformer_cli.inspect.frame import EXPORTED_PAGE

    if not path.is_file():
        return False
    with path.open("rb") as file:
        return EXPORTED_PAGE.encode() in file.read(4096)


def _check_quantization(quantization: Quantization | None) -> None:
    if quantization is not None:
        raise UsageError("--quantization: only for --format ctranslate2; omit it")


def _write_ctranslate2(
    model: Path, output: Path | None, adapter: Path | None, quantization: Quantization
) -> str:
    from tformer_cli.plugins.interchange import export as workflow

    path = workflow.export(model, output, quantization=quantization, adapter=adapter)
    return f"{path}: ctranslate2 model, weights in {quantization}"


def _write_merged(job: Job) -> str:
    from tformer_cli.plugins.interchange import export as workflow

    if job.adapter is None:
        raise UsageError("--adapter: is missing; without one, MODEL is already the model directory")
    workflow.export_merged(job.model, job.output, job.adapter)
    return "a model directory"


def _write_int8(job: Job) -> str:
    from tformer_cli.plugins.interchange import export as workflow

    before, after = workflow.export_int8(job.model, job.output, job.adapter)
    return f"int8 weights, {after / 1e6:,.1f} MB instead of {before / 1e6:,.1f} MB"


def _write_onnx(job: Job) -> str:
    from tformer_cli.plugins.interchange import export as workflow

    outputs = workflow.export_onnx(job.model, job.output, job.adapter)
    return f"ONNX graph that gives {outputs}; README.md shows its use"


def _write_marian(job: Job) -> str:
    from tformer_cli.plugins.interchange import export as workflow
    from tformer_cli.text.tokenizer import read_tokenizer

    workflow.export_marian(job.model, job.output, job.adapter)
    decoder = f"marian-decoder -c {job.output / 'decoder.yml'}"
    tokenizer = job.output / TOKENIZER
    # With one of tformer's tokenizers, Marian reads and writes pieces, not text
    if tokenizer.is_file():
        cut, joined = (f"tformer tokenize {verb} {tokenizer}" for verb in ("encode", "decode"))
        side = "" if read_tokenizer(tokenizer).is_joint else " --side target"
        decoder = f"{cut} | {decoder} | {joined}{side}"
    return f"Marian model; to translate with it, `{decoder}`"


def _write_hugging_face(job: Job) -> str:
    from tformer_cli.plugins.interchange import export as workflow

    name = workflow.export_hugging_face(job.model, job.output, job.adapter)
    if name == "SentenceTransformer":  # of a classifier, which its user takes for one of a class
        name += (
            ', whose vectors are the logits of the labels (pooling = "first" and pooler = "tanh" '
            "give a classifier of transformers)"
        )
    upload = f"fill in the license in README.md, then `hf upload OWNER/NAME {job.output}`"
    return f"{name}; to share it, {upload}"


def _write_page(job: Job) -> str:
    n_bytes = load_place(PAGE)(
        job.model,
        job.output,
        adapter=job.adapter,
        takes_any_size=job.takes_any_size,
        warn=warn,
        **({} if job.precision is None else {"precision": job.precision}),
    )
    return f"a page of {n_bytes / 1e6:,.1f} MB with the model inside; open it in a browser"


WRITERS: Mapping[str, Callable[[Job], str]] = MappingProxyType(
    {
        "huggingface": _write_hugging_face,
        "marian": _write_marian,
        "onnx": _write_onnx,
        "int8": _write_int8,
        "tformer": _write_merged,
        "page": _write_page,
    }
)
"""The writer of each format; it returns a sentence about the result."""
