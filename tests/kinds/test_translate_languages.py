"""Translating by models that have tokens for languages."""

import pytest

from tests.text.sentencepiece.conftest import LANGUAGES, trained
from tformer_cli.artifacts.model_directory import (
    load_model_directory,
)
from tformer_cli.errors import ArtifactError, UsageError
from tformer_cli.kinds.opening import open_model
from tformer_cli.search.constraints import Demands
from tformer_cli.text.sentencepiece.tokenizer import SentencePieceTokenizer
from tformer_cli.text.tokenizer import read_tokenizer


def test_every_part_begins_with_its_languages(foreign):
    opened = open_model(foreign, source_language="eng", target_language="fra")
    sides = opened.directory.tokenizer
    long = "A man sees the dog, and the woman finds a house in the garden. " * 4
    for translation in opened.translator.translate(["The dog", long, " "]):
        if translation.n_parts:
            assert translation.source_ids[0] == sides.source.id_of("eng_Latn")
            assert sides.source.id_of("eng_Latn") in translation.source_ids[1:] or (
                translation.n_parts == 1
            )
            ids = translation.hypotheses[0].token_ids
            assert ids[0] == sides.target.id_of("fra_Latn")
            assert "fra_Latn" not in translation.text
    assert translation.text == ""


@pytest.mark.parametrize("engine", ["torch", "tformer"])
def test_required_phrases_stand_behind_the_prefix(foreign, engine):
    languages = {"source_language": "eng", "target_language": "fra"}
    opened = open_model(foreign, engine=engine, max_length=20, **languages)
    demands = [Demands("", ("le chien",)), Demands("la", ("chien",))]
    target = opened.directory.tokenizer.target
    for translation, asked in zip(
        opened.translator.translate(["The dog"] * 2, demands=demands), demands, strict=True
    ):
        (ids,) = [hypothesis.token_ids for hypothesis in translation.hypotheses]
        assert ids[0] == target.id_of("fra_Latn")
        assert asked.required[0] in translation.text
        assert translation.text.startswith(asked.target_prefix)


def test_models_of_an_ensemble_are_told_the_languages(foreign):
    languages = {"source_language": "eng", "target_language": "fra"}
    alone = open_model(foreign, **languages).translator.translate(["The dog"])
    both = open_model(foreign, ensemble=[foreign], **languages).translator
    assert both.translate(["The dog"])[0].text == alone[0].text


def test_languages_must_be_known(foreign):
    with pytest.raises(UsageError, match=r"--source-language: .*none is chosen; choose eng, fra"):
        open_model(foreign)
    with pytest.raises(UsageError, match=r'--target-language: .*"xx"; choose'):
        open_model(foreign, source_language="eng", target_language="xx")


def test_a_model_of_two_languages_has_none_to_choose(model):
    with pytest.raises(UsageError, match=r"--target-language: .*omit it"):
        open_model(model, target_language="fra")


def test_both_vocabularies_must_be_the_models(foreign, tmp_path):
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in foreign.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    tokenizer = read_tokenizer(foreign)
    other = SentencePieceTokenizer.build(
        trained(), None, [*tokenizer.source.vocabulary.pieces, "more"],
        tokenizer.target.vocabulary.pieces, languages=LANGUAGES,
    )  # fmt: skip
    (copy / "tokenizer.json").write_text(other.to_json())
    with pytest.raises(ArtifactError, match="restore this model's own tokenizer"):
        load_model_directory(copy)
