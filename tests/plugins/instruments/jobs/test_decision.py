"""Decisions of every kind of model, found by words and by pairs of sentences."""

import json
import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from tests.commands import output_of, record_of
from tests.models import save_random
from tformer_cli.errors import DataError, UsageError
from tformer_cli.plugins.instruments.decisions.decision import match_positions
from tformer_cli.plugins.instruments.jobs.decision import inspect_decision
from tformer_cli.plugins.instruments.views.decision import BAR, DRAWN, VIEW, DecisionOptions

SVG = "{http://www.w3.org/2000/svg}"
PAIR = ("The old house.", "A dog.")
ONE = {
    "translate": ("The old house.",),
    "opus": ("The old house.",),
    "variant": ("The old house.",),
    "language_model": ("The old",),
    "memory": ("The old house is",),
    "classifier": ("A good dog.",),
    "masked": ("A <mask> dog.",),
    "tagger": ("A good dog.",),
}


@pytest.fixture(scope="module")
def record(zoo, request):
    return inspect_decision(zoo[request.param], ONE[request.param])


def check(record):
    assert record.direct_residual < 1e-5
    assert record.integrated_missing < 0.02
    assert record.heads
    assert abs(record.heads[0].cause) >= abs(record.heads[-1].cause)
    assert record.ids[0] != record.ids[1]
    line = json.loads(json.dumps(VIEW.line(record)))
    assert line["schema"] == "tformer.decision/1"
    return line


@pytest.mark.parametrize("record", [*ONE], indirect=True)
def test_every_kind_decides_for_what_it_gives(record):
    line = check(record)
    if not record.sentences[0].has_both_sides:  # A beam may write what is not the most probable
        assert record.d[0] > 0
    assert {"zero", "mean", "resample"} < record.heads[0].effects.keys()
    assert len(line["sentences"]) == 1
    assert len(record.edges) == 10
    for token in record.tokens:
        assert token.alti is None or 0 <= token.alti <= 1


def test_translations_part_at_the_first_difference(zoo):
    record = inspect_decision(zoo["translate"], PAIR)
    first, second = (sentence.captured.target_ids for sentence in record.sentences)
    place = record.position
    assert first[:place] == second[:place]
    assert (first[place], second[place]) == record.ids
    assert record.d[0] > 0 > record.d[1]
    assert {"patch", "back"} < record.heads[0].effects.keys()
    check(record)
    # Behind the last layer the state at the position that decides is all there is
    (states,) = (m for m in record.maps if (m.direction, m.kind) == ("patch", "dec")
                 and m.rows[-1] == "out of dec")  # fmt: skip
    assert states.values[-1][place] == pytest.approx(record.d[1] - record.d[0], abs=1e-4)
    assert any("for lack of a counterpart" in note for note in record.notes)
    names = [effects.name for effects in record.maps]
    assert len({*names}) == len(names)
    # What is marked on a page and drawn: the piece that is decided on, in either sentence
    sentences = VIEW.json(record)["sentences"]
    written = [sentence["pieces"][sentence["at"]] for sentence in sentences]
    assert written == list(record.names)
    strongest = record.heads[0]
    expected = place if strongest.kind != "enc" else strongest.row
    assert strongest.row == expected


@pytest.mark.parametrize(
    ("name", "texts"),
    [
        ("language_model", ("The old", "A dog")),
        ("memory", ("The old", "A dog")),
        ("bert_classifier", ("The old", "A dog")),
        ("masked", ("A <mask> dog.", "The <mask> house.")),
    ],
)
def test_two_texts_of_every_kind_are_decided_apart(zoo, name, texts):
    record = inspect_decision(zoo[name], texts)
    check(record)
    assert record.d[0] > 0 > record.d[1]
    directions = {effects.direction for effects in record.maps}
    assert directions == {"patch", "back"}
    names = [effects.name for effects in record.maps]
    assert len({*names}) == len(names)
    for head in record.heads:
        assert {"patch", "back", "direct", "estimate"} < head.effects.keys()


def test_a_picture_has_both_sentences_a_bar_for_each_head_and_the_positions(zoo):
    record = inspect_decision(zoo["translate"], PAIR)
    root = ET.fromstring(VIEW.file(record, "svg"))  # noqa: S314 - it was written just before
    texts = ["".join(element.itertext()) for element in root.iter(f"{SVG}text")]
    for sentence in record.sentences:
        assert sentence.source in texts
        assert sentence.target in texts
    shown = [label for label in texts if label in {part.id for part in record.heads}]
    drawn = [part.id for part in record.heads[:DRAWN]]
    assert shown[: len(drawn)] == drawn
    bars = [float(bar.get("width")) for bar in root.iter(f"{SVG}rect") if bar.get("height") == "12"]
    causes = [abs(part.cause) for part in record.heads[:DRAWN]]
    lengths = [round(BAR * cause / causes[0]) for cause in causes]
    assert bars == pytest.approx([n * bars[0] / BAR for n in lengths if n], abs=0.002)
    assert "out of dec" in texts
    assert record.sentences[0].source_pieces[0] in texts
    hostile = replace(record, names=("</text>", "\x00<img>"), place="]]>")
    assert "<img>" not in VIEW.figure(hostile)
    ET.fromstring(VIEW.figure(replace(hostile, heads=(), maps=())))  # noqa: S314


@pytest.mark.parametrize(("method", "is_measured"), [("zero", True), ("gradients", False)])
def test_only_what_is_measured_turns_a_decision_in_a_picture(zoo, method, is_measured):
    settings = DecisionOptions(method=(method,))
    record = inspect_decision(zoo["classifier"], ("A good dog.",), settings=settings)
    turned = replace(record, d=(-1e-9 if record.heads[0].cause > 0 else 1e-9,))
    root = ET.fromstring(VIEW.file(turned, "svg"))  # noqa: S314 - it was written just before
    texts = ["".join(element.itertext()) for element in root.iter(f"{SVG}text")]
    marked = [words for words in texts if re.fullmatch(r"[+-][0-9.]+!", words)]
    assert bool(marked) is is_measured


def test_a_place_behind_another_prefix_is_no_piece_of_what_is_written(zoo):
    settings = DecisionOptions(method=("direct",))
    (written,) = inspect_decision(zoo["classifier"], ("A dog.",), settings=settings).written_at
    assert written is None
    record = inspect_decision(zoo["masked"], ("A <mask> dog.",), settings=settings)
    assert record.written_at == (record.position,)
    record = inspect_decision(zoo["language_model"], ("A dog",), settings=settings)
    assert record.written_at == (None,)


def test_matching_positions():
    assert match_positions([1, 2, 3, 4], [1, 5, 3, 4]) == [(0, 0), (1, 1), (2, 2), (3, 3)]
    assert match_positions([1, 2, 3, 4], [1, 5, 6, 3, 4]) == [(0, 0), (2, 3), (3, 4)]
    assert match_positions([1, 1], [1, 1, 1]) == [(0, 0), (1, 1)]
    assert match_positions([], [1]) == []


def test_words_name_a_place_in_a_translation(zoo):
    path = zoo["translate"]
    free = inspect_decision(path, PAIR[:1], settings=DecisionOptions(method=("zero",)))
    written = free.sentences[0].target.split()[-1]
    record = inspect_decision(path, PAIR[:1], target=written, foil="maison",
                              settings=DecisionOptions(method=("direct",)))  # fmt: skip
    assert record.d[0] > 0
    assert record.place.startswith('after "')
    first = free.sentences[0].target.split()[0]
    begun = inspect_decision(path, PAIR[:1], target=first, foil="maison",
                             settings=DecisionOptions(method=("direct",)))  # fmt: skip
    assert begun.place == "at the beginning"
    turned = inspect_decision(path, PAIR[:1], target="maison", foil=written,
                              settings=DecisionOptions(method=("direct",)))  # fmt: skip
    assert turned.ids == record.ids[::-1]
    assert turned.d[0] == pytest.approx(-record.d[0], abs=1e-6)
    assert free.tokens == free.edges == ()
    assert free.rest is None
    cut = inspect_decision(path, PAIR[:1], target=written, foil="zzqq",
                           settings=DecisionOptions(method=("direct",)))  # fmt: skip
    (note,) = (line for line in cut.notes if "zzqq" in line)
    assert note == f'the decision is on "{cut.names[1].strip("▁")}", a piece of "zzqq"'
    with pytest.raises(UsageError, match="is not in"):
        inspect_decision(path, PAIR[:1], target="nowhere")


def test_labels_and_their_words(zoo):
    def decide(**words):
        settings = DecisionOptions(method=("zero",))
        return inspect_decision(zoo["classifier"], ("A good dog.",), settings=settings, **words)

    own = decide()
    assert own.names[0] == own.sentences[0].target
    last = next(name for name in ("bad", "fair", "good") if name not in own.names)
    assert decide(foil=last).names == (own.names[0], last)
    turned = decide(target=last, foil=own.names[0])
    assert turned.d[0] == pytest.approx(-decide(foil=last).d[0], abs=1e-6)
    with pytest.raises(UsageError, match="the model decides for it; name another word"):
        decide(foil=own.names[0])
    with pytest.raises(UsageError, match="the labels are"):
        inspect_decision(zoo["classifier"], ("A good dog.",), foil="worst")
    tagger = zoo["tagger"]
    for place, word in enumerate(["A", "good", "dog."]):
        record = inspect_decision(tagger, ("A good dog.",), target=word,
                                  settings=DecisionOptions(method=("zero",)))  # fmt: skip
        gap = record.sentences[0].gaps[place]
        assert (record.position, record.ids[0]) == (gap.position, gap.id)


def test_a_corpus_and_a_seed_decide_what_is_drawn(zoo, tmp_path):
    (tmp_path / "text").write_text("A man sleeps.\nTwo dogs run in the snow.\n")
    command = ["inspect-decision", zoo["translate"], "A dog.", "--method", "resample"]
    command += ["--method", "mean", "--heads", "cross", "--format", "jsonl", "-q"]
    own, drawn, again, other = (
        record_of(*command, *more)
        for more in (
            [],
            ["--corpus", tmp_path / "text"],
            ["--corpus", tmp_path / "text"],
            ["--corpus", tmp_path / "text", "--seed", "2"],
        )
    )
    assert drawn == again
    assert "2 lines of the corpus" in drawn["notes"][0]
    effects = [
        {head["id"]: head["effects"] for head in line["heads"]} for line in (own, drawn, other)
    ]
    assert all(name.startswith("cross.") for name in effects[0])
    head = next(iter(effects[0]))
    assert effects[0][head]["mean"] != effects[1][head]["mean"] == effects[2][head]["mean"]
    assert effects[1][head]["resample"] != effects[2][head]["resample"]


def test_text_of_images(zoo):
    photos = sorted((zoo.inputs / "photos").rglob("*.png"))
    shown = output_of("inspect-decision", zoo["images"], *photos[:1], "--format", "text", "-q")
    assert "as the label" in shown
    assert "heads by effect" in shown


TWO_LAYERS = {"n_encoder_layers": 2, "n_decoder_layers": 2}
TEXT_MODEL = {"n_encoder_layers": 0, "n_decoder_layers": 2}


@pytest.mark.parametrize(
    "shape",
    [
        {**TWO_LAYERS, "encoder_heads": (0, 2), "decoder_heads": (2, 0), "cross_heads": (0, 2)},
        {**TEXT_MODEL, "decoder_heads": (2, 0)},
    ],
)
def test_layers_without_heads_leave_their_bias(tmp_path, shape):
    check(inspect_decision(save_random(tmp_path / "pruned", **shape), ("A dog.",)))


def test_a_model_without_heads_is_refused(tmp_path):
    none = dict.fromkeys(("encoder_heads", "decoder_heads", "cross_heads"), (0, 0))
    path = save_random(tmp_path / "none", **TWO_LAYERS, **none)
    with pytest.raises(UsageError, match=r"^MODEL: has no heads"):
        inspect_decision(path, ("A dog.",))


def test_of_a_given_token_nothing_is_decided(tmp_path):
    # One position, as of a translation's first token, but the token there is the text's own
    paths = [
        save_random(tmp_path / f"ends-{ends}", **TEXT_MODEL, target_bos=False, target_eos=ends)
        for ends in (True, False)
    ]
    ending, endless = (inspect_decision(path, ("a",)) for path in paths)
    assert (ending.ids, ending.d) == (endless.ids, endless.d)
    assert ending.d[0] > 0


def test_pieces_that_both_words_share_may_make_a_text_too_long(tmp_path):
    path = save_random(tmp_path / "short", **TEXT_MODEL, max_positions=8)
    with pytest.raises(DataError, match="has 11 tokens, but the model reads 8; give a shorter"):
        inspect_decision(path, ("a a a a a a a",), target="xyw", foil="xyz")


def test_a_single_label_is_no_decision(tmp_path):
    shape = {"n_decoder_layers": 0, "n_labels": 1, "info": {"labels": ("good",)}}
    with pytest.raises(DataError, match="MODEL: has only one label"):
        inspect_decision(save_random(tmp_path / "one", **shape), ("A dog.",))


def test_a_model_that_computes_no_numbers_has_no_causes(tmp_path):
    path = save_random(tmp_path / "nan", **TEXT_MODEL, scale=1e38)
    with pytest.raises(DataError, match="MODEL: its logits differ by nan"):
        inspect_decision(path, ("A dog.",))
