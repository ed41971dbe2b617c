import json
import shutil
import tomllib

import pytest
import torch
from typer.testing import CliRunner

from tests.foreign.hugging_face.test_importing import marian, multilingual
from tests.foreign.test_peft import write_adapter
from tests.plugins.interchange.marian.test_importing import OPTIONS, weights, write
from tests.plugins.interchange.marian.test_importing import VARIANTS as MARIAN
from tests.slowly import slowly
from tests.watched_training import crash_at, sha256
from tformer_cli.artifacts.config_file import read_config
from tformer_cli.artifacts.model_directory import load_model_directory
from tformer_cli.artifacts.tensors import load_tensors
from tformer_cli.cli.app import app
from tformer_cli.errors import ArtifactError, RecipeError
from tformer_cli.foreign.import_model import import_model, resolve_model
from tformer_cli.plugins.interchange.export import export_marian
from tformer_cli.recipe import load_recipe, make_recipe
from tformer_cli.text.tokenizer import read_tokenizer
from tformer_cli.train import start
from tformer_cli.train.start import completion
from tformer_cli.train.train import train


@pytest.fixture(scope="module", autouse=True)
def every_test_on_one_thread(one_thread):
    """Trainings here are small, and compared bit for bit."""


def test_the_first_step_starts_from_the_models_weights(make, tmp_path, model):
    recipe = make(model, tmp_path / "run", training__learning_rate=1e-9, training__max_steps=1)
    train(recipe, tmp_path / "run")
    before, after = (load_tensors(path / "model.safetensors") for path in (model, tmp_path / "run"))
    assert before.keys() == after.keys()
    for name, tensor in before.items():
        torch.testing.assert_close(after[name], tensor, rtol=0, atol=1e-8)
    old, new = read_config(model), read_config(tmp_path / "run")
    assert new.model == old.model
    assert new.decoding == old.decoding
    assert (tmp_path / "run/tokenizer.json").read_bytes() == (model / "tokenizer.json").read_bytes()
    assert new.start.model == str(model)
    assert new.start.weights_hash == sha256(model / "model.safetensors")


def test_the_run_resumes_exactly_without_the_model(make, tmp_path, model):
    whole, run, origin = tmp_path / "whole", tmp_path / "run", tmp_path / "origin"
    shutil.copytree(model, origin)
    train(make(origin, whole), whole)
    crash_at(make(origin, run), run, 5)
    shutil.rmtree(origin)
    train(make(origin, run), run)
    assert sha256(run / "model.safetensors") == sha256(whole / "model.safetensors")
    assert read_config(run).start == read_config(whole).start


def test_another_model_is_refused_before_and_after_the_first_checkpoint(make, tmp_path, model):
    run, origin, other = tmp_path / "run", tmp_path / "origin", tmp_path / "other"
    shutil.copytree(model, origin)
    train(make(model, other, training__max_steps=1), other)
    crash_at(make(origin, run), run, 1)
    shutil.copy(other / "model.safetensors", origin / "model.safetensors")
    with pytest.raises(RecipeError, match=r"another recipe, model\.from_hash differs;"):
        train(make(origin, run), run)
    shutil.copy(model / "model.safetensors", origin / "model.safetensors")
    crash_at(make(origin, run), run, 3)
    with pytest.raises(RecipeError, match=r"another recipe, .*model\.from"):
        train(make(other, run), run)


def test_the_runs_own_recipe_makes_the_same_run(make, tmp_path, model):
    run, again = tmp_path / "run", tmp_path / "again"
    train(make(model, run), run)
    recipe = load_recipe(str(run / "recipe.toml"), (), completion(again, print))
    assert recipe == make(model, run)
    train(recipe, again)
    assert sha256(again / "model.safetensors") == sha256(run / "model.safetensors")


def test_the_learning_rate_is_a_tenth_unless_the_recipe_gives_one(make, tmp_path, model):
    run = tmp_path / "run"
    long = {"training__max_steps": 4000}
    default = make(model, run, **long).training
    config = make(model, run, **long, training__learning_rate=2e-4).training
    assert default.learning_rate == pytest.approx(1e-4)
    assert default.warmup_steps == config.warmup_steps == 400
    assert config.learning_rate == 2e-4
    assert make(model, run, training__max_steps=100).training.warmup_steps == 10


def test_all_contradictions_are_told_at_once(make, tmp_path, model):
    changes = {"model__preset": "small", "model__norm": "pre", "tokenizer__vocab_size": 500}
    with pytest.raises(RecipeError) as error:
        make(model, tmp_path / "run", **changes)
    size = read_config(model).vocab_size
    assert str(error.value) == (
        f'test: model.preset: is "small", but d_model is 64 in {model}, where the run starts; '
        'model.norm: is "pre", but "post"; '
        f"tokenizer.vocab_size: is 500, but {size}; omit them"
    )


def test_the_model_named_by_the_command_line_decides_over_the_recipe(tmp_path, model):
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(
        '[data]\ntrain = [{ built_in = "train", pairs = 100 }]\n'
        '[tokenizer]\nvocab_size = 9000\n[model]\npreset = "small"\nnorm = "pre"\n'
        "[training]\nmax_steps = 2\n"
    )

    def run(*args):
        words = ["train", str(recipe), "--from", str(model), "--dry-run", *args]
        return CliRunner().invoke(app, words)

    result = run()
    assert result.exit_code == 0, result.stderr
    note = f"model.preset, model.norm, tokenizer.vocab_size: as in {model}, not as in the recipe"
    assert note in result.stderr.replace("\n", " ")
    shape, own = tomllib.loads(result.stdout)["model"], read_config(model).model
    assert (shape["d_model"], shape["norm"]) == (own.d_model, own.norm)
    refused = run("--set", "model.d_model=8", "--set", "tokenizer.vocab_size=3")
    assert refused.exit_code == 2
    assert "--set model.d_model: is 8, but 64 in" in refused.stderr
    assert "; tokenizer.vocab_size: is 3, but" in refused.stderr


def test_languages_and_length_that_are_not_given_are_the_models(make, tmp_path, model):
    origin = tmp_path / "origin"
    shutil.copytree(model, origin)
    config = json.loads((origin / "config.json").read_text())
    config["model"]["max_positions"] = 40
    config |= {"source_language": "nl", "target_language": "is"}
    (origin / "config.json").write_text(json.dumps(config))
    data = {"train": [{"built_in": "train"}]}
    values = {"data": data, "model": {"from": str(origin)}, "training": {"max_steps": 1}}
    complete = completion(tmp_path / "run", print)
    data = make_recipe(values, "test", complete).data
    assert (data.max_length, data.source_language, data.target_language) == (39, "nl", "is")
    values["data"]["target_language"] = "en"
    data = make_recipe(values, "test", complete).data
    assert (data.source_language, data.target_language) == ("nl", "en")
    del values["model"]
    assert make_recipe(values, "test").data.max_length == 256


def test_what_agrees_or_is_not_stored_may_be_given(make, tmp_path, model):
    recipe = make(model, tmp_path / "run", model__d_model=64, model__dropout=0.3)
    assert recipe.model.dropout == 0.3


def test_a_table_of_its_own_is_no_way_to_name_the_model(make, tmp_path, model):
    with pytest.raises(RecipeError, match="start: unknown key"):
        make_recipe({**make(model, tmp_path).to_mapping(), "start": {"model": "x"}}, "test")


def test_a_recipe_that_was_not_completed_is_refused(make, tmp_path, model):
    recipe = make(model, tmp_path / "run")
    values = recipe.to_mapping()
    del values["model"]["from_hash"]
    with pytest.raises(ArtifactError, match=r"model\.from: the settings of .* are missing"):
        train(make_recipe(values, "test"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_weights_that_change_after_the_recipe_was_read_are_refused(make, tmp_path, model):
    origin, run = tmp_path / "origin", tmp_path / "run"
    shutil.copytree(model, origin)
    recipe = make(origin, run)
    with (origin / "model.safetensors").open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"\1")
    with pytest.raises(ArtifactError, match="has changed"):
        train(recipe, run)
    assert not run.exists()


@pytest.mark.parametrize("variant", ["ssru", *slowly("post-norm", "separate")])
def test_a_foreign_model_is_imported_and_trained(make, tmp_path, variant):
    options = {**OPTIONS, **MARIAN[variant]}
    source, run, notes = write(tmp_path / "marian", weights(options), options), tmp_path / "run", []
    recipe = make(source, run, notes)
    assert "imported a model of Marian into" in notes[0]
    origin = read_config(resolve_model(source, print)).origin
    crash_at(recipe, run, 3)
    shutil.rmtree(tmp_path / "cache")
    shutil.rmtree(source)
    train(make(source, run), run)
    result = CliRunner().invoke(app, ["translate", str(run), "a cat", "--max-length", "5", "-q"])
    assert result.exit_code == 0, result.stderr
    assert read_config(run).start.model == str(source)
    assert read_config(run).origin == origin is not None
    # the way back: translations still start from zeros
    export_marian(run, tmp_path / "again")
    import_model(str(tmp_path / "again"), tmp_path / "back")
    before, after = (load_tensors(path / "model.safetensors") for path in (run, tmp_path / "back"))
    for name, tensor in before.items():
        first = 1 if "embedding" in name else 0  # padding is never looked at, nor exported
        assert torch.equal(after[name][first:], tensor[first:]), name


def test_the_command_starts_from_a_model_and_protects_it(tmp_path, model, make):
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(
        '[data]\ntrain = [{ built_in = "train", pairs = 100 }]\nmax_length = 30\n'
        "[training]\nmax_steps = 2\n"
    )

    def run(*args):
        return CliRunner().invoke(app, ["train", str(recipe), "-q", *map(str, args)])

    result = run("--from", model, "-o", tmp_path / "run")
    assert result.exit_code == 0, result.stderr
    record = json.loads((tmp_path / "run/config.json").read_text())
    assert record["start"]["model"] == str(model)
    shown = run("--from", model, "--dry-run")
    assert f'from = "{model}"' in shown.stdout
    assert "learning_rate = 0.0001" in shown.stdout
    before = sha256(model / "model.safetensors")
    for refused in (
        run("--from", model, "-o", model, "--fresh", "--yes"),
        run("--set", f"model.from={model}", "-o", model, "--fresh", "--yes"),
        run("--from", tmp_path / "none", "-o", tmp_path / "new"),
        run("--from", model, "--set", "model.d_ff=8", "-o", tmp_path / "new"),
    ):
        assert refused.exit_code == 2
        assert refused.stderr.count("\n") == 1, refused.stderr
    assert refused.stderr.startswith("error: --set model.d_ff: is 8, but 96 in"), refused.stderr
    assert sha256(model / "model.safetensors") == before
    assert not (tmp_path / "new").exists()


def test_the_models_weights_are_not_read_again_when_a_run_resumes(
    make, tmp_path, model, monkeypatch
):
    run = tmp_path / "run"
    crash_at(make(model, run), run, 3)
    monkeypatch.setattr(start, "load_start", lambda *_: pytest.fail("read again"))
    monkeypatch.setattr(start, "hash_file", lambda _: pytest.fail("read again"))
    train(make(model, run), run)


AVERAGES = {
    "ema": {"training__average": "ema"},
    "muon": {"training__optimizer": "muon"},
}
"""Of each optimizer, and of each kind of average, one."""


@pytest.mark.parametrize("changes", AVERAGES.values(), ids=AVERAGES)
@pytest.mark.parametrize("by_kernels", ["1", *slowly("0")])
def test_frozen_weights_keep_their_bits_and_have_no_state(
    make, tmp_path, model, monkeypatch, changes, by_kernels
):
    monkeypatch.setenv("TFORMER_NATIVE", by_kernels)
    patterns, run = (
        ["encoder.*", "decoder.layers.?.cross_attention", "*_norm.bias"],
        tmp_path / "run",
    )
    recipe = make(model, run, model__frozen=patterns, **changes)
    crash_at(recipe, run, 3)
    train(recipe, run)
    before, after = (
        load_tensors(model / "model.safetensors"),
        load_tensors(run / "model.safetensors"),
    )
    kept = {name for name in before if torch.equal(before[name], after[name])}
    assert kept == {
        name
        for name in before
        if name.startswith(("encoder.", "decoder.layers.0.cross_attention."))
        or name.endswith("_norm.bias")
    }
    state = load_tensors(run / "checkpoints/step-000006/optimizer.safetensors")
    trained = {name.rpartition(":")[0] for name in state if ":" in name}
    assert trained == before.keys() - kept


def test_frozen_weights_leave_the_others_their_gradients(make, tmp_path, model):
    """The first step's gradient of what is trained is the same with and without frozen parts."""
    moments = []
    for name, frozen in (("all", []), ("some", ["encoder.*", "source_embedding"])):
        recipe = make(
            model,
            tmp_path / name,
            model__frozen=frozen,
            training__max_steps=1,
            training__clip_norm=0,
        )
        train(recipe, tmp_path / name)
        moments.append(
            load_tensors(tmp_path / name / "checkpoints/step-000001/optimizer.safetensors")
        )
    assert moments[1].keys() < moments[0].keys()
    assert all(torch.equal(moments[0][name], tensor) for name, tensor in moments[1].items())


def test_a_resumed_run_freezes_the_same(make, tmp_path, model):
    run, whole = tmp_path / "run", tmp_path / "whole"
    train(make(model, whole, model__frozen=["decoder"]), whole)
    crash_at(make(model, run, model__frozen=["decoder"]), run, 3)
    with pytest.raises(RecipeError, match=r"another recipe, model\.frozen\.0 differ"):
        train(make(model, run), run)
    train(make(model, run, model__frozen=["decoder"]), run)
    assert sha256(run / "model.safetensors") == sha256(whole / "model.safetensors")


def test_parts_of_random_weights_can_be_frozen(make, tmp_path, model):
    values = make(model, tmp_path).to_mapping()
    values["model"] |= {"from": "", "from_hash": "", "frozen": ["encoder"]}
    values["tokenizer"] |= {"path": str(model), "vocab_size": 300}
    recipe = make_recipe(values, "test")
    assert make_recipe(recipe.to_mapping(), "test") == recipe
    train(recipe, tmp_path / "run")
    assert load_recipe(str(tmp_path / "run/recipe.toml")).start.frozen == ("encoder",)


def test_a_damaged_record_of_the_import_is_one_line(make, tmp_path):
    options = {**OPTIONS, **MARIAN["post-norm"]}
    source, run = write(tmp_path / "marian", weights(options), options), tmp_path / "run"
    crash_at(make(source, run), run, 3)
    for text in ("{", '{"kind": 3}'):
        (run / "imported.json").write_text(text)
        with pytest.raises(ArtifactError, match=r"imported\.json: is damaged .*; restore it"):
            train(make(source, run), run)


WORDS = ["<medical>", "Żółć"]


def test_new_tokens_get_rows_of_the_mean_and_stay_in_the_tokenizer(make, tmp_path, model):
    run = tmp_path / "run"
    changes = {"training__learning_rate": 1e-9, "training__max_steps": 1}
    train(make(model, run, tokenizer__new_tokens=WORDS, **changes), run)
    before, after = (load_model_directory(path) for path in (model, run))
    old, new = before.model.state_dict(), after.model.state_dict()
    size = before.tokenizer.vocab_size
    for name, tensor in new.items():
        stored = old[name]
        torch.testing.assert_close(tensor[: len(stored)], stored, rtol=0, atol=1e-8)
        if len(tensor) > len(stored):
            mean = stored.mean(dim=0).expand(2, -1)
            torch.testing.assert_close(tensor[size:], mean, rtol=0, atol=1e-8)
    assert after.tokenizer.source.encode("<medical> a Żółć") == [
        size,
        *before.tokenizer.source.encode("a"),
        size + 1,
    ]
    args = ["translate", str(run), "<medical> A dog.", "--max-length", "5", "-q"]
    for engine in ("compiled", "torch"):
        result = CliRunner().invoke(app, [*args, "--engine", engine])
        assert result.exit_code == 0, result.stderr
    result = CliRunner().invoke(
        app, ["export", str(run), "--format", "huggingface", "-o", str(tmp_path / "hf")]
    )
    assert result.exit_code == 2
    assert "the library would cut the new tokens <medical>, Żółć" in result.stderr


def test_a_run_with_new_tokens_resumes_exactly_and_another_starts_from_it(make, tmp_path, model):
    whole, run, more = tmp_path / "whole", tmp_path / "run", tmp_path / "more"
    recipes = [make(model, directory, tokenizer__new_tokens=WORDS) for directory in (whole, run)]
    train(recipes[0], whole)
    crash_at(recipes[1], run, 3)
    train(recipes[1], run)
    assert sha256(run / "model.safetensors") == sha256(whole / "model.safetensors")
    train(make(run, more, tokenizer__new_tokens=["<law>"], training__max_steps=1), more)
    tokenizer = read_tokenizer(more)
    size = read_tokenizer(model).vocab_size
    assert tokenizer.source.encode("<law> Żółć") == [size + 2, size + 1]


def foreign(path, kind):
    """Writes a foreign model with random weights."""
    if kind in ("m2m", "nllb", "mbart"):
        multilingual(path, kind, max_position_embeddings=64)
    elif kind.startswith("opus"):
        marian(path, shared=kind == "opus", max_position_embeddings=64)
    else:
        options = {**OPTIONS, **MARIAN[kind]}
        return write(path, weights(options), options)
    return path


def ids_of(path):
    """Ids of a text with and without new tokens, on both sides."""
    tokenizer = read_tokenizer(path)
    return [
        side.encode_phrases(["a dog", "<medical> a Żółć"])
        for side in (tokenizer.source, tokenizer.target)
    ]


@pytest.mark.parametrize(
    "kind", ["ssru", "opus two", "m2m", *slowly("post-norm", "separate", "opus", "nllb", "mbart")]
)
def test_imported_models_learn_new_tokens(make, tmp_path, kind):
    source, run = foreign(tmp_path / "foreign", kind), tmp_path / "run"
    slow = {"training__learning_rate": 1e-9, "training__max_steps": 2}
    recipe = make(source, run, tokenizer__new_tokens=WORDS, **slow)
    crash_at(recipe, run, 1)
    train(recipe, run)
    first = resolve_model(source)
    before, after = (load_tensors(path / "model.safetensors") for path in (first, run))
    assert before.keys() == after.keys()
    n_grown = 0
    for name, tensor in after.items():
        stored = before[name]
        torch.testing.assert_close(tensor[: len(stored)], stored, rtol=0, atol=1e-7)
        if len(tensor) > len(stored):
            n_grown += 1
            # a new token can be written, although some are banned by their bias
            mean = (stored[stored > -1e8] if stored.ndim == 1 else stored).mean(dim=0)
            torch.testing.assert_close(tensor[len(stored) :], mean.expand_as(tensor[-2:]))
    assert n_grown == (3 if kind in ("separate", "opus two") else 2)
    sizes = [side.vocab_size for t in [read_tokenizer(first)] for side in (t.source, t.target)]
    for size, old, new in zip(sizes, ids_of(first), ids_of(run), strict=True):
        assert new[0] == old[0]
        assert (new[1][0], new[1][-1]) == (size, size + 1)
    languages = ["--source-language", "en_XX", "--target-language", "fr_XX"]
    if kind == "m2m":
        languages = ["--source-language", "en", "--target-language", "fr"]
    args = ["translate", str(run), "<medical> a dog", "--max-length", "5", "-q"]
    args += languages if kind in ("m2m", "nllb", "mbart") else []
    engines = ("torch", "tformer") if kind == "ssru" else ("torch", "tformer", "compiled")
    outputs = {}
    for engine in engines:
        result = CliRunner().invoke(app, [*args, "--engine", engine])
        assert result.exit_code == 0, result.stderr
        outputs[engine] = result.stdout
    assert len(set(outputs.values())) == 1, outputs


REFUSED = {
    "post-norm": ("marian", "Marian would cut the new tokens"),
    "opus": ("huggingface", "the library would cut the new tokens"),
    "nllb": ("huggingface", "the library would cut the new tokens"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_exports_keep_new_tokens_or_refuse_them_in_one_line(make, tmp_path, kind):
    source, run = foreign(tmp_path / "foreign", kind), tmp_path / "run"
    changes = {"training__max_steps": 1, "decoding__length_normalization": "gnmt"}
    train(make(source, run, tokenizer__new_tokens=WORDS, **changes), run)
    theirs, message = REFUSED[kind]
    options = ["--format", theirs, "-o", str(tmp_path / theirs)]
    result = CliRunner().invoke(app, ["export", str(run), *options])
    assert result.exit_code == 2
    assert f"{message} <medical>, Żółć; export with --format ctranslate2\n" in result.stderr
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / theirs).exists()
    ctranslate2 = pytest.importorskip("ctranslate2")
    result = CliRunner().invoke(app, ["export", str(run), "--format", "ctranslate2", "-q"])
    assert result.exit_code == 0, result.stderr
    if kind == "nllb":  # whose languages that engine here does not write
        return
    text, tokenizer = "<medical> a dog Żółć", read_tokenizer(run)
    args = ["translate", str(run), text, "--max-length", "5", "--beam-size", "1", "-q"]
    engine = ctranslate2.Translator(str(run / "ctranslate2"), compute_type="float32")
    pieces = tokenizer.source.pieces(tokenizer.source.encode(text))
    limits = {"max_decoding_length": 5, "min_decoding_length": 0}
    output = engine.translate_batch([pieces], beam_size=1, **limits)[0].hypotheses[0]
    ids = {piece: i for i, piece in enumerate(tokenizer.target.pieces(range(tokenizer.vocab_size)))}
    expected = CliRunner().invoke(app, args).stdout
    assert tokenizer.target.decode([ids[piece] for piece in output]) + "\n" == expected != "\n"


def test_new_rows_of_the_sources_vocabulary_are_in_the_runs_recipe(make, tmp_path):
    source, run = foreign(tmp_path / "foreign", "separate"), tmp_path / "run"
    crash_at(make(source, run, tokenizer__new_tokens=WORDS), run, 3)
    shutil.rmtree(source)
    shutil.rmtree(tmp_path / "cache")
    train(make(source, run, tokenizer__new_tokens=WORDS), run)
    assert read_config(run).model.source_vocab_size == read_tokenizer(run).source.vocab_size
    train(make(run, tmp_path / "more", tokenizer__new_tokens=["<law>"]), tmp_path / "more")
    assert read_tokenizer(tmp_path / "more").new_tokens == (*WORDS, "<law>")


def test_a_run_starts_from_a_directory_of_peft(make, tmp_path):
    base, adapter, run = tmp_path / "base", tmp_path / "adapter", tmp_path / "run"
    marian(base, max_position_embeddings=64)
    write_adapter(adapter, base_model_name_or_path=str(base))
    train(make(adapter, run, training__learning_rate=1e-9, training__max_steps=1), run)
    merged = load_model_directory(resolve_model(base), adapter=adapter).model.state_dict()
    plain = load_tensors(resolve_model(base) / "model.safetensors")
    tensors = load_tensors(run / "model.safetensors")
    for name, tensor in tensors.items():
        torch.testing.assert_close(tensor, merged[name], rtol=0, atol=1e-7)
    assert any(not torch.equal(plain[name], tensor) for name, tensor in merged.items())
    assert read_config(run).start.model == str(adapter)
