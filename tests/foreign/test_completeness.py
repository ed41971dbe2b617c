"""Files of tokenizers that were cut short: no import is another model in silence."""

import json
import re

import pytest

from tests.foreign import encoders
from tests.foreign.spm import MERGES
from tests.plugins.legacy.test_fairseq import fairseq_model
from tformer_cli.errors import ArtifactError
from tformer_cli.foreign.import_model import import_model
from tformer_cli.foreign.keys import read_json_file, read_lines

transformers = pytest.importorskip("transformers")

FILES = {"bert": "vocab.txt", "distilbert": "vocab.txt", "roberta": "merges.txt"}


@pytest.mark.parametrize("kind", FILES)
def test_every_cut_of_an_encoder_s_vocabulary_is_refused_or_told(tmp_path, kind):
    path = tmp_path / "theirs"
    encoders.write_directory(path, kind, "ForMaskedLM", files="parts")
    whole = import_model(str(path), None)
    file = path / FILES[kind]
    data = file.read_bytes()
    for length in [*range(0, len(data), 397), *range(len(data) - 12, len(data))]:
        file.write_bytes(data[:length])
        try:
            foreign = import_model(str(path), None)
        except ArtifactError:
            continue
        # only the end of the last line, or padded rows, can be lost, and these are counted
        is_same = foreign.tokenizer.to_json() == whole.tokenizer.to_json()
        assert is_same or foreign.notes != whole.notes, length


def test_rows_without_a_reason_are_refused(tmp_path):
    path = tmp_path / "theirs"
    encoders.write_directory(path, "bert", "Model", files="parts")
    lines = (path / "vocab.txt").read_text().splitlines(keepends=True)
    (path / "vocab.txt").write_text("".join(lines[:-9]))
    with pytest.raises(ArtifactError, match=r"vocab\.txt.*rows without an entry.*may be cut short"):
        import_model(str(path), None)


def test_pieces_that_no_merge_makes_are_refused(tmp_path):
    path = tmp_path / "theirs"
    encoders.write_directory(path, "roberta", "Model", files="parts")
    assert any("rows" in note for note in import_model(str(path), None).notes)
    pieces = json.loads((path / "vocab.json").read_text())
    (path / "vocab.json").write_text(json.dumps({**pieces, "lonely": len(pieces)}))
    with pytest.raises(ArtifactError, match='such as "lonely", are made by no merge'):
        import_model(str(path), None)


def test_a_vocabulary_that_ends_inside_a_line_is_refused(tmp_path):
    path = tmp_path / "theirs"
    encoders.write_directory(path, "bert", "Model", files="parts")
    file = path / "vocab.txt"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(ArtifactError, match=r"vocab\.txt: ends inside a line"):
        import_model(str(path), None)


@pytest.mark.parametrize(("n_lines", "ends"), [(20, True), (25, False)])
def test_cut_codes_of_fairseq_are_refused(tmp_path, n_lines, ends):
    fairseq_model(tmp_path / "model")
    lines = MERGES.splitlines(keepends=True)
    codes = tmp_path / "model" / "bpecodes"
    codes.write_text("".join(lines))
    import_model(str(tmp_path / "model"), None)
    codes.write_text("".join(lines[:n_lines]).removesuffix("" if ends else "\n"))
    with pytest.raises(ArtifactError) as caught:
        import_model(str(tmp_path / "model"), None)
    assert re.search(r"bpecodes: \d+ pieces .* made by no merge", str(caught.value))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"id2label": {"0": "\\uD800"}}', "surrogates not allowed"),
        (b'{"a": [' + b"[]," * 4_300_000 + b"0]}", "has more than 4,194,304 values"),
    ],
    ids=["half a character", "many values"],
)
def test_json_that_no_model_has_is_refused_in_one_line(tmp_path, content, message):
    file = tmp_path / "config.json"
    file.write_bytes(content)
    with pytest.raises(ArtifactError, match=message) as caught:
        read_json_file(file)
    assert "\n" not in str(caught.value)
    assert str(caught.value).isascii()


def test_characters_in_two_halves_are_one(tmp_path):
    (tmp_path / "config.json").write_bytes(b'{"a": "\\ud83d\\ude00"}')
    assert read_json_file(tmp_path / "config.json") == {"a": "\U0001f600"}


def test_very_many_lines_are_no_vocabulary(tmp_path):
    (tmp_path / "vocab.txt").write_bytes(b"a\n" * 1_100_000)
    with pytest.raises(ArtifactError, match="has more than 1,048,576 lines"):
        read_lines(tmp_path / "vocab.txt")
