import pytest

from tformer_cli.wording import count_of, did_you_mean, suggestions


@pytest.mark.parametrize(
    ("number", "expected"),
    [(0, "0 lines"), (1, "1 line"), (2, "2 lines"), (1234, "1,234 lines")],
)
def test_one_is_singular(number, expected):
    assert count_of(number, "line") == expected


def test_a_plural_may_be_another_word():
    assert count_of(1, "batch", "batches") == "1 batch"
    assert count_of(3, "batch", "batches") == "3 batches"


@pytest.mark.parametrize(
    ("given", "known", "meant"),
    [
        ("--beam", ["--ban", "--beam-size", "--batch-tokens"], ["--beam-size"]),
        ("--model", ["--help", "--format", "--heads"], []),
        ("--tpo", ["--top", "--text"], ["--top"]),
        ("--opt", ["--top", "--text"], []),
        ("--list", ["--quiet", "--input"], []),
        ("--bem-size", ["--ban", "--beam-size"], ["--beam-size"]),
        ("--max", ["--max-steps", "--max-epochs", "--max-time", "--max-wait"], 3),
        ("tranlate", ["train", "translate", "evaluate"], ["translate"]),
        ("n_layers", ["d_model", "n_encoder_layers", "n_decoder_layers", "n_heads"], 2),
        ("max_step", ["max_steps", "max_epochs"], ["max_steps"]),
        ("learning_rat", ["learning_rate", "seed"], ["learning_rate"]),
        ("Seed", ["seed"], ["seed"]),
        ("", ["a"], []),
        ("-", ["--a"], []),
        ("x", ["xylophone"], []),
    ],
)
def test_guesses_are_near_or_none(given, known, meant):
    found = suggestions(given, known)
    assert len(found) == meant if isinstance(meant, int) else found == meant


def test_guesses_are_a_question():
    assert did_you_mean([]) == ""
    assert did_you_mean(["a"]) == "did you mean a?"
    assert did_you_mean(["a", "b", "c"]) == "did you mean a, b or c?"
