"""`tformer info`: what a model is and how it was trained."""

import json
from typing import TYPE_CHECKING, Any

from tformer_cli.artifacts.config_file import CONFIG, TASKS, describe_layers
from tformer_cli.cli.commands.training_progress import duration
from tformer_cli.cli.format_choice import text_or_json
from tformer_cli.cli.help import format_size, show_list
from tformer_cli.cli.jobs import job_rows
from tformer_cli.cli.options import ModelArgument, QuietOption
from tformer_cli.cli.streams import stdout_console, warn, write_line
from tformer_cli.kinds import kind_of, reads_names
from tformer_cli.wording import visible

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tformer_cli.info import ModelDetails
    from tformer_cli.model.config import ModelConfig

SCHEMA_OF_JOBS = "tformer.jobs/1"
# Most languages that people are shown.
MOST_LANGUAGES = 20


def info(
    model: ModelArgument,
    *,
    output_format: str = text_or_json("Readable lines, or one JSON object."),
    quiet: QuietOption = False,  # noqa: ARG001 - every command takes it; this one is quiet
) -> None:
    """Show what a model is and how it was trained, or how far a job is.

    Shows shape, vocabulary, languages, training, scores and size on disk, read from the model
    directory. Nothing is computed. For the directory of a training run, of --seeds, of
    translate-corpus or of distill, it shows whether the job runs and in which process, how far it
    is, how fast, the time left and where the time went. A job may be asked while it runs.

    Examples:
        tformer info runs/quickstart
        tformer info runs/quickstart --format json | jq .scores
        tformer info news.fr --format json | jq .jobs[0].seconds_left
    """
    from tformer_cli.info import model_details
    from tformer_cli.train.jobs import find_jobs

    jobs = find_jobs(model)
    rows: list[tuple[str, str]] = []
    record: dict[str, Any] = {"schema": SCHEMA_OF_JOBS, "path": str(model)}
    problems: tuple[str, ...] = ()
    # A job has a model once it has written one
    if not jobs or (model / CONFIG).is_file():
        details = model_details(model)
        rows, record, problems = [*_rows(details)], details.record(), details.problems
    # That a training has ended is said above
    told = {path: job for path, job in jobs.items() if not rows or job.state != "finished"}
    for path, job in told.items():
        rows += [*([("Directory", path)] if path and len(told) > 1 else []), *job_rows(job)]
    if output_format == "json":
        listed = [{"path": path, **job.record()} for path, job in jobs.items()]
        write_line(json.dumps(record | {"jobs": listed}, ensure_ascii=False))
    else:
        # Names may come from foreign files, and hold characters that control a terminal
        show_list(stdout_console(), [(name, visible(text, 1000)) for name, text in rows])
    for problem in problems:
        warn(problem)


def _rows(details: "ModelDetails") -> "Iterator[tuple[str, str]]":
    model, decoding = details.config.model, details.config.decoding
    yield "Model", details.named
    languages = list(_languages(details))
    if languages:
        yield "Languages", "; ".join(languages)
    kinds = {"enc": "encoder", "dec": "decoder", "cross": "cross-attention"}
    # Pruning leaves each layer its own number of heads: then only sums are readable
    heads = f"{model.n_heads} heads"
    if model.encoder_heads or model.decoder_heads or model.cross_heads:
        counts = zip(kinds.values(), map(sum, model.layer_heads), strict=True)
        heads = "heads left by pruning: " + ", ".join(f"{n} {kind}" for kind, n in counts)
    widths = f"d_model {model.d_model}, d_ff {model.d_ff}"
    kind = f"{model.norm}-norm, {model.positions} positions"
    if model.decoder_cell != "attention":
        kind += f", {model.decoder_cell.upper()} decoder"
    yield (
        "Shape",
        f"{describe_layers(model)}, {heads}, {widths}, {kind}, {details.n_parameters:,} parameters",
    )
    if labels := details.config.labels:
        yield "Labels", f"{len(labels)}: {', '.join(labels[:MOST_LANGUAGES])}"
    yield from _of_images(model) if reads_names(model) else _of_texts(details)
    if (doubt := details.doubt) is not None:
        auroc, error = (doubt.scores.get(name, 0) for name in ("auroc", "calibration_error"))
        quality = f"AUROC {auroc:.3f}, calibration error {100 * error:.1f} %"
        yield "Doubt", f"calibrated by {doubt.lines:,} lines: {quality}"
    yield from _origin(details)
    penalty = f"length penalty {decoding.length_penalty:g}"
    if decoding.length_normalization == "average":
        penalty = "log-probabilities divided by the number of tokens"
    search = f"beam size {decoding.beam_size}, {penalty}"
    if decoding.sampling:
        search = f"sampling, temperature {decoding.temperature:g}"
    if kind_of(model).searches:
        yield "Decoding", search
    # A run directory is much larger than its model, which is the part to copy elsewhere
    more = details.n_bytes - details.n_model_bytes
    more_text = f"; {format_size(more)} more next to it, such as checkpoints" if more else ""
    yield "Size", f"{format_size(details.n_model_bytes)} ({details.weight_type} weights){more_text}"
    yield "Written by", f"tformer {details.config.tformer_version}"


def _of_images(model: "ModelConfig") -> "Iterator[tuple[str, str]]":
    height, width, channels = model.image_size
    rows, columns = model.grid
    token = " and a class token" if model.class_token else ""
    size = f"{height}×{width} pixels, {channels} channel{'s'[: channels > 1]}"
    patches = f"{rows}×{columns} patches of {model.patch_size}×{model.patch_size}"
    yield "Images", f"{size}, {patches}{token}"


def _of_texts(details: "ModelDetails") -> "Iterator[tuple[str, str]]":
    model, verbs = details.config.model, kind_of(details.config.model).verbs
    row = TASKS[details.config.task]
    # Words are labeled part by part; of one label, and around gaps, only the beginning is read
    is_cut = row.head is not None and not (row.at_places and row.has_labels)
    what = "cut off" if is_cut else "read in parts"
    longer = "" if "generate" in verbs else f"; longer ones are {what}"
    yield "Longest line", f"{model.max_positions} tokens{longer}"
    sides = ", for texts" if details.config.labels else ""
    if "translate" in verbs:
        sides = ", for both languages"
    if model.source_vocab_size:
        sides = f", for the target; {model.source_vocab_size:,} for the source"
    yield "Vocabulary", f"{details.config.vocab_size:,} pieces ({details.algorithm}){sides}"
    if details.shortlist is not None:
        yield (
            "Shortlist",
            f"{details.targets_per_source:,.1f} target pieces for a source piece, on average",
        )


def _origin(details: "ModelDetails") -> "Iterator[tuple[str, str]]":
    if details.config.origin is not None:
        yield "Imported from", f"{details.config.origin.source} ({details.config.origin.kind})"
    # A foreign model is in the cache, whose path the user did not name
    if details.named != str(details.path):
        yield "Imported into", str(details.path)
    if details.config.start is not None:
        yield "Started from", details.config.start.model
    # An imported model has made no steps here
    if details.config.step or details.config.origin is None:
        yield "Training", ". ".join(_training(details))
    recipe = details.recipe
    if recipe is not None:
        from tformer_cli.info import corpus_name

        corpora = "; ".join(corpus_name(corpus) for corpus in recipe.data.train)
        yield "Data", f"{corpora} ({recipe.data.origin})" if recipe.data.origin else corpora
    if scores := details.config.scores:
        names = {"bleu": "BLEU", "chrf": "chrF", "macro_f1": "macro F1"}
        shown = (f"{names.get(name, name)} {value:.2f}" for name, value in scores.items())
        yield "Validation", ", ".join(shown)


def _languages(details: "ModelDetails") -> "Iterator[str]":
    if details.config.source_language or details.config.target_language:
        yield f"{details.config.source_language or '?'} to {details.config.target_language or '?'}"
    if details.languages:
        shown = ", ".join(details.languages[:MOST_LANGUAGES])
        rest = len(details.languages) - MOST_LANGUAGES
        yield f"knows {shown}" + (f" and {rest} others" if rest > 0 else "")


def _training(details: "ModelDetails") -> "Iterator[str]":
    last, steps = details.progress, f"{details.config.step:,} steps"
    if last is not None and last["step"] > details.config.step:  # the weights are of the former
        best = "the best " if details.config.scores else ""
        steps = f"Step {details.config.step:,}, {best}of {last['step']:,}"
    yield steps
    if last is not None:
        yield (
            f"At step {last['step']:,}: {last.get('epoch', 0):.1f} epochs, "
            f"{last.get('tokens', 0):,} tokens, {duration(last.get('seconds', 0))}"
        )
    if details.recipe is not None:
        training = details.recipe.training
        yield (
            f"Optimizer {training.optimizer}, learning rate {training.learning_rate:g}, precision "
            f"{training.precision}, seed {training.seed}"
        )
