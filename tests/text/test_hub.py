import datasets
import huggingface_hub
import pytest

from tformer_cli.errors import DataError
from tformer_cli.text.config import CorpusConfig
from tformer_cli.text.corpora import read_corpus
from tformer_cli.text.hub import open_dataset

ROWS = [{"id": n, "translation": {"en": f"line {n}", "de": f"Zeile {n}"}} for n in range(10)]
PAIRS = [(f"line {n}", f"Zeile {n}") for n in range(10)]
NESTED = {"source_field": "translation.en", "target_field": "translation.de"}


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path_factory.mktemp("cache"))


@pytest.fixture
def dataset():
    return datasets.Dataset.from_list(ROWS)


def read(directory, name, **settings):
    return list(read_corpus(CorpusConfig(dataset=name, **settings), str(directory)))


@pytest.mark.parametrize("ending", ["parquet", "json", "jsonl", "json.gz", "arrow"])
def test_local_files_of_every_kind_are_read(tmp_path, dataset, ending):
    path = tmp_path / f"data.{ending}"
    if ending == "parquet":
        dataset.to_parquet(path)
    elif ending == "arrow":
        with datasets.arrow_writer.ArrowWriter(path=str(path), features=dataset.features) as writer:
            for row in ROWS:
                writer.write(row)
            writer.finalize()
    else:
        dataset.to_json(path, compression="gzip" if ending.endswith("gz") else None)
    assert read(tmp_path, path.name, **NESTED) == PAIRS
    assert read(tmp_path, path.name, split="valid[:30%]", **NESTED) == PAIRS[:3]


@pytest.mark.parametrize(("ending", "separator"), [("csv", ","), ("tsv", "\t")])
def test_tables_with_a_header_are_read(tmp_path, ending, separator):
    pairs = [*PAIRS, ("null", "NA"), ("", "none")]  # texts too, not the lack of a value
    lines = [separator.join(row) for row in [("source", "target"), *pairs]]
    (tmp_path / f"data.{ending}").write_text("\n".join(lines) + "\n")
    assert read(tmp_path, f"data.{ending}") == pairs


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("a.csv", b"", "No columns to parse from file"),
        ("a.csv", b"source,target\n\xff,b\n", "'utf-8' codec can't decode byte 0xff"),
        ("a.parquet", b"x", "Parquet file size is 1 bytes"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_in_one_line(tmp_path, capfd, name, content, why):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError) as error:
        read(tmp_path, name)
    assert str(error.value).startswith(f"{name}: cannot be opened ({why}")
    assert "\n" not in str(error.value)
    assert capfd.readouterr().err == ""


def test_a_folder_of_files_is_read_by_split(tmp_path, dataset):
    (tmp_path / "set").mkdir()
    dataset.select(range(4)).to_parquet(tmp_path / "set" / "train-00000.parquet")
    dataset.select(range(4, 10)).to_parquet(tmp_path / "set" / "test-00000.parquet")
    assert read(tmp_path, "set", **NESTED) == PAIRS[:4]
    assert read(tmp_path, "set", split="test[2:]", **NESTED) == PAIRS[6:]


def test_saved_datasets_are_read_by_split(tmp_path, dataset):
    dataset.save_to_disk(tmp_path / "alone")
    both = datasets.DatasetDict(train=dataset, test=dataset.select([9, 3]))
    both.save_to_disk(tmp_path / "both")
    assert read(tmp_path, "alone", **NESTED) == PAIRS
    assert read(tmp_path, "alone", split="train[1:3]", **NESTED) == PAIRS[1:3]
    assert read(tmp_path, "both", split="test", **NESTED) == [PAIRS[9], PAIRS[3]]
    assert read(tmp_path, "both", split="train[-2:]+test[:1]", **NESTED) == [*PAIRS[8:], PAIRS[9]]


def test_a_missing_field_is_an_error_that_lists_those_there_are(tmp_path, dataset):
    dataset.to_parquet(tmp_path / "data.parquet")
    there = r"only id, translation\.(en|de), translation\.(en|de);"
    with pytest.raises(DataError, match=rf'^data\.parquet: has no field "source", {there}'):
        read(tmp_path, "data.parquet")
    with pytest.raises(DataError, match=r'no field "translation.fr", only .*translation\.en'):
        read(tmp_path, "data.parquet", source_field="translation.fr", target_field="id")
    numbers = read(tmp_path, "data.parquet", source_field="translation.de", target_field="id")
    assert [target for _, target in numbers] == [str(row["id"]) for row in dataset]
    with pytest.raises(DataError, match=r'row 1: "id" is a number, not a string'):
        read(tmp_path, "data.parquet", source_field="id", target_field="translation.de")


def test_a_missing_split_is_an_error(tmp_path, dataset):
    datasets.DatasetDict(train=dataset).save_to_disk(tmp_path / "set")
    with pytest.raises(DataError, match=r"^set: cannot be opened \(.*test"):
        read(tmp_path, "set", split="test")


@pytest.mark.parametrize("name", ["none.parquet", "./none", "a/b/c"])
def test_a_path_to_nothing_is_an_error(tmp_path, name):
    with pytest.raises(DataError, match="no such dataset"):
        read(tmp_path, name)


def test_damaged_files_are_errors_of_one_line(tmp_path):
    (tmp_path / "data.parquet").write_bytes(b"PAR1 and nothing more")
    (tmp_path / "data.xyz").write_bytes(b"x")
    with pytest.raises(DataError, match=r"^data\.parquet: cannot be opened") as caught:
        read(tmp_path, "data.parquet")
    assert "\n" not in str(caught.value)
    with pytest.raises(DataError, match="unknown kind of dataset"):
        read(tmp_path, "data.xyz")


def test_an_unreachable_hub_is_an_error_at_once(monkeypatch):
    tries = []

    class Session:
        def head(self, url, timeout):
            tries.append((url, timeout))
            raise OSError("no network")

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub, "get_session", Session)
    with pytest.raises(DataError, match=r"no/one: the hub is unreachable or has no such dataset"):
        open_dataset(CorpusConfig(dataset="no/one"))
    assert len(tries) == 1
    assert not huggingface_hub.constants.HF_HUB_OFFLINE
