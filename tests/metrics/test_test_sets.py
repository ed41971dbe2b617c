import urllib.error
import urllib.request

import pytest
from sacrebleu.dataset import DATASETS

from tformer_cli.errors import UsageError
from tformer_cli.evaluate.compare import files_of_test_set


@pytest.fixture
def folder(monkeypatch, tmp_path):
    """An empty folder where wmt20 belongs, on a machine without a network."""

    def offline(*args, **options):
        raise urllib.error.URLError("no network")

    monkeypatch.setattr(urllib.request, "urlopen", offline)
    monkeypatch.setattr(DATASETS["wmt20"], "_outdir", str(tmp_path))
    monkeypatch.setattr(DATASETS["wmt20"], "_rawdir", str(tmp_path / "raw"))
    return tmp_path


def test_files_that_are_there_are_found(folder):
    for field in DATASETS["wmt20"].fieldnames("en-de"):
        (folder / f"wmt20.en-de.{field}").write_text(f"{field}\n")
    source, references = files_of_test_set("wmt20", "en-de")
    assert source.read_text() == "src\n"
    assert [one.read_text() for one in references] == ["ref\n"]


def test_without_a_network_it_is_said_what_to_store_where(folder):
    with pytest.raises(UsageError) as refused:
        files_of_test_set("wmt20", "en-de")
    url = "https://data.statmt.org/wmt20/translation-task/test.tgz"
    path = folder / "raw" / "wmt20.test.tgz"
    message = str(refused.value)
    assert message.startswith("--test-set: wmt20 cannot be downloaded (")
    assert message.endswith(f"; store {url} as {path}, and unpack it there")


@pytest.mark.parametrize(
    ("name", "pair", "message"),
    [
        ("wmt2", "en-de", "--test-set: sacreBLEU has no wmt2; did you mean wmt24, wmt23 or wmt22?"),
        ("flor", "en-de", "--test-set: sacreBLEU has no flor; `sacrebleu --list` lists them"),
        ("wmt20", None, "--language-pair: wmt20 has cs-en, "),
        ("wmt20", "en-xx", "; found en-xx; name one of them"),
    ],
)
def test_unknown_names_are_refused(name, pair, message):
    with pytest.raises(UsageError) as refused:
        files_of_test_set(name, pair)
    assert message in str(refused.value)
