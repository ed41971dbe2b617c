"""The settings of a recipe for a corpus, chosen by its size and the limits of the run.

Each choice comes with its reason. Measured numbers are those of recipes/README.md, on two processor
cores; otherwise the reason names a paper or says that nothing was measured.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import tomli_w

from tformer_cli.artifacts.config_file import HEADS
from tformer_cli.model.config import PRESETS, ModelConfig, Precision
from tformer_cli.settings import type_problem
from tformer_cli.trainer.config import TrainingConfig
from tformer_cli.wording import count_of, visible

# Bytes of UTF-8 a token of a joint BPE vocabulary has: 4.5 letters of English or German, one and a
# half Chinese characters.
BYTES_PER_TOKEN = 4.5
FULL_BATCH = 0.95
"""Share of a batch's budget that target tokens fill."""
REST = 64.0
"""Time of all but matrix products, times D, per time of these in float32: norms, softmax and losses
grow with D, products with D². 55 to 70 were measured for D = 128 and 256, 70 to 100 for 512."""
NEARLY = 0.99
"""Share of a limit from which on it is reached."""
MEASURED = ("tiny", "small")
SIZES = (("tiny", 100_000), ("small", 1_000_000), ("base", 1 << 62))
"""Presets, and the number of pairs from which on a larger one learns more."""
LONGEST = 24 * 60
"""Minutes that training on a processor may take where no limit is given."""
FEWEST_EPOCHS = 3
"""Passes over the text that a preset has to manage in the time; a smaller one learns more then."""
FEW_STEPS = 1500
"""Steps that a small corpus is trained for, however many epochs these are."""
MOST_EPOCHS = 60
SHORT, SHORT_OF_TINY = 1500, 4000
"""Steps below which a run is short. With a tiny model rotary positions, zeros in W_O and W₂ and a
rate of 8e-3 then reach more: French to German 36.1 instead of 32.8 BLEU after 1,265 steps and 36.0
instead of 33.4 after 1,742, English to German 40.3 after 3,160 where 4,740 without reach 39.2."""
TRUSTED = 10_000
"""Pairs below which no model learns to translate from random weights."""
STEPS_AN_EPOCH = 100
"""Steps that a pass over the text has at least where batches are larger for a GPU: a model learns
little from a few hundred steps, however large they are."""

FEW_EXAMPLES = 20_000
"""Labeled texts below which a classifier reads them more often."""


@dataclass(frozen=True, kw_only=True)
class CorpusSize:
    """The size of a corpus of pairs, or of texts with labels."""

    n_pairs: int
    """Pairs with text on both sides."""
    target_bytes: int
    """Tokens of the side that fills batches: the target, or texts with labels."""
    n_labels: int = 0
    """Different labels; none: the pairs are translations."""

    @property
    def target_tokens(self) -> float:
        """Estimates the tokens of that side before there is a tokenizer."""
        return self.target_bytes / BYTES_PER_TOKEN


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The limits that the user gives a run; 0: none."""

    minutes: float = 0.0
    steps: int = 0
    epochs: int = 0


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A value for a key of a recipe, and the reason for it."""

    key: str
    value: Any
    why: str = ""

    @property
    def written(self) -> str:
        """The last part of the key and the value, as a line of TOML."""
        name = self.key.rpartition(".")[2]
        if isinstance(self.value, list):  # a list of tables stays on one line: they are short
            tables = ", ".join(
                "{ " + ", ".join(f"{key} = {_toml(value)}" for key, value in table.items()) + " }"
                for table in self.value
            )
            return f"{name} = [{tables}]"
        return f"{name} = {_toml(self.value)}"


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """Quantities that the choices follow from: how far a run comes within its limits."""

    preset: str
    epochs: float
    """Expected passes over the text."""
    steps: float
    tokens_per_batch: int
    speed: float
    """Expected tokens a second, of the side that fills batches; 0: a GPU's, which is unknown."""
    batch_factor: float = 1.0
    """κ: how many times larger the batch is than the one that learning rates were tried with."""

    @property
    def usual_steps(self) -> float:
        """Steps over the same text with batches of the usual size."""
        return self.batch_factor * self.steps

    @property
    def is_short(self) -> bool:
        """True if the run has too few steps for what longer ones are made for."""
        return self.usual_steps < (SHORT_OF_TINY if self.preset == "tiny" else SHORT)


def given_limits(values: Mapping[str, Any]) -> Limits:
    """Finds the limits in a recipe's tables; other values are refused when the recipe is read."""
    training = values.get("training")
    keys = {"minutes": "max_minutes", "steps": "max_steps", "epochs": "max_epochs"}
    limits = {
        name: training[key]
        for name, key in keys.items()
        if isinstance(training, Mapping)
        and not type_problem(training.get(key), float if name == "minutes" else int)
    }
    return Limits(**{name: max(0, value) for name, value in limits.items()})


def estimate(
    size: CorpusSize,
    limits: Limits,
    *,
    on_gpu: bool,
    fine_tunes: bool = False,
    preset: str = "",
    precision: Precision = "bfloat16",
    gpu_memory: int = 0,
) -> Estimate:
    """Chooses preset and batch, and estimates how far the limits let a run come.

    A preset chosen by the user stays. Batches grow to what a GPU with `gpu_memory` free bytes needs
    to be busy (0: they do not grow).
    """
    if preset not in PRESETS:
        preset = _largest(size)
        # How much faster a GPU is was not measured: there the size of the text decides
        if not on_gpu:
            preset = _preset(size, limits, preset, precision)
    speed = 0.0 if on_gpu else measured_speed(size, preset, precision)
    tokens_per_batch = 2048 if size.n_pairs < 100_000 else 4096
    if size.n_pairs >= 1_000_000:
        tokens_per_batch = 8192
    if size.n_labels:
        tokens_per_batch = 1024
    usual_tokens = tokens_per_batch
    if gpu_memory:
        most = _gpu_tokens(size, preset, usual_tokens, gpu_memory, precision)
        tokens_per_batch = max(usual_tokens, most)
    # A text shorter than a batch is a step an epoch all the same
    per_epoch = max(1.0, size.target_tokens / (FULL_BATCH * tokens_per_batch))
    # The run ends at the first of them
    ends = [float(limits.epochs)] if limits.epochs else []
    if limits.steps:
        ends.append(limits.steps / per_epoch)
    # Where the speed is unknown, the usual number of passes is assumed
    if limits.minutes and speed:
        ends.append(60 * limits.minutes * speed / max(1.0, size.target_tokens))
        if not limits.epochs:
            ends.append(MOST_EPOCHS)
    factor = tokens_per_batch / usual_tokens
    epochs = min(ends) if ends else _usual_epochs(size, factor * per_epoch, fine_tunes=fine_tunes)
    return Estimate(
        preset=preset,
        epochs=epochs,
        steps=epochs * per_epoch,
        tokens_per_batch=tokens_per_batch,
        speed=speed,
        batch_factor=factor,
    )


def _gpu_tokens(
    size: CorpusSize, preset: str, usual_tokens: int, gpu_memory: int, precision: Precision
) -> int:
    """Computes the tokens of a batch that a GPU, the text and the rule of its rates allow."""
    # It takes torch, which a run on a GPU imports anyway
    from tformer_cli.trainer.batch_budget import FULL_GPU, expected_budget
    from tformer_cli.trainer.optimizers.schedule import LARGEST_FACTOR

    config, vocabulary = _model(size, preset)
    return int(
        min(
            FULL_GPU,
            expected_budget(config, vocabulary, precision, gpu_memory),
            LARGEST_FACTOR * usual_tokens,
            size.target_tokens / (FULL_BATCH * STEPS_AN_EPOCH),
        )
    )


def choose(
    size: CorpusSize, limits: Limits, reach: Estimate, *, fine_tunes: bool
) -> Iterator[Choice]:
    """Chooses the settings of a run; a run from a model takes shape and tokenizer from it."""
    if size.n_labels:
        yield from _classifier(size, limits, reach, fine_tunes=fine_tunes)
        return
    pairs = count_of(size.n_pairs, "pair")
    if not fine_tunes:
        vocabulary, why = _vocabulary(size)
        yield Choice(key="tokenizer.vocab_size", value=vocabulary, why=why)
        yield Choice(key="model.preset", value=reach.preset, why=_why_preset(size, reach))
        yield Choice(key="model.norm", value="pre", why="trains at higher learning rates")
        if reach.is_short:
            why = "learn more from few steps; sinusoidal ones can be exported to more formats"
            yield Choice(key="model.positions", value="rotary", why=why)
    dropout, why = _dropout(size, reach)
    yield Choice(key="model.dropout", value=dropout, why=why)
    yield Choice(
        key="training.optimizer", value="muon", why="learns more than Adam from the same steps"
    )
    if not fine_tunes and reach.is_short:
        why = "layers that begin as the identity learn more from few steps"
        yield Choice(key="training.zero_outputs", value=True, why=why)
    rate, why = (5e-4, "keeps what the model knows") if fine_tunes else _learning_rate(reach)
    yield from _rate_choices(reach, rate, why, f"for {pairs}")
    yield from _limit_choices(limits, reach)
    yield Choice(key="training.checkpoint_every", value=_clamp(20, reach.steps / 20, 500))
    yield Choice(key="training.average", value="last")
    yield Choice(key="training.average_checkpoints", value=3)
    # Rarely: a validation decodes for seconds, which a limit on the time counts
    yield Choice(key="validation.every", value=_clamp(100, reach.steps / 5, 1000))
    yield Choice(key="validation.max_sentences", value=500, why="enough to tell checkpoints apart")
    yield Choice(key="validation.metric", value="bleu")
    yield Choice(key="decoding.beam_size", value=5)
    yield Choice(key="decoding.length_penalty", value=1.0)


def _classifier(
    size: CorpusSize, limits: Limits, reach: Estimate, *, fine_tunes: bool
) -> Iterator[Choice]:
    """Chooses the settings of a text classifier: those of the recipe `trec`."""
    yield Choice(
        key="task.kind", value=HEADS["labels"], why=f"{size.n_labels} different lines are labels"
    )
    if fine_tunes:
        rate, optimizer = (1e-4, "adamw"), "keeps what the model knows"
        yield Choice(key="model.dropout", value=0.1)
        yield Choice(key="model.attention_dropout", value=0.1)
    else:
        vocabulary, why = _vocabulary(size)
        rate, optimizer = (2e-3, "muon"), "learns more than Adam from the same steps"
        yield Choice(key="tokenizer.vocab_size", value=min(vocabulary, 8000), why=why)
        yield Choice(key="model.preset", value=reach.preset, why="larger ones are untested")
        yield Choice(key="model.n_encoder_layers", value=2)
        yield Choice(key="model.norm", value="pre", why="trains at higher learning rates")
        yield Choice(key="model.dropout", value=0.3, why="learns words, not texts")
    yield Choice(key="training.optimizer", value=rate[1], why=optimizer)
    if fine_tunes:
        yield Choice(key="training.weight_decay", value=0.01)
    yield from _rate_choices(reach, rate[0], "from the recipe trec")
    yield Choice(key="training.label_smoothing", value=0.0)
    yield from _limit_choices(limits, reach)
    yield Choice(key="training.checkpoint_every", value=_clamp(20, reach.steps / 10, 500))
    yield Choice(key="training.average", value="none")
    yield Choice(key="validation.every", value=_clamp(20, reach.steps / 5, 1000))


def expectation(size: CorpusSize, limits: Limits, reach: Estimate, *, fine_tunes: bool) -> str:
    """Estimates the duration of the run and, where measured, its scores."""
    if size.n_labels:
        how = "from MiniLM, 82 from random weights" if fine_tunes else "so, and 96 % --from MiniLM"
        share = 96 if fine_tunes else 82
        return (
            f"5,000 questions (the recipe trec) gave {share} % {how}; a bag of words gives 85: "
            "`tformer guide classifying`"
        )
    # Other limits may end it sooner, which only a known speed can tell
    minutes = reach.epochs * size.target_tokens / reach.speed / 60 if reach.speed else math.inf
    is_limit = minutes > NEARLY * limits.minutes > 0.0
    time = "no time estimate for this GPU"
    if reach.speed or is_limit:
        time = f"about {_duration(min(minutes, limits.minutes or minutes))} of training"
        time += ", the limit" * is_limit
    if reach.speed:
        pace = f"{reach.speed:,.0f} target tokens a second of a {reach.preset} model"
        time += f", at {pace}, predicted from matrix products"
    if fine_tunes:
        reached = "`tformer guide training`, What to expect, shows what more text teaches a model"
    elif size.n_pairs < TRUSTED:
        reached = f"{size.n_pairs:,} pairs teach words, not a language: add text, or --from MODEL"
    elif reach.preset == "tiny" and 20_000 <= size.n_pairs <= 50_000 and reach.epochs >= 10:
        reached = (
            "29,000 image descriptions (multi30k-en-de-muon) gave 38.3 to 39.9 BLEU this way; "
            "other text is easier or harder"
        )
    else:
        reached = "no BLEU estimate for this amount of text and time"
    return f"expect {time}; {reached}"


def recipe_text(header: Sequence[str], choices: Sequence[Choice]) -> str:
    """Writes a recipe of the choices, with their reasons as comments."""
    lines, table = [f"# {visible(line)}" for line in header], ""
    for choice in choices:
        name = choice.key.partition(".")[0]
        if name != table:
            lines += ["", f"[{name}]"]
            table = name
        lines.append(f"{choice.written}  # {visible(choice.why)}" if choice.why else choice.written)
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:  # noqa: ANN401 - whatever a key holds
    return tomli_w.dumps({"x": value}).partition("=")[2].strip()


@cache
def measured_speed(size: CorpusSize, preset: str, precision: Precision) -> float:
    """Predicts the tokens a second of training on the CPU, from products measured for 0.4 s."""
    import torch

    from tformer_cli.trainer.speed import ProductProbe, training_flops_per_token

    config, vocabulary = _model(size, preset)
    device, length = torch.device("cpu"), size.target_tokens / size.n_pairs
    flops = training_flops_per_token(config, vocabulary, length, length)
    products, rest = (
        ProductProbe(config, vocabulary, device, name) for name in (precision, "float32")
    )
    products.measure()
    rest.measure()
    seconds = flops / products.rate + REST / config.d_model * flops / rest.rate
    # To a power of √2: two measurements differ, and the same machine should choose the same again
    return float(f"{2.0 ** (-round(2.0 * math.log2(seconds)) / 2.0):.2g}")


def _model(size: CorpusSize, preset: str) -> tuple[ModelConfig, int]:
    shape: dict[str, Any] = {**PRESETS[preset]}
    return ModelConfig(**shape), _vocabulary(size)[0]


def _preset(size: CorpusSize, limits: Limits, largest: str, precision: Precision) -> str:
    """The largest preset, or a smaller one that can read the text often enough in the time."""
    seconds = 60 * (limits.minutes or LONGEST)
    names = [name for name, _ in SIZES]
    for name in reversed(names[1 : names.index(largest) + 1]):
        if seconds * measured_speed(size, name, precision) >= FEWEST_EPOCHS * size.target_tokens:
            return name
    return names[0]


def _largest(size: CorpusSize) -> str:
    return next(name for name, most in SIZES if size.n_pairs < most or size.n_labels)


def _why_preset(size: CorpusSize, reach: Estimate) -> str:
    if reach.preset != (largest := _largest(size)):
        return f"{largest} would see too little text in the time"
    if reach.preset == "tiny":
        return "below 100,000 pairs, tiny models are better and faster"
    return "from 100,000 pairs on" if reach.preset == "small" else "from a million pairs on"


def _usual_epochs(size: CorpusSize, per_epoch: float, *, fine_tunes: bool) -> int:
    if size.n_labels and fine_tunes:
        return 5 if size.n_pairs < FEW_EXAMPLES else 3
    if size.n_labels:
        return 20 if size.n_pairs < FEW_EXAMPLES else 10
    if size.n_pairs >= 100_000:
        return 10
    return _clamp(20, FEW_STEPS / per_epoch, MOST_EPOCHS)


def _vocabulary(size: CorpusSize) -> tuple[int, str]:
    few = "fewer subwords for little text (Sennrich & Zhang 2019)"
    for most, vocabulary, why in (
        (2_000, 1000, few),
        (10_000, 2000, few),
        (20_000, 4000, few),
        (300_000, 8000, "suits 20,000 to 300,000 pairs"),
        (1_000_000, 16_000, "between 8,000 for 100,000 pairs and 32,000 for millions"),
    ):
        if size.n_pairs < most:
            return vocabulary, why
    return 32_000, "suits millions of pairs"


def _dropout(size: CorpusSize, reach: Estimate) -> tuple[float, str]:
    """Dropout by the number of passes: text read only once or twice cannot be overfitted."""
    if size.n_pairs >= 1_000_000:
        return 0.1, "suits millions of pairs"
    passes = f"about {reach.epochs:.0f}" if reach.epochs >= FEWEST_EPOCHS else "few"
    why = f"for {passes} passes over the text"
    for most, dropout in ((3, 0.0), (5, 0.05), (8, 0.1)):
        if reach.epochs < most:
            return dropout, why
    if reach.preset == "tiny":
        return (0.15 if reach.epochs <= 30 else 0.2), why
    return 0.2, why


def _rate_choices(
    reach: Estimate, rate: float, why_rate: str, why_tokens: str = ""
) -> Iterator[Choice]:
    """Chooses batch, learning rate and warm-up; larger batches change both by a rule."""
    warmup = _warmup(reach.usual_steps)
    if reach.batch_factor > 1.0:
        from tformer_cli.trainer.optimizers.schedule import scaled_to_batch

        usual = TrainingConfig(learning_rate=rate, warmup_steps=warmup)
        scaled = scaled_to_batch(usual, reach.batch_factor)
        rate, warmup = float(f"{scaled.learning_rate:.3g}"), scaled.warmup_steps
        times = f"{reach.batch_factor:.3g} times"
        why_rate += f", raised for batches of {times} the tokens (guide performance, Batches)"
        why_tokens = f"{why_tokens}, {times} as many as on a CPU: GPUs need them".lstrip(", ")
    yield Choice(key="training.learning_rate", value=rate, why=why_rate)
    yield Choice(key="training.tokens_per_batch", value=reach.tokens_per_batch, why=why_tokens)
    yield Choice(key="training.schedule", value="linear", why="falls to 0 at the limit")
    yield Choice(key="training.warmup_steps", value=warmup)


def _learning_rate(reach: Estimate) -> tuple[float, str]:
    why = f"best in tests of {_steps(reach)} with a {reach.preset} model"
    # The longer a run, the lower its best peak: high rates overfit in many passes
    if reach.preset not in MEASURED:
        return 2e-3, f"from small models: untested with Muon on a {reach.preset} model"
    if reach.preset == "tiny":
        return (8e-3 if reach.is_short else 5e-3), why
    if reach.usual_steps < 1000:
        return 8e-3, why
    return (6e-3 if reach.usual_steps < 2000 else 2e-3), why


def _steps(reach: Estimate) -> str:
    steps = reach.usual_steps
    return "few steps" if steps < 100 else f"about {steps:,.0f} steps"


def _limit_choices(limits: Limits, reach: Estimate) -> Iterator[Choice]:
    if limits.minutes:
        yield Choice(key="training.max_minutes", value=limits.minutes, why="--max-time")
    if limits.steps:
        yield Choice(key="training.max_steps", value=limits.steps, why="--max-steps")
    if limits.epochs:
        yield Choice(key="training.max_epochs", value=limits.epochs, why="--max-epochs")
    elif limits.minutes:
        why = "if the machine is fast, more passes only overfit"
        yield Choice(key="training.max_epochs", value=MOST_EPOCHS, why=why)
    elif not limits.steps:
        why = "passes over the text; --max-time 10m sets a time"
        yield Choice(key="training.max_epochs", value=round(reach.epochs), why=why)


def _warmup(steps: float) -> int:
    # A quarter at most: a shorter run would end before it reaches its learning rate
    return max(1, round(min(_clamp(40, steps / 80, 600), steps / 4)))


def _clamp(least: int, value: float, most: int) -> int:
    return round(min(max(value, least), most))


def _duration(minutes: float) -> str:
    if minutes < 90:
        return count_of(max(1, round(minutes)), "minute")
    if minutes < 48 * 60:
        return count_of(round(minutes / 60), "hour")
    return count_of(round(minutes / 60 / 24), "day")
