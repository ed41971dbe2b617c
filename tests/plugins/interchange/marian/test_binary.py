import struct
import tracemalloc

import numpy as np
import pytest

from tformer_cli.errors import ArtifactError
from tformer_cli.plugins.interchange.marian.binary import read_marian_binary


def binary(items, version=1):
    """A file of items (name, type, shape, bytes)."""
    names = [name.encode() + b"\0" for name, *_ in items]
    head = struct.pack("<QQ", version, len(items))
    for name, (_, kind, shape, data) in zip(names, items, strict=True):
        head += struct.pack("<QQQQ", len(name), kind, len(shape), len(data))
    head += b"".join(names)
    head += b"".join(struct.pack(f"<{len(shape)}i", *shape) for _, _, shape, _ in items)
    padding = -(len(head) + 8) % 256
    return head + struct.pack("<Q", padding) + bytes(padding) + b"".join(i[3] for i in items)


def pad_bytes(data):
    return data + bytes(-len(data) % 256)


@pytest.fixture
def items():
    rng = np.random.default_rng(1)
    bias = rng.normal(size=(1, 6)).astype("<f4")
    matrix = rng.integers(-127, 128, (4, 6)).astype(np.int8)
    table = rng.integers(-127, 128, (9, 4)).astype(np.int8)

    def integers(array, multiplier):
        return pad_bytes(array.tobytes() + struct.pack("<f", multiplier))

    return {"bias": bias, "matrix": matrix, "table": table}, [
        ("special:model.yml", 0x101, (1, 20), pad_bytes(b"type: transformer\0\0\0")),
        ("b", 0x404, (1, 6), pad_bytes(bias.tobytes())),
        ("encoder_l1_W", 0x4101, (4, 6), integers(matrix.T, 12.5)),
        ("decoder_l1_W", 0x10001, (4, 6), integers(matrix.T, 3.0)),
        ("Wemb", 0x4101, (9, 4), integers(table, 7.0)),
        ("stub", 0x101, (1, 1), pad_bytes(b"\x05")),
    ]


def test_both_types_of_integers_have_the_shape_that_the_file_names(tmp_path, items):
    wanted, content = items
    (tmp_path / "model.bin").write_bytes(binary(content))
    found = read_marian_binary(tmp_path / "model.bin")
    assert found.settings == b"type: transformer"
    assert found.multipliers == {"encoder_l1_W": 12.5, "decoder_l1_W": 3.0, "Wemb": 7.0}
    names = {"b": "bias", "encoder_l1_W": "matrix", "decoder_l1_W": "matrix", "Wemb": "table"}
    assert set(found.arrays) == {*names, "stub"}
    for name, key in names.items():
        np.testing.assert_array_equal(found.arrays[name], wanted[key], strict=True)


@pytest.mark.parametrize(
    ("item", "message"),
    [
        (("w", 0x404, (1 << 20, 1 << 20), bytes(256)), "bytes were expected"),
        (("w", 0x404, (-1, 4), bytes(256)), "has the shape"),
        (("w", 0x404, (1,) * 9, bytes(256)), "has the shape"),
        (("w", 0x999, (4, 4), bytes(256)), "type 0x999"),
        (("w", 0x4101, (4, 4), bytes(256)), "multiplier 0.0"),
        (("w", 0x4101, (4,), bytes(256)), "type 0x4101"),
    ],
)
def test_hostile_items_are_refused(tmp_path, item, message):
    (tmp_path / "model.bin").write_bytes(binary([item]))
    with pytest.raises(ArtifactError, match=message):
        read_marian_binary(tmp_path / "model.bin")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (struct.pack("<QQ", 1, 1 << 40), "promises"),
        (struct.pack("<QQ", 2, 1), "version 2"),
        (struct.pack("<QQQQQQ", 1, 1, 1 << 40, 0x404, 2, 4), "a name has"),
        (struct.pack("<QQQQQQ", 1, 1, 2, 0x404, 1 << 40, 4) + b"w\0", "more than 8 dim"),
        (binary([("w", 0x404, (4,), bytes(16))])[:-1], "bytes were expected"),
        (b"", "empty"),
    ],
)
def test_hostile_headers_are_refused_in_bounded_memory(tmp_path, content, message):
    (tmp_path / "model.bin").write_bytes(content)
    tracemalloc.start()
    with pytest.raises(ArtifactError, match=message):
        read_marian_binary(tmp_path / "model.bin")
    assert tracemalloc.get_traced_memory()[1] < 1 << 22
    tracemalloc.stop()


def test_truncated_files_are_refused(tmp_path, items):
    whole = binary(items[1])
    for length in range(0, len(whole), 61):
        (tmp_path / "model.bin").write_bytes(whole[:length])
        with pytest.raises(ArtifactError, match="damaged"):
            read_marian_binary(tmp_path / "model.bin")
