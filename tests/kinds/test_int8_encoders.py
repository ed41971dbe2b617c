"""Encoders, classifiers and taggers in 8-bit integers: by the kernels, by torch, and exported."""

import numpy as np
import pytest

from tests.foreign.own import own_model
from tests.models import tokenizer_of
from tformer_cli.artifacts.config_file import ModelInfo
from tformer_cli.errors import ArtifactError
from tformer_cli.fast.native.library import KernelsUnavailable, load_library
from tformer_cli.kinds.lines.classify import label_texts
from tformer_cli.kinds.lines.embed import embed_texts
from tformer_cli.kinds.lines.fill import GapFiller
from tformer_cli.kinds.opening import open_model
from tformer_cli.kinds.tag import tag_rows
from tformer_cli.plugins.interchange.export import export_int8

LINES = ["A man sleeps.", "the street and a dog " * 3, "Two dogs run", "x"]
SHAPE = {"d_model": 32, "n_heads": 4, "d_ff": 48, "n_encoder_layers": 2, "n_decoder_layers": 0,
         "max_positions": 40, "norm": "pre"}  # fmt: skip
KINDS = {
    "classify": {"n_labels": 3, "pooler": "tanh", "pooling": "first"},
    "tag": {"head": "tags", "n_labels": 3},
    "fill": {"head": "tokens", "activation": "gelu"},
    "embed": {"head": "none", "unit_length": True},
}


def numbers(opened, verb):
    """What a verb computes of the lines, as rows of numbers."""
    if verb == "classify":
        return [
            [share for _, share in sorted(result.labels)] for result in label_texts(opened, LINES)
        ]
    if verb == "embed":
        return [result.vector.tolist() for result in embed_texts(opened, LINES)]
    if verb == "tag":
        return [[share for row in rows for share in row] for _, rows in tag_rows(opened, LINES)]
    filled = GapFiller(opened).fill([f"{line} [MASK]" for line in LINES], top=10_000)
    return [
        [
            candidate.probability
            for candidate in sorted(filled_line.gaps[0], key=lambda candidate: candidate.piece)
        ]
        for filled_line in filled
    ]


@pytest.fixture
def model(tmp_path):
    """Writes a model for a verb."""

    def make(verb, **settings):
        tokenizer = tokenizer_of()
        tokenizer = tokenizer.with_mask() if verb == "fill" else tokenizer
        labels = ("no", "yes", "maybe") if "n_labels" in KINDS[verb] else ()
        shape = {**SHAPE, **KINDS[verb], **settings}
        own_model(tmp_path / "model", tokenizer, shape, info=ModelInfo(labels=labels))
        return tmp_path / "model"

    return make


def largest(actual, expected):
    """The largest difference of rows of numbers."""
    return max(np.abs(np.subtract(*pair)).max() for pair in zip(actual, expected, strict=True))


@pytest.mark.parametrize("verb", KINDS)
def test_integers_are_near_and_their_export_is_the_same(tmp_path, model, verb):
    path = model(verb)
    exact = numbers(open_model(path, verb), verb)
    opened = open_model(path, verb, precision="int8")
    found = numbers(opened, verb)
    # as far as 8 bits reach, and not what float32 gives
    assert 0 < largest(found, exact) < 0.05
    before, after = export_int8(path, tmp_path / "int8")
    assert after < before / 2
    exported = open_model(tmp_path / "int8", verb)
    assert exported.precision == "int8"
    assert numbers(exported, verb) == found
    by_torch = [
        numbers(open_model(folder, verb, precision="int8", by_kernels=False), verb)
        for folder in (path, tmp_path / "int8")
    ]
    assert by_torch[0] == by_torch[1]
    assert largest(by_torch[0], found) < 1e-3


def test_the_kernels_compute_them_where_they_can(model):
    try:
        load_library()
    except KernelsUnavailable:
        pytest.skip("no kernels here")
    opened = open_model(model("classify"), "classify", precision="int8")
    assert opened.compiled is not None
    alone = [label_texts(opened, [line])[0].labels for line in LINES]
    assert alone == [result.labels for result in label_texts(opened, LINES)]


def test_shapes_that_the_kernels_lack_are_computed_by_torch(tmp_path, model):
    path = model("classify", similarity="cosine")
    opened = open_model(path, "classify", precision="int8")
    assert opened.compiled is None
    exact = numbers(open_model(path, "classify"), "classify")
    found = numbers(opened, "classify")
    assert 0 < largest(found, exact) < 0.05
    export_int8(path, tmp_path / "int8")
    assert numbers(open_model(tmp_path / "int8", "classify"), "classify") == found


def test_images_are_computed_by_torch(tmp_path, zoo):
    images, names = (
        zoo["images"],
        [str(picture) for picture in sorted(zoo.inputs.glob("photos/*/*.png"))],
    )
    export_int8(images, tmp_path / "int8")
    exact, found, exported = (
        label_texts(open_model(path, "classify", precision=precision), names)
        for path, precision in ((images, "auto"), (images, "int8"), (tmp_path / "int8", "auto"))
    )
    assert [result.labels for result in exported] == [result.labels for result in found]
    pairs = [(dict(a.labels), dict(b.labels)) for a, b in zip(exact, found, strict=True)]
    assert 0 < max(abs(a[label] - b[label]) for a, b in pairs for label in a) < 0.05


def test_an_int8_encoder_does_not_go_back_to_floats(tmp_path, model):
    export_int8(model("classify"), tmp_path / "int8")
    with pytest.raises(ArtifactError, match="holds int8 weights, but float32 needs the original"):
        open_model(tmp_path / "int8", "classify", precision="float32")
    with pytest.raises(ArtifactError, match="holds int8 weights, but"):
        open_model(tmp_path / "int8", "classify", precision="bfloat16")
