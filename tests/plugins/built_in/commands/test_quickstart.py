import io
import re
from pathlib import Path
from typing import get_args

import pytest
from rich.console import Console

from tests.commands import refused, run
from tformer_cli.errors import DataError
from tformer_cli.plugins.built_in.commands.quickstart import QUICKSTARTS, Task, show_commands
from tformer_cli.plugins.built_in.quickstart import TESTS
from tformer_cli.recipe import load_recipe


def test_the_next_commands_name_the_run_and_the_page():
    pages = Path("my/run/heads.html"), Path("my/run/page.html")
    lines = QUICKSTARTS["translate"].next_commands(Path("my/run"), *pages)
    assert "my/run/page.html" in lines[0]
    assert "my/run/heads.html" in lines[1]
    assert any("tformer translate my/run" in line for line in lines)
    assert any("tformer inspect-heads my/run" in line for line in lines)
    for quickstart in QUICKSTARTS.values():
        last = quickstart.next_commands(Path("my/run"), *pages)[-1]
        assert last.startswith("  tformer serve my/run --open ")


@pytest.mark.parametrize(("options", "seed"), [((), 1), (("--seed", "7"), 7)])
def test_the_seed_is_the_recipes_unless_given(monkeypatch, tmp_path, options, seed):
    recipes = []

    def instead(_, *, recipe, **__):
        recipes.append(recipe)
        raise DataError("no training here")

    monkeypatch.setattr("tformer_cli.plugins.built_in.quickstart.quickstart", instead)
    refused("quickstart", "-o", tmp_path / "run", *options)
    (recipe,) = recipes
    assert recipe.training.seed == seed
    assert recipe.data.train[0].built_in == "train"


def test_a_folder_of_other_files_is_not_trained_in(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    refused = run("quickstart", "-o", tmp_path)
    assert refused.exit_code == 2
    assert refused.stderr == (
        f"error: {tmp_path}: holds other files (notes.txt); name a new directory\n"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_run_of_another_recipe_names_what_quickstart_has(tmp_path):
    (tmp_path / "recipe.toml").write_text(load_recipe("ratings").to_toml())
    refused = run("quickstart", "-o", tmp_path, "--task", "image")
    assert refused.exit_code == 2
    assert refused.stderr.endswith("more differ; use another directory\n")


def test_every_quickstart_can_be_asked_for_and_has_a_recipe_and_a_test_of_its_own():
    assert get_args(Task) == tuple(QUICKSTARTS)
    assert {load_recipe(row.recipe).task.kind for row in QUICKSTARTS.values()} == set(TESTS)


@pytest.mark.parametrize("width", [40, 80])
def test_commands_can_be_copied_from_a_narrow_terminal(width):
    lines = QUICKSTARTS["translate"].next_commands(
        Path("runs/quickstart"),
        Path("runs/quickstart/heads.html"),
        Path("runs/quickstart/page.html"),
    )
    screen = io.StringIO()
    show_commands(Console(file=screen, force_terminal=True, width=width), lines)
    shown = screen.getvalue().splitlines()
    assert max(map(len, shown)) <= max(width, 60)  # a quoted sentence is one word
    found = re.sub(r" \\\n +", " ", screen.getvalue()).split()
    assert found == " ".join(lines).split()
    pipe = io.StringIO()
    show_commands(Console(file=pipe, width=width), lines)
    assert pipe.getvalue().splitlines() == lines
