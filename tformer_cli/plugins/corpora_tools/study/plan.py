"""A study file and the runs that it asks for: variants × seeds.

A study is the recipe of its base and, for each variant, the keys that differ. Settings that depend
on each other, such as heads and their width, are one variant, which a grid of values could not say.
Each run is one of `tformer train`, in the folders of `--seeds`, so that `compare` and `plot` take
them as they are.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import Any

import tomli_w

from tformer_cli.errors import DataError, RecipeError, UsageError
from tformer_cli.plugins.corpora_tools.comparison.lengths import read_length
from tformer_cli.plugins.corpora_tools.seeds import limit_steps
from tformer_cli.recipe import (
    RECIPE,
    STUDIES,
    Recipe,
    differing_keys,
    find_recipe,
    has_run,
    load_recipe,
    overridden_values,
    read_toml,
    recipes_directory,
    seed_run,
)
from tformer_cli.structure import StructureError, structure
from tformer_cli.text.config import CorpusConfig
from tformer_cli.wording import did_you_mean, suggestions

STUDY = "study.toml"
"""The copy of a study file in its directory, which makes that a study's."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_TAKEN = ("study", "curves")
"""Names of the study's own files."""
Values = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class StudyFile:
    """A study as it is written in TOML."""

    recipe: str
    """The recipe that the variants change: the name of a shipped one, or a file."""
    seeds: tuple[int, ...]
    """Seeds of each variant."""
    variants: Mapping[str, Mapping[str, Any]]
    """For each variant the tables of a recipe with the keys that it changes; the first is the one
    that the others are tested against."""
    shared: Mapping[str, Any] = field(default_factory=dict)
    """Tables with the keys that all variants change."""
    test: CorpusConfig | None = None
    """The test set, in the recipe's data.directory; without it the validation corpora."""

    def __post_init__(self) -> None:
        if not self.seeds or len({*self.seeds}) < len(self.seeds) or min(self.seeds) < 0:
            raise ValueError("seeds: must be different numbers from 0, such as [1, 2, 3]")
        if not self.variants:
            raise ValueError("variants: must have at least one, such as [variants.base]")
        for name in self.variants:
            if not _NAME.fullmatch(name) or name.partition(".")[0] in _TAKEN:
                raise ValueError(
                    f'variants: "{name}" cannot be the name of a folder of the study; use letters, '
                    'digits, ".", "-" and "_"'
                )


@dataclass(frozen=True, kw_only=True)
class StudyRun:
    """A variant trained with a seed."""

    variant: str
    seed: int
    directory: Path
    recipe: Recipe


@dataclass(frozen=True, kw_only=True)
class Study:
    """A study with its recipes, all of them checked."""

    path: Path
    file: StudyFile
    directory: Path
    overrides: tuple[str, ...]
    """Changes of the command line, `key.path=value`."""
    texts: Mapping[str, str]
    """For each variant its recipe as TOML, without the changes of the command line."""
    recipes: Mapping[str, Recipe]
    is_part: bool
    """True if the command line omits some of its variants or seeds."""
    first_seed: int
    """The first seed of the file, whether or not the command line omits it."""

    def recipe_file(self, variant: str) -> Path:
        return self.directory / f"{variant}.toml"

    def runs_of(self, variant: str) -> list[StudyRun]:
        recipe = self.recipes[variant]
        return [
            StudyRun(
                variant=variant,
                seed=seed,
                directory=seed_run(self.directory / variant, seed),
                recipe=replace(recipe, training=replace(recipe.training, seed=seed)),
            )
            for seed in self.file.seeds
        ]

    @property
    def runs(self) -> list[StudyRun]:
        """All runs, those of the first seed first: time may fix their steps for the others."""
        by_variant = map(self.runs_of, self.recipes)
        return [run for runs in zip(*by_variant, strict=True) for run in runs]

    def settle_recipe(self, run: StudyRun) -> Recipe:
        """The recipe of a run; where time ended the first seed's, with that number of steps."""
        if run.seed == (seed := self.pacing_seed(run.variant)):
            return run.recipe
        return limit_steps(run.recipe, run.directory, seed_run(self.directory / run.variant, seed))

    def pacing_seed(self, variant: str) -> int:
        """The seed whose steps are those of the others where time ends it: the file's first.

        A command for other seeds takes the first of them, unless that of the file has a run.
        """
        has_first = has_run(seed_run(self.directory / variant, self.first_seed))
        return self.first_seed if has_first else self.file.seeds[0]

    def check_runs(self) -> None:
        """Checks that the runs there are have been trained by this study."""
        for run in self.runs:
            # Of a recipe that starts from a model, the run holds more; training compares it
            if not has_run(run.directory) or run.recipe.start.model:
                continue
            keys = differing_keys(load_recipe(str(run.directory / RECIPE)), self.settle_recipe(run))
            if keys:
                raise UsageError(
                    f"{self.path}: variants.{run.variant}: {run.directory} was trained with "
                    f"another {', '.join(keys[:5])}; restore it, delete "
                    f"{self.directory / run.variant} to start it anew, or name another directory "
                    "with -o"
                )


def find_study(name: str) -> Path:
    """Finds a study file by its path, or by its name among those that ship with the package."""
    path, shipped = Path(name), recipes_directory() / STUDIES
    if path.is_file():
        return path
    if (shipped / f"{name}.toml").is_file():
        return shipped / f"{name}.toml"
    names = sorted(file.stem for file in shipped.glob("*.toml"))
    hint = did_you_mean([f'"{near}"' for near in suggestions(path.stem, names)])
    raise UsageError(f"{name}: no such study; {hint or f'name a TOML file or {names[0]}'}")


def read_study(
    name: str,
    directory: Path,
    *,
    overrides: Sequence[str] = (),
    variants: Sequence[str] = (),
    seeds: Sequence[int] = (),
) -> Study:
    """Reads a study and the recipes of all its variants.

    variants, seeds: those to take of the study; empty: all.
    """
    path = find_study(name)
    try:
        file = structure(StudyFile, read_toml(path))
    except StructureError as error:
        raise RecipeError(f"{path}: {error}") from None
    whole, file = file, _take_part(path, file, variants, seeds)
    try:
        base = read_toml(find_recipe(file.recipe))
    except RecipeError as error:
        raise RecipeError(f"{path}: recipe: {error}") from None
    texts, recipes = {}, {}
    for variant, changes in file.variants.items():
        _check_overrides(variant, changes, overrides)
        texts[variant] = tomli_w.dumps(reduce(_merge, (file.shared, changes), base))
        where = f"{path}: variants.{variant}"
        recipes[variant] = load_recipe(where, overrides, text=texts[variant])
    study = Study(
        path=path,
        file=file,
        directory=directory,
        overrides=tuple(overrides),
        texts=texts,
        recipes=recipes,
        is_part=not ({*whole.variants} <= {*file.variants} and {*whole.seeds} <= {*file.seeds}),
        first_seed=whole.seeds[0],
    )
    _check_lengths(study)
    return study


def _take_part(
    path: Path, file: StudyFile, variants: Sequence[str], seeds: Sequence[int]
) -> StudyFile:
    for name in variants:
        if name not in file.variants:
            hint = did_you_mean([f'"{near}"' for near in suggestions(name, file.variants)])
            known = ", ".join(file.variants)
            raise UsageError(f"--variants: {path} has no {name}; {hint or f'it has {known}'}")
    named = {name: file.variants[name] for name in file.variants if name in variants}
    return replace(file, variants=named or file.variants, seeds=tuple(seeds) or file.seeds)


def _merge(values: Values, changes: Values) -> dict[str, Any]:
    """Returns tables with some keys changed."""
    merged = dict(values)
    for key, value in changes.items():
        inner = merged.get(key)
        both_tables = isinstance(value, Mapping) and isinstance(inner, Mapping)
        merged[key] = _merge(inner, value) if both_tables else value  # type: ignore[arg-type]
    return merged


def changed_keys(changes: Values, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the keys of a variant, such as "model.n_heads", with their values."""
    for key, value in changes.items():
        if isinstance(value, Mapping):
            yield from changed_keys(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", value


def _check_overrides(variant: str, changes: Values, overrides: Sequence[str]) -> None:
    varied = {key for key, _ in changed_keys(changes)}
    for key, _ in changed_keys(overridden_values(overrides)):
        if key in varied:
            raise UsageError(f"--set: {key} is what the variant {variant} changes; omit it")


def _check_lengths(study: Study) -> None:
    for variant, recipe in study.recipes.items():
        if recipe.is_distilled:
            raise RecipeError(
                f"{study.path}: variants.{variant}: distillation is only for `tformer distill`; "
                "omit the table"
            )
        if study.file.test is None and not recipe.data.valid:
            raise RecipeError(
                f"{study.path}: variants.{variant}: data.valid is missing, and there is no [test] "
                "to score the runs on; add one of them"
            )


def check_data(study: Study) -> None:
    """Checks that the files of all corpora and of the test set exist."""
    from tformer_cli.train.checking import check_files, check_files_of

    for variant, recipe in study.recipes.items():
        try:
            check_files(recipe)
            if study.file.test is not None:
                check_files_of("test", [study.file.test], recipe.data)
        except DataError as error:
            raise DataError.of("{}: variants.{}: {}", study.path, variant, error) from None


def is_finished(run: StudyRun) -> bool:
    length = read_length(run.directory)
    return length is not None and length.is_finished
