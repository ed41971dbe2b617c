import pytest

from tformer_cli.errors import ArtifactError, DataError
from tformer_cli.plugins.corpora_tools.tokenize import decode_lines, encode_lines, measure, train
from tformer_cli.text.config import TokenizerConfig
from tformer_cli.text.tokenizer import read_tokenizer

LINES = ["The dog sees the man.", "Der Hund sieht den Mann."] * 20


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text"
    path.write_text("\n".join(LINES) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def tokenizer(text):
    return train([str(text)], TokenizerConfig(vocab_size=290)).tokenizer


def test_training_writes_a_tokenizer_over_an_old_one(text, tmp_path):
    output = tmp_path / "tokenizer.json"
    output.write_text("old")
    trained = train([str(text), str(text)], TokenizerConfig(vocab_size=290), output)
    assert trained.lines.lines == 2 * len(LINES)
    assert read_tokenizer(output).to_json() == trained.tokenizer.to_json()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["text", "tokenizer.json"]


def test_an_output_that_cannot_be_written_is_an_error(text, tmp_path):
    with pytest.raises(ArtifactError, match="cannot be written"):
        train([str(text)], TokenizerConfig(vocab_size=290), tmp_path / "no" / "tokenizer.json")


def test_a_missing_file_is_an_error(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        train([str(tmp_path / "none")], TokenizerConfig())


@pytest.mark.parametrize("ids", [False, True])
def test_lines_survive_encoding_and_decoding(tokenizer, ids):
    lines = [
        "",
        " ",
        "  a  b ",
        "nul\x00 and \u2028",
        "</s> <pad>",
        "😀\t é\u00a0",
        "a\rb",
    ]
    encoded = encode_lines(tokenizer, lines, ids=ids)
    assert encoded[0] == ""
    assert all("\n" not in line and line == " ".join(line.split()) for line in encoded)
    assert decode_lines(tokenizer, encoded, ids=ids) == lines


def test_pieces_are_readable(tokenizer):
    assert encode_lines(tokenizer, ["The dog"]) == ["▁The ▁dog"]


def test_a_line_end_among_the_pieces_does_not_break_the_line(tokenizer):
    [encoded] = encode_lines(tokenizer, ["a\nb"])
    assert decode_lines(tokenizer, [encoded]) == ["a b"]


@pytest.mark.parametrize("word", ["999999", "-1", "x", "1.0", "²", "9" * 5000])
def test_a_word_that_is_not_an_id_is_named_with_its_line(tokenizer, word):
    with pytest.raises(DataError, match=r'line 8: ".*" is not an id; ids are .* below 290'):
        decode_lines(tokenizer, ["5", f"5 {word}"], ids=True, first_line=7)


def test_a_word_that_is_not_a_piece_is_named_with_its_line(tokenizer):
    with pytest.raises(DataError, match=r'line 1: "xyz" is not a piece of this tokenizer'):
        decode_lines(tokenizer, ["xyz"])


def test_statistics_count_pieces_unknowns_and_losses(text):
    words = train([str(text)], TokenizerConfig(algorithm="word")).tokenizer
    counted = measure(words, ["The dog", "", "The cat sees"])
    assert counted.summary() == {
        "lines": 3, "words": 5, "characters": 19, "pieces": 5, "pieces_per_word": 1.0,
        "pieces_per_character": 5 / 19, "unknown_rate": 0.2,
        "vocabulary_used": 4 / words.vocab_size, "lines_not_restored": 1,
    }  # fmt: skip
