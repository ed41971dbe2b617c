"""Circuits of every kind of model, from built-in pairs and from a table of pairs."""

import json
import os
import re
from dataclasses import replace
from itertools import combinations
from threading import Thread

import pytest

from tests.commands import output_of, record_of, refused, run
from tests.foreign.test_gpt2 import directory as gpt2_directory  # noqa: F401 - a fixture
from tests.zoo import ENGLISH
from tformer_cli.errors import DataError, UsageError
from tformer_cli.inspect.jobs.reader import open_for_inspection
from tformer_cli.plugins.instruments.jobs.circuit import (
    BLOCK,
    inspect_circuit,
    repeated_pairs,
    some_pairs,
)
from tformer_cli.plugins.instruments.jobs.decision import Decider
from tformer_cli.plugins.instruments.minimal_pairs import (
    MinimalPair,
    check_name,
    pair_kinds,
    read_pairs,
)
from tformer_cli.plugins.instruments.views.circuit import VIEW, CircuitOptions, CircuitsRecord
from tformer_cli.show.document import Room, text
from tformer_cli.text.tokenizer import read_tokenizer

TABLE = [*combinations(ENGLISH, 2)][:24]
PAIRS = [MinimalPair(sentence=first, other=second) for first, second in TABLE]
KINDS = ["translate", "opus", "language_model", "memory", "bert_classifier"]


@pytest.fixture(scope="module")
def circuits(zoo, request):
    return inspect_circuit([zoo[request.param]], PAIRS, name="table")


@pytest.mark.parametrize("circuits", KINDS, indirect=True)
def test_every_kind_has_a_circuit(circuits):
    (model,) = circuits.models
    verdict = model.verdict
    assert 10 <= model.n_chosen + model.n_judged <= model.n_given == len(PAIRS)
    assert 0 <= model.n_chosen - model.n_judged <= 1
    assert 1 <= len(model.circuit) <= len(model.heads) == len(model.curve)
    assert model.curve[-1] == pytest.approx(1.0)
    causes = [head.cause for head in model.heads]
    assert causes == sorted(causes, reverse=True)
    # The first by rank is alone what the curve begins with
    assert model.curve[0] == pytest.approx(model.heads[0].alone, abs=1e-6)
    for share in (verdict.faithfulness, verdict.completeness):
        assert share.low is None or share.low <= share.high
    assert 0 <= verdict.decides <= 1
    assert {f"{head.kind}.{head.layer}" for head in model.heads} == verdict.without_layer.keys()
    line = json.loads(json.dumps(VIEW.line(circuits)))
    assert line["schema"] == "tformer.circuit/1"
    assert line["models"][0]["circuit"] == [head.id for head in model.circuit]


@pytest.mark.parametrize("circuits", KINDS[:1], indirect=True)
def test_all_of_an_encoder_and_decoder_is_carried_by_heads(circuits):
    verdict = circuits.models[0].verdict
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
    assert [circuit.model.name for circuit in record.models] == ["translate", "variant"]
    assert not record.failed
    model, least = record.models[0], record.least

    def with_layers(n_heads, **without):
        heads = [replace(model.heads[0], layer=n, in_circuit=n < n_heads) for n in range(4)]
        verdict = replace(
            model.verdict, without_layer={f"dec.{n[1]}": v for n, v in without.items()}
        )
        kind = [replace(head, kind="dec") for head in heads]
        return replace(model, heads=tuple(kind), verdict=verdict)

    # The second model is one layer deeper, and 0.09 are less than what a circuit may lose
    models = (with_layers(2, _0=0.5, _1=0.09, _2=0.0), with_layers(1, _0=0.3, _1=0.4, _3=0.2))
    assert [vars(layer) for layer in CircuitsRecord(
        pairs="table", example=PAIRS[0], least=least, models=models
    ).layers] == [
        {"id": "dec.0", "heads": (1, 1), "without": (0.5, 0.3), "needed_in": 2},
        {"id": "dec.1", "heads": (1, 0), "without": (0.09, 0.4), "needed_in": 1},
        {"id": "dec.3", "heads": (0, 0), "without": (0.0, 0.2), "needed_in": 1},
    ]  # fmt: skip


def test_a_model_without_a_circuit_is_a_row(zoo):
    # One of labels has no French word to decide for
    named = [replace(pair, target="good", foil="bad", line=n) for n, pair in enumerate(PAIRS, 1)]
    bad = replace(named[0], target="godo", line=99)
    pairs = [
        bad,
        *named,
        *(replace(pair.swap_sides(), target="good", foil="bad") for pair in named),
    ]
    settings = CircuitOptions(draw=99)
    models = [zoo["translate"], zoo["bert_classifier"]]
    record = inspect_circuit(models, pairs, name="table", settings=settings)
    (failed,), (refusing,) = record.failed, record.models
    assert (failed.model.name, refusing.model.name) == ("translate", "bert_classifier")
    assert re.match(
        r"PAIRS: translate decides 0 of 49 pairs as they say, but a circuit needs 10 "
        r"\(0 decided for one word or in reverse, "
        r"49 refused, such as line 99: TARGET: \"godo\" is not in",
        failed.reason,
    )
    assert [s[:42] for s in refusing.refused] == ['line 99: TARGET: "godo" is not a label; th']
    shown = list(VIEW.blocks(record, settings, Room(width=80)))
    assert text(f"translate: {failed.reason}") in shown
    assert VIEW.line(record)["failed"][0]["reason"] == failed.reason
    with pytest.raises(DataError, match="translate decides 0 of 49 pairs"):
        inspect_circuit([models[0]] * 2, pairs, name="table", settings=settings)


def test_of_many_pairs_some_are_drawn(zoo):
    drawn = some_pairs(PAIRS, 12, seed=1)
    numbers = [PAIRS.index(pair) for pair in drawn]
    assert numbers == sorted(set(numbers))
    assert len(numbers) == 12
    assert drawn == some_pairs(PAIRS, 12, seed=1) != some_pairs(PAIRS, 12, seed=2)
    assert some_pairs(PAIRS, 99, seed=1) == PAIRS
    record = inspect_circuit([zoo["memory"]], PAIRS, settings=CircuitOptions(draw=20))
    assert record.models[0].n_given == 20


def test_a_circuit_can_be_ended_before_each_batch(zoo):
    class EndedError(Exception):
        pass

    def end():
        raise EndedError

    with pytest.raises(EndedError):
        inspect_circuit([zoo["translate"]], PAIRS, before_batch=end)


def test_words_name_the_decision(zoo):
    named = [replace(pair, target="nowhere", foil="la") for pair in PAIRS]
    with pytest.raises(DataError, match=r"translate decides 0 of 24 pairs .*is not in"):
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
        assert [side.decode([token]).strip() for token in (block[place], second[place])] == [
            pair.target,
            pair.foil,
        ]


def test_repeats_decide_between_their_own_tokens(gpt2_directory, tmp_path):  # noqa: F811
    pytest.importorskip("transformers")
    from tests.foreign.test_gpt2 import import_both

    import_both(gpt2_directory()[0], tmp_path)
    decider = Decider(open_for_inspection(tmp_path / "ours", tasks=VIEW.tasks))
    side = read_tokenizer(tmp_path / "ours").target
    # As in its vocabulary of 50,257, some words stand there with and without a space
    assert any(b" " + piece in side.piece_bytes for piece in side.piece_bytes if piece.strip())
    for pair in repeated_pairs(side, 24, seed=1):
        both = side.encode_batch([pair.sentence, pair.other])
        differing = [ids for ids in zip(*both, strict=True) if ids[0] != ids[1]]
        records = decider.read((pair.sentence, pair.other))
        probes, chosen, _ = decider.decide(records, pair.target, pair.foil)
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


def test_two_sentences_are_a_pair_once():
    table = ["a\tb", "b\ta", "a \tb\tx\ty", "a\tc"]
    assert [(pair.sentence, pair.other, pair.line) for pair in read_pairs(table, "t")] == [
        ("a", "b", 1), ("a", "c", 4),
    ]  # fmt: skip


def test_a_table_is_read():
    pairs = list(read_pairs(["a\tb", "", "c\td\tx", "e\tf\tx\ty "], "t"))
    assert [(pair.sentence, pair.other, pair.target, pair.foil) for pair in pairs] == [
        ("a", "b", "", ""), ("c", "d", "x", ""), ("e", "f", "x", "y"),
    ]  # fmt: skip
    for line in ("one", "a\t", "a\tb\tc\td\te"):
        with pytest.raises(DataError, match="t: line 2: has no pair; write SENTENCE, OTHER"):
            list(read_pairs(["a\tb", line], "t"))
    with pytest.raises(UsageError, match=r"neither a file nor a kind; .*; did you mean pronoun"):
        check_name("pronuon")
    assert f"({', '.join(pair_kinds())})" in " ".join(
        output_of("inspect-circuit", "--help").replace("│", " ").split()
    )


def test_the_command(zoo, tmp_path):
    table = tmp_path / "pairs.tsv"
    table.write_text("".join(f"{first}\t{second}\n" for first, second in TABLE), encoding="utf-8")
    command = ["inspect-circuit", zoo["translate"], table]
    shown = output_of(*command, "--models", zoo["variant"], "--format", "text", "-q")
    assert "layers of each model" in shown
    assert "it may be due to the task" in shown or "no layer is needed by all 2 models" in shown
    record = record_of(*command, "--seed", "1", "-q")
    assert record == record_of(*command, "-q")
    assert record["pairs"] == str(table)
    assert len(record["models"]) == 1
    text = output_of(
        *command[:2], "-", "--top", "1", "--format", "text", "-q", stdin=table.read_text()
    )
    assert "heads by effect" in text
    assert "layers of each model" not in text


def test_pairs_from_a_pipe_and_none_at_all(zoo, tmp_path):
    lines = [f"{first}\t{second}\n" for first, second in [*TABLE, TABLE[0][::-1]]]
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = Thread(target=pipe.write_text, args=("".join(lines),))
    writer.start()
    done = run("inspect-circuit", zoo["memory"], pipe, "--draw", "20")
    writer.join()
    assert json.loads(done.stdout)["models"][0]["n_given"] == 20
    assert "1 line skipped: blank or repeated pairs" in done.stderr
    assert "drawing 20 of 24 pairs; --draw N takes more" in done.stderr
    for nothing in ("", "\n\n"):
        says = "PAIRS: - has none; write SENTENCE and OTHER in each line"
        refused("inspect-circuit", zoo["memory"], "-", "-q", stdin=nothing, says=says)


def test_a_typo_in_a_table_is_told(zoo):
    lines = [f"{first}\t{second}\n" for first, second in TABLE]
    lines[2] = lines[2].strip() + "\tgodo\tbad\n"
    command = "inspect-circuit", zoo["bert_classifier"], "-"
    message = 'bert_classifier refused 1 pair, such as line 3: TARGET: "godo" is not a label'
    assert message in run(*command, stdin="".join(lines)).stderr
    assert message not in run(*command, "-q", stdin="".join(lines)).stderr
