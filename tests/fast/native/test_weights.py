"""Weights and structs as the kernels read them."""

import ctypes
import re

import numpy as np
import pytest
import torch

from tformer_cli.fast.native.library import KERNELS
from tformer_cli.fast.native.search import NativeModel
from tformer_cli.fast.native.structs import SHARED, Shape, find_mismatch
from tformer_cli.fast.native.torch_weights import named_arrays, native_model
from tformer_cli.fast.native.weights import (
    SCALE,
    in_integers,
    sinusoids,
    unsupported_shape,
)
from tformer_cli.fast.products import quantized_matrices, use_integers
from tformer_cli.model import positions
from tformer_cli.model.config import ModelConfig
from tformer_cli.model.transformer import Transformer

SHAPES = (
    {},
    {"norm": "pre", "activation": "gelu", "positions": "learned", "tied_embeddings": "none"},
    {"bias": False, "tied_embeddings": "decoder", "positions": "rotary", "activation": "swish"},
    {"decoder_cell": "ssru", "output_bias": True, "embedding_norm": True, "positions": "table"},
    {"cross_heads": (0, 2), "encoder_heads": (1, 4)},
)


def make_model(vocab_size=40, **shape):
    base = {"d_model": 32, "n_heads": 4, "d_ff": 48, "n_encoder_layers": 2, "n_decoder_layers": 2}
    torch.manual_seed(1)
    return Transformer(ModelConfig(**{**base, "max_positions": 48, **shape}), vocab_size).eval()


def translations(native):
    return native.search(
        [[5, 6, 7], [8]], [9, 9], beam_size=3, n_searched=3, divisors=np.arange(1.0, 13.0)
    )


@pytest.mark.parametrize("shape", SHAPES, ids=repr)
def test_stored_weights_search_like_the_model_that_they_are_of(kernels, shape):
    model = make_model(**shape)
    stored = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    expected = translations(native_model(kernels, model))
    assert translations(NativeModel(kernels, model.config, 40, stored)) == expected


@pytest.mark.parametrize("shape", SHAPES[:4], ids=repr)
def test_stored_integers_search_like_the_model_that_they_are_of(kernels, shape):
    model = make_model(**shape)
    matrices = quantized_matrices(model.state_dict())
    stored = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    for name, matrix in matrices.items():
        stored[name], stored[name + SCALE] = matrix.integers.numpy(), matrix.scale.numpy()
    use_integers(model, matrices)
    expected = translations(native_model(kernels, model))
    assert translations(NativeModel(kernels, model.config, 40, stored)) == expected


def test_rows_are_scaled_by_their_largest_number_of_either_sign():
    matrix = np.array([[1, -4, 2], [3, -1, 0], [0, 0, 0]], np.float32)
    found = in_integers({"a.weight": matrix})
    assert (found[f"a.weight{SCALE}"] * np.float32(127)).tolist() == [4, 3, 127 / 127]
    assert found["a.weight"].tolist() == [[32, -127, 64], [127, -42, 0], [0, 0, 0]]


def test_arrays_are_the_memory_of_the_model():
    model = make_model()
    arrays = named_arrays(model)
    with torch.no_grad():
        model.source_embedding.weight.fill_(2.0)
    assert (arrays["source_embedding.weight"] == 2.0).all()


def test_positions_have_the_bits_of_torchs(kernels):
    for n_positions, d_model in ((40, 30), (1024, 128), (1024, 512)):
        expected = positions.sinusoids(n_positions, d_model).numpy()
        np.testing.assert_array_equal(sinusoids(kernels, n_positions, d_model), expected)
    expected = positions.sinusoids(40, 30, 5e5).numpy()
    np.testing.assert_array_equal(sinusoids(kernels, 40, 30, 5e5), expected)


def test_shapes_that_the_kernels_do_not_know_are_named():
    config = ModelConfig()
    assert unsupported_shape(config, 40, in_integers=True) is None
    assert "no end-of-sentence" in unsupported_shape(config, 3, in_integers=False)
    wide = ModelConfig(d_ff=1 << 18)
    assert "too wide" in unsupported_shape(wide, 40, in_integers=True)
    assert unsupported_shape(wide, 40, in_integers=False) is None
    long = ModelConfig(max_positions=1 << 20)
    assert "positions would be too large" in unsupported_shape(long, 40, in_integers=False)


@pytest.mark.parametrize("shape", SHAPES, ids=repr)
def test_each_matrix_that_is_copied_is_released_once(kernels, shape):
    model = make_model(**shape)
    stored = {name: tensor.numpy().copy() for name, tensor in model.state_dict().items()}
    released = []

    def release(array):
        name = next((name for name, each in stored.items() if each is array), "")
        if name:  # else joined for the kernels alone
            released.append(name)
        array.fill(np.nan)

    native = NativeModel(kernels, model.config, 40, stored, release)
    # Embeddings and the output's rows are read in place, too
    copied = {
        name
        for name, array in stored.items()
        if array.ndim == 2 and ".layers." in name and ".recurrence." not in name
    }
    assert len(released) == len(set(released))
    assert set(released) == copied
    assert translations(native) == translations(native_model(kernels, model))


def test_a_large_vocabulary_that_is_read_in_place_stays(kernels):
    """The output matrix is packed when it is first asked for."""
    n_rows = 2 * 8192 + 45
    model = make_model(vocab_size=n_rows)
    stored = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    released = []
    native = NativeModel(kernels, model.config, n_rows, stored, released.append)
    n_copied = len(released)
    assert translations(native) == translations(native_model(kernels, model))
    assert len(released) == n_copied


def grow_struct(struct):
    """The same struct with a field more."""
    return type(
        struct.__name__,
        (ctypes.Structure,),
        {"_fields_": [*struct._fields_, ("x", ctypes.c_int64)]},
    )


def test_python_and_c_agree_about_the_size_of_each_struct(kernels):
    assert find_mismatch(kernels) is None


@pytest.mark.parametrize("struct", SHARED, ids=lambda struct: struct.__name__)
def test_a_struct_that_grew_on_one_side_is_named(kernels, struct):
    n_bytes = ctypes.sizeof(struct)
    assert find_mismatch(kernels, (Shape, grow_struct(struct))) == (
        f"its struct {struct.__name__} has {n_bytes} bytes instead of {n_bytes + 8}"
    )


def test_a_struct_that_c_does_not_state_is_a_mismatch(kernels):
    class Unknown(ctypes.Structure):
        _fields_ = (("x", ctypes.c_int64),)

    assert "struct Unknown has 0 bytes" in find_mismatch(kernels, (Unknown,))


def test_a_library_that_states_nothing_is_a_mismatch():
    assert find_mismatch(ctypes.CDLL(None)) == "it states no struct sizes"


def test_each_struct_names_its_fields_in_the_order_of_its_header():
    """The size alone does not tell two fields of a kind from each other."""
    headers = "".join(path.read_text() for path in sorted(KERNELS.glob("*.h")))
    headers = re.sub(r"/\*.*?\*/", "", headers, flags=re.DOTALL)
    bodies = {
        name: body
        for body, name in re.findall(r"typedef struct \{(.*?)\} (\w+);", headers, re.DOTALL)
    }
    for struct in SHARED:
        declared = [
            re.sub(r"\[.*|[^\w]", "", part.split()[-1])
            for line in bodies[struct.__name__].split(";")
            if line.strip()
            for part in line.split(",")
        ]
        assert declared == [name for name, *_ in struct._fields_], struct.__name__
