import pytest

from tformer_cli.quality.doubts import doubts, share_of_equal
from tformer_cli.text.config import CorpusConfig, DataConfig

ENGLISH = "The old man is in the house, and he was not happy with this."
FRENCH = "Le vieil homme est dans la maison, et il ne veut pas que les enfants jouent."


def of(directory, text, **changes):
    """The doubts about a TSV file with some text."""
    (directory / "a.tsv").write_text(text, encoding="utf-8")
    valid = (CorpusConfig(tsv="a.tsv"),)
    data = DataConfig(
        **{
            "train": (CorpusConfig(tsv="a.tsv"),),
            "valid": valid,
            "directory": str(directory),
            "source_language": "en",
            "target_language": "fr",
            **changes,
        }
    )
    return list(doubts(data))


GOOD = f"{ENGLISH}\t{FRENCH}\n"


def test_a_good_corpus_raises_no_doubt(tmp_path):
    assert of(tmp_path, GOOD * 50) == []
    assert of(tmp_path, "the cat\tle chat\n") == []
    assert of(tmp_path, "") == []
    named = '"Come," he said.\t« Viens », dit-il.\n'
    assert of(tmp_path, (GOOD + named) * 20) == []


def test_a_missing_validation_corpus_is_reported(tmp_path):
    (doubt,) = of(tmp_path, GOOD * 10, valid=())
    assert doubt.startswith("data.valid: names no corpus, so no step is validated and the best ")


@pytest.mark.parametrize(
    "first",
    [
        "source\ttarget",
        "en\tfr",
        "English\tFrench",
        '"src"\t"tgt"',
        "en-US\tfr_FR",
        "text\tTranslation",
    ],
)
def test_a_header_is_noticed(tmp_path, first):
    (doubt,) = of(tmp_path, f"{first}\n" + GOOD * 10)
    one, other = first.split("\t")
    assert doubt == (
        f'a.tsv: its first line ("{one}", "{other}") looks like names of columns and would be '
        "trained on; remove it (tail -n +2)"
    )


@pytest.mark.parametrize("first", ["hello\tbonjour", "no\tno", "source\tla source", "\t", "it\tle"])
def test_a_first_pair_of_words_is_not_taken_for_a_header(tmp_path, first):
    assert of(tmp_path, f"{first}\n" + GOOD * 10) == []


def test_quotes_of_csv_are_noticed(tmp_path):
    (doubt,) = of(tmp_path, f'"{ENGLISH}"\t"{FRENCH}"\n' * 10)
    assert doubt.startswith('a.tsv: most lines have a text in quotes ("…"), as in CSV files, and')
    (doubt,) = of(tmp_path, f'{ENGLISH}\t"{FRENCH}"\n' * 10)
    assert "in quotes" in doubt


def test_equal_sides_are_noticed_once(tmp_path):
    (doubt,) = of(tmp_path, f"{ENGLISH}\t{ENGLISH}\n" * 9 + GOOD)
    assert doubt == (
        "a.tsv: source and target are the same in 90% of the first 10 pairs; "
        "check that both sides are named right"
    )
    assert of(tmp_path, f"{ENGLISH}\t{ENGLISH}\n" * 9 + GOOD * 10) == []


def test_swapped_sides_are_noticed(tmp_path):
    expected = [
        (
            'a.tsv: the source looks like "fr" and the target like "en"; swap them, or '
            "data.source_language and data.target_language"
        )
    ]
    assert of(tmp_path, f"{FRENCH}\t{ENGLISH}\n" * 10) == expected
    assert of(tmp_path, GOOD * 10, source_language="fr", target_language="en") == [
        expected[0].replace('"fr" and the target like "en"', '"en" and the target like "fr"')
    ]
    assert of(tmp_path, f"{FRENCH}\t{ENGLISH}\n" * 10, source_language="", target_language="") == []


def test_a_side_in_another_language_is_noticed(tmp_path):
    (doubt,) = of(tmp_path, GOOD * 50, target_language="de")
    assert doubt == (
        "a.tsv: another language in 100% of the first 50 pairs (language); "
        "`tformer data check` shows them"
    )


def test_aligned_files_and_jsonl_are_looked_into_too(tmp_path):
    (tmp_path / "a.en").write_text(f"{FRENCH}\n" * 10, encoding="utf-8")
    (tmp_path / "a.fr").write_text(f"{ENGLISH}\n" * 10, encoding="utf-8")
    corpora = (CorpusConfig(source="a.en", target="a.fr"), CorpusConfig(built_in="train"))
    (doubt,) = of(tmp_path, GOOD, train=corpora)
    assert doubt.startswith('a.en, a.fr: the source looks like "fr"')


def test_the_share_of_equal_pairs_ignores_blank_ones_and_needs_some():
    assert share_of_equal([("a", "a")] * 7) == 0.0
    assert share_of_equal([("a", "a ")] * 8) == 1.0
    assert share_of_equal([("", "")] * 50 + [("a", "b")] * 10) == 0.0


def test_what_a_check_finds_in_many_pairs_is_a_doubt(tmp_path):
    damaged = GOOD.replace("old", "<b>old</b>")
    (doubt,) = of(tmp_path, damaged * 10 + GOOD * 30)
    assert doubt == (
        "a.tsv: tags, entities, other markup in 25% of the first 40 pairs (markup); "
        "`tformer data check` shows them"
    )
    assert of(tmp_path, damaged * 4 + GOOD * 36) == []
    assert of(tmp_path, damaged * 7) == []
