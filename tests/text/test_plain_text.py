"""Source text as its writers mean it, and models that read it so."""

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as HuggingFaceTokenizer

from tests.commands import lines_of, run
from tests.models import LINES, tokenizer_of
from tformer_cli.text.config import TokenizerConfig
from tformer_cli.text.tokenizer import (
    is_plain,
    parse_tokenizer,
    plain,
    plain_with_spans,
    untrained_characters,
)
from tformer_cli.text.train_tokenizer import train_tokenizer

ALGORITHMS = ("bpe", "unigram", "word", "char", "byte")
MEANT = {
    "The ca\u00adt slept.": "The cat slept.",
    "The\u00a0cat\u2009slept\u202f!": "The cat slept !",
    "\u00a0The\u3000cat": " The cat",
    "\ufeffThe cat\u200b slept\u200e.": "The cat slept.",
    "\u202bThe\u202c cat\x00\x1b": "The cat",
    "The\tcat\u2028slept\x85": "The cat slept ",
    "e\u0301le\u0300ve": "élève",
    "e\u00ad\u0301": "é",
    "\u1112\u1161\u11ab": "한",
    "Auf\u200clage": "Auflage",
}
KEPT = (
    "The  cat  slept. ", "می\u200cخواهم", "क्\u200dष", "👩\u200d🚀", "❤\ufe0f", "ภาษา\u200bไทย",
    "ខ្មែរ\u200bភាសា", "L’été", "\u0301",
)  # fmt: skip
hard_text = st.text(
    st.sampled_from("ab é\u0301\u0323 \xa0\xad\u200b\u200c\u200d\ufeff\t\0\u1112\u1161\u11abक्ष.👩"),
    max_size=12,
)
few = settings(max_examples=40)


@pytest.mark.parametrize("text", MEANT, ids=ascii)
def test_text_is_read_as_its_writer_means_it(text):
    assert plain(text) == MEANT[text]
    assert not is_plain(text)


@pytest.mark.parametrize("text", KEPT, ids=ascii)
def test_what_makes_letters_and_runs_of_spaces_stays(text):
    assert plain(text) == text


@few
@given(hard_text)
def test_each_character_knows_where_it_comes_from(text):
    found, spans = plain_with_spans(text)
    assert found == plain(text)
    assert len(found) == len(spans)
    assert all(0 <= start < end <= len(text) for start, end in spans)
    assert spans == sorted(spans)
    for character, (start, end) in zip(found, spans, strict=True):
        assert character in plain(text[start:end]) or not character.isprintable()


@pytest.fixture(scope="module")
def tokenizers():
    lines = [*LINES, "élève été à l’été", "naïve café"] * 3
    return {
        algorithm: train_tokenizer(lines, TokenizerConfig(algorithm=algorithm, vocab_size=320))
        for algorithm in ALGORITHMS
    }


@pytest.fixture(scope="module")
def libraries(tokenizers):
    """Makes the exports' tokenizers."""
    made = {}
    for algorithm, tokenizer in tokenizers.items():
        made[algorithm] = HuggingFaceTokenizer.from_str(tokenizer.source_json())
        made[algorithm].encode_special_tokens = True
    return made


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@few
@given(text=hard_text)
def test_sources_are_read_plain_also_by_the_library_from_an_export(
    tokenizers, libraries, algorithm, text
):
    tokenizer = tokenizers[algorithm]
    (ids,) = tokenizer.encode_phrases([plain(text)])
    source = tokenizer.source
    assert source.encode_phrases([text]) == [ids]
    assert libraries[algorithm].encode(text, add_special_tokens=False).ids == ids
    ((spanned, spans),) = source.encode_with_spans([text])
    assert spanned == ids
    assert all(0 <= start <= end <= len(text) for start, end in spans)


@pytest.mark.parametrize("algorithm", ["bpe", "unigram", "byte"])
@few
@given(text=hard_text)
def test_tokens_give_all_composed_text_back(tokenizers, algorithm, text):
    tokenizer, composed = tokenizers[algorithm], unicodedata.normalize("NFC", text)
    for side in ("source", "target"):
        assert tokenizer.side(side).decode(tokenizer.side(side).encode(text)) == composed


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_tokenizer_keeps_its_normalization(tokenizers, algorithm):
    config = TokenizerConfig(algorithm=algorithm, vocab_size=320, normalization="none")
    without = train_tokenizer(LINES * 3, config)
    for tokenizer in (tokenizers[algorithm], without):
        for text in (tokenizer.to_json(), tokenizer.source_json()):
            read = parse_tokenizer(text)
            assert read.normalization == tokenizer.normalization
            assert read.to_json() == tokenizer.to_json()
    assert without.source is without
    assert "NFC" not in without.to_json()


def test_spans_are_those_of_the_line_as_it_was_written(tokenizers):
    line = "\ufeffThe ca\u00adt\u00a0e\u0301te\u0301"
    ((_, spans),) = tokenizers["char"].source.encode_with_spans([line])
    assert [line[start:end] for start, end in spans] == [
        "T", "h", "e", " ", "c", "a", "t", "\u00a0", "e\u0301", "t", "e\u0301",
    ]  # fmt: skip


def test_dropout_reads_plain_text(tokenizers):
    source = tokenizers["bpe"].source
    texts = ["The ca\u00adt\u00a0slept.", "The cat slept."]
    first, second = source.with_dropout(texts, [5, 5], 0.3, seed=1)
    assert first == second


def test_characters_without_a_piece_are_counted_for_models_that_read_all():
    line = "The ca\u00ad\u00adt\u00a0sle\u0301pt\x07"
    old = train_tokenizer(LINES * 3, TokenizerConfig(vocab_size=300, normalization="none"))
    assert untrained_characters([line], old.source) == {
        "soft hyphens": 2, "no-break spaces": 1, "control characters": 1, "decomposed letters": 1,
    }  # fmt: skip
    known = [f"{line}\u00a0:" for line in LINES] * 9
    french = train_tokenizer(known, TokenizerConfig(vocab_size=300, normalization="none"))
    assert untrained_characters(["La rue\u00a0:"], french.source) == {}
    assert untrained_characters([line], tokenizer_of().source) == {}
    assert untrained_characters(["The cat  slept."], old.source) == {}


def test_commands_warn_of_what_an_imported_model_was_not_trained_with(zoo, tmp_path):
    (tmp_path / "lines").write_text("A m\u00adan sleeps.\nA man sleeps.\nTwo d\u00adogs\u200bs.\n")
    for verb, model in (("translate", "opus"), ("classify", "bert_classifier")):
        done = run(verb, zoo[model], "-q", "-i", tmp_path / "lines")
        assert done.exit_code == 0
        if verb == "translate":
            assert "2 lines with characters that the model was not trained with: " in done.stderr
            assert "soft hyphens (2)" in done.stderr
    corpus = ("translate-corpus", zoo["opus"], tmp_path / "lines", "-o", tmp_path / "corpus")
    assert "2 lines with characters that the model was not trained with" in run(*corpus).stderr


def test_a_new_model_translates_special_spaces_as_spaces(zoo, tmp_path):
    (tmp_path / "lines").write_text("".join(f"{line}\n" for line in MEANT))
    (tmp_path / "meant").write_text("".join(f"{line}\n" for line in MEANT.values()))
    found, meant = (
        lines_of("translate", zoo["translate"], "-q", "-i", tmp_path / name)
        for name in ("lines", "meant")
    )
    assert found == meant
