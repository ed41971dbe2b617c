import json
from collections import Counter

import pytest
from sacrebleu import sentence_bleu, sentence_chrf

from tests.distill.conftest import TARGETS, write_lines
from tests.models import LINES
from tformer_cli.distill.distill import stages_of
from tformer_cli.distill.stages import Manifest
from tformer_cli.distill.translations import chosen, sentence_score, student_recipe
from tformer_cli.errors import DataError, RecipeError
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
        manifest.bring_up_to_date(stage, lambda one, state: None)
        if stage.name == "select":
            return setup.directory / "corpora"
    raise AssertionError


def pairs_of(path):
    records = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return [(one["source"], one["target"]) for one in records]


@pytest.mark.parametrize("reference", REFERENCES)
@pytest.mark.parametrize(("choice", "oracle"), [("chrf", sentence_chrf), ("bleu", sentence_bleu)])
def test_the_nearest_to_the_reference_is_chosen(choice, oracle, reference):
    scores = [oracle(one, [reference]).score for one in CANDIDATES]
    assert chosen(CANDIDATES, reference, sentence_score(choice)) == scores.index(max(scores))


def test_the_teacher_decides_where_there_is_no_reference_or_no_difference():
    score = sentence_score("chrf")
    assert chosen(CANDIDATES, " ", score) == 0
    assert chosen(["a b", "a b", "a b"], "a b", score) == 0
    assert chosen(CANDIDATES, "the cat sat on the mat", sentence_score("first")) == 0


def test_sources_stand_beside_the_best_of_their_own_translations(make):
    corpora = select(make())
    records = (corpora.parent / "translations/train-0.jsonl").read_text().splitlines()
    hypotheses = [[h["translation"] for h in json.loads(one)["hypotheses"]] for one in records]
    assert {len(one) for one in hypotheses} == {3}
    expected = [
        (source, max(texts, key=lambda text: sentence_chrf(text, [target]).score))
        for source, target, texts in zip(LINES * 4, TARGETS * 4, hypotheses, strict=True)
    ]
    assert pairs_of(corpora / "train-0.jsonl") == expected
    counts = json.loads((corpora / "selection.json").read_text())
    ranks = Counter(
        texts.index(target) for (_, target), texts in zip(expected, hypotheses, strict=True)
    )
    found = counts["train-0"]
    assert found["pairs"] == 16 == sum(found["ranks"])
    assert found["ranks"] == [ranks[n] for n in range(len(found["ranks"]))]


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
            "has not a translation for each sentence of its corpus, but 13 for 16; translate",
        ),
        (
            [json.dumps({"translation": "a"})] * 19,
            "has not a translation for each sentence of its corpus, but 19 for 16; translate",
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
    found = [(corpus.jsonl, corpus.weight) for corpus in student_recipe(setup).data.train]
    assert found == [
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
