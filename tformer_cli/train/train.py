"""Training a model by a recipe, from raw text to a model directory."""

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tformer_cli.artifacts.adapter_directory import ADAPTER, save_adapter
from tformer_cli.artifacts.config_file import (
    CONFIG,
    DOUBT,
    FREQUENCIES,
    LENS,
    PROBE,
    TOKENIZER,
    WEIGHTS,
    ImportOrigin,
    ModelInfo,
    StartOrigin,
)
from tformer_cli.artifacts.model_directory import save_model_directory
from tformer_cli.artifacts.overwriting import Output, Writes, check_outputs
from tformer_cli.artifacts.shortlist_file import load_frequencies, save_frequencies
from tformer_cli.errors import (
    ArtifactError,
    DataError,
    RecipeError,
    Setting,
    TformerError,
    UsageError,
)
from tformer_cli.files.atomic import (
    lock_directory,
    make_directory,
    remove_leftovers,
    remove_tree,
    sign_lock,
    write_text,
)
from tformer_cli.heads.roles import TokenFrequencies
from tformer_cli.inspect.jobs.align import store_measured_heads
from tformer_cli.inspect.views.corpus import AlignmentScore
from tformer_cli.inspect.views.timeline import HEADS_LOG
from tformer_cli.kinds import training_of
from tformer_cli.kinds.kind import HeldOut, Progress
from tformer_cli.model.base import Model
from tformer_cli.model.config import Precision
from tformer_cli.model.weight_shapes import parameter_count
from tformer_cli.recipe import RECIPE, Recipe, differing_keys, has_run, load_recipe, make_recipe
from tformer_cli.runtime import has_fast_bfloat16
from tformer_cli.sockets import load_place
from tformer_cli.text.corpora import SentencePair, corpus_name
from tformer_cli.text.loading.encoded import EncodedCorpus, cache_key
from tformer_cli.text.loading.loader import (
    BatchStream,
    LoaderPosition,
    SegmentLoader,
    TrainingLoader,
)
from tformer_cli.text.tokenizer import Tokenizer, parse_tokenizer, read_tokenizer
from tformer_cli.train.calibration import calibrate_run
from tformer_cli.train.data import (
    completed_recipe,
    encoded_corpora,
    fingerprint,
    make_tokenizer,
    named_inputs,
    notes,
    share_of_several,
    source_words,
    unit_of,
    validation_pairs,
    with_vocabularies,
)
from tformer_cli.train.start import (
    IMPORTED,
    check_start,
    freeze,
    initial_model,
    start_origin,
)
from tformer_cli.trainer.adapters import merged_weights
from tformer_cli.trainer.batch_budget import PairLengths
from tformer_cli.trainer.events import RunStarted, TrainingObserver
from tformer_cli.trainer.hardware import (
    recompute_layers,
    settle_compiling,
    training_device,
    use_kernels,
)
from tformer_cli.trainer.optimizers.schedule import scaled_to_batch
from tformer_cli.trainer.processes.group import Processes
from tformer_cli.trainer.processes.launch import Launch, one_error_per_node, read_launch
from tformer_cli.trainer.processes.signals import stop_requests
from tformer_cli.trainer.resuming.checkpoints import Checkpoints
from tformer_cli.trainer.resuming.saving import check_data
from tformer_cli.trainer.resuming.state import TrainingState, generators_kept
from tformer_cli.trainer.run_logs import DIRECTORY as TENSORBOARD
from tformer_cli.trainer.run_logs import MetricsLog, TensorBoardLog
from tformer_cli.trainer.segment_memory import SegmentMemory
from tformer_cli.trainer.speed import HardwareLimit, ProductProbe
from tformer_cli.trainer.trainer import Trainer
from tformer_cli.trainer.validation import Validator

if TYPE_CHECKING:
    from tformer_cli.plugins.instruments.jobs.follow_heads import HeadFollower


METRICS = "metrics.jsonl"
# Keys that may differ between processes: where files lie; their content is compared elsewhere.
MACHINE_KEYS = ("data.directory", "data.cache_directory")


@dataclass(frozen=True, kw_only=True)
class TrainingResult:
    """Result of a run."""

    run: Path
    was_finished: bool
    """True if the run had ended before, so that nothing was done."""
    state: TrainingState
    n_inspections: int = 0
    inspection_seconds: float = 0.0
    aligned: AlignmentScore | None = None
    """Score of the heads that were found to align best and stored; see `store_measured_heads`."""
    calibration: str = ""
    """The outcome of the calibration of doubt, a sentence; see `calibrate_run`."""

    def __str__(self) -> str:
        return f"{self.run}: {self.state.reason} (step {self.state.step})"


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """Everything a run needs before it is started or resumed."""

    tokenizer: Tokenizer
    corpora: Sequence[EncodedCorpus]
    validation: Sequence[SentencePair]
    trainer: Trainer
    origin: ImportOrigin | None
    """The foreign model that its start was imported from."""
    started: RunStarted


def train(
    recipe: Recipe,
    run: Path,
    *,
    device: str = "auto",
    fresh: bool = False,
    observers: Sequence[TrainingObserver] = (),
    progress: Progress | None = None,
    tensorboard: bool = False,
    is_shared: bool = False,
) -> TrainingResult:
    """Trains a model, or continues with an interrupted run.

    Under `torchrun` each process calls it with the same arguments. Only the first writes and
    reports.

    Args:
        recipe: what decides the run.
        run: the run directory.
        device: "auto", "cpu", "cuda" or "cuda:N".
        fresh: whether to remove an earlier run in the directory first.
        observers: observers of training events.
        progress: called with the progress of preparing the data.
        tensorboard: whether to write events for TensorBoard next to the run's metrics.
        is_shared: whether machines come and go, so that each of them may have to write the run.

    Raises:
        RecipeError: if the run directory holds a run of another recipe, or another process has
            another one.
        DataError: if a corpus cannot be read, or has changed since the run began.
        ArtifactError: if the run directory cannot be written, or is in use or damaged.
        UsageError: if the device cannot be used, or tensorboardX is asked for and not installed, or
            the run would replace a corpus or the recipe's tokenizer.
        Interrupted: on SIGINT or SIGTERM; the state is saved.
        AnotherProcessFailed: if another process has, and has said why.
    """
    launch = read_launch()
    with one_error_per_node():
        check_start(recipe)
        check_outputs(
            [Output(name=Setting("run"), path=run, writes=Writes.RUN)], named_inputs(recipe)
        )
        place = training_device(device, launch)
    with (
        _together(launch, place, recipe) as processes,
        _run_directory(run) if processes.is_first else nullcontext(),
        generators_kept(place),
    ):
        check_same_recipe(processes, recipe, fresh=fresh)
        if is_shared:
            _check_shared(run, processes)
        finished = None
        if not fresh:
            finished = processes.first(partial(_open_run, recipe, run))
        if finished is not None:
            state = TrainingState.from_json(finished)
            return TrainingResult(run=run, was_finished=True, state=state)
        replaces_run = fresh and has_run(run)
        if processes.is_first and not replaces_run:
            sign_lock(run)
        tell = progress if processes.is_first else None
        prepared = prepare(recipe, run, place, processes, tell, fresh=fresh)
        started = _start(recipe, run, prepared, processes, fresh=fresh)
        own = observers if processes.is_first else None
        return _run(recipe, run, prepared, started, own, tensorboard=tensorboard)


def _run(
    recipe: Recipe,
    run: Path,
    prepared: Prepared,
    started: RunStarted,
    observers: Sequence[TrainingObserver] | None,
    *,
    tensorboard: bool,
) -> TrainingResult:
    """Trains until the end or a stop; with observers, in the first process, also writes logs."""
    follower = None
    if observers is not None:
        events = [TensorBoardLog(run, prepared.trainer.state.step)] if tensorboard else []
        write_text(run / RECIPE, recipe.to_toml())
        follower = _follower(recipe, run, prepared)
        metrics = MetricsLog(run / METRICS, prepared.trainer.state)
        observers = [metrics, *filter(None, [follower]), *events, *observers]
    inspects = follower is not None and recipe.training.inspect_every > 0
    on_inspect = follower.record if follower is not None and inspects else None
    with stop_requests() as stop:
        try:
            prepared.trainer.run(started, stop, observers or (), on_inspect)
            aligned = None if observers is None else store_measured_heads(recipe, run)
        except ArtifactError as error:  # the place was good at the start: the work has failed
            raise TformerError(str(error)) from None
    state = prepared.trainer.state
    calibration = ""
    if observers is not None:  # the run is whole: who interrupts this loses only the doubt
        calibration = calibrate_run(
            recipe, run, prepared.validation, state.tokens, prepared.started.device
        )
    return TrainingResult(
        run=run,
        was_finished=False,
        state=state,
        aligned=aligned,
        calibration=calibration,
        n_inspections=0 if follower is None else follower.n_records,
        inspection_seconds=0.0 if follower is None else follower.seconds,
    )


def _start(
    recipe: Recipe, run: Path, prepared: Prepared, processes: Processes, *, fresh: bool
) -> RunStarted:
    """Brings the trainer to where the run is, and writes what a new one needs to be resumed."""
    started = prepared.started
    if processes.first(lambda: fresh or not Checkpoints(run).steps()):
        started = settle_batches(recipe, prepared)
    if processes.is_first:
        if fresh:  # only now that recipe and data are known to be good
            _clear(run)
            sign_lock(run)
        write_text(run / TOKENIZER, prepared.tokenizer.to_json())
        if prepared.origin is not None:
            write_text(run / IMPORTED, json.dumps(asdict(prepared.origin), indent=1) + "\n")
        # a model that was trained before knows words of corpora that are not here
        has_words = training_of(recipe).examples.are_translated and not recipe.start.model
        words = source_words(prepared.corpora) if has_words else ()
        save_frequencies(run, _source_counts(recipe, prepared), words)
    started = replace(started, notes=(*started.notes, *prepared.trainer.resume(_names(recipe))))
    if processes.is_first and not prepared.trainer.state.step:
        started = replace(started, doubts=tuple(training_of(recipe).doubts(recipe)))
    return started


def has_model(run: Path) -> bool:
    """Returns whether a directory holds a run or a model, which training would overwrite."""
    return has_run(run) or any((run / name).exists() for name in (CONFIG, WEIGHTS))


def _together(
    launch: Launch, place: torch.device, recipe: Recipe
) -> AbstractContextManager[Processes]:
    """Meets the other processes, if there are any."""
    if launch.world_size == 1:
        return nullcontext(Processes())
    # torch's collectives take long to load, and most runs have one process
    from tformer_cli.trainer.processes.distributed import JoinedProcesses, join_processes

    kind, shards_optimizer = JoinedProcesses, recipe.training.shard_optimizer
    if recipe.training.shard_weights:  # the optimizer's state is divided as its weights are
        from tformer_cli.trainer.processes.sharded import ShardedProcesses

        kind, shards_optimizer = ShardedProcesses, False
    return join_processes(launch, place, kind, shards_optimizer=shards_optimizer)


@contextmanager
def _run_directory(run: Path) -> Iterator[None]:
    """Holds the run directory; removes one made here if no run starts in it."""
    is_new = not run.exists()
    make_directory(run)
    with lock_directory(
        run
    ):  # another one that began at the same moment may hold it: then it is theirs
        try:
            if has_run(run):  # else what is there is somebody else's
                remove_leftovers(run)
            yield
        finally:
            if is_new and not has_run(run):
                remove_tree(run)


def _check_shared(run: Path, processes: Processes) -> None:
    """Checks that all processes have the same run directory."""
    # Otherwise a run whose first machine leaves would start over on another one.
    name = processes.first(lambda: f".shared-{uuid.uuid4()}")
    file = run / name
    try:
        processes.first(lambda: write_text(file, ""))
        is_missing = processes.largest(float(not file.exists()))
    finally:
        if processes.is_first:
            file.unlink(missing_ok=True)
    if is_missing:
        raise UsageError(
            f"--nodes: {run} must be the same directory on all machines if they may come and go; "
            "name one on a shared file system, or a fixed number of machines"
        )


def prepare(
    recipe: Recipe,
    run: Path,
    device: torch.device,
    processes: Processes,
    progress: Progress | None = None,
    *,
    fresh: bool = False,
) -> Prepared:
    """Prepares a run; see `train`. Writes nothing into the run directory."""
    _check_sharing(recipe, processes)
    progress = progress or (lambda what, n_pairs: None)  # noqa: ARG005 - nobody looks
    training = training_of(recipe)
    own_recipe, tell = recipe, progress
    recipe = processes.prepare_once(lambda: completed_recipe(own_recipe, tell))
    text, remarks = processes.first(lambda: _run_tokenizer(recipe, run, progress, fresh=fresh))
    tokenizer = parse_tokenizer(text)
    recipe = with_vocabularies(recipe, tokenizer)
    sides = training.sides(tokenizer, recipe.task.labels)
    valid, corpora = processes.prepare_once(
        lambda: (validation_pairs(recipe, progress), encoded_corpora(recipe, sides, progress))
    )
    fingerprints = _same_fingerprints(processes, corpora, valid)
    # The first decides: of machines with different processors each would choose its own
    precision: Precision = processes.first(lambda: choose_precision(recipe, device.type))
    # A checkpoint will be loaded; the other processes take over the weights of the first one
    loads = processes.is_first and (fresh or not Checkpoints(run).steps())
    origin = start_origin(recipe.start, None if loads else run) if processes.is_first else None
    make = partial(initial_model, recipe, tokenizer.vocab_size)
    model = make(loads=loads).to(device)
    model_notes = [*remarks, *_set_up(model, recipe, precision, device, corpora, processes)]
    tf32 = recipe.training.precision == "tf32"
    probe = ProductProbe(recipe.model, tokenizer.vocab_size, device, precision, tf32=tf32)
    several = share_of_several(corpora) if training.examples.are_translated else None
    held = HeldOut(recipe, valid, tokenizer, device, precision)
    trainer = Trainer(
        model=model,
        config=recipe.training,
        validation=recipe.validation,
        loader=partial(_open_loader, recipe, corpora, sides, is_shared=processes.world_size > 1),
        validator=Validator(training.scorer(held), device, precision, processes.divide)
        if valid
        else None,
        checkpoints=Checkpoints(run),
        publish=partial(_publish, recipe, run, tokenizer, origin, several),
        precision=precision,
        fingerprints=fingerprints,
        limit=HardwareLimit(probe, processes.world_size),
        processes=processes,
        initial=make,
        memory=SegmentMemory() if recipe.model.memory else None,
    )
    return Prepared(
        tokenizer=tokenizer,
        corpora=corpora,
        validation=valid,
        trainer=trainer,
        origin=origin,
        started=_describe_run(recipe, tokenizer, corpora, device, precision, model_notes),
    )


def _set_up(
    model: Model,
    recipe: Recipe,
    precision: Precision,
    device: torch.device,
    corpora: Sequence[EncodedCorpus],
    processes: Processes,
) -> Iterator[str]:
    """Freezes weights and chooses how layers are computed; yields notes on it."""
    yield from freeze(model, recipe)
    if recipe.training.shard_weights and processes.world_size == 1:
        yield "training.shard_weights has no effect with one process"
    if processes.shards_weights:
        yield "training without compiled kernels: training.shard_weights divides the weights"
    else:
        epoch_tokens = 0 if device.type == "cpu" else PairLengths.of(corpora).total
        compiles, note = settle_compiling(
            model, recipe.training, epoch_tokens, processes.world_size
        )
        if note:
            yield note
        yield from use_kernels(model, compiles=compiles)
    if recipe.training.activation_checkpointing:
        recompute_layers(model)
    yield from notes_of_products(recipe, precision, device.type)


def _describe_run(
    recipe: Recipe,
    tokenizer: Tokenizer,
    corpora: Sequence[EncodedCorpus],
    device: torch.device,
    precision: Precision,
    model_notes: Sequence[str],
) -> RunStarted:
    return RunStarted(
        step=0,
        n_parameters=parameter_count(recipe.model, tokenizer.vocab_size),
        device=str(device),
        precision=precision,
        n_pairs=sum(len(corpus) for corpus in corpora),
        unit=unit_of(recipe),
        vocab_size=tokenizer.vocab_size if training_of(recipe).examples.are_texts else 0,
        batches_per_epoch=0,
        notes=(*notes(recipe, corpora), *model_notes),
    )


def _check_sharing(recipe: Recipe, processes: Processes) -> None:
    """Refuses what several processes cannot share."""
    if recipe.model.memory and processes.world_size > 1:
        raise RecipeError(
            f"model.memory: works only with one process, but there are {processes.world_size}; "
            "train with one"
        )
    if recipe.training.shard_weights and (recipe.adapter.rank or recipe.start.frozen):
        name = "an adapter" if recipe.adapter.rank else "model.frozen"
        raise RecipeError(f"training.shard_weights: does not work with {name}; omit one of them")


def _same_fingerprints(
    processes: Processes, corpora: Sequence[EncodedCorpus], valid: Sequence[SentencePair]
) -> list[str]:
    """Returns the fingerprints of the data, which all processes must share."""
    fingerprints = [*(corpus.fingerprint for corpus in corpora), fingerprint(valid)]
    # Batches are drawn by number: with other data the processes would train on other pairs
    if processes.first(lambda: fingerprints) != fingerprints:
        raise DataError(
            f"data.train, data.valid: the corpora of process {processes.rank} differ from those "
            "of the first; copy the same data to every machine"
        )
    return fingerprints


def settle_batches(recipe: Recipe, prepared: Prepared) -> RunStarted:
    """Finds the token budget of a new run, or tries the recipe's on a GPU."""
    fixed_budget, trainer = recipe.training.tokens_per_batch, prepared.trainer
    if trainer.processes.shards_weights:  # trying takes all of them
        return prepared.started
    if fixed_budget and next(trainer.model.parameters()).device.type == "cpu":
        return prepared.started
    budget = trainer.fit_batches(PairLengths.of(prepared.corpora))
    if fixed_budget:
        return prepared.started
    note = f"batches of {budget:,} tokens, the most that fit in memory"
    scaled = scaled_to_batch(recipe.training, trainer.state.batch_factor)
    if scaled != recipe.training:
        note += f"; learning rate {scaled.learning_rate:.3g}, {scaled.warmup_steps:,} warm-up steps"
    return replace(prepared.started, notes=(*prepared.started.notes, note))


def _source_counts(recipe: Recipe, prepared: Prepared) -> NDArray[np.int64]:
    """(V) how often each token occurs in what an encoder reads of all corpora."""
    size, is_target = prepared.tokenizer.source.vocab_size, recipe.model.head == "tokens"
    counts = [corpus.source_counts(size, is_target=is_target) for corpus in prepared.corpora]
    total: NDArray[np.int64] = np.sum(counts, axis=0)
    return total


HEAD_FOLLOWER = "tformer_cli.plugins.instruments.jobs.follow_heads:HeadFollower"


def _follower(recipe: Recipe, run: Path, prepared: Prepared) -> "HeadFollower | None":
    """Observer of the heads, if one is asked for or was in an earlier part of the run."""
    trainer = prepared.trainer
    is_asked = recipe.training.inspect_every > 0 or (run / HEADS_LOG).is_file()
    if not is_asked:
        return None
    counts = None
    if training_of(recipe).examples.are_texts:
        counts = load_frequencies(run, prepared.tokenizer.source.vocab_size)
    frequencies = (
        None if counts is None else TokenFrequencies(counts, prepared.tokenizer.source.mask_id)
    )
    follower: HeadFollower = load_place(HEAD_FOLLOWER)(
        run,
        trainer.model,
        prepared.tokenizer,
        prepared.validation,
        trainer.state.step,
        frequencies,
    )
    return follower


def _publish(
    recipe: Recipe,
    run: Path,
    tokenizer: Tokenizer,
    origin: ImportOrigin | None,
    several_sentences: float | None,
    weights: Mapping[str, Tensor],
    step: int,
    scores: Mapping[str, float],
) -> None:
    """Makes the run directory a model directory with these weights, adapters merged."""
    start = recipe.start
    if recipe.adapter.rank:
        base = start.model, start.weights_hash
        save_adapter(run / ADAPTER, weights, recipe.model, recipe.adapter, base)
        weights = merged_weights(weights, recipe.model, recipe.adapter)
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
            origin=origin,
            labels=recipe.task.labels,
            several_sentences=several_sentences,
            start=StartOrigin(model=start.model, weights_hash=start.weights_hash)
            if start.model
            else None,
        ),
    )


def _open_loader(
    recipe: Recipe,
    corpora: Sequence[EncodedCorpus],
    tokenizer: Tokenizer,
    position: LoaderPosition,
    tokens_per_batch: int,
    *,
    is_shared: bool,
) -> BatchStream:
    if recipe.model.memory:
        return SegmentLoader(corpora[0], tokens_per_batch, position)
    return TrainingLoader(
        corpora,
        [corpus.weight for corpus in recipe.data.train],
        tokenizer,
        tokens_per_batch,
        recipe.training.seed,
        recipe.tokenizer.bpe_dropout,
        position,
        source_eos=recipe.model.ends_sources,
        target_bos=recipe.model.target_bos,
        target_eos=recipe.model.ends_targets,
        masking=training_of(recipe).masking(tokenizer),
        is_shared=is_shared,
    )


def choose_precision(recipe: Recipe, device_type: str) -> Precision:
    """Decides what "auto" means: the hardware's word, not a timing, so that runs repeat."""
    precision = recipe.training.precision
    if precision == "auto":
        return "bfloat16" if has_fast_bfloat16(device_type) else "float32"
    return "float32" if precision == "tf32" else precision


def notes_of_products(recipe: Recipe, precision: Precision, device_type: str) -> list[str]:
    """Says what float32 products are on this device, where another one has others."""
    if recipe.training.precision == "tf32":
        if device_type == "cpu":
            return ['training.precision = "tf32" has no effect without a GPU']
        return ["float32 products in TF32: factors are rounded to 10 bits"]
    if precision == "float32" and device_type != "cpu":
        faster = 'precision = "tf32" or "bfloat16" is several times faster'
        return [f"exact float32 products; {faster} where the GPU has it"]
    return []


def _run_tokenizer(
    recipe: Recipe, run: Path, progress: Progress, *, fresh: bool
) -> tuple[str, tuple[str, ...]]:
    """The run's own tokenizer if it is there already, so that a resumption cannot change it."""
    if not fresh and (run / TOKENIZER).is_file() and Checkpoints(run).steps():
        return read_tokenizer(run / TOKENIZER).to_json(), ()
    tokenizer = make_tokenizer(recipe, progress)
    return tokenizer.to_json(), tokenizer.notes


def check_recipe(recipe: Recipe, run: Path, more: str = ", or --fresh to start over") -> None:
    """Checks that a directory holds no model, or a run of this recipe."""
    if not has_run(run):
        if has_model(run):
            raise ArtifactError(f"{run}: holds a model but not a run; use another directory{more}")
        return
    keys = differing_keys(load_recipe(str(run / RECIPE)), recipe)
    if keys:
        raise RecipeError(
            f"{run}: the run was started with another recipe, {_list_keys(keys)}; use another "
            f"directory{more}"
        )


def _list_keys(keys: Sequence[str]) -> str:
    more = f" and {len(keys) - 5} more" if len(keys) > 5 else ""
    return f"{', '.join(keys[:5])}{more} {'differs' if len(keys) == 1 else 'differ'}"


def _open_run(recipe: Recipe, run: Path) -> dict[str, Any] | None:
    """Checks that the run can start or resume; returns the state of a finished one."""
    check_recipe(recipe, run)
    checkpoints = Checkpoints(run)
    steps = checkpoints.steps()
    try:
        state = checkpoints.load_state(steps[-1]) if steps else None
    except ArtifactError:  # a damaged checkpoint is training's to deal with: it has older ones
        return None
    if state is None or not state.is_finished:
        return None
    # Otherwise its model would be taken for one of the new data
    complete = completed_recipe(recipe)
    sides = training_of(recipe).sides(read_tokenizer(run / TOKENIZER), complete.task.labels)
    keys = [cache_key(corpus, complete.data, sides) for corpus in complete.data.train]
    check_data(state, [*keys, fingerprint(validation_pairs(complete))], _names(recipe))
    return state.to_json()


def _names(recipe: Recipe) -> list[str]:
    """Names the parts of the data in the order of their fingerprints."""
    return [*map(corpus_name, recipe.data.train), "data.valid"]


def _clear(run: Path) -> None:
    """Removes what an earlier run wrote, and nothing else that lies there."""
    for directory in ("checkpoints", TENSORBOARD, ADAPTER):
        remove_tree(run / directory)
    records = (RECIPE, TOKENIZER, METRICS, HEADS_LOG, PROBE, FREQUENCIES, DOUBT, LENS, IMPORTED)
    for name in (*records, CONFIG, WEIGHTS):
        (run / name).unlink(missing_ok=True)


def check_same_recipe(processes: Processes, recipe: Recipe, *, fresh: bool) -> None:
    """Compares what this process was started with with what the first one was."""
    # Machines may hold different versions of a recipe. With other learning rates their weights
    # would drift apart in silence, and with other limits some would wait for the others for ever.
    own: dict[str, Any] = {"recipe": recipe.to_mapping(), "fresh": fresh}
    first = processes.first(lambda: own)
    if processes.is_first:
        return
    keys = differing_keys(make_recipe(first["recipe"], "the first process"), recipe, MACHINE_KEYS)
    if keys:
        raise RecipeError(
            f"process {processes.rank} has another recipe than the first: {_list_keys(keys)}; "
            "use the same recipe and options on every machine"
        )
    if first["fresh"] != fresh:
        raise UsageError.of(
            "{fresh}: process {} and the first one disagree; start all "
            "processes with the same options",
            processes.rank,
        )
