"""Where a model of images looks: rows of the pooled state, distances, pictures and the page."""

import base64
import re

import numpy as np
import pytest
import torch

from tests.commands import record_of, refused, run
from tests.inspect.cases import stored_model
from tests.oracles.vit import SIZE, config
from tests.policy import POLICY
from tests.text.images.test_reading import picture
from tformer_cli.artifacts.model_directory import load_model_directory
from tformer_cli.inspect.jobs.heads import inspect_heads
from tformer_cli.inspect.jobs.views import inspect_view
from tformer_cli.model.config import ModelConfig
from tformer_cli.model.encoder_only import Classifier, EncoderOnly
from tformer_cli.plugins.instruments.jobs.report import inspect_report
from tformer_cli.plugins.instruments.views.image import attention_distance, over_image
from tformer_cli.text.images.decoding import Scaling, decode_image
from tformer_cli.text.images.tokenizer import ImageTokenizer

N = 6  # patches, 3 rows of 2


def directory(path, **changes):
    torch.manual_seed(3)
    settings = config(**changes)
    kind = Classifier if settings.head == "labels" else EncoderOnly
    model = kind(settings, 260).eval()
    tokenizer = ImageTokenizer(Scaling(size=SIZE, resize=SIZE[:2]), 4)
    return stored_model(path, model, tokenizer, labels=tuple("abcde"[: settings.n_labels])), model


@pytest.fixture
def photo(tmp_path):
    values, content = picture("RGB", (8, 12), seed=2)
    (tmp_path / "photo.png").write_bytes(content)
    return tmp_path / "photo.png", values


@pytest.mark.parametrize("has_class", [True, False])
def test_maps_are_the_rows_of_the_models_own_attention(tmp_path, photo, has_class):
    pooling = "first" if has_class else "mean"
    path, model = directory(tmp_path / "m", class_token=has_class, pooling=pooling)
    (record,) = inspect_view("image", path, [str(photo[0])])
    assert np.array_equal(record.pixels, photo[1])
    names = [looked.name for looked in record.looked]
    assert names == [f"enc.{layer}.{head}" for layer in (0, 1) for head in (0, 1, 2)] + [
        "rollout", "alti",
    ]  # fmt: skip
    source = torch.tensor(photo[1].reshape(1, -1).astype(np.int64)) + 4
    hidden = model.embed(source)
    layer = model.encoder.layers[0]
    normed = layer.self_attention_norm(hidden)
    n = N + has_class
    query, key, _ = layer.self_attention.in_projection(normed).view(n, 3, 3, 8).permute(1, 2, 0, 3)
    weights = (query @ key.transpose(1, 2) / 8**0.5).softmax(-1)
    for head in range(3):
        row = weights[head][0] if has_class else weights[head].mean(0)
        looked = record.looked[head]
        assert torch.allclose(looked.shares.flatten(), row[int(has_class) :], atol=1e-5)
        assert looked.class_token == pytest.approx(row[0].item() if has_class else 0.0, abs=1e-5)
        assert looked.shares.sum().item() + looked.class_token == pytest.approx(1.0, abs=1e-5)
        assert looked.distance == pytest.approx(plain_distance(weights[head], has_class), abs=1e-3)


def plain_distance(weights, has_class):
    """The definition, patch by patch."""
    places = [(row, column) for row in range(3) for column in range(2)]
    first, means = int(has_class), []
    for query in range(N):
        shares = weights[query + first, first:].tolist()
        far = [4 * np.hypot(p[0] - places[query][0], p[1] - places[query][1]) for p in places]
        means.append(np.dot(shares, far) / sum(shares))
    return float(np.mean(means))


def test_a_head_that_looks_at_itself_has_no_distance():
    settings = config()
    assert attention_distance(torch.eye(7), settings) == 0.0
    shifted = torch.eye(7)[[0, 2, 1, 4, 3, 6, 5]]  # each to its neighbor in the row
    assert attention_distance(shifted, settings) == pytest.approx(4.0)


def test_rollout_of_heads_that_look_at_themselves_is_the_class_token(tmp_path, photo):
    path, model = directory(tmp_path / "m")
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "in_projection" in name:
                weight.zero_()
    stored_model(path, model, ImageTokenizer(Scaling(size=SIZE), 4), labels=tuple("abcde"))
    (record,) = inspect_view("image", path, [str(photo[0])])
    rollout = record.looked[-2]  # all heads look everywhere alike: ½ + ½/7, twice
    share = 0.25 / 7 + 0.5 / 7
    assert rollout.shares.flatten().tolist() == pytest.approx([share] * N, abs=1e-6)
    assert rollout.class_token == pytest.approx(0.25 + share, abs=1e-6)


def test_a_backbone_is_looked_into_without_a_label(tmp_path, photo):
    path, _ = directory(tmp_path / "m", head="none", n_labels=0)
    record = record_of("inspect-image", path, photo[0], "--format", "jsonl", "-q")
    assert (record["row"], record["label"], len(record["maps"])) == ("class token", None, 8)
    report = inspect_report(path, [str(photo[0])], device="cpu")
    (sentence,) = report.sentences
    assert set(sentence.views) == {"image", "step", "flow"}
    assert all(walk.difference < 1e-5 for walk in sentence.views["step"])
    assert sentence.views["step"][0].where.startswith("patch ")
    assert sentence.heads.texts == [("image", str(photo[0]))]


def test_encoders_of_texts_have_no_images(tmp_path, model):
    config = ModelConfig(
        d_model=16, n_heads=2, d_ff=16, n_encoder_layers=1, n_decoder_layers=0, head="none"
    )
    tokenizer = load_model_directory(model).tokenizer
    path = stored_model(tmp_path / "m", EncoderOnly(config, tokenizer.vocab_size), tokenizer)
    says = "error: MODEL: reads texts, not images; use `tformer inspect-heads`\n"
    refused("inspect-image", path, "a dog", "-q", says=says)


def test_every_format_is_written(tmp_path, photo):
    path, _ = directory(tmp_path / "m")
    options = ("--format", "jsonl", "-q", "--heads", "enc.1")
    record = record_of("inspect-image", path, photo[0], *options)
    assert record["schema"] == "tformer.image/1"
    assert record["source"]["pieces"][:3] == ["[class]", "0,0", "0,1"]
    assert [map_data["id"] for map_data in record["maps"]] == [
        "enc.1.0",
        "enc.1.1",
        "enc.1.2",
        "rollout",
        "alti",
    ]
    assert np.array(record["maps"][0]["weights"]).shape == (3, 2)
    done = run("inspect-image", path, photo[0], "", "--format", "text", "-q")
    assert "its name is being used as text" not in done.stderr
    text = done.stdout
    assert "12×8 pixels, patches of 4×4; row of the class token" in text
    assert "enc.1.2" in text
    page = run("inspect-image", path, photo[0], "--format", "html", "-q").stdout
    images = re.findall(r'src="data:image/png;base64,([^"]+)"', page)
    assert len(images) == 1 + 8
    pixels = decode_image(base64.b64decode(images[0]), "a")
    assert np.array_equal(pixels[::18, ::18], photo[1])
    assert "distance" in page
    assert POLICY in page
    assert "http" not in page.replace("http-equiv", "")
    run("inspect-image", path, photo[0], "--format", "png", "-q", "-o", tmp_path / "a.png")
    sheet = decode_image((tmp_path / "a.png").read_bytes(), "a")
    assert sheet.shape == (3 * 216 + 12, 3 * 144 + 12, 3)
    assert np.array_equal(sheet[:216:18, :144:18], photo[1])


def test_the_largest_share_is_orange_and_none_shows_the_image():
    pixels = np.full((4, 4, 1), 100, np.uint8)
    pixels_shown = over_image(pixels, np.array([[1.0, 0.0], [0.5, 0.0]]))
    assert pixels_shown.shape == (144, 144, 3)
    assert pixels_shown[0, 0].tolist() == [208, 88, 16]
    assert pixels_shown[0, 100].tolist() == [65, 65, 65]


def test_one_picture_a_sheet(tmp_path, photo):
    path, _ = directory(tmp_path / "m")
    for arguments, message in (
        ((photo[0], photo[0]), "holds one sentence, but there are several"),
        (("",), "every line is blank"),
    ):
        refused("inspect-image", path, *arguments, "--format", "png", "-q", says=message)


def test_records_have_what_a_page_shows_of_patches(tmp_path, photo):
    path, _ = directory(tmp_path / "m")
    (record,) = inspect_heads(path, [str(photo[0])], for_page=True)
    words = record.extras.source_words
    assert words.texts == ("[class]", *(f"patch {piece}" for piece in record.source_pieces[1:]))
    assert words.of_token == tuple(range(7))
    assert record.captured.residual < 1e-5


def test_models_of_texts_have_no_images(classifier):
    says = "is a classifier, which labels texts"
    refused("inspect-image", classifier, "a dog", "-q", says=says)
