"""Images with labels: folders, idx files, tables, datasets, built-in shapes."""

import numpy as np
import pytest

from tests.text.images.test_reading import idx_bytes, picture
from tformer_cli.errors import DataError
from tformer_cli.text.config import CorpusConfig, DataConfig
from tformer_cli.text.corpora import corpus_name, read_corpus
from tformer_cli.text.images.corpora import image_names
from tformer_cli.text.images.decoding import Scaling
from tformer_cli.text.images.tokenizer import ImageTokenizer
from tformer_cli.text.loading.encoded import cache_key


def read(directory, **keys):
    return list(read_corpus(CorpusConfig(**keys), str(directory)))


@pytest.fixture
def folder(tmp_path):
    for name in ("cat/b.png", "cat/deep/a.PNG", "dog/a.png", "dog/.hidden.png"):
        (tmp_path / "animals" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "animals" / name).write_bytes(picture()[1])
    (tmp_path / "animals" / "cat" / "notes.txt").write_text("not a picture")
    return tmp_path / "animals"


def test_a_folder_has_a_folder_for_each_label(folder, tmp_path):
    found = read(tmp_path, images="animals")
    names = [(name.removeprefix(f"{folder}/"), label) for name, label in found]
    assert names == [("cat/b.png", "cat"), ("cat/deep/a.PNG", "cat"), ("dog/a.png", "dog")]
    assert list(image_names(folder, (4, 3, 1))) == [name for name, _ in found]
    with pytest.raises(DataError, match="has the labels in its names; omit it"):
        read(tmp_path, images="animals", target_field="last")
    with pytest.raises(DataError, match="has no folders with pictures"):
        read(tmp_path, images="animals/dog")


@pytest.mark.parametrize(
    ("images", "labels"),
    [
        ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
        ("t10k-images.idx3-ubyte", "t10k-labels.idx1-ubyte"),
    ],
)
def test_an_idx_file_finds_its_labels_by_name(images, labels, tmp_path):
    (tmp_path / images).write_bytes(idx_bytes(np.zeros((3, 4, 3))))
    (tmp_path / labels).write_bytes(idx_bytes(np.array([7, 0, 7])))
    (tmp_path / "words").write_text("seven\nzero\nseven\n")
    found = read(tmp_path, images=images)
    assert found == [(f"{tmp_path / images}#{n}", label) for n, label in enumerate("707")]
    found = read(tmp_path, images=images, labels="words")
    assert [label for _, label in found] == ["seven", "zero", "seven"]
    (tmp_path / "words").write_text("seven\n")
    with pytest.raises(DataError, match="there are 3 images but 1 labels"):
        read(tmp_path, images=images, labels="words")
    with pytest.raises(DataError, match="no: no such file of labels"):
        read(tmp_path, images=images, labels="no")
    (tmp_path / "plain").write_bytes(idx_bytes(np.zeros((3, 4, 3))))
    with pytest.raises(DataError, match="plain: name the file of its labels"):
        read(tmp_path, images="plain")


@pytest.mark.parametrize(
    ("text", "field", "labels"),
    [
        ("0,1,2,3,a\n4,5,6,7,b\n", "", ["a", "b"]),
        ("9,0,1,2,3\n8,4,5,6,7\n", "first", ["9", "8"]),
        ("label,p1,p2,p3,p4\n9,0,1,2,3\n\n8,4,5,6,7\n", "", ["9", "8"]),
        ("p1\tp2\tclass\tp3\tp4\n0\t1\tx y\t2\t3\n4\t5\tb\t6\t7", "", ["x y", "b"]),
        ("0 1 a 2 3\n4 5 b 6 7\n", "3", ["a", "b"]),
        ('"0";"1";"2";"3";"a"\n4;5;6;7;b\n', "last", ["a", "b"]),
    ],
)
def test_a_table_has_its_labels_in_a_column(text, field, labels, tmp_path):
    (tmp_path / "t.csv").write_text(text)
    found = read(tmp_path, images="t.csv", target_field=field)
    assert [label for _, label in found] == labels
    tokenizer = ImageTokenizer(Scaling(size=(2, 2, 1)), 1)
    ids = np.array(tokenizer.source.encode_batch([name for name, _ in found]))
    assert np.array_equal(ids - 4, np.arange(8).reshape(2, 4))


def test_tables_without_labels_have_names_too(tmp_path):
    (tmp_path / "a.csv").write_text("0,1,2,3\n4,5,6,7\n")
    assert list(image_names(tmp_path / "a.csv", (2, 2, 1))) == ["0,1,2,3", "4,5,6,7"]
    (tmp_path / "b.csv").write_text("9,0,1,2,3\n")
    assert list(image_names(tmp_path / "b.csv", (2, 2, 1), "first")) == ["0,1,2,3"]


@pytest.mark.parametrize(
    ("text", "field", "message"),
    [
        ("1,2,3\n1,2\n", "", "line 2: has 2 columns, but the first line 3"),
        ("1,2,\n", "", "line 1: has no label in column 3"),
        ("1,2,3\n", "4", 'target_field: must be .* a column from 1 to 3, but is "4"'),
        ("", "", "has no pixel values in its first line"),
        ("label,p1,p2\n", "", "has a header, but no line of pixels"),
    ],
)
def test_wrong_tables_are_an_error_of_one_line(text, field, message, tmp_path):
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(DataError, match=message):
        read(tmp_path, images="t.csv", target_field=field)


def test_missing_corpora_are_named(tmp_path):
    with pytest.raises(DataError, match="nowhere: no such file or folder"):
        read(tmp_path, images="nowhere")
    with pytest.raises(DataError, match="nowhere: no such file or folder"):
        list(image_names(tmp_path / "nowhere", (1, 1, 1)))
    with pytest.raises(ValueError, match="labels: are those of images"):
        CorpusConfig(tsv="a", labels="b")


def test_a_dataset_has_pictures_and_names_of_labels(tmp_path):
    datasets = pytest.importorskip("datasets")
    values, content = picture()
    (tmp_path / "b.png").write_bytes(content)
    features = datasets.Features(
        {"image": datasets.Image(), "label": datasets.ClassLabel(names=["cat", "dog"])}
    )
    rows = {
        "image": [
            {"bytes": content, "path": None},
            {"bytes": None, "path": str(tmp_path / "b.png")},
        ],
        "label": [1, 0],
    }
    datasets.Dataset.from_dict(rows, features=features).save_to_disk(str(tmp_path / "saved"))
    found = read(tmp_path, dataset="saved", source_field="image", target_field="label")
    assert [label for _, label in found] == ["dog", "cat"]
    tokenizer = ImageTokenizer(Scaling(size=(4, 3, 1)), 1)
    for ids in tokenizer.source.encode_batch([name for name, _ in found]):
        assert np.array_equal(np.array(ids) - 4, values.ravel())


def test_the_cache_is_named_by_pixels_labels_and_scaling(folder, tmp_path):
    data = DataConfig(train=(CorpusConfig(images="x"),), directory=str(tmp_path))

    def key(resize=(), **corpus):
        corpus = CorpusConfig(**{"images": "animals", **corpus})
        return cache_key(corpus, data, ImageTokenizer(Scaling(size=(4, 3, 1), resize=resize), 1))

    keys = {key(), key(resize=(4, 3)), key(resize=(4,))}
    (folder / "dog" / "a.png").write_bytes(picture(seed=9)[1])
    keys.add(key())
    (folder / "dog").rename(folder / "wolf")
    keys.add(key())
    (tmp_path / "a-images-idx3").write_bytes(idx_bytes(np.zeros((3, 4, 3))))
    for numbers in ([1, 2, 3], [1, 2, 4]):
        (tmp_path / "a-labels-idx1").write_bytes(idx_bytes(np.array(numbers)))
        keys.add(key(images="a-images-idx3"))
    for shapes in ({"shapes": "test"}, {"shapes": "test", "seed": 2}, {"shapes": "valid"}):
        keys.add(key(images="", **shapes))
    assert len(keys) == 10


def test_shapes_are_named_by_split_seed_and_number():
    corpus = CorpusConfig(shapes="test", pairs=40, seed=3)
    pairs = list(read_corpus(corpus))
    assert len(pairs) == 8
    assert [name for name, _ in pairs] == [f"shapes:test:3#{number}" for number in range(8)]
    assert corpus_name(corpus) == "built-in shapes, test"
    assert corpus_name(CorpusConfig(images="a")) == "a"
