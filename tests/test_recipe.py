import os
import re
import threading
from pathlib import Path

import pytest

from tformer_cli.errors import RecipeError
from tformer_cli.model.config import PRESETS
from tformer_cli.recipe import differing_keys, find_recipe, load_recipe, make_recipe, recipe_names

MINIMAL = """
[data]
train = [{ source = "a.en", target = "a.fr" }]
[model]
preset = "small"
n_heads = 8
[training]
max_steps = 10
"""


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "x.toml"
    path.write_text(MINIMAL)
    return str(path)


@pytest.mark.parametrize("name", recipe_names())
def test_every_shipped_recipe_can_be_read(name):
    assert load_recipe(name).data.train


def test_a_preset_gives_values_that_other_keys_override(path):
    model = load_recipe(path).model
    assert (model.d_model, model.n_heads) == (PRESETS["small"]["d_model"], 8)


def test_overrides_reach_any_key_and_are_toml_or_text(path):
    recipe = load_recipe(
        path,
        [
            "training.learning_rate=3e-4",
            "data.directory=some/where",
            "data.train.0.source=b.en",
            'data.valid=[{tsv = "v.tsv"}]',
        ],
    )
    assert recipe.training.learning_rate == 3e-4
    assert recipe.data.directory == "some/where"
    assert recipe.data.train[0].source == "b.en"
    assert recipe.data.valid[0].tsv == "v.tsv"


def test_a_resolved_recipe_written_and_read_is_the_same(path, tmp_path):
    recipe = load_recipe(path)
    copy = tmp_path / "copy.toml"
    copy.write_text(recipe.to_toml())
    assert load_recipe(str(copy)) == recipe


def test_differing_keys_are_named_but_not_caches(path):
    old = load_recipe(path)
    new = load_recipe(
        path, ["training.seed=7", "model.dropout=0.5", "data.cache_directory=elsewhere"]
    )
    assert differing_keys(old, new) == ["model.dropout", "training.seed"]


def test_an_error_in_the_file_names_the_file(path):
    Path(path).write_text(MINIMAL.replace("max_steps", "max_step"))
    for overrides in ([], ["training.seed=3"]):
        with pytest.raises(RecipeError) as raised:
            load_recipe(path, overrides)
        message = 'training.max_step: unknown key; did you mean "max_steps"?'
        assert str(raised.value) == f"{path}: {message}"


def test_of_several_overrides_that_of_the_errors_key_is_named_else_the_file(path):
    problem = "model.n_heads: 8 does not divide d_model = 500; choose a number of heads that does"
    overrides = ["training.seed=3", "model.d_model=500", "data.source_language=1"]
    for more, options, giver in (
        ([], {}, f"{path}:"),
        (["model.n_heads=8"], {}, "--set"),
        (["model.n_heads=8"], {"model.n_heads": "--heads"}, "--heads:"),
    ):
        with pytest.raises(RecipeError) as raised:
            load_recipe(path, [*overrides, *more], options=options)
        assert str(raised.value) == f"{giver} {problem}"


def test_where_the_data_come_from_may_differ_and_is_missing_in_old_runs(path, tmp_path):
    old = load_recipe(path)
    assert old.data.origin == ""
    new = load_recipe(path, ["data.origin=My corpus, from https://example.org"])
    assert new.data.origin == "My corpus, from https://example.org"
    assert differing_keys(old, new) == []


def test_what_processes_divide_may_change(path):
    old, new = (
        load_recipe(path),
        [f"training.shard_{what}=true" for what in ("optimizer", "weights")],
    )
    assert differing_keys(old, load_recipe(path, new)) == []


YOUR_OWN = ("template", "tag")
"""Recipes that read the files of who copies them."""


@pytest.mark.parametrize("name", [name for name in recipe_names() if name not in YOUR_OWN])
def test_every_shipped_recipe_names_the_origin_of_its_data(name):
    assert re.search(r"https://|generated", load_recipe(name).data.origin)


def test_overrides_that_are_none_are_refused(path):
    for override in ("nonsense", "=1", "a..b=1", "data.train.7.source=x"):
        with pytest.raises(RecipeError, match="--set"):
            load_recipe(path, [override])


def test_a_recipe_with_a_byte_order_mark_or_from_a_pipe_is_read(path, tmp_path):
    marked = tmp_path / "marked.toml"
    marked.write_bytes(b"\xef\xbb\xbf" + Path(path).read_bytes())
    assert load_recipe(str(marked)) == load_recipe(path)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(Path(path).read_bytes(),))
    writer.start()
    assert load_recipe(str(pipe)) == load_recipe(path)
    writer.join()


def test_files_other_than_recipes_are_refused(tmp_path):
    broken = tmp_path / "broken.toml"
    broken.write_text("[data\n")
    with pytest.raises(RecipeError, match=r"broken\.toml: is not valid TOML; "):
        load_recipe(str(broken))
    broken.write_bytes(b"\xff\xfe")
    with pytest.raises(RecipeError, match="is not UTF-8"):
        load_recipe(str(broken))
    with pytest.raises(RecipeError, match='did you mean "quickstart"'):
        find_recipe("quikstart")


def test_tables_of_the_wrong_type_are_refused():
    with pytest.raises(RecipeError, match=r"here: model: "):
        make_recipe(
            {"data": {"train": [{"tsv": "x"}]}, "model": 3, "training": {"max_steps": 1}}, "here"
        )


def test_deep_nesting_is_one_line(tmp_path, path):
    deep = tmp_path / "deep.toml"
    deep.write_text(f"a = {'[' * 5000}{']' * 5000}")
    with pytest.raises(RecipeError, match=r"deep\.toml: is nested too deeply; "):
        load_recipe(str(deep))
    with pytest.raises(RecipeError, match=r"model\.d_ff"):
        load_recipe(path, [f"model.d_ff={'[' * 5000}"])


def test_r_drop_without_dropout_is_an_error(path):
    with pytest.raises(RecipeError, match=r"training\.r_drop: compares two dropouts, but model"):
        load_recipe(path, ["training.r_drop=5", "model.dropout=0"])
    load_recipe(path, ["training.r_drop=5", "model.dropout=0", "model.attention_dropout=0.1"])


def test_numbers_are_text_where_a_key_is_text(path):
    overrides = ["data.train.0.source_field=2", "data.origin=true", "data.train.0.target_field=03"]
    recipe = load_recipe(str(path), overrides)
    assert (recipe.data.train[0].source_field, recipe.data.origin) == ("2", "true")
    assert recipe.data.train[0].target_field == "03"
    with pytest.raises(RecipeError, match=r"--set data\.origin: must be text in quotes"):
        load_recipe(str(path), ["data.origin=[1]"])


def test_settings_of_imported_models_alone_are_errors(path):
    with pytest.raises(RecipeError, match=r'model\.positions: "table" is only for imported models'):
        load_recipe(path, ["model.positions=table"])
    more = ["output_bias=true", "embedding_norm=true", "scale_embeddings=false"]
    model = load_recipe(path, [f"model.{key}" for key in (*more, "final_norm=always")]).model
    assert (model.output_bias, model.final_norm) == (True, "always")
