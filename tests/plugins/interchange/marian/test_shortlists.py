import struct

import numpy as np
import pytest

from tformer_cli.errors import ArtifactError, DataError
from tformer_cli.plugins.interchange.marian.layout import (
    MAGIC,
    read_binary_shortlist,
    read_text_shortlist,
)

OFFSETS, TARGETS = [0, 2, 2, 5], [1, 7, 0, 3, 9]


def binary(magic=MAGIC, n_frequent=4, offsets=OFFSETS, targets=TARGETS, n_offsets=None):
    head = struct.pack("<6Q", magic, 0, n_frequent, 5, n_offsets or len(offsets), len(targets))
    return head + struct.pack(f"<{len(offsets)}Q", *offsets) + np.array(targets, "<u4").tobytes()


def test_lists_are_read(tmp_path):
    (tmp_path / "lex.bin").write_bytes(binary())
    found = read_binary_shortlist(tmp_path / "lex.bin", 10)
    assert found.n_frequent == 4
    assert (found.offsets.tolist(), found.targets.tolist()) == (OFFSETS, TARGETS)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"magic": 1}, "does not begin as one"),
        ({"n_offsets": 1 << 40}, "bytes were expected"),
        ({"offsets": [0, 9, 2, 5]}, "overlap"),
        ({"offsets": [0, 2, 2, 6]}, "overlap"),
        ({"targets": [1, 7, 0, 3, 10]}, "beyond a vocabulary of 10"),
        ({"n_frequent": 11}, "beyond a vocabulary of 10"),
    ],
)
def test_hostile_files_are_refused(tmp_path, changed, message):
    (tmp_path / "lex.bin").write_bytes(binary(**changed))
    with pytest.raises(ArtifactError, match=message):
        read_binary_shortlist(tmp_path / "lex.bin", 10)


def test_truncated_files_are_refused(tmp_path):
    whole = binary()
    for length in range(len(whole)):
        (tmp_path / "lex.bin").write_bytes(whole[:length])
        with pytest.raises(ArtifactError, match="damaged"):
            read_binary_shortlist(tmp_path / "lex.bin", 10)


IDS = {"a": 1, "b": 2, "x": 3, "y": 4, "z": 5}


def read_text(path, text, **options):
    path.write_text(text)
    return read_text_shortlist(path, lambda p: IDS.get(p, 0), lambda p: IDS.get(p, 0), 3, **options)


def test_the_most_probable_targets_are_kept(tmp_path):
    text = "x a 0.1\ny a 0.7\nz a 0.2\nNULL a 0.9\nx NULL 0.5\nz b 1\nz b 0.5\n"
    found = read_text(tmp_path / "lex", text, n_frequent=6, n_best=2)
    assert found.n_frequent == 6
    assert (found.offsets.tolist(), found.targets.tolist()) == ([0, 0, 2, 3], [4, 5, 5])


@pytest.mark.parametrize("line", ["x a", "x a b c", "x a many", "x a nan"])
def test_other_lines_are_named(tmp_path, line):
    with pytest.raises(DataError, match="line 2: is not"):
        read_text(tmp_path / "lex", f"x a 0.1\n{line}\n")
