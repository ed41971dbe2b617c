"""Language models from recipe to text: data, training, validation, resumption."""

import math

import pytest

from tests.recipes import LEARNING, SHAPE, recipe_maker
from tests.watched_training import crash_at, digest
from tformer_cli.artifacts.model_directory import load_model_directory
from tformer_cli.kinds import training_of
from tformer_cli.kinds.lines.generate import generate_texts
from tformer_cli.plugins.built_in.quickstart import held_out_pairs
from tformer_cli.search.scoring import score_texts
from tformer_cli.text.batching import collate
from tformer_cli.text.tokenizer import BOS_ID, EOS_ID, PAD_ID
from tformer_cli.train.data import completed_recipe, encoded_corpora, make_tokenizer
from tformer_cli.train.plan import plan_training
from tformer_cli.train.train import train

LINES = ["abcabcabc", "", "bcabca", "cabcabcabcab", "abcab"] * 12
TEXT = "".join(f"{line}\n" for line in LINES)


@pytest.fixture
def make(tmp_path):
    """Makes recipes; keyword arguments are keys with two underscores for the dot."""
    (tmp_path / "text.txt").write_text(TEXT)

    return recipe_maker(
        tmp_path,
        task={"kind": "language-model"},
        data={"train": [{"text": "text.txt"}], "valid": [{"text": "text.txt"}], "max_length": 16},
        tokenizer={"algorithm": "char", "vocab_size": 50},
        model={**SHAPE, "n_decoder_layers": 1, "max_positions": 40, "dropout": 0.1},
        training={
            **LEARNING, "max_steps": 16, "tokens_per_batch": 128, "warmup_steps": 4,
            "report_every": 1, "checkpoint_every": 4,
        },
        validation={"every": 8},
    )  # fmt: skip


def examples(recipe):
    recipe = completed_recipe(recipe)
    tokenizer = make_tokenizer(recipe)
    (corpus,) = encoded_corpora(recipe, tokenizer, lambda what, n: None)
    sources, targets = corpus.token_ids(range(len(corpus)))
    assert not any(sources)
    return tokenizer, targets, corpus


def test_defaults_are_those_of_the_task(make):
    recipe = make()
    assert recipe.model.is_decoder_only
    assert recipe.decoding.sampling
    assert recipe.training.label_smoothing == 0.0
    assert recipe.validation.metric == "loss"
    assert make(training__label_smoothing=0.2).training.label_smoothing == 0.2
    assert make(model__preset="tiny").model.n_encoder_layers == 0


def test_lines_are_texts_and_blank_ones_are_not(make):
    tokenizer, targets, corpus = examples(make())
    assert tokenizer.target.decode_batch(targets) == [line for line in LINES if line]
    assert corpus.dropped["blank"] == 12
    assert len(examples(make(data__max_length=9))[1]) == 36


@pytest.mark.parametrize("algorithm", ["char", "byte", "bpe"])
def test_a_stream_is_cut_into_blocks_and_loses_nothing(make, algorithm):
    size = 400 if algorithm == "bpe" else 50
    recipe = make(data__text="stream", tokenizer__algorithm=algorithm, tokenizer__vocab_size=size)
    tokenizer, targets, _ = examples(recipe)
    assert {len(ids) for ids in targets[:-1]} == {16}
    whole = [token for ids in targets for token in ids]
    assert tokenizer.target.decode(whole) == TEXT


@pytest.mark.parametrize("target_bos", [True, False])
@pytest.mark.parametrize("target_eos", [True, False])
def test_batches_begin_and_end_as_the_texts_do(target_bos, target_eos):
    batch = collate([[], []], [[5, 6, 7], [8, 9]], target_bos=target_bos, target_eos=target_eos)
    begin, end = [BOS_ID] * target_bos, [EOS_ID] * target_eos
    for row, ids in enumerate(([5, 6, 7], [8, 9])):
        whole = [*begin, *ids, *end]
        for side, expected in (
            (batch.target_input, whole[:-1]),
            (batch.target_output, whole[1:]),
        ):
            padding = [PAD_ID] * (side.shape[1] - len(expected))
            assert side[row].tolist() == expected + padding


@pytest.mark.parametrize("text", ["lines", "stream"])
def test_training_learns_and_resumes_exactly(make, tmp_path, text):
    recipe = make(data__text=text)
    state = train(recipe, tmp_path / "whole").state
    first, last = (state.validations[place]["loss"] for place in (0, -1))
    assert last < first < math.log(10)
    crash_at(recipe, tmp_path / "run", 11)
    train(recipe, tmp_path / "run")
    assert digest(tmp_path / "run") == digest(tmp_path / "whole")
    config = load_model_directory(tmp_path / "run", tasks=("language-model",)).config
    assert config.target_eos == (text == "lines")


@pytest.mark.parametrize("text", ["lines", "stream"])
def test_validation_is_that_of_the_whole_text(make, tmp_path, text):
    state = train(make(data__text=text), tmp_path / "run").state
    directory = load_model_directory(tmp_path / "run", tasks=("language-model",))
    texts = [TEXT] if text == "stream" else [line for line in LINES if line]
    ids = directory.tokenizer.target.encode_batch(texts)
    # by blocks and without any window: a forced pass over each
    blocks = ids
    if text == "stream":
        blocks = [ids[0][start : start + 16] for start in range(0, len(ids[0]), 16)]
    rows = score_texts(
        directory.model, blocks, window=40, stride=40, batch_tokens=400, device="cpu"
    )
    values = [value for row in rows for value in row]
    scores = state.validations[-1]
    assert scores["loss"] == pytest.approx(-sum(values) / len(values), rel=1e-5)
    assert scores["perplexity"] == pytest.approx(math.exp(scores["loss"]))
    n_bytes = len(TEXT) if text == "stream" else sum(len(line) + 1 for line in texts)
    total = -sum(values) / math.log(2)
    assert scores["bits_per_byte"] == pytest.approx(total / n_bytes, rel=1e-5)


def test_a_trained_model_goes_on_as_the_text_does(make, tmp_path):
    recipe = make(data__text="stream", training__max_steps=150, model__dropout=0.0)
    train(recipe, tmp_path / "run")
    (result,) = generate_texts(tmp_path / "run", ["abcabcabc\n\nbca"], beam_size=1, max_length=3)
    assert result.texts[0].text == "bca"


def test_a_dry_run_shows_blocks(make):
    plan = plan_training(make(data__text="stream"))
    assert plan.target_tokens == pytest.approx(16, abs=1)
    assert plan.batch_shapes[0][1:] == (1, 16)
    assert plan_training(make()).batch_shapes[0][1] == 1


@pytest.mark.parametrize(
    ("corpus", "rows"),
    [
        ({"jsonl": "a.jsonl"}, '{{"text": "{}"}}'),
        ({"jsonl": "a.jsonl", "text_field": "doc.body"}, '{{"doc": {{"body": "{}"}}}}'),
        ({"dataset": "a.jsonl", "text_field": "doc"}, '{{"n": 1, "doc": "{}"}}'),
        ({"tsv": "a.tsv", "text_field": "2"}, "7\t{}"),
    ],
)
@pytest.mark.parametrize("kind", ["lines", "stream"])
def test_texts_in_fields_are_those_of_lines(make, tmp_path, corpus, rows, kind):
    (name,) = (corpus[key] for key in ("jsonl", "dataset", "tsv") if key in corpus)
    (tmp_path / name).write_text("".join(f"{rows.format(line)}\n" for line in LINES))
    corpus = {**corpus, **({"dataset": str(tmp_path / name)} if "dataset" in corpus else {})}
    expected = examples(make(data__text=kind))[1]
    assert examples(make(data__text=kind, data__train=[corpus]))[1] == expected


def test_one_side_of_what_is_built_in_is_text(make):
    recipe = make(data__train=[{"built_in": "test", "pairs": 20}], data__max_length=80,
                  model__max_positions=100)  # fmt: skip
    _, _, english = examples(recipe)
    assert english.texts([0])[1] == [held_out_pairs(recipe)[0].source]


def test_a_run_that_ends_within_its_warm_up_is_doubted(make):
    task = training_of(make())
    (doubt,) = task.doubts(make(training__max_steps=4))
    assert doubt.startswith("training.max_steps: 4 steps end within the warm-up of 4 steps")
    assert not list(task.doubts(make()))
