"""Translations by teachers, and those that are chosen."""

import json
import random
import shutil
from collections import Counter
from itertools import count

import pytest
from sacrebleu import sentence_bleu, sentence_chrf

from tests.models import LINES
from tests.plugins.corpora_tools.distill.conftest import TARGETS, write_lines
from tformer_cli.artifacts.resumable import ResumableFiles
from tformer_cli.errors import DataError, RecipeError
from tformer_cli.kinds.lines.translate import translate_lines
from tformer_cli.metrics.scores import sentence_score
from tformer_cli.plugins.corpora_tools.distill import translations
from tformer_cli.plugins.corpora_tools.distill.distill import stages_of
from tformer_cli.plugins.corpora_tools.distill.stages import Manifest, State
from tformer_cli.plugins.corpora_tools.distill.translations import (
    choose_translation,
    read_translations,
    student_recipe,
    translation_stages,
)
from tformer_cli.text.tokenizer import read_tokenizer
from tformer_cli.trainer.distillation import DistillationConfig

CANDIDATES = [
    "the cat sat on a mat", "the cat sat on the mat", "a cat is on the mat", "", "cat mat", "it sat"
]  # fmt: skip
REFERENCES = ["the cat sat on the mat .", "cat mat", "it is a cat", "xyz"]


def select(setup):
    """Runs all stages up to the selection."""
    setup.directory.mkdir(exist_ok=True)
    manifest = Manifest.read(setup.directory)
    for stage in stages_of(setup):
        manifest.bring_up_to_date(stage, lambda _, state: None)
        if stage.name == "select":
            return setup.directory / "corpora"
    raise AssertionError


def pairs_of(path):
    records = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return [(record["source"], record["target"]) for record in records]


@pytest.mark.parametrize("reference", REFERENCES)
@pytest.mark.parametrize(("choice", "oracle"), [("chrf", sentence_chrf), ("bleu", sentence_bleu)])
def test_the_nearest_to_the_reference_is_chosen(choice, oracle, reference):
    scores = [oracle(text, [reference]).score for text in CANDIDATES]
    assert choose_translation(CANDIDATES, reference, sentence_score(choice)) == scores.index(
        max(scores)
    )


def test_the_teacher_decides_where_there_is_no_reference_or_no_difference():
    score = sentence_score("chrf")
    assert choose_translation(CANDIDATES, " ", score) == 0
    assert choose_translation(["a b", "a b", "a b"], "a b", score) == 0
    assert choose_translation(CANDIDATES, "the cat sat on the mat", None) == 0


def test_sources_stand_beside_the_best_of_their_own_translations(make):
    corpora = select(make())
    records = (corpora.parent / "translations/train-0.jsonl").read_text().splitlines()
    hypotheses = [[h["translation"] for h in json.loads(line)["hypotheses"]] for line in records]
    assert {len(texts) for texts in hypotheses} == {3}
    expected = [
        (source, max(texts, key=lambda text: sentence_chrf(text, [target]).score))
        for source, target, texts in zip(LINES * 4, TARGETS * 4, hypotheses, strict=True)
    ]
    assert pairs_of(corpora / "train-0.jsonl") == expected
    counts = json.loads((corpora / "selection.json").read_text())
    ranks = Counter(
        texts.index(target) for (_, target), texts in zip(expected, hypotheses, strict=True)
    )
    row = counts["train-0"]
    assert row["pairs"] == 16 == sum(row["ranks"])
    assert row["ranks"] == [ranks[n] for n in range(len(row["ranks"]))]


@pytest.mark.parametrize("name", ["made.de", "made.jsonl"])
def test_translations_made_elsewhere_are_used_as_they_are(make, texts, name):
    lines = [f"Satz {n}" for n in range(16)]
    records = [json.dumps({"translation": line}) for line in lines]
    write_lines(texts / name, lines if name.endswith("de") else records)
    corpora = select(make("distillation.teachers=[]", f'distillation.translations=["{name}"]'))
    assert pairs_of(corpora / "train-0.jsonl") == list(zip(LINES * 4, lines, strict=True))


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["{}"] * 16, 'line 1: has no "translation"'),
        (["["] * 16, 'line 1: has no "translation"'),
        (
            [json.dumps({"translation": "a"})] * 13,
            "has 13 translations for the 16 sentences of its corpus; translate",
        ),
        (
            [json.dumps({"translation": "a"})] * 19,
            "has 19 translations for the 16 sentences of its corpus; translate",
        ),
        (
            [json.dumps({"translation": "a", "source": "A man sleeps."})] * 16,
            "line 2: translates another sentence",
        ),
        ([json.dumps({"hypotheses": [{"translation": 3}]})] * 16, 'line 1: has no "translation"'),
    ],
)
def test_translations_that_do_not_correspond_are_refused(make, texts, lines, message):
    write_lines(texts / "made.jsonl", lines)
    setup = make("distillation.teachers=[]", 'distillation.translations=["made.jsonl"]')
    with pytest.raises(DataError, match=message):
        select(setup)
    assert not (setup.directory / "corpora").exists()


def test_back_translations_begin_with_a_tag_that_is_one_token(make, texts, model):
    write_lines(texts / "mono.de", ["Ein Hund schläft.", "", "die Frau"])
    setup = make(
        'distillation.back_translation=["mono.de"]', f'distillation.reverse_model="{model}"',
        "distillation.back_translation_weight=0.5",
    )  # fmt: skip
    corpora = select(setup)
    pairs = pairs_of(corpora / "back_translation-0.jsonl")
    assert [target for _, target in pairs] == ["Ein Hund schläft.", "", "die Frau"]
    assert pairs[0][0].startswith("<BT> ")
    assert pairs[1] == ("", "")
    tokenizer = read_tokenizer(corpora / "tokenizer.json")
    assert tokenizer.new_tokens == ("<BT>",)
    ids = tokenizer.source.encode(pairs[0][0])
    assert ids[0] == tokenizer.source.vocab_size - 1
    assert ids[1:] == tokenizer.source.encode(pairs[0][0].removeprefix("<BT> "))
    recipe = student_recipe(setup)
    assert recipe.tokenizer.path == str(corpora / "tokenizer.json")
    assert [corpus.weight for corpus in recipe.data.train] == [1.0, 1.0, 0.5]


def test_weights_decide_which_corpora_the_student_reads(make, texts):
    write_lines(texts / "mono.en", ["A dog sleeps."])
    setup = make(
        "distillation.original_weight=0", "distillation.distilled_weight=2",
        'distillation.monolingual=["mono.en"]', "distillation.monolingual_weight=3",
        "data.train.0.weight=0.5",
    )  # fmt: skip
    corpora = select(setup)
    weights = [(corpus.jsonl, corpus.weight) for corpus in student_recipe(setup).data.train]
    assert weights == [
        (str(corpora / "train-0.jsonl"), 1.0), (str(corpora / "monolingual-0.jsonl"), 3.0)
    ]  # fmt: skip
    (pair,) = pairs_of(corpora / "monolingual-0.jsonl")
    assert pair[0] == "A dog sleeps."
    assert student_recipe(setup).distillation == DistillationConfig()


def test_a_tag_that_cannot_be_a_token_is_refused(make, texts, model):
    write_lines(texts / "mono.de", ["Ein Hund schläft."])
    setup = make(
        'distillation.back_translation=["mono.de"]', f'distillation.reverse_model="{model}"',
        'tokenizer.algorithm="char"',
    )  # fmt: skip
    with pytest.raises(RecipeError, match=r"^distillation.back_translation_tag: "):
        select(setup)


class Stopped(BaseException):
    """As a kill would: nothing of ours handles it."""


def update_translations(setup):
    """Brings the translations up to date; returns the states that the stages were in."""
    setup.directory.mkdir(exist_ok=True)
    manifest, states = Manifest.read(setup.directory), []
    for stage in translation_stages(setup):
        manifest.bring_up_to_date(stage, lambda _, state: states.append(state))
    return states


def test_they_are_those_of_translate(make, texts, model):
    write_lines(texts / "mono.en", ["A dog.", "", "the street"])
    setup = make('distillation.monolingual=["mono.en"]')
    assert update_translations(setup) == [State.new, State.new]
    rows = list(read_translations(setup.directory / "translations/train-0.jsonl"))
    expected = list(translate_lines(model, LINES * 4, beam_size=3, n_best=3, threads=1))
    assert [source for source, _ in rows] == LINES * 4
    assert [texts for _, texts in rows] == [[h.text for h in t.hypotheses] for t in expected]
    mono = list(read_translations(setup.directory / "translations/monolingual-0.jsonl"))
    (first, second, third) = mono
    assert second == ("", [""])
    assert len(first[1]) == len(third[1]) == 1


def test_an_ensemble_translates_as_translate_does(make, model):
    setup = make(f'distillation.teachers=["{model}", "{model}"]')
    update_translations(setup)
    (first, *_) = read_translations(setup.directory / "translations/train-0.jsonl")
    expected = next(iter(translate_lines(model, LINES, beam_size=3, n_best=3, ensemble=[model])))
    assert first[1] == [hypothesis.text for hypothesis in expected.hypotheses]


def test_stopped_at_any_moment_they_end_with_the_same_bytes(make, monkeypatch):
    whole = make()
    update_translations(whole)
    expected = (whole.directory / "translations/train-0.jsonl").read_bytes()
    # small buffers: the corpus has sixteen lines
    in_threes = translations.translated_text
    monkeypatch.setattr(
        translations, "translated_text", lambda *a, **k: in_threes(*a, buffer_lines=3, **k)
    )
    original = ResumableFiles.mark
    draw = random.Random(4)
    for attempt in range(6):
        setup = make()
        object.__setattr__(setup, "directory", whole.directory.parent / f"again-{attempt}")
        is_before, calls = draw.random() < 0.5, count()

        def mark(self, done, *, is_before=is_before, calls=calls):
            if not is_before:
                original(self, done)
            if next(calls) in {0, 2, 3}:
                self.stream.flush()
                raise Stopped
            if is_before:
                original(self, done)

        monkeypatch.setattr(ResumableFiles, "mark", mark)
        n_stops, states = 0, []
        while not states:
            try:
                states = update_translations(setup)
            except Stopped:
                n_stops += 1
        assert n_stops == 3
        assert states == [State.begun]
        file = setup.directory / "translations/train-0.jsonl"
        assert file.read_bytes() == expected
        assert list(file.parent.iterdir()) == [file]


def test_a_begun_translation_of_another_text_is_not_continued(make, texts, monkeypatch):
    def stop(self, done):
        raise Stopped

    setup = make()
    with monkeypatch.context() as patch:
        patch.setattr(ResumableFiles, "mark", stop)
        with pytest.raises(Stopped):
            update_translations(setup)
    write_lines(texts / "train.en", ["A man sleeps."] * 16)
    assert update_translations(make()) == [State.changed]
    lines = (setup.directory / "translations/train-0.jsonl").read_text().splitlines()
    assert {json.loads(line)["source"] for line in lines} == {"A man sleeps."}
    assert (setup.directory / "earlier/train-0-1/train-0.jsonl.part").exists()


@pytest.mark.parametrize(
    ("change", "is_again"),
    [
        ("distillation.teacher_beam_size=4", True),
        ("distillation.teacher_n_best=2", True),
        ('distillation.teacher_precision="int8"', True),
        ('distillation.choice="first"', False),
        ("training.max_steps=5", False),
        ("distillation.distilled_weight=2", False),
    ],
)
def test_only_what_decides_them_makes_them_again(make, change, is_again):
    update_translations(make())
    assert update_translations(make(change)) == [State.changed if is_again else State.unchanged]


def test_a_teacher_with_other_weights_translates_again(make, model, tmp_path):
    copy = shutil.copytree(model, tmp_path / "copy")
    change = f'distillation.teachers=["{copy}"]'
    update_translations(make(change))
    assert update_translations(make()) == [State.unchanged]  # it is another name of the same model
    (copy / "shortlist.safetensors").write_bytes(b"other")
    stages = translation_stages(make(change))
    assert Manifest.read(make().directory).state(stages[0], stages[0].inputs()) is State.changed
