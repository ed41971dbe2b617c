"""`tformer generate`: streams, formats, refusals."""

from tests.commands import lines_of, output_of, record_of, records_of, run
from tests.models import save_random
from tformer_cli.search.generator import Generator


def test_the_formats_agree(language_model):
    prompts = ("A man", "the street", "word " * 60)
    texts = lines_of("generate", language_model, *prompts, "-q")
    records = records_of("generate", language_model, *prompts, "-q", "--format", "jsonl")
    assert [one["prompt"] + one["text"] for one in records[:2]] == texts[:2]
    assert [text.startswith(prompt) for text, prompt in zip(texts, prompts, strict=True)][:2] == [
        True,
        True,
    ]
    assert records[0]["tokens"] <= 8


def test_prompts_that_are_arguments_keep_line_ends(language_model):
    given = ("generate", language_model, "a dog\n", "", "-q")
    plain = output_of(*given)
    assert plain.startswith("a dog\n")
    assert output_of(*given, "--seed", 2) != plain
    assert output_of(*given, "--seed", 1) == plain


def test_several_texts_are_listed_in_jsonl(language_model):
    record = record_of("generate", language_model, "A", "-q", "--n-best", 3, "--format", "jsonl")
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
    assert shown.stdout == output_of("generate", language_model, "A", "-q")


def test_what_a_model_does_not_know_of_a_prompt_is_counted(tmp_path):
    model = save_random(
        tmp_path / "chars", ["abcabc"], algorithm="char", vocab_size=10,
        decoding={"sampling": True, "max_length": 4}, d_model=8, n_encoder_layers=0,
        max_positions=40,
    )  # fmt: skip
    done = run("generate", model, "aXbYY", "ab", "-q")
    assert done.stdout.startswith("aXbYY")
    assert "3 words or characters that the model does not know; it read <unk>" in done.stderr
    assert "does not know" not in run("generate", model, "ab", "-q").stderr
