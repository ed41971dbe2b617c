import json
import math

import pytest

from tformer_cli.errors import DataError, UsageError
from tformer_cli.quality.model_scores import ModelScores


def write(path, lines):
    path.write_text("".join(f"{line}\n" for line in lines))
    return str(path)


def test_two_models_give_the_dual_conditional_cross_entropy(tmp_path):
    there, back = [-0.5, -4.0, -1.0], [-0.5, -1.0, -2.0]
    files = write(tmp_path / "a", there), write(tmp_path / "b", back)
    expected = [math.exp(-(abs(a - b) + (-a - b) / 2)) for a, b in zip(there, back, strict=True)]
    scores = ModelScores(files, 0.4)
    assert scores.values.tolist() == pytest.approx(expected, rel=1e-6)
    assert [bool(scores.find(place)) for place in range(3)] == [False, True, False]
    assert scores.find(1) == {"score": "score 0.00409 is among the lowest 0.4 of all"}


def test_one_model_gives_its_likelihood_and_objects_have_their_mean(tmp_path):
    objects = [json.dumps({"token_log_probabilities": [-1.0, -3.0]}), "-0.25"]
    scores = ModelScores([write(tmp_path / "a", objects)], 0.1)
    assert scores.values.tolist() == pytest.approx([math.exp(-2.0), math.exp(-0.25)])


@pytest.mark.parametrize("line", ["", "nan", "-inf", "0.5", "x", "{}", '{"a', "[1]", '{"token'])
def test_what_is_no_log_probability_is_named(tmp_path, line):
    file = write(tmp_path / "a", ["-1.0", line])
    with pytest.raises(DataError, match=r"a, line 2: is not a mean log-probability, a number of"):
        ModelScores([file], 0.1)


def test_scores_must_be_of_the_same_pairs(tmp_path):
    one, other = write(tmp_path / "a", ["-1.0"] * 2), write(tmp_path / "b", ["-1.0"] * 3)
    with pytest.raises(DataError, match=r"different numbers of lines \(2 and 3\)"):
        ModelScores([one, other], 0.1)
    with pytest.raises(DataError, match="has 2 scores of 3 pairs"):
        ModelScores([one], 0.1).check_length(3)
    with pytest.raises(UsageError, match="--scores: found 3 files"):
        ModelScores([one, one, one], 0.1)
