"""`tformer train SOURCE TARGET`: held-out sets, a chosen recipe, and a run that resumes."""

import gzip
import json
import tomllib
from collections import Counter
from pathlib import Path

import pytest
import torch

from tests.commands import output_of, record_of, refused, run
from tests.recipes import tiny_translator
from tformer_cli import runtime
from tformer_cli.errors import DataError
from tformer_cli.plugins.built_in.grammar.generate import generate_corpus
from tformer_cli.plugins.corpora_tools.commands.train_text import TextRun, text_run
from tformer_cli.plugins.corpora_tools.comparison.lengths import read_length
from tformer_cli.plugins.corpora_tools.own_text import (
    choose_recipe,
    is_written,
    read_own_text,
    write_own_text,
)
from tformer_cli.plugins.corpora_tools.quality.minhash import HeldOut
from tformer_cli.plugins.corpora_tools.seeds import report_seeds
from tformer_cli.recipe import load_recipe
from tformer_cli.text.lines import read_lines


def settings(*keys):
    return [part for key in keys for part in ("--set", key)]


SHORT = [
    *("--max-steps", "2", "--device", "cpu", "--threads", "1"),
    *settings("model.d_model=16", "model.n_heads=2", "model.d_ff=16", "model.n_encoder_layers=1"),
    *settings("tokenizer.vocab_size=300", "training.precision=float32"),
]
TINY = [
    *SHORT,
    *settings("model.n_decoder_layers=1", "decoding.max_length=6", "decoding.beam_size=1"),
    *settings("validation.max_sentences=2"),
]
"""Options that make a run of a second."""


def lines_of(path):
    return list(read_lines(path))


def sets_of(directory, ending):
    return {name: lines_of(directory / f"{name}{ending}") for name in ("train", "valid", "test")}


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """Two aligned files of 600 pairs, the source compressed."""
    folder = tmp_path_factory.mktemp("text")
    pairs = [pair for _, pair in zip(range(600), generate_corpus(2000, 3), strict=False)]
    source = "".join(f"{pair.source}\n" for _, pair in pairs)
    (folder / "all.en.gz").write_bytes(gzip.compress(source.encode(), mtime=0))
    (folder / "all.fr").write_text("".join(f"{pair.target}\n" for _, pair in pairs))
    return folder / "all.en.gz", folder / "all.fr"


@pytest.fixture(scope="module")
def trained(text, tmp_path_factory):
    directory = tmp_path_factory.mktemp("runs") / "mine"
    done = run("train", *text, "-o", directory, *TINY)
    assert done.exit_code == 0, done.stderr
    return directory, done


def test_two_files_become_three_sets_that_share_no_sentence(text, trained):
    directory, _ = trained
    for ending, file in ((".en", text[0]), (".fr", text[1])):
        sets = sets_of(directory / "data", ending)
        assert Counter(line for lines in sets.values() for line in lines) == Counter(lines_of(file))
        assert len(sets["valid"]) == len(sets["test"]) >= 8
        trained_on = HeldOut(sets["train"], near=True)
        # MinHash estimates: a pair or two at the border may stay
        near = sum(share > 0 for share in trained_on.nearly(sets["valid"] + sets["test"]))
        assert near <= len(sets["test"]) // 8
        assert not {*sets["train"]} & {*sets["valid"], *sets["test"]}


def test_the_recipe_is_written_with_its_reasons(text, trained):
    directory, done = trained
    assert done.stdout == f"{directory}\n"
    chosen = directory / "chosen.toml"
    recipe = load_recipe(str(chosen), [part for part in TINY if "." in part and "=" in part])
    assert recipe == load_recipe(str(directory / "recipe.toml"))
    assert (recipe.data.source_language, recipe.data.target_language) == ("en", "fr")
    assert recipe.data.directory == str(directory / "data")
    assert (recipe.training.optimizer, recipe.training.max_steps) == ("muon", 2)
    assert "dropout = 0.0  # for few passes over the text\n" in chosen.read_text()
    # a key that the user has set was not chosen
    assert "vocab_size" not in chosen.read_text()
    assert "training.optimizer = muon " in done.stderr
    assert "no near copies of" in done.stderr
    assert f"evaluate {directory} --source {directory}/data/test.en" in done.stderr


def test_the_same_command_again_resumes_and_writes_nothing(text, trained):
    directory, _ = trained
    before = {path: path.stat().st_mtime_ns for path in directory.rglob("*") if path.is_file()}
    done = run("train", *text, "-o", directory, *TINY)
    assert (done.exit_code, done.stdout) == (0, f"{directory}\n")
    assert "is finished: max_steps = 2 is reached" in done.stderr
    assert "held out" not in done.stderr
    assert "chose" not in done.stderr
    after = {path: path.stat().st_mtime_ns for path in directory.rglob("*") if path.is_file()}
    assert after == before


def test_another_limit_or_other_text_is_another_run(text, trained, tmp_path):
    directory, _ = trained
    refused(
        *("train", *text, "-o", directory, *TINY, "--max-steps", "3"),
        says="another recipe, training.max_steps differs; use another directory",
    )
    other = tmp_path / "all.fr"
    other.write_text(text[1].read_text() + "un\n")
    source = tmp_path / "all.en"
    source.write_text("".join(f"{line}\n" for line in [*lines_of(text[0]), "one"]))
    refused(
        *("train", source, other, "-o", directory, *TINY),
        says=f"{directory}: the run was started with other text, not {source}, {other}; use",
    )
    refused(
        *("train", *reversed(text), "-o", directory, *TINY),
        says=f"{directory}: the run was started with other text, not {text[1]}, {text[0]}; use",
    )
    recipe = tmp_path / "recipe"
    recipe.mkdir()
    (recipe / "recipe.toml").write_bytes((directory / "recipe.toml").read_bytes())
    refused(
        "train", *text, "-o", recipe, *TINY, says="started with a recipe; use another directory"
    )
    assert not (recipe / "data").exists()
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken/chosen.toml").write_text("mine = true\n")
    refused("train", *text, "-o", tmp_path / "taken", *TINY, says="chosen.toml is another file")
    (tmp_path / "taken/chosen.toml").rename(tmp_path / "taken/config.json")
    refused("train", *text, "-o", tmp_path / "taken", *TINY, says="holds a model but not a run")


def test_what_lies_in_the_place_of_the_chosen_recipe_stays(text, tmp_path):
    message = "chosen.toml is another file; name another directory"
    chosen = tmp_path / "long/chosen.toml"
    chosen.parent.mkdir()
    chosen.write_bytes(b"x" * (1 << 20) + b"y")
    (tmp_path / "folder/chosen.toml").mkdir(parents=True)
    for name in ("long", "folder"):
        refused("train", *text, "-o", tmp_path / name, *TINY, says=message)
        assert [path.name for path in (tmp_path / name).iterdir()] == ["chosen.toml"]
    assert chosen.stat().st_size == (1 << 20) + 1


def test_a_place_that_cannot_be_written_is_refused_before_choices_are_told(text, tmp_path):
    (tmp_path / "taken/data").mkdir(parents=True)
    (tmp_path / "taken/data/mine.txt").write_text("mine\n")
    for place, message in (
        (tmp_path / "taken", "data holds other files; name a new directory"),
        ("/dev/null/x", "data: cannot be written (not a directory)"),
    ):
        assert "chose" not in refused("train", *text, "-o", place, *TINY, says=message)
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_overrides_decide_as_the_options_do(text, tmp_path):
    def messages_of(*options):
        made = tmp_path / f"run-{len([*tmp_path.iterdir()])}"
        done = run("train", *text, "-o", made, "--dry-run", "--device", "cpu", *options)
        assert done.exit_code == 0, done.stderr
        return done.stderr.replace(str(made), "").splitlines()

    by_option = messages_of("--max-steps", "10")
    by_key = messages_of("--set", "training.max_steps=10")
    assert [line for line in by_option if "max_steps = " not in line] == by_key
    in_time = messages_of("--set", "training.max_minutes=0.2")[-1]
    assert in_time.startswith("expect about 1 minute of training, the limit, at ")
    for override in ("model.preset=small", 'model={preset="small"}'):
        said = "\n".join(messages_of("--max-steps", "1500", "--set", override))
        assert "model.preset" not in said
        assert "training.learning_rate = 0.006 best in tests of about" in " ".join(said.split())
    assert "model.dropout" not in said  # the table of the user has taken the place of all of it


def test_arguments_that_are_no_two_texts_say_what_to_name(text, tmp_path):
    table = tmp_path / "p.tsv"
    table.write_text("a\tb\n" * 300)
    for files in ((table, text[1]), (text[1], table)):
        hint = f"TARGET: {table} is a table of pairs; omit {text[1]}"
        refused("train", *files, "-o", tmp_path / "mine", says=hint)
    hint = "(it is compressed); to train on text, name two files: tformer train SOURCE TARGET; a l"
    refused("train", text[0], "-o", tmp_path / "mine", says=hint)
    hint = "SOURCE: several machines need a recipe; name the chosen.toml of a run on one machine"
    refused("train", *text, "-o", tmp_path, "--nodes", "1:2", "--meet", "a:1", says=hint)


@pytest.fixture
def labeled(text, tmp_path):
    """The texts, a label for each, and a table of both."""
    labels, table = tmp_path / "all.label", tmp_path / "all.tsv"
    lines = lines_of(text[1])
    labels.write_text("".join(f"{number % 6}\n" for number in range(len(lines))))
    table.write_text("".join(f"{line}\t{number % 6}\n" for number, line in enumerate(lines)))
    return text[1], labels, table


def test_labels_make_a_classifier(labeled, tmp_path):
    texts, labels, table = labeled
    for name, files in (("files", (texts, labels)), ("table", (table,))):
        done = run("train", *files, "-o", tmp_path / name, *SHORT)
        assert done.exit_code == 0, done.stderr
        assert (
            "5,000 questions (the recipe trec) gave 82 % so, and 96 % --from MiniLM" in done.stderr
        )
        recipe = tomllib.loads((tmp_path / name / "chosen.toml").read_text())
        assert recipe["task"] == {"kind": "classify"}
        assert "target_language" not in recipe["data"]
        data = tmp_path / name / "data"
        if name == "files":
            command = f"-i {data}/test.fr --reference {data}/test.label"
            tested = output_of("evaluate", tmp_path / name, *command.split(), "-q")
            assert tested.startswith("accuracy")
            # by their texts: that a label stands in all sets links no examples
            held_out = lines_of(data / "test.fr") + lines_of(data / "valid.fr")
            assert not {*held_out} & {*lines_of(data / "train.fr")}
        else:
            command = f"-i <(cut -f 1 {data}/test.tsv) --reference <(cut -f 2 {data}/test.tsv)"
        assert f"evaluate {tmp_path / name} {command}" in done.stderr


def test_a_classifier_keeps_what_its_model_knows(labeled, zoo, tmp_path):
    done = run("train", *labeled[:2], "-o", tmp_path / "mine", "--from", zoo["masked"], "--dry-run")
    assert done.exit_code == 0, done.stderr
    assert "gave 96 % from MiniLM" in done.stderr
    assert "training.optimizer = adamw" in done.stderr
    assert "model.preset" not in done.stderr


def test_labels_first_are_no_texts(labeled, tmp_path):
    texts, labels, table = labeled
    swapped = tmp_path / "swapped.tsv"
    swapped.write_text(
        "".join("\t".join(line.split("\t")[::-1]) + "\n" for line in lines_of(table))
    )
    for files, order in (((labels, texts), f"{texts} {labels}"), ((swapped,), "the column of te")):
        hint = "the source has only 6 different lines, which look like labels; for a classifier g"
        refused("train", *files, "-o", tmp_path / "mine", says=hint)
        refused("train", *files, "-o", tmp_path / "mine", says=order)


def test_files_of_the_run_are_no_input_of_it(trained):
    directory, _ = trained
    files = [directory / "data" / name for name in ("train.en", "train.fr")]
    before = [file.read_bytes() for file in files]
    message = "data holds the input (SOURCE); name another directory"
    refused("train", *files, "-o", directory, *TINY, "--fresh", "--yes", says=message)
    assert [file.read_bytes() for file in files] == before


def test_a_dry_run_shows_the_recipe_and_writes_nothing(text, tmp_path):
    directory = tmp_path / "mine"
    shown = output_of("train", *text, "-o", directory, *TINY, "--dry-run")
    assert not directory.exists()
    (tmp_path / "shown.toml").write_text(shown)
    recipe = load_recipe(str(tmp_path / "shown.toml"))
    assert recipe.data.directory == str(directory / "data")
    assert recipe.data.train[0].source == "train.en"
    assert "# sentences per batch: " in shown


def test_a_new_start_and_a_model_to_start_from(text, trained, tmp_path):
    directory, _ = trained
    tuned = tmp_path / "tuned"
    limits = ["--max-steps", "1", "--device", "cpu", "--threads", "1"]
    for _ in range(2):
        output_of("train", *text, "-o", tuned, "--from", directory, *limits, "--fresh", "--yes")
    recipe = load_recipe(str(tuned / "recipe.toml"))
    assert (recipe.model.d_model, recipe.tokenizer.vocab_size) == (16, 300)
    assert recipe.training.learning_rate == 5e-4
    assert recipe.start.model == str(directory)
    shown = output_of("train", *text, "-o", tuned, "--from", directory, *limits, "--dry-run")
    assert f"# tokens per sentence, by the tokenizer of {directory}" in shown


def test_a_table_of_pairs_is_split_too(text, tmp_path):
    table = tmp_path / "pairs.tsv"
    rows = zip(lines_of(text[0]), lines_of(text[1]), strict=True)
    table.write_text("".join(f"{source}\t{target}\n" for source, target in rows))
    own = read_own_text([str(table)], tmp_path / "run")
    chosen = choose_recipe(own, tmp_path / "run", [], {}, fresh=False)
    assert not is_written(tmp_path / "run", chosen)
    write_own_text(own, tmp_path / "run", chosen)
    assert is_written(tmp_path / "run", chosen)
    # A process of an agent does not choose again
    again = choose_recipe(own, tmp_path / "run", [], {}, fresh=True, is_chosen=True)
    assert (again.text, again.choices) == (chosen.text, ())
    told = TextRun(own=own, chosen=chosen, run=tmp_path / "run").test_command(Path("a run"))
    columns = [f"<(cut -f {number} {tmp_path}/run/data/test.tsv)" for number in (1, 2)]
    assert told == (
        f"test it: tformer evaluate 'a run' --source {columns[0]} --reference {columns[1]}"
    )
    recipe = load_recipe(str(tmp_path / "run" / "chosen.toml"))
    assert [pairs.tsv for pairs in (*recipe.data.train, *recipe.data.valid)] == [
        "train.tsv", "valid.tsv",
    ]  # fmt: skip
    assert Counter(
        line for lines in sets_of(tmp_path / "run/data", ".tsv").values() for line in lines
    ) == Counter(lines_of(table))


def write_recipe(folder, sources, targets):
    (folder / "a.en").write_text("".join(f"{line}\n" for line in sources))
    (folder / "a.de").write_text("".join(f"{line}\n" for line in targets))
    own = read_own_text([str(folder / "a.en"), str(folder / "a.de")], folder / "run")
    chosen = choose_recipe(own, folder / "run", [], {}, fresh=False)
    return write_own_text(own, folder / "run", chosen)


def test_text_of_near_copies_is_held_out_by_whole_sentences(tmp_path):
    frame = "the long and quite unremarkable sentence about the number {} in this corpus"
    sources = [frame.format(number) for number in range(300)]
    report, is_near = write_recipe(tmp_path, sources, [source.upper() for source in sources])
    assert not is_near
    assert report.pairs == {"train": 276, "valid": 12, "test": 12}


def test_text_of_one_sentence_cannot_be_held_out(tmp_path):
    with pytest.raises(DataError, match=r"a\.en, .*a\.de: nearly all sentences occur several"):
        write_recipe(tmp_path, ["the same"] * 300, ["dasselbe"] * 300)
    assert not (tmp_path / "run").exists()


def test_runs_of_several_seeds_are_scored_on_the_test_set(text, tmp_path):
    directory = tmp_path / "mine"
    command = ["train", *text, "-o", directory, *TINY, "--seeds", "1, 3"]
    done = run(*command)
    shown = done.stdout
    assert "2 seeds, 24 test examples" in shown
    assert "p: probability of a difference from the first run" in done.stderr
    report = json.loads((directory / "seeds.json").read_text())
    assert report["runs"] == ["seed-1", "seed-3"]
    assert report["steps"] == [read_length(directory / run).steps for run in report["runs"]]
    assert [measure["name"] for measure in report["measures"]] == ["BLEU", "chrF2"]
    source, target = (str(directory / f"data/test.{code}") for code in ("en", "fr"))
    for place, seed in enumerate((1, 3)):
        recipe = load_recipe(str(directory / f"seed-{seed}" / "recipe.toml"))
        assert recipe.training.seed == seed
        record = record_of(
            *("evaluate", directory / f"seed-{seed}", "-i", source, "--reference", target),
            *("--format", "json", "--device", "cpu"),
        )
        values = [measure["values"][place] for measure in report["measures"]]
        assert values == [record["bleu"]["score"], record["chrf"]["score"]]
    for measure in report["measures"]:
        assert measure["mean"] == pytest.approx(sum(measure["values"]) / 2)
        gap = measure["values"][0] - measure["values"][1]
        assert measure["deviation"] == pytest.approx(abs(gap) / 2**0.5)
        assert measure["p_values"][0] == 1.0
    before = {path: path.stat().st_mtime_ns for path in directory.rglob("*") if path.is_file()}
    assert output_of(*command) == shown
    after = {path: path.stat().st_mtime_ns for path in directory.rglob("*") if path.is_file()}
    assert after == before


def test_seeds_of_a_recipe_are_scored_on_its_validation_set(tmp_path):
    (tmp_path / "tiny.toml").write_text(tiny_translator(tmp_path)(training__max_steps=9).to_toml())
    command = ["train", tmp_path / "tiny.toml", "-o", tmp_path / "runs", "--device", "cpu"]
    command += ["--max-steps", "1", "--threads", "1", "--seeds"]
    assert "2 seeds, 15 validation examples" in output_of(*command, "2,1")
    assert not (tmp_path / "runs" / "recipe.toml").exists()
    for seeds in ("1", "1,1", "1,x", "1,,2", "-1,2"):
        refused(
            *command,
            seeds,
            says=f'--seeds: "{seeds}" is not a list of different seeds; write 1,2,3',
        )
    for seeds, named in ((str(1 << 63), str(1 << 63)), ("1" * 5000, f"{'1' * 39}…")):
        refused(
            *command, f"1,{seeds}", says=f"--seeds: each must be below 2^63, but one is {named}"
        )
    refused(*command, "1,2", "--seed", "3", says="--seed, --seeds: exclude each other")
    refused(*command, "2,3", says="runs has runs of 1, 2; name these seeds too (finished runs are")
    refused(*command, "1,2", "--processes", "2", says="--seeds: only for training in one process")
    bare = ["--set", "data.valid=[]", "--fresh", "--yes"]
    refused(*command, "1,2", *bare, says="--seeds: comparing the runs needs data.valid")


def test_the_first_seed_decides_how_many_steps_the_others_make(tmp_path):
    (tmp_path / "tiny.toml").write_text(
        tiny_translator(tmp_path)(training__max_minutes=0.02, training__warmup_steps=50).to_toml()
    )
    command = ["train", tmp_path / "tiny.toml", "-o", tmp_path / "runs", "--device", "cpu"]
    command += ["--threads", "1", "--seeds", "1,2,3"]
    shown = output_of(*command)
    first, *others = (read_length(tmp_path / "runs" / f"seed-{seed}") for seed in (1, 2, 3))
    assert first.reason.startswith("max_minutes")
    assert [(run.steps, run.reason) for run in others] == [
        (first.steps, f"max_steps = {first.steps} is reached")
    ] * 2
    recipe = load_recipe(str(tmp_path / "runs/seed-2/recipe.toml"))
    assert recipe.training.warmup_steps == min(50, round(0.1 * first.steps))
    assert [line.split()[1] for line in shown.splitlines() if line.startswith("seed-")] == [
        f"{first.steps:,}"
    ] * 6
    assert output_of(*command) == shown
    # A run of its own length, as of an earlier version, is named
    state = max((tmp_path / "runs/seed-3/checkpoints").iterdir()) / "state.json"
    state.write_text(state.read_text().replace(f'"step": {first.steps}', '"step": 7', 1))
    (tmp_path / "runs/seeds.json").unlink()
    runs = [tmp_path / "runs" / f"seed-{seed}" for seed in (1, 2, 3)]
    doubts = []
    report = report_seeds(
        recipe, runs, tmp_path / "runs", None, tell=str, warn=doubts.append, device="cpu"
    )
    assert report.steps == (first.steps, first.steps, 7)
    assert "seed-3 7)" in doubts[0]


@pytest.mark.parametrize(
    ("overrides", "tokens", "rate"),
    [
        ([], 4816, 7.67e-3),
        (["training.precision=float32"], 4816, 7.67e-3),
        (["training.tokens_per_batch=3000"], 2048, 5e-3),  # the user's batch replaces it
        (["model.from=elsewhere"], 2048, 5e-4),  # the size of that model is unknown here
    ],
)
def test_a_gpus_free_memory_makes_the_batch(tmp_path, monkeypatch, overrides, tokens, rate):
    lines = [f"{number:05} {'x' * 65}\n" for number in range(29_000)]
    files = tuple(str(tmp_path / name) for name in ("a.en", "a.de"))
    for file in files:
        Path(file).write_text("".join(lines))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (80 * 10**9, 81 * 10**9))
    monkeypatch.setattr(runtime, "has_fast_bfloat16", {"cuda": True, "cpu": False}.get)
    keys = [override.partition("=")[0] for override in overrides]
    options = {"group": None, "device": "cuda", "threads": 0, "fresh": False, "overridden": keys}
    chosen = text_run(files, tmp_path / "run", [], overrides, **options).chosen
    training = tomllib.loads(chosen.text)["training"]
    assert training.get("tokens_per_batch", 2048) == tokens
    assert training["learning_rate"] == rate
    assert "no time estimate for this GPU" in chosen.expected
