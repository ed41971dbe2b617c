"""Circuits of every kind of model, from built-in pairs and from a table of pairs."""

import json
from dataclasses import replace

import pytest

from tests.commands import output_of, record_of
from tests.foreign.test_gpt2 import directory as gpt2_directory  # noqa: F401 - a fixture
from tests.zoo import ENGLISH
from tformer_cli.corpora.minimal_pairs import MinimalPair
from tformer_cli.errors import DataError, UsageError
from tformer_cli.inspect.jobs.circuit import (
    BLOCK,
    check_name,
    inspect_circuit,
    read_pairs,
    repeated_pairs,
)
from tformer_cli.inspect.jobs.decision import Decider
from tformer_cli.inspect.jobs.reader import open_for_inspection
from tformer_cli.inspect.views.circuit import VIEW, CircuitOptions
from tformer_cli.text.tokenizer import read_tokenizer

TABLE = [(one, two) for n, one in enumerate(ENGLISH) for two in ENGLISH[n + 1 :]][:12]
PAIRS = [MinimalPair(sentence=one, other=two) for one, two in TABLE]
KINDS = ["translate", "opus", "language_model", "memory", "bert_classifier"]


@pytest.fixture(scope="module")
def found(zoo, request):
    return inspect_circuit([zoo[request.param]], PAIRS, name="table")


@pytest.mark.parametrize("found", KINDS, indirect=True)
def test_every_kind_has_a_circuit(found):
    (one,) = found.models
    verdict = one.verdict
    assert 4 <= one.n_chosen + one.n_judged <= one.n_given == len(PAIRS)
    assert 0 <= one.n_chosen - one.n_judged <= 1
    assert 1 <= len(one.circuit) <= len(one.heads) == len(one.curve)
    assert one.curve[-1] == pytest.approx(1.0)
    causes = [head.cause for head in one.heads]
    assert causes == sorted(causes, reverse=True)
    # The first by rank is alone what the curve begins with
    assert one.curve[0] == pytest.approx(one.heads[0].alone, abs=1e-6)
    for share in (verdict.faithfulness, verdict.completeness):
        assert share.low <= share.high
    assert 0 <= verdict.decides <= 1
    assert {f"{head.kind}.{head.layer}" for head in one.heads} == verdict.without_layer.keys()
    line = json.loads(json.dumps(VIEW.line(found)))
    assert line["schema"] == "tformer.circuit/1"
    assert line["models"][0]["circuit"] == [head.id for head in one.circuit]


@pytest.mark.parametrize("found", KINDS[:1], indirect=True)
def test_all_of_an_encoder_and_decoder_is_carried_by_heads(found):
    verdict = found.models[0].verdict
    assert verdict.carried == pytest.approx(1.0, abs=1e-5)
    assert verdict.d[0] > 0 > verdict.d[2]


def test_a_lower_faithfulness_needs_no_more_heads(zoo):
    few, many = (
        inspect_circuit([zoo["translate"]], PAIRS, settings=CircuitOptions(faithfulness=least))
        for least in (0.3, 0.95)
    )
    assert len(few.models[0].circuit) <= len(many.models[0].circuit)


def test_layers_that_models_share(zoo):
    record = inspect_circuit([zoo["translate"], zoo["variant"]], PAIRS, name="table")
    assert [one.model.name for one in record.models] == ["translate", "variant"]
    for layer in record.layers:
        needed = [loss > 0.1 for loss in layer.without]
        assert layer.needed_in == sum(needed)
        assert layer.needed_in or any(layer.heads)
    assert sum(sum(layer.heads) for layer in record.layers) == sum(
        len(one.circuit) for one in record.models
    )
    # Twice the same model agrees with itself
    (one, _), least = record.models, record.least
    same = replace(record, models=(one, one), least=least)
    assert {layer.needed_in for layer in same.layers} <= {0, 2}


def test_words_name_the_decision(zoo):
    named = [replace(one, target="nowhere", foil="la") for one in PAIRS]
    with pytest.raises(DataError, match=r"of 12 pairs the model decides 0 .*is not in"):
        inspect_circuit([zoo["translate"]], named, name="table")
    with pytest.raises(DataError, match="is not a label"):
        inspect_circuit([zoo["bert_classifier"]], named, name="table")


@pytest.mark.parametrize("name", ["language_model", "memory", "translate"])
def test_repeated_tokens_are_those_of_a_vocabulary(zoo, name):
    side = read_tokenizer(zoo[name]).target
    for pair in repeated_pairs(side, 12, seed=1):
        first, second = side.encode_batch([pair.sentence, pair.other])
        differing = [place for place, both in enumerate(zip(first, second, strict=True))
                     if both[0] != both[1]]  # fmt: skip
        (place,) = differing
        block = first[:BLOCK]
        assert len({*block, second[place]}) == BLOCK + 1
        # What is read last stood before what is to come, which differs
        assert first[BLOCK:] == block[:place]
        assert first[-1] == block[place - 1]
        assert [side.decode([one]).strip() for one in (block[place], second[place])] == [
            pair.target,
            pair.foil,
        ]


def test_repeats_decide_between_their_own_tokens(gpt2_directory, tmp_path):  # noqa: F811
    pytest.importorskip("transformers")
    from tests.foreign.test_gpt2 import imported

    imported(gpt2_directory()[0], tmp_path)
    decider = Decider(open_for_inspection(tmp_path / "ours", tasks=VIEW.tasks))
    side = read_tokenizer(tmp_path / "ours").target
    # As in its vocabulary of 50,257, some words stand there with and without a space
    assert any(b" " + one in side.piece_bytes for one in side.piece_bytes if one.strip())
    for pair in repeated_pairs(side, 24, seed=1):
        both = side.encode_batch([pair.sentence, pair.other])
        differing = [ids for ids in zip(*both, strict=True) if ids[0] != ids[1]]
        records = decider.read((pair.sentence, pair.other))
        probes, chosen, _ = decider.decided(records, pair.target, pair.foil)
        assert [chosen.ids] == differing
        assert {probe.decision.ids for probe in probes} == {chosen.ids}


def test_a_vocabulary_that_is_too_small_has_no_repeats(zoo):
    class Empty:
        piece_bytes = (b"", b" ")

        def decode_batch(self, ids):
            return []

        encode_batch = decode_batch

    with pytest.raises(DataError, match="too few pieces"):
        repeated_pairs(Empty(), 4, seed=1)


def test_a_table_is_read():
    found = list(read_pairs(["a\tb", "", "c\td\tx", "e\tf\tx\ty "], "t"))
    assert [(one.sentence, one.other, one.target, one.foil) for one in found] == [
        ("a", "b", "", ""), ("c", "d", "x", ""), ("e", "f", "x", "y"),
    ]  # fmt: skip
    for line in ("one", "a\t", "a\tb\tc\td\te"):
        with pytest.raises(DataError, match="t: line 2: has no pair; write SENTENCE, OTHER"):
            list(read_pairs(["a\tb", line], "t"))
    with pytest.raises(UsageError, match=r"neither a file nor a kind; .*; did you mean pronoun"):
        check_name("pronuon")


def test_the_command(zoo, tmp_path):
    table = tmp_path / "pairs.tsv"
    table.write_text("".join(f"{one}\t{two}\n" for one, two in TABLE), encoding="utf-8")
    given = ["inspect-circuit", zoo["translate"], table]
    shown = output_of(*given, "--models", zoo["variant"], "--format", "text", "-q")
    assert "layers of each model" in shown
    assert "that is of the" in shown or "no layer that all 2 models need" in shown
    found = record_of(*given, "--seed", "1", "-q")
    assert found == record_of(*given, "-q")
    assert found["pairs"] == str(table)
    assert len(found["models"]) == 1
    text = output_of(
        *given[:2], "-", "--top", "1", "--format", "text", "-q", stdin=table.read_text()
    )
    assert "heads by cause" in text
    assert "layers of each model" not in text
