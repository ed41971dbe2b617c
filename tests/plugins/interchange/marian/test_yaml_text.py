import pytest
import yaml

from tformer_cli.errors import ArtifactError
from tformer_cli.plugins.interchange.marian.binary import parse_yaml, read_yaml


def test_scalars_stay_texts():
    text = (
        'yes: 1\nnull: 2\n1e3: 3\n1: 4\n"1.0": 5\n~: 6\n"\\xe9": 7\n? "a b"\n: 8\n'
        "'q': [a, {b: c}]\n"
    )
    numbered = {"yes": "1", "null": "2", "1e3": "3", "1": "4", "1.0": "5", "~": "6"}
    others = {"é": "7", "a b": "8", "q": ["a", {"b": "c"}]}
    assert parse_yaml(text.encode(), "here") == numbered | others
    assert parse_yaml(b"", "here") is None


def test_vocabularies_that_the_library_writes_are_read(tmp_path):
    pieces = {
        piece: str(n) for n, piece in enumerate(["</s>", "<unk>", "▁the", "'", '"', ":", "- "])
    }
    (tmp_path / "v.yml").write_text(yaml.safe_dump(pieces, allow_unicode=True), encoding="utf-8")
    assert read_yaml(tmp_path / "v.yml") == pieces


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: &x [1]\nb: [*x, *x]", "has an alias"),
        ("[" * 9 + "]" * 9, "nested too deeply"),
        ("[" * 5000, "nested too deeply|maximum nesting depth"),  # libyaml stops at 1,000 itself
        ("a: b: c", "not readable YAML"),
        ("? [a]\n: b", "a key of the YAML"),
        ("a: \xff".encode("latin-1"), "not readable YAML"),
    ],
)
def test_other_yaml_is_refused(text, message):
    with pytest.raises(ArtifactError, match=message) as error:
        parse_yaml(text if isinstance(text, bytes) else text.encode(), "here")
    assert "\n" not in str(error.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ArtifactError, match=r"v\.yml: cannot be read"):
        read_yaml(tmp_path / "v.yml")
