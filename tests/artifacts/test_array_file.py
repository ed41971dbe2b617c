import io
import json
import struct

import numpy as np
import pytest
from safetensors.numpy import load

from tformer_cli.artifacts.weights_file import DTYPES, size_of, write_arrays

ARRAYS = {
    "z": np.arange(6, dtype=np.int64).reshape(2, 3),
    "a": np.array([[0.5, -1.25]], dtype=np.float16),
    "empty": np.zeros((2, 0), dtype=np.float32),
    "bytes": np.array([1, 255], dtype=np.uint8),
    "last": np.array([65535, 1, 7], dtype=np.uint16)[::2],
    "ints": np.array([-5], dtype=">i4"),
}


def npz_bytes(arrays=ARRAYS):
    file = io.BytesIO()
    write_arrays(file, arrays, {"schema": "héad/1"})
    return file.getvalue()


def test_the_library_reads_the_file():
    found = load(npz_bytes())
    assert set(found) == set(ARRAYS)
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype.newbyteorder("<")


def test_the_header_keeps_the_order_and_ends_aligned():
    data = npz_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    assert list(header) == ["__metadata__", *ARRAYS]
    assert header["__metadata__"] == {"schema": "héad/1"}
    assert length % 8 == 0
    assert size_of(ARRAYS, {"schema": "héad/1"}) == len(data)
    assert npz_bytes() == data


def test_types_that_the_format_does_not_name_are_refused():
    assert list(DTYPES.values()) == ["F32", "F16", "I8", "U8", "U16", "I32", "I64"]
    with pytest.raises(KeyError):
        npz_bytes({"x": np.array(["text"])})
