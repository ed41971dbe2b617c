"""Fine-tuning: a run that starts from the weights of a model, in its shape, with its tokenizer."""

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tformer_cli.artifacts.config_file import (
    DEFAULT_KIND,
    LARGEST_CONFIG,
    MODELS,
    TASKS,
    TOKENIZER,
    WEIGHTS,
    ConfigFile,
    ImportOrigin,
    TaskKind,
    read_config,
)
from tformer_cli.artifacts.model_directory import read_model_directory
from tformer_cli.errors import ArtifactError, DataError, RecipeError
from tformer_cli.files.regular_file import hash_file, read_regular
from tformer_cli.foreign.foreign_model import BANNED_BIAS
from tformer_cli.foreign.import_model import resolve_model
from tformer_cli.kinds import kind_named
from tformer_cli.model.adapter_config import adapted_parts
from tformer_cli.model.weight_shapes import is_fixed, parameter_shapes
from tformer_cli.recipe import Completion, Recipe, load_recipe, with_preset
from tformer_cli.structure import StructureError, structure
from tformer_cli.text.config import DataConfig
from tformer_cli.text.tokenizer import BOS_ID, Tokenizer, read_tokenizer
from tformer_cli.trainer.config import METRICS, StartConfig, TrainingConfig

if TYPE_CHECKING:
    from torch import Tensor

    from tformer_cli.model.base import Model

# Keys of `[model]` that a recipe may give with `from`: they do not affect stored weights.
FREE = ("dropout", "attention_dropout", "activation_dropout")
# The same where the run adds its own head to an encoder.
FREE_OF_HEADS = ("pooling", "pooler", "unit_length")
# Beginnings of the names of weights that belong to a head.
_HEAD_PREFIXES = ("output_", "pooler.", "transform.", "transform_norm.")
# Record of a run that starts from an imported model: what that was imported from.
IMPORTED = "imported.json"
# Share of the usual peak learning rate, and of the usual warm-up, in a run from trained weights.
# The usual peak is made for random weights. At that rate Adam's first steps, each about as long as
# the rate for every weight, carry trained weights out of their minimum, and what they knew has to
# be learned again. Warm-up is then needed only for Adam's moments, which β₂ = 0.98 settles in
# hundreds of steps.
PEAK_SHARE = 0.1
# The same of the rate in a run that trains adapters: they start at nothing and the trained weights
# stay, so that ten times the rate does what it does elsewhere (Schulman et al. 2025, "LoRA without
# regret").
ADAPTER_SHARE = 1.0


@dataclass(frozen=True, kw_only=True)
class StartSettings:
    """Settings that a run takes from the model that it starts from."""

    model: Mapping[str, Any]
    """The model's shape, the keys of `[model]`."""
    decoding: Mapping[str, Any]
    """Its defaults of translation, the keys of `[decoding]`."""
    algorithm: str
    normalization: str
    vocab_size: int
    weights_hash: str
    task: TaskKind = DEFAULT_KIND
    """The kind of the model or run."""
    labels: tuple[str, ...] = ()
    languages: Mapping[str, str] = field(default_factory=dict)
    """Its languages, the keys of `[data]`, as far as they are known."""


def completion(
    run: Path,
    say: Callable[[str], None],
    *,
    fresh: bool = False,
    kept: Collection[str] | None = None,
) -> Completion:
    # A run that has a checkpoint no longer needs the model: what it was is in the run's recipe.
    return partial(_complete_values, run=None if fresh else run, say=say, kept=kept)


def check_start(recipe: Recipe) -> None:
    """Checks that a recipe which starts from a model was completed, and what it freezes."""
    # A recipe with a teacher is not only for training.
    if recipe.is_distilled:
        raise RecipeError(
            "distillation: use `tformer distill RECIPE` to train a student, or omit the table"
        )
    frozen_names(recipe)
    if recipe.adapter.rank:
        try:
            adapted_parts(recipe.model, recipe.adapter.targets)
        except ValueError as error:
            raise RecipeError(f"adapter.targets: {error}") from None
    if recipe.start.model and not recipe.start.weights_hash:
        raise ArtifactError(
            f"model.from: the settings of {recipe.start.model} are missing; load the recipe with "
            "complete=completion(run, say)"
        )


def frozen_names(recipe: Recipe) -> set[str]:
    """Finds the weights that a run does not train: those of `model.frozen` and fixed positions."""
    names = set(parameter_shapes(recipe.model, 1))
    frozen = {name for name in names if is_fixed(recipe.model, name)}
    for pattern in recipe.start.frozen:
        matching = {n for n in names if fnmatchcase(n, pattern) or fnmatchcase(n, f"{pattern}.*")}
        if not matching:
            parts = ", ".join(sorted({name.partition(".")[0] for name in names}))
            raise RecipeError(
                f'model.frozen: no weight fits "{pattern}"; the model has {parts}, each with parts '
                'such as "encoder.layers.0.*"'
            )
        frozen |= matching
    if frozen == names:
        raise RecipeError("model.frozen: leaves no weight to train; omit a pattern")
    return frozen


def freeze(model: "Model", recipe: Recipe) -> list[str]:
    """Keeps a model's frozen weights as they are: without gradient and optimizer state."""
    notes = []
    if recipe.start.model:
        training = recipe.training
        rate, warmup = f"{training.learning_rate:g}", f"{training.warmup_steps:,}"
        notes = [f"fine-tuning {recipe.start.model}: learning rate {rate}, warm-up {warmup} steps"]
    parameters = dict(model.named_parameters())
    n_all = sum(parameter.numel() for parameter in parameters.values())
    if recipe.adapter.rank:
        n_trained = sum(p.numel() for p in parameters.values() if p.requires_grad)
        return [*notes, f"adapters of rank {recipe.adapter.rank} train {n_trained:,} parameters"]
    frozen = frozen_names(recipe)
    kept = [parameter for name, parameter in parameters.items() if name in frozen]
    for parameter in kept:
        parameter.requires_grad = False
    from tformer_cli.model.transformer import Transformer

    if recipe.start.model and isinstance(model, Transformer):
        _keep_start_of_zeros(model.target_matrix)
    if not recipe.start.frozen:
        return notes
    n_kept = sum(parameter.numel() for parameter in kept)
    return [*notes, f"model.frozen keeps {n_kept:,} of {n_all:,} parameters as they are"]


def start_origin(start: StartConfig, run: Path | None) -> ImportOrigin | None:
    """Finds the foreign model that the start of a run was imported from, if it was."""
    if not start.model:
        return None
    if run is None:
        return read_config(_directory(start.model)).origin
    file = run / IMPORTED
    if not file.is_file():
        return None
    try:
        return structure(ImportOrigin, json.loads(read_regular(file, LARGEST_CONFIG)))
    except (OSError, ValueError, RecursionError, StructureError) as error:
        reason = str(error).splitlines()[0]
        raise ArtifactError(f"{file}: is damaged ({reason}); restore it") from None


def _keep_start_of_zeros(matrix: "Tensor") -> None:
    """Removes the gradient of the row of `<s>` as long as the row is zero."""

    # Marian's translations start from zeros; a model that learns another start can no longer be
    # exported to it. The row is looked at in every step, for weights may be loaded later.
    def mask_gradient(gradient: "Tensor") -> "Tensor":
        gradient = gradient.clone()
        gradient[BOS_ID] *= matrix[BOS_ID].any()
        return gradient

    if matrix.requires_grad:
        matrix.register_hook(mask_gradient)  # type: ignore[no-untyped-call]  # as torch has it


def start_tokenizer(recipe: Recipe) -> Tokenizer:
    """Opens the tokenizer of the model that a run starts from, and adds the run's new tokens."""
    tokenizer = read_tokenizer(_directory(recipe.start.model) / TOKENIZER)
    try:
        new_tokens = recipe.tokenizer.new_tokens
        return tokenizer.with_new_tokens(new_tokens) if new_tokens else tokenizer
    except DataError as error:
        raise RecipeError(f"tokenizer.new_tokens: {error}") from None


def initial_model(recipe: Recipe, vocab_size: int, *, loads: bool = True) -> "Model":
    """Builds the model of a run with its initial weights, on the CPU."""
    import torch

    from tformer_cli.model.encoder_only import model_of
    from tformer_cli.model.transformer import zero_outputs
    from tformer_cli.trainer.adapters import add_low_ranks

    torch.manual_seed(recipe.training.seed)
    model = model_of(recipe.model, vocab_size)
    if recipe.training.zero_outputs:
        zero_outputs(model)
    if recipe.start.model and loads:
        load_start(model, recipe.start, recipe.task.labels)
    if recipe.adapter.rank:
        add_low_ranks(model, recipe.adapter)
    return model


def load_start(model: "Model", start: StartConfig, labels: tuple[str, ...] = ()) -> None:
    """Loads the weights that a run starts from; new tokens get the mean of the others."""
    # A head of another kind, or of other labels, keeps the weights that it was made with.
    path = _directory(start.model)
    if hash_file(path / WEIGHTS) != start.weights_hash:
        raise ArtifactError(f"{path / WEIGHTS}: has changed since the run began; restore the file")
    import torch

    directory = read_model_directory(path, tasks=MODELS)[0]
    weights = directory.load().state_dict()
    config, own = model.config, directory.config
    if (config.head, config.pooler, labels) != (own.head, own.pooler, directory.info.labels):
        weights = {n: weight for n, weight in weights.items() if not n.startswith(_HEAD_PREFIXES)}
        fresh_head = {n: w for n, w in model.state_dict().items() if n.startswith(_HEAD_PREFIXES)}
        weights = {**weights, **fresh_head}
    for name, fresh in model.state_dict().items():
        n_new = len(fresh) - len(weights[name])
        if n_new:
            stored = weights[name]
            # the bias of tokens that are never written would keep new ones from being, too
            counted = stored[stored > BANNED_BIAS / 2] if stored.ndim == 1 else stored
            mean = counted.mean(dim=0, keepdim=True)
            weights[name] = torch.cat([stored, *[mean] * n_new])
    model.load_state_dict(weights)


def _complete_values(
    values: dict[str, Any],
    *,
    run: Path | None,
    say: Callable[[str], None],
    kept: Collection[str] | None,
) -> dict[str, Any]:
    names = ("model", "tokenizer", "training", "decoding", "data")
    tables = {key: values.get(key, {}) for key in names}
    if not all(isinstance(table, Mapping) for table in tables.values()):
        return values  # as wrong as without a model
    name = tables["model"].get("from", "")
    if not isinstance(name, str) or not name:
        return values
    added = tables["tokenizer"].get("new_tokens", ())
    n_new = len(added) if isinstance(added, list | tuple) else 0
    settings = _of_run(run, name) or _of_model(name, n_new, say)
    task = values.get("task", {})
    task = task if isinstance(task, Mapping) else {}
    settings, free = _with_head(settings, task)
    if settings.labels:
        kind = task.get("kind", DEFAULT_KIND)
        # Else the model's labels would be refused as if the recipe had them
        if any(kind == name and not row.has_labels for name, row in TASKS.items()):
            raise StructureError(
                "model.from",
                f'{name} is {TASKS[settings.task].singular}, but task.kind is "{kind}"; name '
                "another model, or a recipe for that kind",
            )
    conflicts = _conflicts(tables, settings, name, free)
    yielding = [] if kept is None else [key for key in conflicts if key not in kept]
    conflicts = {key: problem for key, problem in conflicts.items() if key not in yielding}
    if yielding and not conflicts:
        say(f"{', '.join(yielding)}: as in {name}, not as in the recipe")
    if conflicts:
        (first, problem), *others = conflicts.items()
        problem += f" in {name}, where the run starts"
        problem += "".join(f"; {key}: {other}" for key, other in others)
        raise StructureError(first, f"{problem}; omit {'them' if others else 'it'}")
    shape = with_preset({k: v for k, v in tables["model"].items() if f"model.{k}" not in yielding})
    data, tokenizer = (
        {key: value for key, value in tables[table].items() if f"{table}.{key}" not in yielding}
        for table in ("data", "tokenizer")
    )
    if settings.labels:
        values = {**values, "task": {**task, "labels": settings.labels}}
    return {
        **values,
        "data": {**settings.languages, **data},
        "model": {**settings.model, **shape, "from_hash": settings.weights_hash},
        # Only to be read: the run's tokenizer is a copy of the model's
        "tokenizer": {**tokenizer, "path": name, "vocab_size": settings.vocab_size},
        "training": {**_schedule(tables["training"], values.get("adapter")), **tables["training"]},
        "decoding": {**settings.decoding, **tables["decoding"]},
    }


def _with_head(
    settings: StartSettings, task: Mapping[str, Any]
) -> tuple[StartSettings, tuple[str, ...]]:
    """Puts the head of a task on an encoder that has another one."""
    # Returns the settings, and the keys of `[model]` that a recipe may give with `from`.
    kind: Any = task.get("kind")
    training = kind_named(kind).training if kind in METRICS else None  # the recipe is checked later
    head = None if training is None else training.head
    labels = task.get("labels") or ()
    is_encoder = settings.model["n_decoder_layers"] == 0 and not settings.model["patch_size"]
    has_others = bool(labels) and tuple(labels) != settings.labels
    if not is_encoder or head is None or (head == settings.model["head"] and not has_others):
        return settings, FREE
    model = {**settings.model, "head": head, "n_labels": 0, "unit_length": False}
    if head != "labels":  # no other head pools
        model["pooler"] = "none"
    return replace(settings, model=model, labels=tuple(labels)), (*FREE, *FREE_OF_HEADS)


def _schedule(training: Mapping[str, Any], adapter: object) -> dict[str, Any]:
    """Learning rate and warm-up of a run from trained weights; see `PEAK_SHARE`."""
    steps, max_steps = TrainingConfig.warmup_steps, training.get("max_steps")
    if isinstance(max_steps, int) and max_steps > 0:
        steps = min(steps, max_steps)
    share = ADAPTER_SHARE if isinstance(adapter, Mapping) and adapter.get("rank") else PEAK_SHARE
    return {
        "learning_rate": share * TrainingConfig.learning_rate,
        "warmup_steps": round(PEAK_SHARE * steps),
    }


def _of_run(run: Path | None, name: str) -> StartSettings | None:
    """Returns what a run with a checkpoint has recorded of the model; None if it is another."""
    if run is None or not (run / "recipe.toml").is_file():
        return None
    from tformer_cli.trainer.resuming.checkpoints import Checkpoints  # loads torch

    if not Checkpoints(run).steps():
        return None
    recipe = load_recipe(str(run / "recipe.toml"))
    if recipe.start.model != name:
        return None
    tokenizer = read_tokenizer(run / TOKENIZER)
    return StartSettings(
        model=asdict(recipe.model),
        decoding=asdict(recipe.decoding),
        algorithm=tokenizer.algorithm,
        normalization=tokenizer.normalization,
        vocab_size=recipe.tokenizer.vocab_size,
        weights_hash=recipe.start.weights_hash,
        task=recipe.task.kind,
        labels=recipe.task.labels,
        languages=_languages(recipe.data),
    )


def _of_model(name: str, n_new: int, say: Callable[[str], None]) -> StartSettings:
    """Returns a model's settings; new tokens enlarge the source's vocabulary, as in the run."""
    path = _directory(name, say)
    record = read_config(path)
    if record.weight_type == "int8":
        raise ArtifactError(
            f"{name}: holds int8 weights, which cannot be trained; name the model that they were "
            "exported from"
        )
    model, n_source = asdict(record.model), record.model.source_vocab_size
    tokenizer = read_tokenizer(path / TOKENIZER)
    return StartSettings(
        model={**model, "source_vocab_size": n_source + n_new if n_source else 0},
        decoding=asdict(record.decoding),
        algorithm=tokenizer.algorithm,
        normalization=tokenizer.normalization,
        vocab_size=record.vocab_size,
        weights_hash=hash_file(path / WEIGHTS),
        task=record.task,
        labels=record.labels,
        languages=_languages(record),
    )


def _languages(of: DataConfig | ConfigFile) -> dict[str, str]:
    names = ("source_language", "target_language")
    return {name: code for name in names if (code := getattr(of, name))}


def _write_value(value: object) -> str:
    """Writes a value as recipes have it."""
    return json.dumps(value, ensure_ascii=False, default=str)


def _conflicts(
    tables: Mapping[str, Mapping[str, Any]],
    settings: StartSettings,
    name: str,
    free: tuple[str, ...],
) -> dict[str, str]:
    """Finds every key that contradicts the model that a run starts from, and says how."""
    faults: dict[str, str] = {}
    model, tokenizer, data = tables["model"], tables["tokenizer"], tables["data"]
    expected = {**settings.model, "from_hash": settings.weights_hash}
    for key, value in with_preset(model).items():
        own = expected.get(key, value)  # unknown keys are found out later
        own = list(own) if isinstance(own, tuple) else own
        if key in free or value == own or (key == "from_hash" and not value):
            continue
        if key in model:
            faults[f"model.{key}"] = f"is {_write_value(value)}, but {_write_value(own)}"
        else:
            problem = f"is {_write_value(model['preset'])}, but {key} is {_write_value(own)}"
            faults.setdefault("model.preset", problem)
    if tokenizer.get("path", "") not in ("", name):
        faults["tokenizer.path"] = f"is {_write_value(tokenizer['path'])}, but the tokenizer lies"
    # A run's own recipe says "bpe", the default, of whatever its tokenizer.path names
    own_keys: dict[str, object] = {"vocab_size": settings.vocab_size}
    if not tokenizer.get("path"):
        own_keys |= {"algorithm": settings.algorithm, "normalization": settings.normalization}
        own_keys["joint"] = not settings.model["source_vocab_size"]
    for key, own in own_keys.items():
        if tokenizer.get(key, own) != own:
            faults[f"tokenizer.{key}"] = (
                f"is {_write_value(tokenizer[key])}, but {_write_value(own)}"
            )
    if tokenizer.get("bpe_dropout") and settings.algorithm != "bpe":
        own = _write_value(settings.algorithm)
        faults["tokenizer.bpe_dropout"] = f"needs BPE, but the tokenizer is {own}"
    length, most = data.get("max_length"), settings.model["max_positions"] - 1
    if isinstance(length, int) and length > most and not settings.model["patch_size"]:
        faults["data.max_length"] = f"is {length}, but at most {most} tokens fit"
    return faults


def _directory(name: str, say: Callable[[str], None] | None = None) -> Path:
    return resolve_model(name, say, "float32")
