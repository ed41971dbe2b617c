"""The page's engine reads weights of every type that tformer writes, and refuses others."""

from dataclasses import asdict

import numpy as np
import pytest

from tests.foreign.own import TRANSLATION
from tformer_cli.fast.native.weights import in_integers
from tformer_cli.model.config import ModelConfig
from tformer_cli.plugins.page.export import round_weights


def tensors_of(engine, arrays):
    """What the engine reads of a file of arrays."""
    (tensors,) = engine.run({"job": "read", "weights": engine.write(arrays)})
    return tensors


def test_float16_is_widened_wherever_it_begins(engine):
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    halves = halves[np.isfinite(halves)]
    numbers = np.array([1.5, -2.0, 1e-30], np.float32)
    arrays = {"one": halves[:3], "all": halves, "floats": numbers, "none": numbers[:0]}
    found = tensors_of(engine, arrays)
    assert [*found] == [*arrays]
    for name, array in arrays.items():
        assert found[name]["shape"] == [*array.shape]
        assert np.array_equal(np.array(found[name]["data"], np.float32), array.astype(np.float32))


def test_int8_is_multiplied_by_the_scales_of_its_rows(engine):
    weights = np.random.default_rng(3).normal(size=(5, 7)).astype(np.float32)
    integers = in_integers({"a.weight": weights, "a.bias": weights[0]})
    found = tensors_of(engine, integers)
    assert [*found] == ["a.bias", "a.weight"]
    wanted = integers["a.weight"] * integers["a.weight_scale"][:, None]
    assert np.array_equal(np.array(found["a.weight"]["data"], np.float32), wanted.ravel())
    assert np.abs(wanted - weights).max() < 0.02


def test_integers_of_10_bits_are_multiplied_by_the_scales_of_their_rows(engine):
    weights = np.random.default_rng(3).normal(size=(5, 7)).astype(np.float32)
    weights[2] = 0.0
    stored = round_weights({"a.weight": weights, "a.bias": weights[0]})
    found = tensors_of(engine, stored)
    assert [*found] == ["a.bias", "a.weight"]
    scale = np.abs(weights).max(axis=1, keepdims=True) / 511
    wanted = np.rint(weights / np.where(scale > 0, scale, 1)) * scale
    assert np.abs(np.array(found["a.weight"]["data"]).reshape(5, 7) - wanted).max() < 1e-6
    assert np.abs(wanted - weights).max() <= 0.501 * scale.max()
    assert (stored["a.weight"].nbytes, stored["a.weight_below"].nbytes) == (35, 2 * 5)


def test_a_model_of_integers_computes_as_the_numbers_that_they_stand_for(engine):
    model = engine.model(ModelConfig(**TRANSLATION))
    arrays = {name: weight.numpy() for name, weight in model.state_dict().items()}
    integers = in_integers(arrays)
    floats = {
        name: integers[name] * integers[f"{name}_scale"][:, None]
        if integers[name].dtype == np.int8
        else integers[name]
        for name in arrays
    }
    asked = {"job": "read", "config": asdict(model.config), "source": [5, 6, 3], "rows": [[2, 7]]}
    found, wanted = engine.run(
        *({**asked, "weights": engine.write(each)} for each in (integers, floats))
    )
    assert found == wanted


@pytest.mark.parametrize(
    ("arrays", "reason"),
    [
        ({"a": np.zeros((2, 2), np.int8)}, "a: is int8, but a_scale is missing"),
        (
            {"a": np.zeros(2, np.int32)},
            "a: has numbers of the type I32, which the page does not know",
        ),
    ],
)
def test_other_files_are_refused_by_name(engine, arrays, reason):
    assert tensors_of(engine, arrays) == {"error": reason}
