"""Settings of training and validation: the recipe's `[training]` and `[validation]` tables."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType
from typing import Annotated, Literal

from tformer_cli.artifacts.config_file import DEFAULT_KIND, TASKS, TaskKind
from tformer_cli.settings import (
    FRACTION,
    NOT_NEGATIVE,
    POSITIVE,
    SHARE,
    Limits,
    at_least,
    check_limits,
)

Optimizer = Literal["adam", "adamw", "muon", "normuon"]
Schedule = Literal["noam", "inverse_sqrt", "linear", "cosine", "constant"]
PrecisionChoice = Literal["auto", "float32", "tf32", "bfloat16"]
Averaging = Literal["last", "best", "ema", "none"]
Metric = Literal["bleu", "chrf", "accuracy", "macro_f1", "loss", "perplexity", "bits_per_byte"]
METRICS: Mapping[TaskKind, tuple[str, ...]] = MappingProxyType(
    {kind: row.metrics for kind, row in TASKS.items() if row.metrics}
)
"""Scores that validation may be judged by, for each task; the first is the default."""


@dataclass(frozen=True, kw_only=True)
class TaskConfig:
    """The task that the model is trained for: the recipe's `[task]` table."""

    kind: TaskKind = DEFAULT_KIND
    """"translate": a sentence to a sentence; "classify": a text to a label; "tag": each word of a
    text to a label; "language-model": a text from its beginning; "masked": hidden tokens of a text;
    "image": an image to a label."""
    labels: tuple[str, ...] = ()
    """Labels of a classifier, in the order that results list them (empty: those of the training
    data, sorted)."""

    def __post_init__(self) -> None:
        if self.kind not in METRICS:
            raise ValueError(f'kind: "{self.kind}" cannot be trained')
        if self.labels and not TASKS[self.kind].has_labels:
            *others, last = (f'"{kind}"' for kind, row in TASKS.items() if row.has_labels)
            names = f"{', '.join(others)} and {last}"
            raise ValueError(f'labels: are of {names}, but kind is "{self.kind}"')
        labels = [label.strip() for label in self.labels]
        if "" in labels or len(set(labels)) < len(labels):
            raise ValueError("labels: must differ, and none may be blank")


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """Training of a model, and its limits."""

    seed: Annotated[
        int,
        Limits(
            "at least 0 and below 2^63",
            {"minimum": 0, "exclusiveMaximum": 1 << 63},
        ),
    ] = 1
    """Seed of weights, batches, dropout and BPE-dropout."""
    tokens_per_batch: Annotated[int, at_least(0)] = 4096
    """Largest number of tokens in a batch on either side, padding included (0: as many as fit in
    memory; on a GPU learning rate and warm-up, given for 4,096 tokens, follow). Several processes
    share the batches of a step, so a step does not depend on their number."""
    accumulate: Annotated[int, at_least(1)] = 1
    """Gradient accumulation: batches whose gradients are summed for one step."""
    batch_growth: tuple[tuple[float, int], ...] = ()
    """Pairs [share of the run, factor]: from that point on, a step has `factor` times `accumulate`
    batches, as in `[[0.5, 2], [0.75, 4]]` (Smith et al. 2018)."""
    optimizer: Optimizer = "adam"
    """"adam" (Kingma & Ba 2015), "adamw", with decoupled weight decay (Loshchilov & Hutter 2019),
    or "muon" (Jordan et al. 2024; Liu et al. 2025) for the matrices of the layers and AdamW for
    the rest; "normuon" makes the rows of Muon's updates equally long (Li et al. 2025)."""
    learning_rate: Annotated[float, POSITIVE] = 1e-3
    """Peak learning rate; for "noam" the factor in front of the paper's formula."""
    beta1: Annotated[float, FRACTION] = 0.9
    """Adam's β₁."""
    beta2: Annotated[float, FRACTION] = 0.98
    """Adam's β₂."""
    epsilon: Annotated[float, POSITIVE] = 1e-9
    """Adam's ε."""
    momentum: Annotated[float, FRACTION] = 0.95
    """Muon's momentum ("muon" and "normuon" only)."""
    weight_decay: Annotated[float, NOT_NEGATIVE] = 0.0
    """Weight decay of matrices (not for "adam")."""
    cautious_decay: bool = False
    """Weights decay only where the update makes them smaller, too (Chen et al. 2025)."""
    zero_outputs: bool = False
    """The last matrices of attention and feed-forward layers, W_O and W₂, begin at 0: each pre-norm
    layer begins as the identity (Zhang et al. 2019)."""
    schedule: Schedule = "inverse_sqrt"
    """"noam" is the paper's formula, "inverse_sqrt" the same curve with its peak at
    `learning_rate`; "linear" and "cosine" fall to 0 at the run's limit; "constant" stays."""
    warmup_steps: Annotated[int, at_least(0)] = 4000
    """Warm-up: steps in which the learning rate rises linearly from 0."""
    warmup_share: Annotated[float, SHARE] = 0.1
    """Largest share of `max_minutes` that warm-up takes, where that is set."""
    label_smoothing: Annotated[float, FRACTION] = 0.1
    """Label smoothing ε_ls (the paper, section 5.4)."""
    r_drop: Annotated[float, NOT_NEGATIVE] = 0.0
    """R-Drop's α: each batch goes through dropout twice, and α times the divergence of the two
    predictions is added to the loss (Liang et al. 2021 use 5 for translation). A step takes twice
    as long (0: off)."""
    clip_norm: Annotated[float, NOT_NEGATIVE] = 1.0
    """Gradient clipping: gradients with a larger norm are scaled down to it (0: off)."""
    shard_optimizer: bool = False
    """Divide the optimizer's state among the processes (Rajbhandari et al. 2020, stage 1); the
    result does not change."""
    shard_weights: bool = False
    """Divide weights, gradients and the optimizer's state among the processes, for models that do
    not fit otherwise (torch's FSDP2, after Rajbhandari et al. 2020, stage 3); steps take longer."""
    precision: PrecisionChoice = "auto"
    """Mixed precision: "bfloat16" multiplies matrices in bfloat16 and keeps the weights in float32;
    "auto" uses it where the processor multiplies bfloat16 in hardware. "float32" is exact; "tf32"
    lets a GPU round the factors of float32 products to 10 bits, which is several times faster."""
    compile: Literal["auto"] | bool = "auto"
    """Use torch.compile on a GPU; this takes a minute or two before the first step. "auto" does so
    for runs that are expected to take over ten minutes. On a CPU tformer has its own kernels."""
    activation_checkpointing: bool = False
    """Keep only what enters each layer for the backward pass, which computes the rest again (Chen
    et al. 2016): less memory, a step takes about a third longer, and the result does not change."""
    max_steps: Annotated[int, at_least(0)] = 0
    """Stop after this many steps (0: no limit)."""
    max_epochs: Annotated[int, at_least(0)] = 0
    """Stop after this many passes over the corpora (0: no limit)."""
    max_tokens: Annotated[int, at_least(0)] = 0
    """Stop after this many target tokens (0: no limit)."""
    max_minutes: Annotated[float, NOT_NEGATIVE] = 0.0
    """Stop after this many minutes of training, validation and the last checkpoint included (0: no
    limit). How long they take is measured, at half of the time at the latest."""
    report_every: Annotated[int, at_least(1)] = 50
    """Steps between two progress reports."""
    checkpoint_every: Annotated[int, at_least(1)] = 1000
    """Steps between two checkpoints; one is also written at each validation and at the end."""
    inspect_every: Annotated[int, at_least(0)] = 0
    """Steps between two measurements of all heads on the first 32 validation pairs, texts, images
    or blocks of a stream, for `inspect-heads --over-time` (0: off). Training itself does not
    change."""
    keep_last: Annotated[int, at_least(1)] = 2
    """Number of newest checkpoints to keep."""
    keep_best: Annotated[int, at_least(0)] = 1
    """Number of best checkpoints, by `validation.metric`, to keep besides."""
    average: Averaging = "last"
    """"last" and "best" average the weights of checkpoints for the final model (the paper, section
    6.1), unless the best checkpoint scores better; "ema" keeps a moving average of the weights,
    which is what is validated and published; "none" takes the best validated, else the last."""
    average_checkpoints: Annotated[int, at_least(1)] = 5
    """How many checkpoints are averaged ("last" and "best" only)."""
    ema_decay: Annotated[float, FRACTION] = 0.999
    """Decay of the moving average; at step t at most (1 + t) / (10 + t) ("ema" only;
    Polyak & Juditsky 1992, Morales-Brogi et al. 2024)."""
    max_rollbacks: Annotated[int, at_least(0)] = 3
    """Consecutive rollbacks to the last good checkpoint, each with half the learning rate, after
    which a run whose loss is NaN, infinite or diverging stops (0: stop at once)."""

    def __post_init__(self) -> None:
        check_limits(self)
        if self.weight_decay and self.optimizer == "adam":
            raise ValueError(
                'weight_decay: needs optimizer = "adamw", "muon" or "normuon", but optimizer is '
                '"adam"'
            )
        if self.cautious_decay and not self.weight_decay:
            raise ValueError("cautious_decay: needs weight_decay above 0; set it, or omit this")
        is_muon = self.optimizer in ("muon", "normuon")
        if self.momentum != TrainingConfig.momentum and not is_muon:
            raise ValueError(
                'momentum: needs optimizer = "muon" or "normuon", but optimizer is '
                f'"{self.optimizer}"'
            )
        if self.ema_decay != TrainingConfig.ema_decay and self.average != "ema":
            raise ValueError(f'ema_decay: needs average = "ema", but average is "{self.average}"')
        self._check_batch_growth()
        self._check_shards()
        if self.schedule in ("linear", "cosine") and not self.has_limit:
            raise ValueError(
                f'schedule: "{self.schedule}" falls to 0 at the end of the run; give max_steps, '
                "max_epochs, max_tokens or max_minutes"
            )

    def _check_batch_growth(self) -> None:
        if self.batch_growth and not self.has_limit:
            raise ValueError(
                "batch_growth: needs to know where the run ends; give max_steps, max_epochs, "
                "max_tokens or max_minutes"
            )
        before = 0.0
        for share, factor in self.batch_growth:
            if not before < share < 1.0:
                raise ValueError(
                    f"batch_growth: shares must rise between 0 and 1, but {share} follows {before}"
                )
            if factor < 1:
                raise ValueError(f"batch_growth: factors must be at least 1, but one is {factor}")
            before = share

    def _check_shards(self) -> None:
        """Refuses what works only with whole weights, or was not tried with parts of them."""
        others = {
            f'optimizer = "{self.optimizer}"': self.optimizer not in ("adam", "adamw"),
            "cautious_decay": self.cautious_decay,
            'average = "ema"': self.average == "ema",
            "compile": self.compile is True,
            "inspect_every": self.inspect_every,
            "tokens_per_batch = 0": not self.tokens_per_batch,
        }
        for name, is_set in others.items():
            if self.shard_weights and is_set:
                raise ValueError(f"shard_weights: does not work with {name}; omit one of them")

    @property
    def has_limit(self) -> bool:
        return bool(self.max_steps or self.max_epochs or self.max_tokens or self.max_minutes)

    @property
    def mean_growth(self) -> float:
        """Mean factor of `batch_growth` over the steps of a run."""
        points = [(0.0, 1), *self.batch_growth, (1.0, 1)]
        return sum((end - start) * factor for (start, factor), (end, _) in pairwise(points))

    @property
    def n_passes(self) -> int:
        return 2 if self.r_drop else 1

    @property
    def n_kept_for_average(self) -> tuple[int, int]:
        """Numbers of the last and of the best checkpoints that the run keeps."""
        last = self.average_checkpoints if self.average == "last" else 1
        best = self.average_checkpoints if self.average == "best" else 0
        return max(self.keep_last, last), max(self.keep_best, best)


@dataclass(frozen=True, kw_only=True)
class StartConfig:
    """Weights that a run starts from: the keys `from`, `from_hash` and `frozen` of `[model]`."""

    model: str = ""
    """Model directory whose weights, shape and tokenizer the run takes, or a model that is
    imported first (empty: random weights)."""
    weights_hash: str = ""
    """SHA-256 of its weights file; a run records it, and other weights are refused."""
    frozen: tuple[str, ...] = ()
    """Patterns of the weights that are not trained, such as `"encoder.*"`: names as in
    `model.safetensors`, or of the part that they are in."""


@dataclass(frozen=True, kw_only=True)
class ValidationConfig:
    """Validation of a run while it trains."""

    every: Annotated[int, at_least(1)] = 1000
    """Steps between two validations."""
    metric: Metric = "bleu"
    """The metric of "best": "bleu", "chrf", "loss" or "perplexity" of a translation; "accuracy",
    "macro_f1" or "loss" of a classifier, whose default is "accuracy"; "loss", "perplexity" or
    "bits_per_byte" of a language model."""
    patience: Annotated[int, at_least(0)] = 0
    """Stop after this many validations in a row without a new best (0: never)."""
    beam_size: Annotated[int, at_least(1)] = 1
    """Beam of the validation's translations; 1 is greedy."""
    max_sentences: Annotated[int, at_least(0)] = 0
    """Validate on this many pairs, the first ones (0: all)."""

    def __post_init__(self) -> None:
        check_limits(self)

    @property
    def higher_is_better(self) -> bool:
        """True if a larger value of the metric is the better one."""
        return self.metric not in ("loss", "perplexity", "bits_per_byte")
