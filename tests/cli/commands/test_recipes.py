import pytest

from tests.commands import under
from tformer_cli.recipe import load_recipe, recipe_names, recipes_directory

refused, run = under("recipes", "refused", "run")


def test_every_shipped_recipe_is_listed_with_its_summary():
    result = run()
    assert result.exit_code == 0
    # a line each in a pipe, for grep and awk
    assert [line.split(" ", 1)[0] for line in result.stdout.splitlines()] == recipe_names()
    said = " ".join(result.stdout.split())
    assert "multi30k-en-de Multi30k (Elliott et al. 2016), English to German: 29,000" in said
    assert "Data: Multi30k, from https://github.com/multi30k/dataset" in said


@pytest.mark.parametrize("name", recipe_names())
def test_a_recipe_is_shown_as_it_is(name):
    assert run("show", name).stdout_bytes == (recipes_directory() / f"{name}.toml").read_bytes()


def test_a_copy_is_the_same_and_trains(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run("copy", "quickstart")
    assert (result.exit_code, result.stdout) == (0, "quickstart.toml\n")
    assert "tformer train quickstart.toml" in result.stderr
    assert load_recipe("quickstart.toml") == load_recipe("quickstart")
    assert run("copy", "template", "-o", tmp_path / "my.toml", "-q").stderr == ""
    shipped = (recipes_directory() / "template.toml").read_bytes()
    assert (tmp_path / "my.toml").read_bytes() == shipped


def test_nothing_is_overwritten(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.toml").write_text("mine")
    (tmp_path / "link.toml").symlink_to("nowhere")
    for name in ("my.toml", "link.toml"):
        result = run("copy", "template", "-o", name)
        assert result.exit_code == 2
        assert result.stderr == f"error: --output: {name} exists already; name another file\n"
    assert (tmp_path / "my.toml").read_text() == "mine"
    refused("recipes", "show", "quikstart")
    assert "quickstart" in run("copy", "quikstart").stderr
    assert sorted(file.name for file in tmp_path.iterdir()) == ["link.toml", "my.toml"]
