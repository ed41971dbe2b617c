import gzip

import pytest

from tformer_cli.errors import ArtifactError, DataError, UsageError
from tformer_cli.workflows.open_translator import open_translator
from tformer_cli.workflows.translate import translate_file, translate_lines

LINES = ["A man sleeps.", "Two dogs run in the snow.", "the street", "A woman and a dog."]


def test_lines_are_translated_in_order_with_the_settings_given(model):
    found = list(translate_lines(model, [*LINES, ""], beam_size=2, n_best=2, device="cpu"))
    assert [t.source for t in found] == [*LINES, ""]
    assert [len(t.hypotheses) for t in found] == [2, 2, 2, 2, 1]


def test_settings_not_given_are_the_models(model):
    opened = open_translator(model, beam_size=None, length_penalty=1.0)
    assert opened.translator.config.beam_size == 3
    assert opened.translator.config.length_penalty == 1.0
    assert opened.precision == "float32"


def test_an_open_directory_is_used_as_it_is(model):
    opened = open_translator(model)
    again = list(translate_lines(opened.directory, LINES))
    assert again == opened.translator.translate(LINES)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_best": 9}, "--n-best: must be at most beam_size = 3, but is 9"),
        ({"beam_size": 0}, "--beam-size: must be 1 to 10000, but is 0"),
        ({"device": "tpu"}, "--device: must be auto, cpu, cuda or cuda:N"),
    ],
)
def test_impossible_settings_name_the_option(model, options, message):
    with pytest.raises(UsageError, match=message):
        open_translator(model, **options)


def test_no_model_directory_is_an_artifact_error(tmp_path):
    with pytest.raises(ArtifactError, match="no such directory"):
        open_translator(tmp_path / "nothing")


def test_a_file_becomes_a_file_with_as_many_lines(model, tmp_path):
    source, target = tmp_path / "in.txt.gz", tmp_path / "out.txt"
    source.write_bytes(gzip.compress("\n".join([*LINES, "", "x"]).encode()))
    counts = translate_file(model, source, target)
    expected = [t.text for t in translate_lines(model, [*LINES, "", "x"])]
    assert target.read_text(encoding="utf-8") == "".join(f"{text}\n" for text in expected)
    assert counts.lines == 6


def test_an_error_leaves_no_file(model, tmp_path):
    source, target = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text("short\n" + "long line " * 100 + "\n")
    with pytest.raises(DataError, match="line 2"):
        translate_file(model, source, target, too_long="error")
    assert [file.name for file in tmp_path.iterdir()] == ["in.txt"]
