"""Before a run: a plan from a sample of its data, or a profile of some steps."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tformer_cli.errors import DataError
from tformer_cli.files.atomic import scratch_directory
from tformer_cli.kinds import training_of
from tformer_cli.kinds.kind import Progress
from tformer_cli.model.config import ModelConfig
from tformer_cli.model.weight_shapes import parameter_count
from tformer_cli.recipe import Recipe
from tformer_cli.sockets import load_place
from tformer_cli.text.batching import collate, plan_batches
from tformer_cli.text.blocks import TextStream
from tformer_cli.text.corpora import SentencePair, read_corpus
from tformer_cli.text.lines import LineCounts
from tformer_cli.text.loading.loader import n_rows
from tformer_cli.text.tokenizer import PAD_ID, Tokenizer
from tformer_cli.text.train_tokenizer import train_sides
from tformer_cli.train.data import completed_recipe, make_tokenizer, validation_pairs
from tformer_cli.train.start import check_start
from tformer_cli.wording import is_blank

if TYPE_CHECKING:
    from tformer_cli.plugins.instruments.profiling import StepProfile

PROFILE_STEPS = "tformer_cli.plugins.instruments.profiling:profile_steps"
SAMPLE = 2000

# Tokens of the batches shown where the run itself will find out how many fit in memory.
UNKNOWN_BUDGET = 4096


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Estimates for a run from a sample of its data."""

    tokenizer: str
    """The tokenizer that cut the sample, in words."""
    n_parameters: int
    """Trainable parameters, if the vocabulary reaches its full size."""
    vocab_size: int
    """Entries of the vocabulary."""
    source_tokens: float
    target_tokens: float
    batch_shapes: tuple[tuple[int, int, int], ...]
    """(B, S, T) of some batches."""
    sentences_per_batch: float
    padding: float
    example: tuple[SentencePair, list[str], list[str]]
    doubts: tuple[str, ...] = ()
    image: ModelConfig | None = None
    """Settings of a model of images, with the size of those; None: it reads texts."""

    def lines(self) -> Iterator[str]:
        if self.image is not None:
            yield from self._lines_of_patches(self.image)
            return
        yield f"parameters: {self.n_parameters:,} with a vocabulary of {self.vocab_size:,}"
        yield (
            f"tokens per sentence, by {self.tokenizer}: {self.source_tokens:.1f} source, "
            f"{self.target_tokens:.1f} target"
        )
        shapes = ", ".join(f"{b}×({s}, {t})" for b, s, t in self.batch_shapes)
        yield f"batches, sentences×(source, target) positions: {shapes}"
        yield f"sentences per batch: {self.sentences_per_batch:.0f}; padding: {self.padding:.1%}"
        pair, source, target = self.example
        yield f"source: {pair.source}"
        yield f"  as tokens: {' '.join(source)}"
        yield f"target: {pair.target}"
        yield f"  as tokens: {' '.join(target)}"

    def _lines_of_patches(self, model: ModelConfig) -> Iterator[str]:
        height, width, channels = model.image_size
        rows, columns = model.grid
        mean, std = (
            [f"{value:.3f}" for value in values] for values in (model.image_mean, model.image_std)
        )
        yield f"parameters: {self.n_parameters:,} with {model.n_labels:,} labels"
        yield (
            f"images: {height}×{width} pixels, {channels} channel{'s'[: channels > 1]}, mean "
            f"{' '.join(mean)}, deviation {' '.join(std)}; {rows}×{columns} patches of "
            f"{model.patch_size}×{model.patch_size} are the tokens"
        )
        shapes = ", ".join(f"{b}×{s}" for b, s, _ in self.batch_shapes)
        yield f"batches, images×patches: {shapes}; {self.sentences_per_batch:.0f} images on average"
        yield f"example: {self.example[0].source}, {self.example[0].target}"


def plan_training(recipe: Recipe) -> Plan:
    """Batches a sample of every corpus as training would."""
    check_start(recipe)
    training, recipe = training_of(recipe), completed_recipe(recipe)
    counts = LineCounts()
    sample = list(_sample(recipe, counts))
    # Trained on the sample where the recipe names none: close enough to estimate lengths
    tokenizer = _sample_tokenizer(recipe, sample)
    sides = training.sides(tokenizer, recipe.task.labels)
    encoded = _encode(recipe, sides, sample)
    per_token = sides.source.ids_per_token
    kept = [
        (source, target)
        for source, target in encoded
        if max(len(source) // per_token, len(target)) <= recipe.data.max_length
    ]
    if not kept:
        raise DataError("data.train: no usable sentence pair at its start; check the corpora")
    lengths = np.array([[len(ids) // per_token, len(to)] for ids, to in kept], dtype=np.int32)
    # 0 means that the run measures what fits into memory, which a dry run does not
    tokens_per_batch = recipe.training.tokens_per_batch or UNKNOWN_BUDGET
    batches = [
        collate(
            [kept[i][0] for i in indices],
            [kept[i][1] for i in indices],
            source_eos=recipe.model.ends_sources,
            target_bos=recipe.model.target_bos,
            target_eos=recipe.model.ends_targets,
            ids_per_token=per_token,
        )
        for indices in _plan_batches(recipe, lengths, tokens_per_batch)
    ]
    n_tokens = sum(batch.n_source_tokens + batch.n_target_tokens for batch in batches)
    vocab_size = _vocab_size(recipe, tokenizer)
    return Plan(
        tokenizer=f"the tokenizer of {recipe.tokenizer.path}"
        if recipe.tokenizer.path
        else f"a tokenizer trained on the first {len(sample):,} pairs",
        n_parameters=parameter_count(recipe.model, vocab_size),
        vocab_size=vocab_size,
        source_tokens=float(lengths[:, 0].mean()),
        target_tokens=float(lengths[:, 1].mean()),
        batch_shapes=tuple((*b.source_mask.shape, b.target_input.shape[1]) for b in batches[:3]),
        sentences_per_batch=len(kept) / len(batches),
        padding=1.0 - n_tokens / sum(batch.n_cells for batch in batches),
        doubts=(*training.doubts(recipe), *_count_broken(counts)),
        image=None if training.examples.are_texts else recipe.model,
        example=(
            sample[0],
            sides.source.pieces(encoded[0][0]),
            sides.target.pieces([token for token in encoded[0][1] if token != PAD_ID]),
        ),
    )


def _plan_batches(
    recipe: Recipe, lengths: NDArray[np.int32], tokens_per_batch: int
) -> Sequence[NDArray[np.int64]]:
    """The members of each batch, given (N, 2) source and target tokens."""
    if recipe.model.memory:
        n = n_rows(len(lengths), int(lengths.max()), tokens_per_batch)
        return np.split(np.arange(len(lengths)), range(n, len(lengths), n))
    return plan_batches(lengths[:, 0], lengths[:, 1], tokens_per_batch, seed=1, epoch=0)


def _count_broken(counts: LineCounts) -> Iterator[str]:
    """Counts the lines of the sample that are not UTF-8; a run counts them in all lines."""
    if counts.not_utf8:
        read = f"of the {counts.lines:,} lines that were looked at {counts.not_utf8:,}"
        yield f"data.train: {read} are not UTF-8; they would be read as U+FFFD"


def _sample(recipe: Recipe, counts: LineCounts) -> Iterator[SentencePair]:
    """The first pairs of each training corpus; those for validation need only be usable."""
    validation_pairs(recipe)
    share = -(-SAMPLE // len(recipe.data.train))
    for corpus in recipe.data.train:
        for pair in islice(read_corpus(corpus, recipe.data.directory, counts), share):
            if (corpus.is_text or not is_blank(pair.source)) and not is_blank(pair.target):
                yield pair


def _encode(
    recipe: Recipe, tokenizer: Tokenizer, sample: Sequence[SentencePair]
) -> list[tuple[list[int], list[int]]]:
    """The ids of both sides of each example; a stream's examples are blocks."""
    if recipe.data.text == "stream":
        stream = TextStream(tokenizer.target, recipe.data.max_length)
        blocks = [*stream.add(pair.target for pair in sample), stream.rest()]
        return [([], block) for block in blocks if block]
    sources, targets = [pair.source for pair in sample], [pair.target for pair in sample]
    # Not side by side: labels of words belong to the words' first tokens
    return list(zip(*tokenizer.encode_pairs(sources, targets), strict=True))


def _sample_tokenizer(recipe: Recipe, sample: list[SentencePair]) -> Tokenizer:
    """The recipe's tokenizer if it names one, else one trained only on the sample."""
    training = training_of(recipe)
    if recipe.tokenizer.path or not training.examples.are_texts:
        return make_tokenizer(recipe)
    if not sample:
        raise DataError("data.train: has no sentence pairs; name another corpus")
    texts = [tuple(training.texts(pair)) for pair in sample]
    return train_sides(lambda: texts, recipe.tokenizer)


def _vocab_size(recipe: Recipe, tokenizer: Tokenizer) -> int:
    """The size the recipe asks for, where the data decide whether it is reached."""
    is_asked_for = (
        training_of(recipe).examples.are_texts
        and not recipe.tokenizer.path
        and recipe.tokenizer.algorithm not in ("byte", "char")
    )
    return recipe.tokenizer.vocab_size if is_asked_for else tokenizer.vocab_size


def profile_training(
    recipe: Recipe,
    n_steps: int,
    *,
    device: str = "auto",
    progress: Progress | None = None,
) -> "StepProfile":
    """Runs some steps on the recipe's data, as training would, and measures them."""
    # A plan does without all that trains
    from tformer_cli.train.train import prepare, settle_batches
    from tformer_cli.trainer.hardware import training_device
    from tformer_cli.trainer.processes.group import Processes
    from tformer_cli.trainer.processes.launch import Launch

    # Nothing is left but the tokenized corpora in the cache, which training will find there
    with scratch_directory() as directory:
        place = training_device(device, Launch())
        prepared = prepare(recipe, directory, place, Processes(), progress)
        settle_batches(recipe, prepared)
        n_words = prepared.tokenizer.vocab_size
        profile: StepProfile = load_place(PROFILE_STEPS)(
            prepared.trainer, n_steps, vocab_size=n_words
        )
        return profile
