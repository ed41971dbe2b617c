"""Shortlists and languages of an opened model."""

import shutil

import numpy as np
import pytest

from tests.text.sentencepiece.conftest import LANGUAGES, train_spm
from tformer_cli.artifacts.config_file import SHORTLIST
from tformer_cli.artifacts.model_directory import (
    load_model_directory,
)
from tformer_cli.artifacts.shortlist_file import save_shortlist
from tformer_cli.errors import ArtifactError, UsageError
from tformer_cli.heads.names import head_layout
from tformer_cli.heads.selectors import select_heads
from tformer_cli.kinds.lines.translate import translate_lines
from tformer_cli.kinds.opening import open_model
from tformer_cli.plugins.instruments.jobs.ablate import write_pruned
from tformer_cli.plugins.interchange.export import export_int8
from tformer_cli.search.constraints import LineConstraints
from tformer_cli.search.engine import Shortlist
from tformer_cli.text.sentencepiece.tokenizer import SentencePieceTokenizer
from tformer_cli.text.tokenizer import EOS_ID, read_tokenizer

LINES = ["A man sleeps.", "Two dogs run in the snow.", "", "the street", "A woman and a dog."]
FIRST = 40


@pytest.fixture(scope="module")
def listed_model(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("listed") / "model"
    shutil.copytree(model, path)
    n_tokens = read_tokenizer(path / "tokenizer.json").vocab_size
    offsets = np.arange(0, 2 * n_tokens + 1, 2)
    targets = np.random.default_rng(1).integers(FIRST, n_tokens, 2 * n_tokens).astype(np.int32)
    save_shortlist(path / SHORTLIST, Shortlist(FIRST, offsets, targets))
    return path


def translate_by(path, **options):
    return [
        translation.hypotheses
        for translation in translate_lines(path, LINES, device="cpu", **options)
    ]


@pytest.mark.parametrize("options", [{}, {"beam_size": 1}, {"precision": "int8"}], ids=repr)
def test_a_models_own_shortlist_is_used_unless_switched_off(model, listed_model, options):
    found = translate_by(listed_model, **options)
    assert found == translate_by(model, shortlist=str(listed_model / SHORTLIST), **options)
    assert translate_by(listed_model, shortlist="none", **options) == translate_by(model, **options)
    assert found != translate_by(model, **options)


@pytest.mark.parametrize("engine", ["compiled", "torch"])
def test_translations_consist_of_listed_tokens_by_either_engine(listed_model, engine):
    opened = open_model(listed_model, device="cpu", engine=engine, n_best=3)
    assert opened.translator.engine().name == engine
    for translation in opened.translator.translate(LINES):
        (sources,) = opened.directory.tokenizer.encode_batch([translation.source])
        listed = opened.translator._shortlist.candidates([*sources, EOS_ID])
        for hypothesis in translation.hypotheses:
            assert set(hypothesis.token_ids) <= set(listed)
    assert translate_by(listed_model, engine=engine)


def test_a_model_of_the_same_vocabulary_keeps_its_shortlist(listed_model, tmp_path):
    export_int8(listed_model, tmp_path / "int8")
    assert translate_by(tmp_path / "int8") == translate_by(listed_model, precision="int8")
    opened = open_model(listed_model, device="cpu", precision="float32")
    heads = select_heads(["cross.0.0"], head_layout(opened.directory.model))
    write_pruned(opened, heads, tmp_path / "pruned", LINES, [LINES])
    assert (tmp_path / "pruned" / SHORTLIST).read_bytes() == (listed_model / SHORTLIST).read_bytes()


def test_a_shortlist_that_is_not_there_is_named_by_its_option(model, tmp_path):
    with pytest.raises(
        ArtifactError, match=r"--shortlist: .*none: no such file; name one, or none"
    ):
        open_model(model, shortlist=str(tmp_path / "none"))


def test_a_shortlist_of_other_vocabularies_is_an_error(model, tmp_path):
    path = tmp_path / "other"
    save_shortlist(path, Shortlist(4, np.zeros(8, np.int64), np.array([], np.int32)))
    with pytest.raises(ArtifactError, match="belongs to a model of other vocabularies"):
        open_model(model, device="cpu", shortlist=str(path))
    with pytest.raises(ArtifactError, match="no such file"):
        open_model(model, device="cpu", shortlist=str(tmp_path / "missing"))


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
    demands = [LineConstraints("", ("le chien",)), LineConstraints("la", ("chien",))]
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
        train_spm(), None, [*tokenizer.source.vocabulary.pieces, "more"],
        tokenizer.target.vocabulary.pieces, languages=LANGUAGES,
    )  # fmt: skip
    (copy / "tokenizer.json").write_text(other.to_json())
    with pytest.raises(ArtifactError, match="restore this model's own tokenizer"):
        load_model_directory(copy)
