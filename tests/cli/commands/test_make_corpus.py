from typer.testing import CliRunner

from tformer_cli.cli.app import app


def test_writes_every_file_and_prints_the_directory(tmp_path):
    directory = tmp_path / "corpus"
    result = CliRunner().invoke(app, ["make-corpus", str(directory), "--pairs", "50"])
    assert result.exit_code == 0
    assert result.stdout == f"{directory}\n"
    assert "50 train" in result.stderr
    endings = ("en", "fr", "tok.en", "tok.fr", "align")
    names = {f"{split}.{ending}" for split in ("train", "valid", "test") for ending in endings}
    assert {entry.name for entry in directory.iterdir()} == names
    counts = {name: (directory / name).read_bytes().count(b"\n") for name in names}
    assert all(counts[f"train.{ending}"] == 50 for ending in endings)


def test_a_file_in_the_way_is_one_line_and_exit_2(tmp_path):
    (tmp_path / "file").write_text("")
    result = CliRunner().invoke(app, ["make-corpus", str(tmp_path / "file"), "--quiet"])
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1


def test_ratings_are_sentences_stars_and_gold_words(tmp_path):
    directory = tmp_path / "ratings"
    arguments = ["make-corpus", str(directory), "--task", "rating", "--pairs", "50"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0
    assert result.stdout == f"{directory}\n"
    assert "50 train, 10 valid, 10 test sentences" in result.stderr
    assert (directory / "test.txt").read_text().startswith("This restaurant was not too terrible.")
    assert (directory / "test.gold").read_text().startswith("3 5\n")
