"""Recipes: the TOML files that decide a run.

A recipe joins the settings of task, data, tokenizer, model, training, validation and decoding; each
table is a dataclass next to the code that uses it, where every key is documented. `[model] preset`
names a shape; the other keys of the table override it.
"""

import json
import math
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import tomli_w

from tformer_cli.artifacts.config_file import CONFIG, DEFAULT_KIND, TASKS, task_kind
from tformer_cli.errors import RecipeError, Setting
from tformer_cli.files.regular_file import MIB, read_bounded
from tformer_cli.model.adapter_config import AdapterConfig
from tformer_cli.model.config import PRESETS, ModelConfig
from tformer_cli.model.methods import POSITIONS, name_choices
from tformer_cli.search.config import DecodingConfig
from tformer_cli.structure import IS_NOT_TEXT, StructureError, structure
from tformer_cli.text.config import (
    IMAGE_FORMATS,
    ONLY_IMAGES,
    TEXT_FIELDS,
    DataConfig,
    TokenizerConfig,
)
from tformer_cli.text.lines import compressed_ending
from tformer_cli.trainer.config import (
    METRICS,
    StartConfig,
    TaskConfig,
    TrainingConfig,
    ValidationConfig,
)
from tformer_cli.trainer.distillation import DistillationConfig
from tformer_cli.wording import did_you_mean, suggestions

LARGEST_RECIPE = 16 * MIB
DECIDE_NOTHING = (
    "data.cache_directory", "data.origin", "decoding.batch_tokens", "training.inspect_every",
    "training.compile", "training.shard_optimizer", "training.shard_weights",
)  # fmt: skip
"""Keys that may change when a run resumes, as they do not affect its result.

Paths of caches, remarks on the data, batch sizes of decoding, the interval of inspections; and
whether layers are compiled and what processes divide, of which notes say when it changes rounding.
"""
START_KEYS = {"from": "model", "from_hash": "weights_hash", "frozen": "frozen"}
"""Keys of `[model]` that are no part of its shape, and their names in `StartConfig`."""
Completion = Callable[[dict[str, Any]], dict[str, Any]]
"""Adds the settings of the model that a recipe starts from to those that the recipe gives."""

RECIPE = "recipe.toml"
"""The recipe of a run, in its directory."""
STUDIES = "studies"
"""The folder of the shipped recipes with the shipped studies."""
SEED_RUN = "seed-"


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Everything that decides a run."""

    task: TaskConfig = field(default_factory=TaskConfig)
    """The task that the model is trained for."""
    data: DataConfig
    """Sources of sentence pairs."""
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    """Tokenizer that turns text into tokens."""
    model: ModelConfig = field(default_factory=ModelConfig)
    """The shape of the model."""
    training: TrainingConfig = field(default_factory=TrainingConfig)
    """Training of the model."""
    validation: ValidationConfig = field(default_factory=ValidationConfig)
    """Validation while it trains."""
    decoding: DecodingConfig = field(default_factory=DecodingConfig)
    """Defaults of translation."""
    adapter: AdapterConfig = field(default_factory=AdapterConfig)
    """Low-rank adapters that are trained in place of the weights."""
    start: StartConfig = field(default_factory=StartConfig)
    """Weights to start from; in TOML these keys are in `[model]`."""
    distillation: DistillationConfig = field(default_factory=DistillationConfig)
    """A teacher and what the student learns from it, only for `tformer distill`."""

    def __post_init__(self) -> None:
        if not (self.training.has_limit or self.validation.patience):
            raise ValueError(
                "training: the run would never end; give max_steps, max_epochs, max_tokens or "
                "max_minutes, or validation.patience"
            )
        if self.validation.metric not in METRICS[self.task.kind]:
            known = ", ".join(f'"{metric}"' for metric in METRICS[self.task.kind])
            raise ValueError(
                f'validation.metric: must be one of {known} for task.kind = "{self.task.kind}", '
                f'but is "{self.validation.metric}"'
            )
        row = TASKS[self.task.kind]
        if self.is_distilled and not row.has_distillation:
            kind = next(kind for kind, row in TASKS.items() if row.has_distillation)
            raise ValueError(f'distillation: only for task.kind = "{kind}"; omit it')
        for key, problem in row.needed:
            table, _, name = key.partition(".")
            if not getattr(getattr(self, table), name):
                raise ValueError(f"{key}: {problem}")
        if task_kind(self.model) != self.task.kind:
            raise ValueError(
                f'model: its layers are those of a model for "{task_kind(self.model)}", but '
                f'task.kind is "{self.task.kind}"; change one of the two'
            )
        self._check_corpora()
        self._check_memory()
        self._check_compile()
        self._check_start()
        self._check_vocabularies()
        self._check_zero_outputs()
        if self.validation.patience and not self.data.valid:
            raise ValueError("validation.patience: needs data.valid, which names no corpus")
        if self.training.average == "best" and not self.data.valid:
            raise ValueError('training.average: "best" needs data.valid, which names no corpus')
        if self.training.inspect_every and not self.data.valid:
            raise ValueError("training.inspect_every: needs data.valid, which names no corpus")
        model = self.model
        dropouts = (model.dropout, model.attention_dropout, model.activation_dropout)
        if self.training.r_drop and not any(dropouts):
            raise ValueError("training.r_drop: compares two dropouts, but model.dropout is 0")
        is_text = row.reads != "images"
        if not is_text and self.tokenizer != TokenizerConfig() and not self.start.model:
            raise ValueError("tokenizer: images have none; omit the table")
        if is_text and self.data.max_length + 1 > self.model.max_positions:
            raise ValueError(
                f"data.max_length: {self.data.max_length} tokens and the end of the sentence do "
                f"not fit into model.max_positions = {self.model.max_positions}; lower the first "
                "or raise the second"
            )

        if self.decoding.min_length >= self.model.max_positions:
            raise ValueError(
                f"decoding.min_length: must be below model.max_positions = "
                f"{self.model.max_positions}, but is {self.decoding.min_length}"
            )

    def _check_start(self) -> None:
        """Checks what only a run that starts from a model can have, or cannot."""
        if self.adapter.rank and not self.start.model:
            raise ValueError(
                "adapter.rank: only for a run that starts from a model; set model.from"
            )
        if self.tokenizer.new_tokens and not self.start.model:
            raise ValueError(
                "tokenizer.new_tokens: only for a run that starts from a model, whose tokenizer "
                "gets them; set model.from"
            )
        if self.tokenizer.new_tokens and self.adapter.rank:
            raise ValueError(
                "tokenizer.new_tokens: need new embeddings, but adapters leave embeddings as they "
                "are; omit adapter.rank"
            )
        if self.adapter.rank and self.start.frozen:
            raise ValueError("adapter.rank: freezes all weights; omit it or model.frozen")
        if POSITIONS[self.model.positions].is_fixed and not self.start.model:
            others = name_choices(name for name, row in POSITIONS.items() if not row.is_fixed)
            raise ValueError(
                f'model.positions: "{self.model.positions}" is only for imported models; choose '
                f"{others}"
            )
        if self.model.source_vocab_size and self.tokenizer.joint and not self.start.model:
            raise ValueError(
                "model.source_vocab_size: both languages share a vocabulary; leave it at 0, or set "
                "tokenizer.joint = false"
            )

    def _check_vocabularies(self) -> None:
        """Checks that a model can have two vocabularies, where there are two."""
        if self.tokenizer.joint:
            return
        if self.task.kind != DEFAULT_KIND:
            raise ValueError("tokenizer.joint: only translation has two languages; omit it")
        if self.model.tied_embeddings in ("all", "inputs"):
            raise ValueError(
                f'model.tied_embeddings: "{self.model.tied_embeddings}" needs a vocabulary that '
                'both languages share, but tokenizer.joint is false; set it to "decoder"'
            )

    def _check_zero_outputs(self) -> None:
        """Checks that every layer has the matrices that are to begin at 0."""
        if not self.training.zero_outputs:
            return
        if self.start.model:
            raise ValueError(
                "training.zero_outputs: only for random weights, but the run starts from a model; "
                "omit it"
            )
        # Else only some layers would begin as the identity
        if not self.model.projections:
            raise ValueError(
                "training.zero_outputs: sets W_O to 0, but model.projections = false leaves it "
                "out; omit one of the two"
            )
        if self.model.decoder_cell == "ssru":
            raise ValueError(
                'training.zero_outputs: sets W_O to 0, but model.decoder_cell = "ssru" has none; '
                "omit one of the two"
            )

    def _check_compile(self) -> None:
        """Checks that torch can compile the layers."""
        if self.training.compile is True and (obstacle := self.model.compile_obstacle):
            raise ValueError(f"training.compile: torch compiles no layers with {obstacle}; omit it")

    def _check_memory(self) -> None:
        """Checks that a model with a memory trains on one text, in segments that go on."""
        if not self.model.memory:
            return
        needs = [
            ('data.text = "stream"', self.data.text == "stream"),
            ("a single corpus in data.train", len(self.data.train) == 1),
            ("data.train.0.weight = 1", all(corpus.weight == 1.0 for corpus in self.data.train)),
            ("model.target_bos = true", self.model.target_bos),
            ("tokenizer.bpe_dropout = 0", not self.tokenizer.bpe_dropout),
            ("training.r_drop = 0", not self.training.r_drop),
            ("training.compile = false", self.training.compile is not True),
            ("training.tokens_per_batch above 0", self.training.tokens_per_batch > 0),
        ]
        for needed, is_given in needs:
            if not is_given:
                raise ValueError(f"model.memory: needs {needed}; change it, or set the memory to 0")

    def _check_corpora(self) -> None:
        """Checks that a language model has texts, one of images has those, another one pairs."""
        row = TASKS[self.task.kind]
        is_of_texts = row.reads == "texts"
        formats = IMAGE_FORMATS if row.reads == "images" else None
        for table, corpora in (("train", self.data.train), ("valid", self.data.valid)):
            for number, corpus in enumerate(corpora):
                if formats is not None and corpus.format not in formats:
                    raise ValueError(
                        f'data.{table}.{number}: for task.kind = "{self.task.kind}" a corpus must '
                        f"be one of {', '.join(formats)}, but is {corpus.format}"
                    )
                if formats is None and corpus.format in ONLY_IMAGES:
                    raise ValueError(
                        f"data.{table}.{number}: {corpus.format} are images, but task.kind is "
                        f'"{self.task.kind}"'
                    )
                has_text = corpus.is_text or (is_of_texts and corpus.format in TEXT_FIELDS)
                if has_text != is_of_texts:
                    what = "text, or have a field of text" if is_of_texts else "pairs, not text"
                    raise ValueError(
                        f'data.{table}.{number}: for task.kind = "{self.task.kind}" a corpus must '
                        f"be {what}"
                    )

    @property
    def is_distilled(self) -> bool:
        """True if it has a table that only `tformer distill` understands."""
        return self.distillation != DistillationConfig()

    def to_mapping(self) -> dict[str, Any]:
        """Returns the recipe as nested mappings with every key, defaults included."""
        values = asdict(self)
        start = values.pop("start")
        if self.start != StartConfig():
            values["model"].update({key: start[name] for key, name in START_KEYS.items()})
        if not self.is_distilled:
            del values["distillation"]
        return values

    def to_toml(self) -> str:
        """Writes the recipe as TOML with every key, defaults included."""
        return tomli_w.dumps(_lists(self.to_mapping()))


def recipes_directory() -> Path:
    """Finds the recipes that ship with the package."""
    installed = Path(__file__).parent / "recipes"
    return installed if installed.is_dir() else Path(__file__).parent.parent / "recipes"


def recipe_names() -> list[str]:
    """Lists the recipes that ship with the package."""
    return sorted(file.stem for file in recipes_directory().glob("*.toml"))


def study_names() -> list[str]:
    """Lists the studies that ship with the package, as `find_recipe` finds them."""
    return sorted(
        f"{STUDIES}/{file.stem}" for file in (recipes_directory() / STUDIES).glob("*.toml")
    )


def find_recipe(name: str) -> Path:
    """Finds a recipe by its path, or by its name among those that ship with the package."""
    path = Path(name)
    if path.exists() and not path.is_dir():  # a shell's <(…) is not an ordinary file
        return path
    shipped = recipes_directory() / f"{name}.toml"
    if shipped.is_file():
        return shipped
    names = recipe_names()
    if path.name and (beside := path.with_name(f"{path.name}.toml")).is_file():
        raise RecipeError(f"{name}: no such recipe; did you mean {beside}?")
    if path.is_dir():
        raise RecipeError(f"{name}: is a directory; name a TOML file")
    nearest = [f'"{shipped}"' for shipped in suggestions(path.stem, names)]
    hint = did_you_mean(nearest) or f"name a TOML file or one of {', '.join(names)}"
    raise RecipeError(f"{name}: no such recipe; {hint}")


def load_recipe(
    name: str,
    overrides: Sequence[str] = (),
    complete: Completion | None = None,
    options: Mapping[str, str] = MappingProxyType({}),
    text: str | None = None,
) -> Recipe:
    """Reads a recipe; an override is `key.path=value`, an option what gave one in its place."""
    # A recipe that is yet to be written has a text and the name that it will have
    path = find_recipe(name) if text is None else Path(name)
    values = read_toml(path) if text is None else tomllib.loads(text)
    if "variants" in values:
        raise RecipeError(f"{path}: is a study, not a recipe; see `tformer study {path} --dry-run`")
    overrides = list(overrides)
    for override in overrides:
        _override(values, override)
    while True:  # each round takes one more override as text
        try:
            return _structure_recipe(values, complete)
        except StructureError as error:
            if _as_text(values, error, overrides):
                continue
            key = str(error).partition(":")[0]  # what concerns two tables has it in its words
            giver = _giver(key, overrides, options) or f"{path}:"
            refused = RecipeError.of("{} {}", giver, error)
            refused.others = [RecipeError(f"{path}: {other}") for other in error.others]
            raise refused from None


def _as_text(values: dict[str, Any], error: StructureError, overrides: list[str]) -> bool:
    """Takes the value of an override as text where its key is text, as columns have numbers."""
    if error.problem.startswith(IS_NOT_TEXT):
        for place, override in reversed(list(enumerate(overrides))):
            key, _, text = override.partition("=")
            if key.strip() == error.key and isinstance(_toml_value(text), bool | int | float):
                overrides[place] = f"{key}={json.dumps(text.strip())}"
                _override(values, overrides[place])
                return True
    return False


def make_recipe(
    values: Mapping[str, Any], where: str, complete: Completion | None = None
) -> Recipe:
    """Creates a recipe from nested mappings."""
    try:
        return _structure_recipe(values, complete)
    except StructureError as error:
        raise RecipeError(f"{where}: {error}") from None


def _structure_recipe(values: Mapping[str, Any], complete: Completion | None = None) -> Recipe:
    for key, value in _flat(values):
        # TOML can write them, and they would turn scores and learning rates into NaN
        if isinstance(value, float) and not math.isfinite(value):
            raise StructureError(key, f"must be a number, not NaN or infinity; found {value}")
    data = values.get("data")
    for key in ("train", "valid"):
        if isinstance(data, Mapping) and not isinstance(data.get(key, []), list | tuple):
            example = 'such as [{ source = "a.en", target = "a.de" }]'
            raise StructureError(f"data.{key}", f"must be a list of corpora, {example}")
    whole = _with_defaults(values)
    if "start" in whole:
        raise StructureError("start", "unknown key; write from = … in [model]")
    if complete is not None:
        whole = complete(whole)
    whole = {**whole, "model": with_preset(whole.get("model", {}))}
    try:
        return structure(Recipe, _with_start(_with_fitting_length(whole)))
    except StructureError as error:
        first, *others = map(_of_toml, (error, *error.others))
        first.others = others
        raise first from None


def _of_toml(error: StructureError) -> StructureError:
    """Names the keys of `[model]` that lie in a table of their own, or that were meant."""
    toml_keys = {f"start.{name}": f"model.{key}" for key, name in START_KEYS.items()}
    table, _, name = error.key.partition(".")
    near = suggestions(name, ("preset", *START_KEYS)) if table == "model" else ()
    problem = error.problem
    # Keys outside the shape, since a misspelled key is compared only with the shape's
    if near and problem.startswith("unknown key; the known keys are"):
        problem = "unknown key; " + did_you_mean([f'"{key}"' for key in near])
    return StructureError(toml_keys.get(error.key, error.key), problem)


def _with_defaults(values: Mapping[str, Any]) -> dict[str, Any]:
    """Adds what a task has in place of a table's defaults: the metric that it is judged by, say."""
    task = values.get("task")
    kind = task.get("kind") if isinstance(task, Mapping) else None
    # Not `kind in TASKS`: what a file holds in its place may not be hashable
    row = next((row for name, row in TASKS.items() if name == kind and row.metrics), None)
    if row is None:
        return dict(values)  # the default, or as wrong as before
    whole = dict(values)
    for table, keys in {**row.defaults, "validation": {"metric": row.metrics[0]}}.items():
        values_of_table = values.get(table, {})
        if isinstance(values_of_table, Mapping):
            whole[table] = {**keys, **values_of_table}
    return whole


def _with_fitting_length(values: dict[str, Any]) -> dict[str, Any]:
    """Lowers the default of `data.max_length` to the positions that the model has."""
    data, model = values.get("data"), values["model"]
    most = model.get("max_positions") if isinstance(model, Mapping) else None
    if not isinstance(data, Mapping) or "max_length" in data or not isinstance(most, int):
        return values
    return {**values, "data": {**data, "max_length": min(DataConfig.max_length, max(most - 1, 1))}}


def _with_start(values: dict[str, Any]) -> dict[str, Any]:
    """Moves the keys of `[model]` about the starting weights into their own table."""
    model = values["model"]
    if not isinstance(model, Mapping):
        return values
    start = {name: model[key] for key, name in START_KEYS.items() if key in model}
    shape = {key: value for key, value in model.items() if key not in START_KEYS}
    return {**values, "model": shape, "start": start}


def _giver(key: str, overrides: Sequence[str], options: Mapping[str, str]) -> str:
    """Names what gave a key, or a table around or below it, its value; empty: the recipe."""
    for override in reversed(overrides):
        name = override.partition("=")[0].strip()
        if f"{name}.".startswith(f"{key}.") or f"{key}.".startswith(f"{name}."):
            return f"{options[name]}:" if name in options else Setting("changes")
    return ""


def differing_keys(old: Recipe, new: Recipe, ignored: Sequence[str] = DECIDE_NOTHING) -> list[str]:
    """Lists the key paths whose values differ, except `ignored` ones."""
    old_keys, new_keys = dict(_flat(old.to_mapping())), dict(_flat(new.to_mapping()))
    return sorted(
        key
        for key in old_keys.keys() | new_keys.keys()
        if old_keys.get(key) != new_keys.get(key) and key not in ignored
    )


def read_toml(path: Path) -> dict[str, Any]:
    """Reads the tables of a recipe or a study; raises a RecipeError that names the file."""
    try:
        text = read_bounded(path, LARGEST_RECIPE).decode("utf-8-sig")  # editors may write a mark
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        if path.suffix not in (".toml", ""):
            raise _not_a_recipe(path, _lower(str(error))) from None
        raise RecipeError(f"{path}: is not valid TOML; {_lower(str(error))}") from None
    except RecursionError:
        raise RecipeError(f"{path}: is nested too deeply; check the file") from None
    except UnicodeDecodeError:
        if path.suffix not in (".toml", ""):
            is_compressed = compressed_ending(path)
            reason = "it is compressed" if is_compressed else "it is not UTF-8 text"
            raise _not_a_recipe(path, reason) from None
        raise RecipeError(f"{path}: is not UTF-8 text; save it as UTF-8") from None
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise RecipeError(f"{path}: cannot be read: {reason}; name another file") from None


def _not_a_recipe(path: Path, reason: str) -> RecipeError:
    """An error about a text without its translation, most likely."""
    return RecipeError(
        f"{path}: is not a recipe, which is TOML ({reason}); to train on text, name two files: "
        "tformer train SOURCE TARGET; a language model takes a recipe: tformer recipes copy "
        "shakespeare"
    )


def _lower(message: str) -> str:
    return message[:1].lower() + message[1:]


def with_preset(model: Any) -> Any:
    """Replaces `preset` in `[model]` by its values."""
    if not isinstance(model, Mapping) or "preset" not in model:
        return model
    name = model["preset"]
    if not isinstance(name, str) or name not in PRESETS:
        known = ", ".join(f'"{preset}"' for preset in PRESETS)
        raise StructureError("model.preset", f"must be one of {known}; found {json.dumps(name)}")
    return {**PRESETS[name], **{key: value for key, value in model.items() if key != "preset"}}


def overridden_values(overrides: Sequence[str]) -> dict[str, Any]:
    """Returns the tables that only overrides mention."""
    values: dict[str, Any] = {}
    for override in overrides:
        _override(values, override)
    return values


def _override(values: dict[str, Any], override: str) -> None:
    path, equals, text = override.partition("=")
    keys = path.strip().split(".")
    if not equals or not all(keys):
        raise RecipeError.of("{changes} {}: is not an assignment; write key.path=value", override)
    target: Any = values
    for key in keys[:-1]:
        target = _step_into(target, key, override)
    if isinstance(target, list) and keys[-1].isdecimal() and int(keys[-1]) < len(target):
        target[int(keys[-1])] = _toml_value(text)
    elif isinstance(target, dict):
        target[keys[-1]] = _toml_value(text)
    else:
        raise RecipeError.of("{changes} {}: no such table; check the key's path", override)


def _step_into(target: Any, key: str, override: str) -> Any:
    if isinstance(target, dict):
        return target.setdefault(key, {})
    if isinstance(target, list) and key.isdecimal() and int(key) < len(target):
        return target[int(key)]
    raise RecipeError.of("{changes} {}: no such table; check the key's path", override)


def _toml_value(text: str) -> Any:
    try:
        values = tomllib.loads(f"value = {text}")
    except (tomllib.TOMLDecodeError, RecursionError):
        return text
    return values["value"] if len(values) == 1 else text


def _flat(values: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(values, Mapping):
        items: Iterator[tuple[Any, Any]] = iter(values.items())
    elif isinstance(values, list | tuple):
        items = iter(enumerate(values))
    else:
        yield path, values
        return
    for key, value in items:
        yield from _flat(value, f"{path}.{key}" if path else str(key))


def _lists(values: Any) -> Any:
    """Converts tuples to lists, TOML's only sequence."""
    if isinstance(values, Mapping):
        return {key: _lists(value) for key, value in values.items()}
    if isinstance(values, list | tuple):
        return [_lists(value) for value in values]
    return values


def has_run(run: Path) -> bool:
    """Returns whether a directory is a run directory."""
    return (run / RECIPE).is_file()


def seed_run(folder: Path, seed: int) -> Path:
    """Names the run of a seed in the folder of a `--seeds` training."""
    return folder / f"{SEED_RUN}{seed}"


def seed_runs(folder: Path) -> tuple[Path, ...]:
    """Lists the runs of a `--seeds` training by their seeds; empty: the folder is none."""
    if has_run(folder) or (folder / CONFIG).is_file() or not folder.is_dir():
        return ()
    names = (path.name.removeprefix(SEED_RUN) for path in folder.glob(f"{SEED_RUN}*"))
    seeds = sorted(int(name) for name in names if name.isascii() and name.isdecimal())
    return tuple(seed_run(folder, seed) for seed in seeds)
