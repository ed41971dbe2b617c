"""`tformer import`: a model of another tool as a model directory."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tformer_cli.artifacts.config_file import describe_layers
from tformer_cli.cli.help import show_list
from tformer_cli.cli.options import QuietOption, argument, option_field
from tformer_cli.cli.streams import note, stdout_console
from tformer_cli.errors import UsageError
from tformer_cli.kinds import kind_of
from tformer_cli.model.weight_shapes import parameter_count

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tformer_cli.foreign.foreign_model import ForeignModel

# Labels that are shown: models of images may have a thousand
MOST_LABELS = 10


def import_model(
    source: str = argument(
        "SOURCE",
        "Directory or file of a model, a name on the Hugging Face hub (owner/name), or a name or "
        "pair from `tformer models`.",
        role="reads_directory",
    ),
    *,
    output: Path | None = option_field(
        None, "Directory to write; it must be new or empty.", "-o", role="writes_directory"
    ),
    dry_run: bool = option_field(False, "Show what would be written; write nothing."),
    weights: Literal["float32", "int8"] | None = option_field(
        None,
        "Type of the matrices. int8 is only for models stored as integers.",
        shown="as in the source",
    ),
    quiet: QuietOption = False,
) -> None:
    """Convert another tool's model to a model directory.

    Reads Hugging Face directories of Marian (OPUS-MT), M2M-100, NLLB, mBART, Pegasus and T5 models
    (including mT5, ByT5 and MADLAD-400), Marian's own models, the Firefox translation models
    (Bergamot), CTranslate2 directories, Argos packages, and models from fairseq, OpenNMT-py and
    Eole. Language models: GPT-2, GPT-NeoX, LLaMA and Qwen2 directories, nanoGPT and minGPT
    checkpoints, llama2.c files. Encoders: BERT, RoBERTa, DistilBERT, ELECTRA and
    sentence-transformers. Image models: ViT, DINOv2 and timm's Vision Transformers. A peft
    directory with a LoRA adapter becomes the model it names, with the adapter merged in. Nothing in
    these files is executed. Commands that take MODEL also take such a SOURCE, and import it into
    the cache once.

    Examples:
        tformer import Helsinki-NLP/opus-mt-en-de -o opus-en-de
        tformer import downloads/firefox-enpt -o enpt --weights float32
        tformer import downloads/firefox-enpt --dry-run
        tformer import translate-en_fr.argosmodel -o en-fr
    """
    from tformer_cli.foreign import import_model as workflow

    if output is None and not dry_run:
        raise UsageError("--output: must be given; name a new directory, or add --dry-run")
    model = workflow.import_model(source, None if dry_run else output, weights=weights)
    if dry_run:
        show_list(stdout_console(), list(_rows(model)))
    else:
        note(f"{output}: {model.kind} model, {model.weight_type} weights", quiet=quiet)
    for sentence in model.notes:
        note(f"{source}: {sentence}", quiet=quiet)


def _rows(model: "ForeignModel") -> "Iterator[tuple[str, str]]":
    config = model.config
    yield "Kind", model.kind
    yield "Files", ", ".join(file.name for file in model.files)
    layers = describe_layers(config)
    yield "Shape", f"{layers}, d_model {config.d_model}, d_ff {config.d_ff}, {config.n_heads} heads"
    n_sources = config.source_vocab_size
    both = f"{n_sources:,} and {model.tokenizer.vocab_size:,}"
    joint = f"{model.tokenizer.vocab_size:,}"
    kind = kind_of(config)
    joint += " for both languages" if "translate" in kind.verbs else ""
    yield "Vocabulary", both if n_sources else joint
    n_parameters = parameter_count(config, model.tokenizer.vocab_size)
    yield "Weights", f"{n_parameters:,} parameters ({model.weight_type})"
    search = "sampling" if model.decoding.sampling else f"beam size {model.decoding.beam_size}"
    if kind.searches:
        yield "Decoding", search
    if model.labels:
        yield "Labels", f"{len(model.labels)}: {', '.join(model.labels[:MOST_LABELS])}"
