import pytest

from tformer_cli.errors import UsageError
from tformer_cli.text.sentencepiece.tokenizer import Languages

TOKENS = {code: f">>{code}<<" for code in ("fra", "deu", "por", "pob", "spa", "ita", "ron", "cat")}
FROM_MANY = Languages(tokens=TOKENS, before_source="source", before_target=True)
TO_MANY = Languages(tokens=TOKENS, before_source="target", in_text=True)


def test_a_language_puts_its_token_where_the_model_expects_it():
    chosen = FROM_MANY.choose_languages("deu", "fra")
    assert (chosen.source_pieces, chosen.target_pieces) == ((">>deu<<",), (">>fra<<",))
    chosen = TO_MANY.choose_languages(None, "fra")
    assert (chosen.source_pieces, chosen.target_pieces) == ((">>fra<<",), ())


def test_none_keeps_a_language():
    chosen = FROM_MANY.choose_languages("deu", "fra")
    assert chosen.choose_languages(None, "ita") == FROM_MANY.choose_languages("deu", "ita")
    assert chosen.choose_languages("ita", None) == FROM_MANY.choose_languages("ita", "fra")


def test_an_unknown_code_is_refused_with_those_that_look_like_it():
    with pytest.raises(UsageError) as error:
        TO_MANY.choose_languages(None, "por_Latn")
    message = str(error.value)
    assert message.startswith('--target-language: this model does not know "por_Latn"; choose por')
    assert message.endswith("or one of 2 others")
    assert "\n" not in message


def test_few_languages_are_all_named():
    few = Languages(tokens={"fra": "f", "deu": "d"}, before_source="target")
    with pytest.raises(UsageError, match=r'does not know "xx"; choose deu, fra$'):
        few.choose_languages(None, "xx")


@pytest.mark.parametrize(
    ("languages", "source", "target", "option"),
    [
        (TO_MANY, "deu", "fra", "--source-language"),
        (Languages(), "deu", None, "--source-language"),
        (Languages(), None, "fra", "--target-language"),
        (Languages(before_source="target"), None, "fra", "--target-language"),
    ],
)
def test_a_language_that_has_no_token_cannot_be_chosen(languages, source, target, option):
    with pytest.raises(UsageError, match=f"^{option}: this model has no tokens for the language"):
        languages.choose_languages(source, target)


def test_languages_that_a_model_must_be_told_are_asked_for():
    with pytest.raises(UsageError, match=r"^--source-language: this model knows 8 languages, but"):
        FROM_MANY.choose_languages(None, "fra").check()
    with pytest.raises(UsageError, match=r"^--target-language: .* choose cat, deu, .* 2 others$"):
        FROM_MANY.choose_languages("fra", None).check()
    FROM_MANY.choose_languages("deu", "fra").check()
    TO_MANY.check()  # a text may name its language itself
    Languages().check()


def test_a_language_without_a_token_is_an_error_of_the_file():
    with pytest.raises(ValueError, match="has no token for its language xx"):
        Languages(tokens=TOKENS, before_target=True, target="xx")
