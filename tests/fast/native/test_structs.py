import ctypes
import re

import pytest

from tformer_cli.fast.native.library import KERNELS
from tformer_cli.fast.native.structs import SHARED, Shape, find_mismatch


def grown(struct):
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
    assert find_mismatch(kernels, (Shape, grown(struct))) == (
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
