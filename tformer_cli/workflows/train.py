"""Training a model by a recipe, from raw text to a model directory."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from tformer_cli.artifacts.atomic import (
    make_directory,
    remove_leftovers,
    remove_tree,
    write_text,
)
from tformer_cli.artifacts.lock import locked
from tformer_cli.artifacts.model_directory import (
    CONFIG,
    TOKENIZER,
    WEIGHTS,
    ModelInfo,
    save_model_directory,
)
from tformer_cli.data.corpora import corpus_name
from tformer_cli.data.encoded import EncodedCorpus
from tformer_cli.data.loader import LoaderPosition, TrainingLoader
from tformer_cli.data.tokenizer import Tokenizer
from tformer_cli.errors import (
    ArtifactError,
    RecipeError,
    TformerError,
    UsageError,
)
from tformer_cli.model.config import parameter_count
from tformer_cli.model.runtime import (
    Precision,
    has_fast_bfloat16,
    prepare_cpu,
    resolve_device,
    set_threads,
)
from tformer_cli.model.transformer import Transformer
from tformer_cli.recipe import Recipe, differing_keys, load_recipe
from tformer_cli.training.batch_budget import PairLengths, settle_tokens_per_batch
from tformer_cli.training.checkpoints import Checkpoints
from tformer_cli.training.events import RunStarted, TrainingObserver
from tformer_cli.training.metrics_log import MetricsLog
from tformer_cli.training.signals import stop_requests
from tformer_cli.training.state import TrainingState, seed_everything
from tformer_cli.training.trainer import Trainer
from tformer_cli.training.validation import Validator
from tformer_cli.workflows.training_data import (
    Progress,
    encoded_corpora,
    fingerprint,
    make_tokenizer,
    notes,
    validation_pairs,
)

RECIPE, METRICS = "recipe.toml", "metrics.jsonl"


@dataclass(frozen=True, kw_only=True)
class TrainingResult:
    """What a run came to."""

    run: Path
    """The run directory, which is a model directory."""
    was_finished: bool
    """Whether the run had ended before, so that nothing was done."""
    state: TrainingState
    """Counters, validations and the reason of the end."""


def train(
    recipe: Recipe,
    run: Path,
    *,
    device: str = "auto",
    threads: int = 0,
    fresh: bool = False,
    observers: Sequence[TrainingObserver] = (),
    progress: Progress | None = None,
) -> TrainingResult:
    """Trains a model, or goes on with an interrupted run.

    Args:
        recipe: what decides the run.
        run: the run directory.
        device: "auto", "cpu", "cuda" or "cuda:N".
        threads: CPU threads (0: torch's choice).
        fresh: whether to remove an earlier run in the directory first.
        observers: who is told of training events.
        progress: who is told of the preparation of data.

    Raises:
        RecipeError: if the run directory holds a run of another recipe.
        DataError: if a corpus cannot be read, or has changed since the run began.
        ArtifactError: if the run directory cannot be written, or is in use or damaged.
        UsageError: if the device cannot be used.
        Interrupted: on SIGINT or SIGTERM; the state is saved.
    """
    with _run_directory(run):
        if not fresh:
            _check_recipe(recipe, run)
            finished = _finished_state(Checkpoints(run))
            if finished is not None:
                return TrainingResult(run=run, was_finished=True, state=finished)
        progress = progress or _ignore
        on_device = _device(device, threads)
        tokenizer = _run_tokenizer(recipe, run, progress, fresh=fresh)
        corpora = encoded_corpora(recipe, tokenizer, progress)
        trainer, started = _prepare(recipe, run, tokenizer, corpora, on_device, progress)
        if fresh or not Checkpoints(run).steps():
            started = _settle_batches(recipe, trainer, started, corpora)
        if fresh:  # only now that recipe and data are known to be good
            _clear(run)
        write_text(run / TOKENIZER, tokenizer.to_json())
        note = trainer.resume([*map(corpus_name, recipe.data.train), "data.valid"])
        if note:
            started = replace(started, notes=(*started.notes, note))
        write_text(run / RECIPE, recipe.to_toml())
        trainer.observers = [MetricsLog(run / METRICS, trainer.state), *observers]
        with stop_requests() as stop:
            try:
                trainer.run(started, stop)
            except ArtifactError as error:  # the place was good at the start: the work has failed
                raise TformerError(str(error)) from None
        return TrainingResult(run=run, was_finished=False, state=trainer.state)


def has_run(run: Path) -> bool:
    """Says whether a directory holds a run, finished or not."""
    return (run / RECIPE).is_file()


def has_model(run: Path) -> bool:
    """Says whether a directory holds a run or a model, which training would overwrite."""
    return has_run(run) or any((run / name).exists() for name in (CONFIG, WEIGHTS))


@contextmanager
def _run_directory(run: Path) -> Iterator[None]:
    """Holds the run directory; one made here goes again if no run comes to be in it."""
    is_new = not run.exists()
    make_directory(run)
    try:
        with locked(run):
            remove_leftovers(run)
            yield
    finally:
        if is_new and not has_run(run):
            remove_tree(run)


def _prepare(
    recipe: Recipe,
    run: Path,
    tokenizer: Tokenizer,
    corpora: Sequence[EncodedCorpus],
    device: torch.device,
    progress: Progress,
) -> tuple[Trainer, RunStarted]:
    valid = validation_pairs(recipe, progress)
    precision = choose_precision(recipe, device.type)
    seed_everything(recipe.training.seed)
    model = Transformer(recipe.model, tokenizer.vocab_size).to(device)
    decoding = replace(recipe.decoding, beam_size=recipe.validation.beam_size, n_best=1)
    trainer = Trainer(
        model=model,
        config=recipe.training,
        validation=recipe.validation,
        loader=partial(_open_loader, recipe, corpora, tokenizer),
        validator=Validator(valid, tokenizer, decoding, device, precision) if valid else None,
        checkpoints=Checkpoints(run),
        publish=partial(_publish, recipe, run, tokenizer),
        observers=(),
        precision=precision,
        fingerprints=[*(corpus.fingerprint for corpus in corpora), fingerprint(valid)],
    )
    started = RunStarted(
        step=0,
        n_parameters=parameter_count(recipe.model, tokenizer.vocab_size),
        device=str(device),
        precision=precision,
        n_pairs=sum(len(corpus) for corpus in corpora),
        vocab_size=tokenizer.vocab_size,
        batches_per_epoch=0,
        notes=tuple(notes(recipe, corpora)),
    )
    return trainer, started


def _settle_batches(
    recipe: Recipe, trainer: Trainer, started: RunStarted, corpora: Sequence[EncodedCorpus]
) -> RunStarted:
    """Finds the token budget of a new run, or tries that of the recipe on a GPU."""
    asked = recipe.training.tokens_per_batch
    if asked and next(trainer.model.parameters()).device.type == "cpu":
        return started
    lengths = PairLengths.of(corpora)
    trainer.state.tokens_per_batch = settle_tokens_per_batch(
        trainer.model, recipe.training, lengths, trainer.precision
    )
    if asked:
        return started
    found = f"batches of {trainer.state.tokens_per_batch:,} tokens: the most that fit in memory"
    return replace(started, notes=(*started.notes, found))


def _device(name: str, threads: int) -> torch.device:
    try:
        device = resolve_device(name)
    except ValueError as error:
        raise UsageError(f"--device: {error}") from None
    try:
        set_threads(threads)
    except ValueError as error:
        raise UsageError(f"--threads: {error}") from None
    prepare_cpu()
    return device


def _publish(
    recipe: Recipe,
    run: Path,
    tokenizer: Tokenizer,
    weights: Mapping[str, Tensor],
    step: int,
    scores: Mapping[str, float],
) -> None:
    """Makes the run directory a model directory with these weights."""
    save_model_directory(
        run,
        weights,
        config=recipe.model,
        tokenizer=tokenizer,
        decoding=recipe.decoding,
        info=ModelInfo(
            source_language=recipe.data.source_language,
            target_language=recipe.data.target_language,
            step=step,
            scores=scores,
        ),
    )


def _open_loader(
    recipe: Recipe,
    corpora: Sequence[EncodedCorpus],
    tokenizer: Tokenizer,
    position: LoaderPosition,
    tokens_per_batch: int,
) -> TrainingLoader:
    return TrainingLoader(
        corpora,
        [corpus.weight for corpus in recipe.data.train],
        tokenizer,
        tokens_per_batch,
        recipe.training.seed,
        recipe.tokenizer.bpe_dropout,
        position,
    )


def choose_precision(recipe: Recipe, device_type: str) -> Precision:
    """Decides what "auto" means: the hardware's word, not a timing, so that runs repeat."""
    asked = recipe.training.precision
    if asked != "auto":
        return asked
    return "bfloat16" if has_fast_bfloat16(device_type) else "float32"


def _run_tokenizer(recipe: Recipe, run: Path, progress: Progress, *, fresh: bool) -> Tokenizer:
    """The run's own tokenizer if it is there already, so that a resumption cannot change it."""
    if not fresh and (run / TOKENIZER).is_file() and Checkpoints(run).steps():
        return Tokenizer.from_file(run / TOKENIZER)
    return make_tokenizer(recipe, progress)


def _check_recipe(recipe: Recipe, run: Path) -> None:
    if not has_run(run):
        if has_model(run):
            raise ArtifactError(
                f"holds a model but no run ({run}): use another directory, or --fresh to replace it"
            )
        return
    keys = differing_keys(load_recipe(str(run / RECIPE)), recipe)
    if keys:
        shown = ", ".join(keys[:5]) + (f" and {len(keys) - 5} more" if len(keys) > 5 else "")
        raise RecipeError(
            f"the run was begun with another recipe ({run}): {shown} differ; "
            "use another directory, or --fresh to start over"
        )


def _finished_state(checkpoints: Checkpoints) -> TrainingState | None:
    """The end of a run that has ended; a damaged checkpoint is training's to deal with."""
    steps = checkpoints.steps()
    try:
        state = checkpoints.load_state(steps[-1]) if steps else None
    except ArtifactError:
        return None
    return state if state is not None and state.is_finished else None


def _clear(run: Path) -> None:
    """Removes what an earlier run wrote, and nothing else that lies there."""
    remove_tree(run / "checkpoints")
    for name in (RECIPE, TOKENIZER, METRICS, CONFIG, WEIGHTS):
        (run / name).unlink(missing_ok=True)


def _ignore(what: str, n_pairs: int) -> None:
    """Takes no notice of progress."""
