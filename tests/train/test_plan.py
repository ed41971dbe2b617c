import pytest

from tformer_cli.errors import DataError, RecipeError
from tformer_cli.model.weight_shapes import parameter_count
from tformer_cli.recipe import make_recipe
from tformer_cli.train.plan import plan_training


def recipe(directory, *names, **tokenizer):
    return make_recipe(
        {
            "data": {
                "train": [{"tsv": name} for name in names],
                "directory": str(directory),
                "max_length": 20,
            },
            "tokenizer": {"algorithm": "word", "vocab_size": 40, **tokenizer},
            "model": {"preset": "tiny"},
            "training": {"max_steps": 1, "tokens_per_batch": 64},
        },
        "test",
    )


@pytest.fixture
def corpora(tmp_path):
    (tmp_path / "a.tsv").write_text("the cat\tle chat noir\n\tblank\n" * 10)
    (tmp_path / "b.tsv").write_text("a dog\tun chien\n" * 10 + f"{'x ' * 30}\ty\n")
    return tmp_path


def test_a_plan_describes_every_corpus_and_batch(corpora):
    chosen = recipe(corpora, "a.tsv", "b.tsv")
    plan = plan_training(chosen)
    assert plan.n_sampled == 21
    assert plan.n_parameters == parameter_count(chosen.model, 40)
    assert plan.source_tokens == 2.0
    assert plan.target_tokens == 2.5
    assert all(b * max(s, t) <= 64 for b, s, t in plan.batch_shapes)
    assert plan.example[0].source == "the cat"
    assert any("parameters: " in line for line in plan.lines())


def test_broken_lines_are_counted_among_the_doubts(corpora):
    (corpora / "a.tsv").write_bytes(b"the cat\tle chat\n" * 20 + b"M\xe4dchen\tfille\n" * 2)
    *_, doubt = plan_training(recipe(corpora, "a.tsv")).doubts
    assert doubt == (
        "data.train: of the 22 lines that were looked at 2 are not UTF-8; they would be read as "
        "U+FFFD"
    )


def test_every_corpus_must_be_there_and_hold_something(corpora):
    with pytest.raises(DataError, match=r"missing\.tsv"):
        plan_training(recipe(corpora, "a.tsv", "missing.tsv"))
    (corpora / "empty.tsv").write_text("")
    with pytest.raises(DataError, match="has no sentence pairs"):
        plan_training(recipe(corpora, "empty.tsv"))
    (corpora / "long.tsv").write_text(f"{'x ' * 30}\ty\n")
    with pytest.raises(DataError, match="no usable sentence pair"):
        plan_training(recipe(corpora, "long.tsv"))


def test_a_tokenizer_that_does_not_fit_is_refused(corpora):
    from tformer_cli.text.config import TokenizerConfig
    from tformer_cli.text.train_tokenizer import train_tokenizer

    words = train_tokenizer(["the cat"] * 3, TokenizerConfig(algorithm="word", vocab_size=10))
    (corpora / "tokenizer.json").write_text(words.to_json())
    assert plan_training(recipe(corpora, "a.tsv", path="tokenizer.json")).vocab_size < 40
    with pytest.raises(RecipeError, match="needs a BPE tokenizer"):
        plan_training(recipe(corpora, "a.tsv", path="tokenizer.json", bpe_dropout=0.1))
