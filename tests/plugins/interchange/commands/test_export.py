import pytest
from typer.testing import CliRunner

from tformer_cli.cli.app import app

run = CliRunner().invoke


def test_an_export_translates_the_pieces_of_the_tokenizer(model):
    ctranslate2 = pytest.importorskip("ctranslate2")
    exported = run(app, ["export", str(model), "--quantization", "int8"])
    assert exported.exit_code == 0
    assert exported.stdout == ""
    path, tokenizer = str(model / "ctranslate2"), str(model / "tokenizer.json")
    cut = run(app, ["tokenize", "encode", tokenizer], input="dogs\n").stdout
    engine = ctranslate2.Translator(path, compute_type="float32")
    rules = {"max_decoding_length": 9, "min_decoding_length": 0}
    rules["suppress_sequences"] = [["<pad>"], ["<unk>"], ["<s>"]]
    pieces = engine.translate_batch([cut.split()], beam_size=1, **rules)[0].hypotheses[0]
    joined = run(app, ["tokenize", "decode", tokenizer], input=" ".join(pieces) + "\n")
    ours = run(
        app, ["translate", str(model), "dogs", "--beam-size", "1", "--max-length", "9", "-q"]
    )
    assert joined.stdout == ours.stdout != "\n"


def test_exports_for_hugging_face_and_says_how_to_share_it(model, tmp_path):
    path = tmp_path / "hf"
    exported = run(app, ["export", str(model), "--format", "huggingface", "-o", str(path)])
    assert exported.exit_code == 0
    assert exported.stdout == ""
    assert f"{path}: MarianMTModel; to share it, " in exported.stderr
    assert f"`hf upload OWNER/NAME {path}`" in exported.stderr
    assert sorted(file.name for file in path.iterdir()) == [
        *("README.md", "config.json", "generation_config.json", "model.safetensors"),
        *("tokenizer.json", "tokenizer_config.json"),
    ]


def test_an_earlier_export_is_replaced(model, tmp_path):
    pytest.importorskip("ctranslate2")
    command = ["export", str(model), "-o", str(tmp_path / "engine")]
    assert [run(app, command).exit_code for _ in range(2)] == [0, 0]
    assert (tmp_path / "engine" / "model.bin").is_file()


def test_exports_integers_and_translates_with_them(model, tmp_path):
    exported = run(app, ["export", str(model), "--format", "int8", "-o", str(tmp_path / "int8")])
    assert exported.exit_code == 0
    assert exported.stdout == ""
    assert "int8 weights, 0.1 MB instead of 0.5 MB" in exported.stderr
    after = run(app, ["translate", str(tmp_path / "int8"), "dogs", "", "A man"])
    assert after.exit_code == 0
    assert "in int8" in after.stderr
    before = run(app, ["translate", str(model), "--precision", "int8", "dogs", "", "A man"])
    assert after.stdout == before.stdout
    assert after.stdout.count("\n") == 3
