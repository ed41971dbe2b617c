"""`tformer train SOURCE TARGET`: the user's own text in the place of a recipe."""

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tformer_cli.cli.options import prepare_torch
from tformer_cli.cli.progress import line_progress
from tformer_cli.cli.streams import note
from tformer_cli.errors import UsageError
from tformer_cli.text.lines import OPENERS

if TYPE_CHECKING:
    from tformer_cli.plugins.corpora_tools.own_text import Chosen, OwnText
    from tformer_cli.recipe import Recipe
    from tformer_cli.text.config import CorpusConfig
    from tformer_cli.trainer.processes.launch import Group


@dataclass(frozen=True, kw_only=True)
class TextRun:
    """A run on two files or a table, whose recipe was chosen but not yet written."""

    own: "OwnText"
    chosen: "Chosen"
    run: Path

    @property
    def name(self) -> str:
        """The name that messages about the recipe begin with."""
        from tformer_cli.plugins.corpora_tools.own_text import CHOSEN

        return str(self.run / CHOSEN)

    def sample_recipe(self, recipe: "Recipe") -> "Recipe":
        """The recipe with the files as they are; a dry run samples them."""
        files = self.own.inputs.data.train
        return replace(recipe, data=replace(recipe.data, directory="", train=files, valid=files))

    def check_place(self) -> None:
        """Refuses a place that cannot be written, unless a run that resumes has all."""
        from tformer_cli.plugins.corpora_tools.own_text import check_place, is_written

        if not is_written(self.run, self.chosen):
            check_place(self.run)

    def write(self, *, quiet: bool) -> None:
        """Writes the held-out sets and the recipe, unless a run that resumes has them."""
        from tformer_cli.plugins.corpora_tools.own_text import DATA, is_written, write_own_text

        if is_written(self.run, self.chosen):
            return
        with line_progress(None, "holding pairs out", quiet=quiet) as progress:
            report, is_near = write_own_text(self.own, self.run, self.chosen, progress.update)
        pairs = report.pairs
        apart = "no near copies of" if is_near else "near copies, but no sentence of"
        note(
            f"{self.own.files}: held out {pairs['valid']:,} pairs for validation and "
            f"{pairs['test']:,} for a test, with {apart} the {pairs['train']:,} training pairs: "
            f"{self.run / DATA}",
            quiet=quiet,
        )

    def explain(self, *, quiet: bool) -> None:
        """Lists the choices with their reasons, and what to expect."""
        if not self.chosen.choices:
            return
        note(f"chose {self.name}:", quiet=quiet)
        width = max(len(f"{choice.key} = {choice.value}") for choice in self.chosen.choices)
        for choice in self.chosen.choices:
            note(f"  {f'{choice.key} = {choice.value}':<{width}}  {choice.why}", quiet=quiet)
        note(self.chosen.expected, quiet=quiet)

    @property
    def test(self) -> "CorpusConfig":
        """The test set, with whole paths."""
        from tformer_cli.plugins.corpora_tools.own_text import test_corpus

        return test_corpus(self.own, self.run)

    def test_command(self, run: Path) -> str:
        """Names the test set, and the command that scores a run on it."""
        test = self.test
        source, target = shlex.quote(test.source), shlex.quote(test.target)
        if test.tsv:  # `evaluate` reads no tables; shells make files of columns
            table = shlex.quote(test.tsv)
            source, target = (f"<(cut -f {column} {table})" for column in (1, 2))
        option = "-i" if self.own.size.n_labels else "--source"
        run_quoted = shlex.quote(str(run))
        return f"test it: tformer evaluate {run_quoted} {option} {source} --reference {target}"


def text_run(
    files: tuple[str, str | None],
    run: Path,
    runs: Iterable[Path],
    overrides: Sequence[str],
    *,
    group: "Group | None",
    device: str,
    threads: int,
    fresh: bool,
    overridden: Sequence[str],
) -> TextRun | None:
    """Reads the files that the arguments name, and chooses a recipe; None: they name a recipe.

    The keys that are overridden are those of `--set`; overrides hold what the options give, too.
    """
    # Only a recipe's name: nothing else is read or imported
    if files[1] is None and not files[0].casefold().endswith((".tsv", *OPENERS)):
        return None
    from tformer_cli.plugins.corpora_tools.own_text import (
        choose_recipe,
        names_own_text,
        read_own_text,
    )

    if not names_own_text(*files):
        return None
    from tformer_cli.recipe import overridden_values
    from tformer_cli.runtime import has_fast_bfloat16
    from tformer_cli.trainer.processes.launch import read_launch

    values = overridden_values(overrides)
    model, training = (
        table if isinstance(table := values.get(name), dict) else {}
        for name in ("model", "training")
    )
    place = read_launch()
    if not place.agent and max(place.world_size, group.max_machines if group else 1) > 1:
        raise UsageError(
            "SOURCE: several machines need a recipe; name the chosen.toml of a run on one machine"
        )
    own = read_own_text([file for file in files if file is not None], run)
    prepare_torch(threads * (group.n_processes if group else 1))
    gpu_memory = _gpu_memory(device)
    chosen = choose_recipe(
        own,
        run,
        runs,
        values,
        fresh=fresh,
        gpu_memory=gpu_memory,
        fine_tunes="from" in model,
        preset=str(model.get("preset", "")),
        has_bfloat16=training.get("precision") not in ("float32", "tf32")
        and has_fast_bfloat16("cuda" if gpu_memory else "cpu"),
        overridden=overridden,
        # A second measurement may differ: the processes of an agent follow its choice
        is_chosen=place.agent > 0,
    )
    return TextRun(own=own, chosen=chosen, run=run)


def _gpu_memory(device: str) -> int:
    """Returns the free bytes of the GPU that trains; 0: a CPU does."""
    if device == "cpu":
        return 0
    from tformer_cli.runtime import free_gpu_memory
    from tformer_cli.trainer.hardware import training_device
    from tformer_cli.trainer.processes.launch import read_launch

    return free_gpu_memory(training_device(device, read_launch()))
