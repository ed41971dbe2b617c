"""A label for each word: training, labels of lines, scores by hand, logits of transformers."""

import json
from dataclasses import replace
from itertools import product

import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from tests.watched_training import Watcher
from tests.zoo import Zoo
from tformer_cli import load
from tformer_cli.artifacts.config_file import read_config
from tformer_cli.artifacts.model_directory import load_model_directory
from tformer_cli.cli.app import app
from tformer_cli.errors import ArtifactError, DataError
from tformer_cli.kinds.lines.job import ResultCounts
from tformer_cli.kinds.opening import open_model
from tformer_cli.kinds.tag import Window, WordTokenizer, tag_texts, windows
from tformer_cli.recipe import make_recipe
from tformer_cli.text.loading.encoded import encode_corpus
from tformer_cli.text.tokenizer import PAD_ID, UNK_ID
from tformer_cli.train.plan import plan_training
from tformer_cli.train.train import train
from tformer_cli.trainer.events import ValidationReport

WORDS = {"PER": ["anna", "bob"], "VERB": ["sees", "calls"], "DET": ["the", "every"],
         "NOUN": ["dog", "telephone", "umbrella"], "OBJ": ["her", "him"]}  # fmt: skip
TEMPLATES = [("PER", "VERB", "DET", "NOUN"), ("DET", "NOUN", "VERB", "OBJ"), ("PER", "VERB", "PER")]
SENTENCES = [
    (" ".join(words), " ".join(labels))
    for labels in TEMPLATES
    for words in product(*(WORDS[label] for label in labels))
]


def write(folder, name, pairs):
    for ending, lines in zip(("words", "tags"), zip(*pairs, strict=True), strict=True):
        (folder / f"{name}.{ending}").write_text("".join(f"{line}\n" for line in lines))


@pytest.fixture(scope="module")
def make(tmp_path_factory):
    """Makes recipes of a tiny tagger, with keys changed."""
    folder = tmp_path_factory.mktemp("tags")
    write(folder, "train", [sentence for number, sentence in enumerate(SENTENCES) if number % 4])
    write(folder, "valid", SENTENCES[::4])

    def build(**changes):
        train_set, valid = (
            [{"source": f"{name}.words", "target": f"{name}.tags"}] for name in ("train", "valid")
        )
        values = {
            "task": {"kind": "tag"},
            "data": {"train": train_set, "valid": valid, "directory": str(folder),
                     "cache_directory": str(folder / "cache"), "max_length": 30},
            "tokenizer": {"vocab_size": 300},
            "model": {"d_model": 32, "n_heads": 2, "d_ff": 32, "n_encoder_layers": 1,
                      "max_positions": 31},
            "training": {"max_steps": 150, "tokens_per_batch": 256, "warmup_steps": 10,
                         "learning_rate": 1e-2, "schedule": "linear", "precision": "float32",
                         "average": "none"},
            "validation": {"every": 50},
        }  # fmt: skip
        for table, keys in changes.items():
            values[table] = {**values[table], **keys}
        return make_recipe(values, "test")

    return build


@pytest.fixture(scope="module")
def run(make, tmp_path_factory):
    path, watcher = tmp_path_factory.mktemp("run") / "run", Watcher()
    train(make(), path, device="cpu", observers=[watcher])
    return path, watcher


@pytest.fixture(scope="module")
def tagger(run):
    return run[0]


def invoke(*arguments, stdin=None):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin)


def test_a_run_learns_the_labels_of_words(run):
    path, watcher = run
    last = watcher.of(ValidationReport)[-1]
    assert set(last.scores) == {"loss", "accuracy", "macro_f1"}
    assert last.scores["accuracy"] == 100.0
    assert (last.sample_source, last.sample_reference) in SENTENCES
    assert last.sample_translation == last.sample_reference
    record = read_config(path)
    assert (record.task, record.model.head) == ("tag", "tags")
    assert record.labels == ("DET", "NOUN", "OBJ", "PER", "VERB")


def test_only_the_first_token_of_a_word_is_a_target(tagger, make):
    texts = load_model_directory(tagger, tasks=("tag",)).tokenizer
    labels = read_config(tagger).labels
    sides = WordTokenizer(texts, labels)
    text = "anna sees the telephone"
    sources, targets = sides.encode_pairs([text], ["PER VERB DET NOUN"])
    words = [texts.source.encode_phrases([word])[0] for word in text.split()]
    assert sources == [[token for word in words for token in word]]
    assert max(map(len, words)) > 1
    expected = []
    for word, label in zip(words, ("PER", "VERB", "DET", "NOUN"), strict=True):
        expected += [labels.index(label) + 4, *[PAD_ID] * (len(word) - 1)]
    assert targets == [expected]
    # the cache has the same, in pairs as long as each other
    recipe = make()
    corpus = encode_corpus(recipe.data.train[0], recipe.data, sides)
    lengths = corpus.lengths(range(len(corpus)))
    assert lengths[0].tolist() == lengths[1].tolist()


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        (
            ("anna sees", "PER"),
            'data: "anna sees" has 2 words but 1 label; give one label for each',
        ),
        (("anna", "PLACE"), 'data: "PLACE" is not one of the labels'),
    ],
)
def test_labels_that_do_not_fit_are_refused(tagger, pair, message):
    texts = load_model_directory(tagger, tasks=("tag",)).tokenizer
    with pytest.raises(DataError, match=message):
        WordTokenizer(texts, ["PER", "VERB"]).encode_pairs([pair[0]], [pair[1]])


def test_a_dry_run_reads_a_label_for_each_word(make):
    plan = plan_training(make())
    assert plan.source_tokens == plan.target_tokens > 3
    assert plan.example[2] == SENTENCES[1][1].split()


def test_bpe_dropout_would_move_words_from_their_labels(make, tmp_path):
    with pytest.raises(DataError, match=r"^tokenizer.bpe_dropout: .*omit it$"):
        train(make(tokenizer={"bpe_dropout": 0.1}), tmp_path / "run", device="cpu")


def test_a_line_of_labels_comes_out_for_each_line_of_words(tagger, tmp_path):
    lines = ["anna sees every umbrella", "", "   ", "the dog calls him"]
    done = invoke("tag", tagger, "-q", stdin="\n".join(lines))
    assert done.stdout.splitlines() == ["PER VERB DET NOUN", "", "", "DET NOUN VERB OBJ"]
    done = invoke("tag", tagger, "bob", "", "--format", "jsonl", "-o", tmp_path / "out")
    first, second = map(json.loads, (tmp_path / "out").read_text().splitlines())
    assert first["words"][0]["word"] == "bob"
    assert first["words"][0]["label"] == "PER"
    assert 0.5 < first["words"][0]["probability"] <= 1.0
    assert second == {"index": 1, "text": "", "words": []}


def test_every_word_of_a_long_line_gets_a_label(tagger):
    opened = open_model(tagger, "tag", device="cpu")
    text = " ".join(["the telephone calls him"] * 20)
    (tagged,) = tag_texts(opened, [text])
    assert [word.word for word in tagged.words] == text.split()
    assert tagged.n_parts > 1
    counts = ResultCounts()
    counts.add(tagged)
    assert counts.split == 1
    assert json.loads(tagged.line("jsonl"))["parts"] == tagged.n_parts
    longest = opened.config.longest_source
    assert all(
        len(window.ids) <= longest
        for window in windows(opened.directory.tokenizer.source, text, longest)
    )


def test_a_word_without_tokens_or_too_long_is_a_word():
    class Side:
        start, end = (7,), (8,)

        def encode_phrases(self, words):
            return [[9] * (0 if word == "x" else len(word)) for word in words]

    assert list(windows(Side(), "x yyy")) == [Window([7, UNK_ID, 9, 9, 9, 8], [1, 2])]
    assert list(windows(Side(), "yy zzzzzz x", 5)) == [
        Window([7, 9, 9, 8], [1]), Window([7, 9, 9, 9, 8], [1]), Window([7, UNK_ID, 8], [1])
    ]  # fmt: skip
    assert list(windows(Side(), " ")) == []


@pytest.mark.parametrize("by_kernels", [True, False])
def test_neighbors_change_no_bit_of_a_line(tagger, by_kernels):
    opened = open_model(tagger, "tag", device="cpu", by_kernels=by_kernels)
    if by_kernels and opened.compiled is None:
        pytest.skip("no compiled kernels")
    texts = [text for text, _ in SENTENCES[:12]] + ["the umbrella " * 30]
    together = tag_texts(opened, texts)
    for number, text in enumerate(texts):
        assert tag_texts(opened, [text], number) == [together[number]]


def test_kernels_and_torch_agree(tagger):
    opened = open_model(tagger, "tag", device="cpu")
    if opened.compiled is None:
        pytest.skip("no compiled kernels")
    texts = [text for text, _ in SENTENCES[::5]]
    by_torch = tag_texts(replace(opened, compiled=None), texts)
    for ours, theirs in zip(tag_texts(opened, texts), by_torch, strict=True):
        assert [word.label for word in ours.words] == [word.label for word in theirs.words]
        for a, b in zip(ours.words, theirs.words, strict=True):
            assert a.probability == pytest.approx(b.probability, abs=1e-5)


def test_scores_are_those_of_a_table_worked_by_hand(tagger, tmp_path):
    """The model is right about all words, so wrong references make a table of known counts."""
    texts = ["anna sees the dog", "bob calls her", ""]
    right = ["PER VERB DET NOUN", "PER VERB OBJ", ""]
    wrong = ["PER VERB DET OBJ", "OBJ VERB OBJ", ""]
    write(tmp_path, "right", list(zip(texts, right, strict=True)))
    write(tmp_path, "wrong", list(zip(texts, wrong, strict=True)))
    arguments = ("evaluate", tagger, "-i", tmp_path / "wrong.words", "--format", "json", "-q")
    done = invoke(
        *arguments, "--reference", tmp_path / "wrong.tags", "--baseline", tmp_path / "wrong.tags",
        "-o", tmp_path / "given",
    )  # fmt: skip
    scores = json.loads(done.stdout)
    assert (tmp_path / "given").read_text().splitlines() == right
    # given PER PER VERB VERB DET NOUN OBJ, right PER OBJ VERB VERB DET OBJ OBJ: 5 of 7
    assert scores["words"] == 7
    assert scores["accuracy"] == pytest.approx(100 * 5 / 7)
    by_label = {row["label"]: row for row in scores["labels"]}
    expected = {  # precision, recall, F1 = 2·P·R / (P + R), examples; nothing there is 0
        "DET": (100, 100, 100, 1), "NOUN": (0, 0, 0, 0), "OBJ": (100, 100 / 3, 50, 3),
        "PER": (50, 100, 200 / 3, 1), "VERB": (100, 100, 100, 2),
    }  # fmt: skip
    for label, numbers in expected.items():
        row = by_label[label]
        found = (row["precision"], row["recall"], row["f1"], row["examples"])
        assert found == pytest.approx(numbers)
    assert scores["macro_f1"] == pytest.approx((100 + 0 + 50 + 200 / 3 + 100) / 5)
    # with itself as baseline nothing is by chance; 100 % of the other labels' words are "right"
    assert scores["changes"][0]["baseline"] == pytest.approx(100.0)
    assert invoke(*arguments[:3], tmp_path / "right.words", "--reference",
                  tmp_path / "right.tags").stdout.split()[1] == "100.00"  # fmt: skip


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ("PER VERB", 'line 2: "bob calls her" has 3 words but 2 labels; give one label for each'),
        ("PER VERB X", 'line 2 of texts and labels: "X" is not a label of'),
    ],
)
def test_a_file_of_labels_that_does_not_fit_is_refused_by_its_line(
    tagger, tmp_path, labels, message
):
    write(tmp_path, "a", [("anna", "PER"), ("bob calls her", labels)])
    done = invoke(
        "evaluate", tagger, "-i", tmp_path / "a.words", "--reference", tmp_path / "a.tags"
    )
    assert done.exit_code == 2
    assert message in done.stderr


def test_python_labels_words_and_shows_their_heads(tagger):
    loaded = load(tagger, device="cpu")
    first, second = loaded.tag(["anna sees the dog", ""])
    assert [word.label for word in first.words] == ["PER", "VERB", "DET", "NOUN"]
    assert second.words == ()
    (record,) = loaded.heads(["anna sees the telephone"])
    assert record.target == "PER VERB DET NOUN"
    places = [gap.position for gap in record.gaps]
    assert places == [n for n, piece in enumerate(record.source_pieces) if piece.startswith("▁")]
    with pytest.raises(ArtifactError, match=r"is a tagger.*; call its tag\(\), embed\(\) or heads"):
        loaded.classify(["x"])


@pytest.mark.parametrize("view", ["flow", "logits"])
def test_views_show_the_words(tagger, view):
    done = invoke(f"inspect-{view}", tagger, "bob calls the dog", "--format", "jsonl", "-q")
    record = json.loads(done.stdout)
    assert [gap["piece"] for gap in record["gaps"]] == ["PER", "VERB", "DET", "NOUN"]
    assert [position["piece"] for position in record["positions"]] == ["PER", "VERB", "DET", "NOUN"]


def test_the_walk_to_a_label_agrees_with_the_model(tagger):
    done = invoke("inspect-step", tagger, "bob calls the dog", "--token", "dog", "--verify", "1e-4")
    assert done.exit_code == 0, done.stderr
    assert "The label here is NOUN" in " ".join(done.stdout.split())


def test_the_loss_of_an_ablation_is_that_of_the_evaluation(tagger, tmp_path):
    write(tmp_path, "a", SENTENCES[::6])
    files = ("-i", tmp_path / "a.words", "--reference", tmp_path / "a.tags", "-q")
    scores = json.loads(invoke("evaluate", tagger, *files, "--format", "json").stdout)
    done = invoke("inspect-ablate", tagger, *files, "--format", "jsonl")
    whole = json.loads(done.stdout.splitlines()[0])
    assert whole["loss"] == pytest.approx(scores["loss"], abs=1e-5)
    assert whole["tokens"] == scores["words"]


def test_a_run_starts_from_a_masked_model_or_a_tagger(tagger, tmp_path):
    """Another head is replaced; a tagger's stays, so that its labels are right at once."""
    zoo = Zoo(tmp_path / "zoo")
    write(tmp_path, "a", SENTENCES)
    recipe = tmp_path / "a.toml"
    corpus = f'[{{ source = "{tmp_path}/a.words", target = "{tmp_path}/a.tags" }}]'
    recipe.write_text(
        f'[task]\nkind = "tag"\n[data]\ntrain = {corpus}\nvalid = {corpus}\n'
        '[training]\nmax_steps = 1\nlearning_rate = 1e-9\naverage = "none"\n'
    )
    for start, is_right in ((zoo["masked"], False), (tagger, True)):
        run = tmp_path / f"from-{start.name}"
        done = invoke("train", recipe, "-o", run, "--from", start, "-q")
        assert done.exit_code == 0, done.stderr
        record = read_config(run)
        assert (record.task, record.labels) == ("tag", ("DET", "NOUN", "OBJ", "PER", "VERB"))
        assert (record.scores["accuracy"] > 99.0) == is_right


@pytest.mark.parametrize("kind", ["bert", "distilbert", "electra"])
def test_words_have_the_labels_of_transformers(tmp_path, kind):
    """An imported tagger, with a pooler that nothing reads, has its library's probabilities."""
    pytest.importorskip("transformers")
    from tests.foreign.encoders import write_directory
    from tformer_cli.foreign.import_model import import_model

    names = {0: "O", 1: "B-PER", 2: "B-LOC"}
    theirs, pieces = write_directory(
        tmp_path / kind, kind, "ForTokenClassification", id2label=names,
        label2id={name: place for place, name in names.items()},
    )  # fmt: skip
    if kind == "bert":  # as the library wrote taggers before version 4
        file = tmp_path / kind / "model.safetensors"
        pooler = {"bert.pooler.dense.weight": torch.ones(16, 16),
                  "bert.pooler.dense.bias": torch.ones(16)}  # fmt: skip
        save_file({**load_file(file), **pooler}, file)
    found = import_model(str(tmp_path / kind), tmp_path / "tagger")
    assert any("next-sentence" in note for note in found.notes) == (kind == "bert")
    opened = open_model(tmp_path / "tagger", "tag", device="cpu")
    assert opened.directory.info.labels == tuple(names.values())
    words = ["The", "unbelievable", "café", "was", "friendly", "."]
    encoding = pieces.encode(words, is_pretokenized=True)
    with torch.inference_mode():
        wanted = theirs(torch.tensor([encoding.ids])).logits[0].double().softmax(dim=1)
    best = [wanted[encoding.word_to_tokens(n)[0]].max(dim=0) for n in range(len(words))]
    by_torch = replace(opened, compiled=None)
    for model in (opened, by_torch):
        (tagged,) = tag_texts(model, [" ".join(words)])
        assert [word.label for word in tagged.words] == [names[int(top.indices)] for top in best]
        assert [word.probability for word in tagged.words] == pytest.approx(
            [float(top.values) for top in best], abs=1e-5
        )
