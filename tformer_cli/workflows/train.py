"""Training a model by a recipe, from raw text to a model directory."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from torch import Tensor

from tformer_cli.artifacts.atomic import make_directory, remove_tree, write_text
from tformer_cli.artifacts.lock import locked
from tformer_cli.artifacts.model_directory import ModelInfo, save_model_directory
from tformer_cli.data.corpora import SentencePair, corpus_name, read_corpus
from tformer_cli.data.encoded import EncodedCorpus, encode_corpus
from tformer_cli.data.loader import LoaderPosition, TrainingLoader
from tformer_cli.data.tokenizer import Tokenizer
from tformer_cli.data.train_tokenizer import train_tokenizer
from tformer_cli.errors import DataError, RecipeError, UsageError
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
from tformer_cli.training.checkpoints import Checkpoints
from tformer_cli.training.events import RunStarted, TrainingObserver
from tformer_cli.training.metrics_log import MetricsLog
from tformer_cli.training.signals import stop_requests
from tformer_cli.training.state import TrainingState, seed_everything
from tformer_cli.training.trainer import Trainer
from tformer_cli.training.validation import Validator

RECIPE, TOKENIZER, METRICS = "recipe.toml", "tokenizer.json", "metrics.jsonl"
Progress = Callable[[str, int], None]
"""Is told what is being prepared, and how many sentence pairs of it are done."""


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
    make_directory(run)
    with locked(run):
        if fresh:
            _clear(run)
        _check_recipe(recipe, run)
        checkpoints = Checkpoints(run)
        finished = _finished_state(checkpoints)
        if finished is not None:
            return TrainingResult(run=run, was_finished=True, state=finished)
        write_text(run / RECIPE, recipe.to_toml())
        trainer, started = _prepare(recipe, run, device, threads, progress or _ignore)
        trainer.resume()
        log = MetricsLog(run / METRICS, trainer.state.step)
        trainer.observers = [log, *observers]
        with stop_requests() as stop:
            trainer.run(started, stop)
        return TrainingResult(run=run, was_finished=False, state=trainer.state)


def has_run(run: Path) -> bool:
    """Says whether a directory holds a run, finished or not."""
    return (run / RECIPE).is_file()


def read_pairs(
    recipe: Recipe, which: str, limit: int = 0, progress: Progress | None = None
) -> list[SentencePair]:
    """Reads the sentence pairs of the recipe's "train" or "valid" corpora (0: all)."""
    pairs: list[SentencePair] = []
    for corpus in getattr(recipe.data, which):
        for pair in read_corpus(corpus, recipe.data.directory):
            if limit and len(pairs) == limit:
                return pairs
            pairs.append(pair)
            if progress and len(pairs) % 1000 == 0:
                progress(f"reading {which}", len(pairs))
    return pairs


def make_tokenizer(recipe: Recipe, progress: Progress | None = None) -> Tokenizer:
    """Opens the recipe's tokenizer, or trains it on both sides of the training corpora."""
    if recipe.tokenizer.path:
        path = Path(recipe.data.directory) / recipe.tokenizer.path
        tokenizer = Tokenizer.from_file(path / TOKENIZER if path.is_dir() else path)
        if recipe.tokenizer.bpe_dropout and tokenizer.algorithm != "bpe":
            raise RecipeError(
                f"tokenizer.bpe_dropout: needs a BPE tokenizer, but {recipe.tokenizer.path} is "
                f'"{tokenizer.algorithm}"'
            )
        return tokenizer
    return train_tokenizer(_both_sides(recipe, progress or _ignore), recipe.tokenizer)


def _both_sides(recipe: Recipe, progress: Progress) -> Iterator[str]:
    n_pairs = 0
    for corpus in recipe.data.train:
        for pair in read_corpus(corpus, recipe.data.directory):
            yield pair.source
            yield pair.target
            n_pairs += 1
            if n_pairs % 1000 == 0:
                progress("training the tokenizer", n_pairs)


def _prepare(
    recipe: Recipe, run: Path, device_name: str, threads: int, progress: Progress
) -> tuple[Trainer, RunStarted]:
    try:
        device = resolve_device(device_name)
        set_threads(threads)
    except ValueError as error:
        raise UsageError(f"--device or --threads: {error}") from None
    prepare_cpu()
    tokenizer = _run_tokenizer(recipe, run, progress)
    corpora = _encoded_corpora(recipe, tokenizer, progress)
    precision = choose_precision(recipe, device.type)
    seed_everything(recipe.training.seed)
    model = Transformer(recipe.model, tokenizer.vocab_size).to(device)
    valid = read_pairs(recipe, "valid", recipe.validation.max_sentences, progress)
    if recipe.data.valid and not valid:
        raise DataError("data.valid: holds no sentence pairs; name another corpus")
    decoding = replace(recipe.decoding, beam_size=recipe.validation.beam_size, n_best=1)

    def publish(weights: dict[str, Tensor], step: int, scores: dict[str, float]) -> None:
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

    def open_loader(position: LoaderPosition) -> TrainingLoader:
        return TrainingLoader(
            corpora,
            [corpus.weight for corpus in recipe.data.train],
            tokenizer,
            recipe.training.tokens_per_batch,
            recipe.training.seed,
            recipe.tokenizer.bpe_dropout,
            position,
        )

    trainer = Trainer(
        model=model,
        config=recipe.training,
        validation=recipe.validation,
        loader=open_loader,
        validator=(Validator(valid, tokenizer, decoding, device, precision) if valid else None),
        checkpoints=Checkpoints(run),
        publish=publish,
        observers=(),
        device=device,
        precision=precision,
        fingerprints=[corpus.fingerprint for corpus in corpora],
    )
    started = RunStarted(
        step=0,
        n_parameters=parameter_count(recipe.model, tokenizer.vocab_size),
        device=str(device),
        precision=precision,
        n_pairs=sum(len(corpus) for corpus in corpora),
        vocab_size=tokenizer.vocab_size,
        batches_per_epoch=0,
        notes=tuple(_notes(recipe, corpora)),
    )
    return trainer, started


def choose_precision(recipe: Recipe, device_type: str) -> Precision:
    """Decides what "auto" means: the hardware's word, not a timing, so that runs repeat."""
    asked = recipe.training.precision
    if asked != "auto":
        return asked
    return "bfloat16" if has_fast_bfloat16(device_type) else "float32"


def _run_tokenizer(recipe: Recipe, run: Path, progress: Progress) -> Tokenizer:
    """The run's own tokenizer if it is there already, so that a resumption cannot change it."""
    if (run / TOKENIZER).is_file() and Checkpoints(run).steps():
        return Tokenizer.from_file(run / TOKENIZER)
    tokenizer = make_tokenizer(recipe, progress)
    write_text(run / TOKENIZER, tokenizer.to_json())
    return tokenizer


def _encoded_corpora(
    recipe: Recipe, tokenizer: Tokenizer, progress: Progress
) -> list[EncodedCorpus]:
    corpora = []
    for corpus in recipe.data.train:
        name = corpus_name(corpus)
        encoded = encode_corpus(
            corpus, recipe.data, tokenizer, lambda n, name=name: progress(f"encoding {name}", n)
        )
        corpora.append(encoded)
    if not sum(len(corpus) for corpus in corpora):
        raise DataError("data.train: no sentence pair is left after filtering; check the corpora")
    return corpora


def _notes(recipe: Recipe, corpora: Sequence[EncodedCorpus]) -> Iterator[str]:
    reasons = {
        "blank": "blank on a side",
        "too_long": f"over {recipe.data.max_length} tokens",
        "ratio": f"length ratio over {recipe.data.max_length_ratio:g}",
    }
    for config, corpus in zip(recipe.data.train, corpora, strict=True):
        dropped = [f"{n:,} {reasons.get(why, why)}" for why, n in corpus.dropped.items() if n]
        left_out = f"; left out: {', '.join(dropped)}" if dropped else ""
        cached = ", from the cache" if corpus.from_cache else ""
        yield f"{corpus_name(config)}: {len(corpus):,} pairs{cached}{left_out}"


def _check_recipe(recipe: Recipe, run: Path) -> None:
    if not has_run(run):
        return
    keys = differing_keys(load_recipe(str(run / RECIPE)), recipe)
    if keys:
        shown = ", ".join(keys[:5]) + (f" and {len(keys) - 5} more" if len(keys) > 5 else "")
        raise RecipeError(
            f"the run was begun with another recipe ({run}): {shown} differ; "
            "use another directory, or --fresh to start over"
        )


def _finished_state(checkpoints: Checkpoints) -> TrainingState | None:
    steps = checkpoints.steps()
    state = checkpoints.load_state(steps[-1]) if steps else None
    return state if state is not None and state.is_finished else None


def _clear(run: Path) -> None:
    """Removes what an earlier run wrote, and nothing else that lies there."""
    remove_tree(run / "checkpoints")
    for name in (RECIPE, TOKENIZER, METRICS, "config.json", "model.safetensors"):
        (run / name).unlink(missing_ok=True)


def _ignore(what: str, n_pairs: int) -> None:
    """Takes no notice of progress."""
