import struct

import numpy as np
import pytest

from tformer_cli.artifacts.tensors import load_tensors
from tformer_cli.errors import ArtifactError
from tformer_cli.plugins.interchange.ctranslate2.binary import read_ctranslate2
from tformer_cli.plugins.interchange.export import export


def text(value):
    return struct.pack("<H", len(value) + 1) + value.encode() + b"\0"


def array(name, shape, kind, size, data):
    head = text(name) + struct.pack("<B", len(shape)) + struct.pack(f"<{len(shape)}I", *shape)
    return head + struct.pack("<BI", kind, size) + data


def file_of(arrays, version=6, count=None, aliases=()):
    head = struct.pack("<I", version) + text("TransformerSpec") + struct.pack("<I", 7)
    count = len(arrays) if count is None else count
    tail = struct.pack("<I", len(aliases)) + b"".join(text(x) for pair in aliases for x in pair)
    return head + struct.pack("<I", count) + b"".join(arrays) + (tail if version >= 3 else b"")


NUMBERS = np.array([[1.5, -2.0, 3.0]])


@pytest.mark.parametrize(
    ("kind", "dtype"), [*enumerate(["<f4", "|i1", "<i2", "<i4", "<f2", "<u2"])]
)
def test_every_type_is_read(tmp_path, kind, dtype):
    data = NUMBERS.astype(dtype)
    if kind == 5:  # bfloat16 numbers are the upper halves of float32's
        data = (NUMBERS.astype("<f4").view("<u4") >> 16).astype("<u2")
    content = file_of([array("w", (1, 3), kind, data.nbytes, data.tobytes())], aliases=[("v", "w")])
    (tmp_path / "model.bin").write_bytes(content)
    file = read_ctranslate2(tmp_path / "model.bin")
    assert (file.kind, file.revision) == ("TransformerSpec", 7)
    wanted = data if dtype in ("|i1", "<i2", "<i4") else NUMBERS.astype(np.float32)
    np.testing.assert_array_equal(file.arrays["w"], wanted, strict=True)
    np.testing.assert_array_equal(file.arrays["v"], wanted, strict=True)


def test_old_versions_count_numbers(tmp_path):
    data = NUMBERS.astype("<f4").tobytes()
    (tmp_path / "model.bin").write_bytes(file_of([array("w", (1, 3), 4, 3, data)], version=2))
    assert read_ctranslate2(tmp_path / "model.bin").arrays["w"].tolist() == NUMBERS.tolist()


def test_the_engine_writes_what_is_read(tmp_path, model):
    """The engine's package writes our own export; its matrices come back bit for bit."""
    export(model, tmp_path / "exported")
    file = read_ctranslate2(tmp_path / "exported" / "model.bin")
    assert file.kind == "TransformerSpec"
    tensors = load_tensors(model / "model.safetensors")
    names = {
        "encoder/embeddings_0/weight": "source_embedding.weight",
        "decoder/embeddings/weight": "source_embedding.weight",
        "decoder/projection/weight": "source_embedding.weight",
        "encoder/layer_1/ffn/linear_0/weight": "encoder.layers.1.feed_forward.inner.weight",
        "decoder/layer_0/attention/linear_2/bias": (
            "decoder.layers.0.cross_attention.out_projection.bias"
        ),
    }
    for theirs, ours in names.items():
        np.testing.assert_array_equal(file.arrays[theirs], tensors[ours].numpy(), strict=True)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (file_of([array("w", (1 << 31, 1 << 31), 0, 4, bytes(4))]), "bytes were expected"),
        (file_of([array("w", (2,), 0, 4, bytes(8))]), "has 4 bytes, but its shape"),
        (file_of([array("w", (1,), 9, 4, bytes(4))]), "type 9"),
        (file_of([array("w", (1,), 3, 1, bytes(3))], version=3), "type 3"),
        (file_of([], count=1 << 31), "promises"),
        (file_of([], count=5), "bytes were expected"),
        (file_of([], version=7), "version 7"),
        (file_of([], aliases=[("a", "b")]), "b, which is not there"),
        (b"GGUF" + bytes(99), "version"),
    ],
)
def test_hostile_files_are_refused(tmp_path, content, message):
    (tmp_path / "model.bin").write_bytes(content)
    with pytest.raises(ArtifactError, match=message):
        read_ctranslate2(tmp_path / "model.bin")
