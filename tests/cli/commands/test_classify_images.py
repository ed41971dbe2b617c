"""`tformer classify`, `evaluate` and `embed` of a model of images: names, folders, refusals."""

import json

import numpy as np
import pytest
import torch

from tests.commands import output_of, record_of, refused, run
from tests.oracles.vit import SIZE, config
from tests.text.images.test_reading import idx_bytes, picture
from tformer_cli import load
from tformer_cli.artifacts.config_file import ModelInfo
from tformer_cli.artifacts.model_directory import load_model_directory, save_model_directory
from tformer_cli.errors import DataError
from tformer_cli.model.encoder_only import Classifier
from tformer_cli.search.config import DecodingConfig
from tformer_cli.text.images.decoding import Scaling
from tformer_cli.text.images.tokenizer import ImageTokenizer

LABELS = ("ant", "bee", "cat", "dog", "eel")


@pytest.fixture
def images(tmp_path):
    """The directory of a random model of images."""
    torch.manual_seed(3)
    save_model(tmp_path / "model", Classifier(config(), 260))
    return tmp_path / "model"


def save_model(path, model):
    save_model_directory(
        path,
        model.state_dict(),
        config=model.config,
        tokenizer=ImageTokenizer(Scaling(size=SIZE, resize=SIZE[:2]), 4),
        decoding=DecodingConfig(),
        info=ModelInfo(labels=LABELS),
    )


@pytest.fixture
def photos(tmp_path):
    for number in range(6):
        path = tmp_path / "photos" / LABELS[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(picture("RGB", (8 + number, 12), seed=number)[1])
    return tmp_path / "photos"


def test_a_label_for_each_name_whatever_is_beside_it(images, photos, tmp_path):
    names = sorted(map(str, photos.rglob("*.png")))
    lines = tmp_path / "names.txt"
    lines.write_text("\n".join([*names, "", names[0]]) + "\n")
    whole = output_of("classify", images, "-i", lines, "-q", "--format", "jsonl", "--top", 0)
    records = [json.loads(line) for line in whole.splitlines()]
    assert [record["text"] for record in records] == [*names, "", names[0]]
    assert records[6]["label"] is None
    assert records[7]["probabilities"] == records[0]["probabilities"]
    done = run("classify", images, *names)
    assert done.exit_code == 0, done.stderr
    assert "is being used as text" not in done.stderr
    assert done.stdout.splitlines() == [record["label"] for record in records[:6]]
    assert output_of("classify", images, "--images", photos, "-q") == done.stdout


def test_files_of_many_and_rows_of_pixels(images, tmp_path):
    array = np.random.default_rng(2).integers(0, 256, (4, *SIZE), np.uint8)
    (tmp_path / "a.idx").write_bytes(idx_bytes(array))
    labels = output_of("classify", images, "--images", tmp_path / "a.idx", "-q")
    rows = "".join(" ".join(map(str, image.ravel())) + "\n" for image in array)
    assert output_of("classify", images, "-q", stdin=rows) == labels
    (tmp_path / "a.csv").write_text("".join(f"ant {row}\n" for row in rows.splitlines()))
    table = ["--images", tmp_path / "a.csv", "--label-field", "first"]
    assert output_of("classify", images, *table, "-q") == labels
    (tmp_path / "right").write_text(labels)
    scores = output_of(
        "evaluate", images, "--images", tmp_path / "a.idx", "--reference", tmp_path / "right",
        "--format", "json", "-q",
    )  # fmt: skip
    assert json.loads(scores)["accuracy"] == 100.0
    scores = json.loads(output_of("evaluate", images, *table, "--format", "json", "-q"))
    assert scores["lines"] == 4
    assert scores["accuracy"] == 25.0 * labels.splitlines().count("ant")


def test_a_folder_is_scored_by_its_names(images, photos, tmp_path):
    table = output_of("evaluate", images, "--images", photos, "-q", "-o", tmp_path / "out")
    assert "examples" in table
    predicted = (tmp_path / "out").read_text().splitlines()
    right = ["ant"] * 3 + ["bee"] * 3
    hits = sum(a == b for a, b in zip(predicted, right, strict=True))
    assert f"{100 * hits / 6:.2f}" in table.splitlines()[0]


def test_labels_of_images_are_scored(images, photos, tmp_path):
    scored = output_of("score", images, "--images", photos, "-q", "--format", "jsonl")
    records = [json.loads(line) for line in scored.splitlines()]
    names = sorted(map(str, photos.rglob("*.png")))
    assert [record["text"] for record in records] == names
    assert [record["label"] for record in records] == ["ant"] * 3 + ["bee"] * 3
    loss = json.loads(output_of("evaluate", images, "--images", photos, "--format", "json", "-q"))
    values = [record["log_probability"] for record in records]
    assert loss["loss"] == pytest.approx(-sum(values) / 6)
    (tmp_path / "names").write_text("".join(f"{name}\n" for name in names))
    (tmp_path / "labels").write_text("ant\n" * 3 + "bee\n" * 3)
    arguments = ["-i", tmp_path / "names", "--target-file", tmp_path / "labels"]
    assert output_of("score", images, *arguments, "-q", "--format", "jsonl") == scored


def pooled_states(path, names):
    """Hidden states (B, 1 + N, D) of images, by the model itself."""
    directory = load_model_directory(path, tasks=("image",))
    ids = torch.tensor(directory.tokenizer.source.encode_batch(names))
    with torch.inference_mode():
        return directory.classifier.encode(ids, torch.ones(len(ids), 6, dtype=torch.bool)).numpy()


def test_a_vector_for_each_image_whatever_is_beside_it(images, photos, tmp_path):
    names = sorted(map(str, photos.rglob("*.png")))
    states = pooled_states(images, names)
    mean = states[:, 1:].mean(axis=1)
    expected = {
        "first": states[:, 0], "mean": mean,
        "first-and-mean": np.concatenate([states[:, 0], mean], axis=1),
    }  # fmt: skip
    for pooling, vectors in expected.items():
        output_of("embed", images, *names, "-q", "--pooling", pooling, "-o", tmp_path / "a.npy")
        found = np.load(tmp_path / "a.npy")
        assert np.abs(found - vectors).max() <= 1e-5
        assert np.abs(vectors).max() > 0.5
    lines = tmp_path / "names.txt"
    lines.write_text("\n".join([*names, "", names[0]]) + "\n")
    output_of("embed", images, "-i", lines, "-q", "-o", tmp_path / "many.npy")
    many = np.load(tmp_path / "many.npy")
    assert not many[6].any()
    assert np.array_equal(many[7], many[0])
    done = run("embed", images, *names, "-q", "-o", tmp_path / "b.npy")
    assert (done.exit_code, "is being used as text" in done.stderr) == (0, False)
    output_of("embed", images, "--images", photos, "-q", "-o", tmp_path / "c.npy")
    assert np.array_equal(np.load(tmp_path / "b.npy"), many[:6])
    assert (tmp_path / "c.npy").read_bytes() == (tmp_path / "b.npy").read_bytes()
    of_python = load(images).embed(names, unit_length=True)
    lengths = np.linalg.norm(many[:6], axis=1, keepdims=True)
    assert (
        np.abs(np.array([image.vector for image in of_python]) - many[:6] / lengths).max() <= 1e-6
    )


def test_a_pooling_that_the_model_has_not_is_refused(tmp_path):
    torch.manual_seed(3)
    model = Classifier(config(class_token=False, pooling="mean"), 260)
    path = tmp_path / "model2"
    save_model(path, model)
    for pooling in ("first", "first-and-mean"):
        message = f"MODEL has no class token for {pooling}; use mean"
        refused("embed", path, "0 " * 288, "--pooling", pooling, "-q", says=message)


def test_python_gives_paths_and_arrays(images, photos):
    loaded = load(images, device="cpu")
    paths = sorted(photos.rglob("*.png"))
    arrays = [picture("RGB", (8 + n, 12), seed=n)[0] for n in range(6)]
    by_number = sorted(paths, key=lambda path: path.stem)
    shown = output_of("classify", images, *by_number, "-q", "--format", "jsonl", "--top", 0)
    expected = [json.loads(line)["probabilities"] for line in shown.splitlines()]
    for inputs in (by_number, map(str, by_number), arrays, iter(arrays)):
        found = list(loaded.classify(inputs))
        assert [dict(image.labels) for image in found] == expected
    gray = picture("L", (5, 7))[0][..., 0]
    assert len(list(loaded.classify([gray, gray[..., None], *arrays[:1]], buffer_lines=1))) == 3
    vectors = [image.vector.tolist() for image in loaded.embed(arrays)]
    assert vectors == [image.vector.tolist() for image in loaded.embed(by_number)]
    (of_path,), (of_array,) = loaded.heads(by_number[:1]), loaded.heads(arrays[:1])
    for head in of_path.heads:
        assert np.array_equal(of_path.captured.weights(head), of_array.captured.weights(head))
    with pytest.raises(TypeError, match=r"images\[1\]: is an array \(3,\) of uint8; give a name"):
        list(loaded.classify([gray, gray[0, :3]]))
    with pytest.raises(TypeError, match=r"images\[0\]: is an array .* of float64; give a name"):
        list(loaded.classify([gray / 255.0]))
    with pytest.raises(TypeError, match=r"images\[0\]: is int; give a name"):
        list(loaded.classify([3]))
    with pytest.raises(TypeError, match="images: is one str"):
        loaded.classify("a.png")
    with pytest.raises(DataError, match=r"line 1: .* cannot be read"):
        list(loaded.classify(["no.png"]))


@pytest.fixture
def damaged(photos, tmp_path):
    """Names of three photos, the second one cut off."""
    cut = tmp_path / "cut.png"
    cut.write_bytes((photos / "ant" / "0.png").read_bytes()[:120])
    names = [photos / "ant" / "0.png", cut, photos / "bee" / "1.png"]
    (tmp_path / "names.txt").write_text("".join(f"{name}\n" for name in names))
    (tmp_path / "labels.txt").write_text("ant\nant\nbee\n")
    return tmp_path / "names.txt"


DAMAGED = {
    "classify": ["-i"],
    "embed": ["--format", "tsv", "-i"],
    "score": ["--target-file", "labels.txt", "-i"],
}


@pytest.mark.parametrize("command", DAMAGED)
def test_a_damaged_image_ends_the_work_or_leaves_a_blank_line(
    command, images, damaged, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    arguments = [command, images, *DAMAGED[command], damaged, "-q"]
    done = run(*arguments)
    assert done.exit_code == 2
    assert "line 2: " in done.stderr
    assert "cut.png: is damaged" in done.stderr
    assert done.stderr.count("\n") == 1
    skipped = run(*arguments, "--damaged", "skip")
    assert skipped.exit_code == 0, skipped.stderr
    assert skipped.stderr.count("\n") == 1
    assert "1 image that cannot be read; left blank" in skipped.stderr
    lines = skipped.stdout.split("\n")
    assert [bool(line) for line in lines] == [True, False, True, False]
    assert done.stdout == f"{lines[0]}\n"
    again = run(*arguments, "--damaged", "skip", "--format", "jsonl")
    records = [json.loads(line) for line in again.stdout.splitlines()]
    assert ["error" in record for record in records] == [False, True, False]
    assert "cut.png: is damaged" in records[1]["error"]
    refused(*arguments, "-o", "out")
    assert not (tmp_path / "out").exists()


def test_scores_leave_damaged_images_out(images, damaged, photos, tmp_path):
    (photos / "bee" / "9.png").write_bytes((tmp_path / "cut.png").read_bytes())
    arguments = ["evaluate", images, "--images", photos, "--format", "json", "-q"]
    refused(*arguments, says="9.png: is damaged")
    predicted = tmp_path / "predicted"
    more = ["--damaged", "skip", "-o", predicted, "--baseline-model", images]
    skipped = run(*arguments, *more)
    assert skipped.exit_code == 0, skipped.stderr
    assert "1 image that cannot be read; omitted from the scores" in skipped.stderr
    scores = json.loads(skipped.stdout)
    (photos / "bee" / "9.png").unlink()
    whole = record_of(*arguments, "--baseline-model", images)
    assert scores == whole
    assert predicted.read_text().splitlines()[6] == ""
    for file in photos.rglob("*.png"):
        file.write_bytes(b"")
    assert "none of the 6 images can be read" in run(*arguments, *more).stderr
