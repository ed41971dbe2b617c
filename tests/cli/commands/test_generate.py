"""`tformer generate`: streams, formats, refusals."""

import json

import pytest
from typer.testing import CliRunner

from tformer_cli.artifacts.config_file import ModelInfo
from tformer_cli.artifacts.model_directory import save_model_directory
from tformer_cli.cli.app import app
from tformer_cli.model.config import ModelConfig
from tformer_cli.model.transformer import Transformer
from tformer_cli.search.config import DecodingConfig
from tformer_cli.search.generator import Generator
from tformer_cli.text.config import TokenizerConfig
from tformer_cli.text.train_tokenizer import train_tokenizer


def run(*arguments, stdin=None):
    return CliRunner().invoke(app, [str(part) for part in arguments], input=stdin)


def lines_of(*arguments, stdin=None):
    done = run(*arguments, stdin=stdin)
    assert done.exit_code == 0, done.stderr
    return done.stdout.splitlines()


def test_a_line_for_each_prompt_in_every_format(language_model, tmp_path):
    prompts = tmp_path / "prompts.txt"
    prompts.write_bytes(b"A man\n\nthe str\xffeet\n" + b"word " * 60 + b"\n")
    done = run("generate", language_model, "-i", prompts, "-q")
    assert done.exit_code == 0, done.stderr
    texts = done.stdout.removesuffix("\n").split("\n")
    assert len(texts) == 4
    assert texts[1] == ""
    assert texts[0].startswith("A man")
    assert texts[2].startswith("the str\ufffdeet")
    assert "1 line with bytes that are not UTF-8" in done.stderr
    assert "1 line longer than the model takes; only the end was read" in done.stderr
    rows = lines_of("generate", language_model, "-i", prompts, "-q", "--format", "jsonl")
    records = [json.loads(line) for line in rows]
    assert [one["index"] for one in records] == [0, 1, 2, 3]
    assert [one["prompt"] + one["text"] for one in records[:3]] == texts[:3]
    assert records[3]["truncated"]
    assert records[0]["tokens"] <= 8
    assert run("generate", language_model, "-q", stdin=prompts.read_bytes()).stdout == done.stdout
    output = tmp_path / "out.txt"
    lines_of("generate", language_model, "-i", prompts, "-o", output, "-q", "--buffer-lines", 1)
    assert output.read_text() == done.stdout


def test_prompts_that_are_arguments_keep_line_ends(language_model):
    plain = run("generate", language_model, "a dog\n", "", "-q")
    assert plain.exit_code == 0, plain.stderr
    assert plain.stdout.startswith("a dog\n")
    other = run("generate", language_model, "a dog\n", "", "-q", "--seed", 2)
    assert other.stdout != plain.stdout
    assert run("generate", language_model, "a dog\n", "", "-q", "--seed", 1).stdout == plain.stdout


def test_several_texts_are_listed_in_jsonl(language_model):
    rows = lines_of("generate", language_model, "A", "-q", "--n-best", 3, "--format", "jsonl")
    (record,) = map(json.loads, rows)
    assert len({one["text"] for one in record["texts"]}) == 3
    assert record["texts"][0]["text"] == record["text"]


def test_a_beam_size_asks_for_a_search(language_model):
    greedy = ["generate", language_model, "A", "-q", "--beam-size", 1]
    assert lines_of(*greedy, "--seed", 1) == lines_of(*greedy, "--seed", 2)


def test_a_text_at_a_terminal_appears_token_by_token(language_model, monkeypatch):
    monkeypatch.setattr("tformer_cli.cli.commands.generate.is_terminal", lambda stream: True)
    pieces = []
    original = Generator.generate

    def generate(self, prompts, numbers=None, on_text=None):
        def tell(text):
            pieces.append(text)
            on_text(text)

        return original(self, prompts, numbers, tell)

    monkeypatch.setattr(Generator, "generate", generate)
    shown = run("generate", language_model, "A", "-q")
    assert len(pieces) > 1
    assert shown.stdout == f"A{''.join(pieces)}\n"
    monkeypatch.undo()
    assert shown.stdout == run("generate", language_model, "A", "-q").stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["A", "--n-best", "2"], "--n-best: 2 texts per prompt do not fit text output"),
        (["A", "-i", "x.txt"], "--input: prompts are given as arguments already"),
        (["A", "--stop", ""], "--stop: is empty"),
        (["A", "--beam-size", "2", "--temperature", "0.5"], "--temperature: needs sampling"),
        (["-i", "missing.txt"], "missing.txt: no such file"),
    ],
)
def test_what_cannot_be_is_one_line(language_model, options, message):
    done = run("generate", language_model, *options)
    assert done.exit_code == 2
    assert done.stderr.startswith("error: ")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_models_of_other_tasks_are_refused_with_the_right_command(model, language_model):
    done = run("generate", model, "A")
    assert done.exit_code == 2
    assert "is a translation model; use `tformer translate`" in done.stderr
    for command in (["translate"], ["evaluate", "--source", "x", "--reference", "x"]):
        done = run(command[0], language_model, *command[1:], *(["A"] if len(command) == 1 else []))
        assert done.exit_code == 2
        assert done.stderr.count("\n") == 1
    assert (
        "is a language model, which continues texts; use `tformer generate`"
        in run("translate", language_model, "A").stderr
    )


def test_what_a_model_does_not_know_of_a_prompt_is_counted(tmp_path):
    model = tmp_path / "chars"
    tokenizer = train_tokenizer(["abcabc"], TokenizerConfig(algorithm="char", vocab_size=10))
    config = ModelConfig(
        d_model=8, n_heads=2, d_ff=8, n_encoder_layers=0, n_decoder_layers=1, max_positions=40
    )
    weights = Transformer(config, tokenizer.vocab_size).state_dict()
    save_model_directory(
        model, weights, config=config, tokenizer=tokenizer,
        decoding=DecodingConfig(sampling=True, max_length=4), info=ModelInfo(),
    )  # fmt: skip
    done = CliRunner().invoke(app, ["generate", str(model), "aXbYY", "ab", "-q"])
    assert done.exit_code == 0, done.stderr
    assert done.stdout.startswith("aXbYY")
    assert "3 words or characters that the model does not know; it read <unk>" in done.stderr
    known = CliRunner().invoke(app, ["generate", str(model), "ab", "-q"])
    assert "does not know" not in known.stderr
