"""Circuits of models that were built to have one, and sets of heads against plain hooks."""

import json

import pytest
import torch

from tests.foreign.test_gpt2 import directory as gpt2_directory  # noqa: F401 - a fixture
from tests.inspect.heads.test_repeats import N_TOKENS, WIDTH, induction_model
from tests.model.test_marian import pair  # noqa: F401 - a fixture
from tests.plugins.instruments.decisions.test_attribution import copying_model
from tests.plugins.instruments.decisions.test_probing import CHOICE, Theirs, decision
from tformer_cli.errors import DataError
from tformer_cli.heads.names import HeadId
from tformer_cli.plugins.instruments.decisions.causes import pairs_of
from tformer_cli.plugins.instruments.decisions.circuits import (
    PatchedPair,
    faithfulness,
    find_circuit,
    judge_circuit,
    measure,
)
from tformer_cli.plugins.instruments.decisions.probing import EVERYWHERE, Probe


def patch_pair(model, texts, prefixes, position, ids):
    return PatchedPair(
        *(
            Probe(model, decision(text, prefix, position, ids))
            for text, prefix in zip(texts, prefixes, strict=True)
        )
    )


def names_of(pairs, kept):
    return {str(head) for head, is_kept in zip(pairs[0].heads, kept, strict=True) if is_kept}


def copying_pairs():
    """Pairs of texts whose last token is copied, by the one head that works."""
    model, prefix = copying_model(), [2, 8]
    texts = [(6, 7), (7, 6), (6, 9), (10, 7)]
    return [
        patch_pair(model, [[4, 5, first], [4, 5, second]], [prefix, prefix], 1, (first, second))
        for first, second in texts
    ]


def test_a_model_that_copies_has_the_circuit_that_was_built(one_thread):
    pairs = copying_pairs()
    circuit = find_circuit(pairs[:2], 0.9)
    assert names_of(pairs, circuit.kept) == {"cross.0.1"}
    assert circuit.curve[0] == pytest.approx(1.0, abs=1e-6)
    verdict = judge_circuit(pairs[2:], circuit.kept, seed=1)
    for share, expected in ((verdict.faithfulness, 1.0), (verdict.completeness, 0.0)):
        assert share.value == pytest.approx(expected, abs=1e-6)
        assert (share.low, share.high) == pytest.approx((expected, expected), abs=1e-6)
    assert verdict.decides == 1.0
    # One head of six: a sixth of random heads, and only that one, is as faithful
    assert verdict.random == pytest.approx(verdict.random_reach, abs=1e-6)
    assert 0 < verdict.random < 0.5
    # The source reaches the decoder by heads only, so that all patched is the other sentence
    assert verdict.d[1] == pytest.approx(verdict.d[2], abs=1e-5)
    assert verdict.carried == pytest.approx(1.0, abs=1e-6)
    assert verdict.without_layer == pytest.approx({"enc.0": 0, "dec.0": 0, "cross.0": 1}, abs=1e-5)
    # Its twin looks at the same token, and writes nothing
    reads = dict(zip(map(str, pairs[0].heads), pairs[0].reads(), strict=True))
    assert min(reads["cross.0.0"], reads["cross.0.1"]) > 0.99
    assert reads["dec.0.0"] is None


def writing_induction_model():
    """The model whose dec.1.0 looks behind the earlier occurrence, and writes what it finds."""
    model = induction_model()
    attention = model.decoder.layers[1].self_attention
    with torch.no_grad():
        values = attention.in_projection.weight.view(3, 2, WIDTH, 2 * WIDTH)[2, 0]
        values[:N_TOKENS, :N_TOKENS] = torch.eye(N_TOKENS)
        attention.out_projection.weight[:N_TOKENS, :N_TOKENS] = 3 * torch.eye(N_TOKENS)
    return model


@pytest.mark.parametrize(
    ("other", "foil", "heads"),
    [
        # Another token is to be copied: whatever finds the place finds the same one
        ([4, 5, 9, 7, 8, 10, 5], 9, {"dec.1.0"}),
        # The token that is looked for stands elsewhere, as only the head before tells
        ([4, 7, 6, 5, 8, 10, 5], 8, {"dec.0.0", "dec.1.0"}),
    ],
)
def test_an_induction_model_has_the_circuit_that_was_built(one_thread, other, foil, heads):
    model = writing_induction_model()
    text = [4, 5, 6, 7, 8, 10, 5]
    pairs = [
        patch_pair(model, [[], []], both, 6, ids)
        for both, ids in (([text, other], (6, foil)), ([other, text], (foil, 6)))
    ]
    circuit = find_circuit(pairs, 0.9)
    assert names_of(pairs, circuit.kept) == heads
    verdict = judge_circuit(pairs, circuit.kept, seed=1)
    assert verdict.faithfulness.value == pytest.approx(1.0, abs=1e-3)
    assert verdict.completeness.value == pytest.approx(0.0, abs=1e-3)
    assert verdict.d[0] > 1 > -1 > verdict.d[1]


def test_all_heads_keep_all_and_none_keep_nothing(one_thread):
    pairs = copying_pairs()
    n_heads = len(pairs[0].heads)
    sets = torch.tensor([[True], [False], [True], [False]]).expand(4, n_heads)
    values = faithfulness(measure(pairs, sets))
    assert values.tolist() == [1.0, 0.0, 1.0, 0.0]
    for patched_pair, d in zip(pairs, measure(pairs, sets), strict=True):
        assert d[0] == pytest.approx(patched_pair.first.d, abs=1e-6)
        assert d[1] == pytest.approx(patched_pair.other_d, abs=1e-6)


def test_heads_that_carry_nothing_have_no_circuit(one_thread):
    pairs = copying_pairs()[:1]
    nothing = PatchedPair(pairs[0].first, pairs[0].first)
    for find in (
        lambda: find_circuit([nothing], 0.9),
        lambda: judge_circuit([nothing], torch.ones(6, dtype=torch.bool), seed=1),
    ):
        with pytest.raises(DataError, match="patching all heads does not change these decisions"):
            find()


class Sum:
    """A pair whose d is a sum over the heads that are kept."""

    other_d = -1.0

    def __init__(self, *parts, beside=0.0):
        self.parts, self.beside = torch.tensor(parts, dtype=torch.float64), beside
        self.heads = [HeadId("dec", 0, number) for number in range(len(parts))]

    def d(self, kept):
        values = (kept * self.parts).sum(dim=1)
        # Rows of one layer's heads differ a little from the same ones among more rows
        return values - self.beside * (len(kept) <= len(self.parts))


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        # Some draws of pairs are turned by nothing, or the wrong way: no interval
        ([(2.0, 1.0), (-1.0, 0.0)], (1 / 2, None)),
        ([(2.0, 1.0), (0.0, 0.0)], (2 / 3, None)),
        ([(2.0, 1.0), (1.0, 1.0)], (3 / 5, (1 / 2, 2 / 3))),
    ],
)
def test_pairs_that_heads_hardly_turn_have_no_interval(parts, expected):
    verdict = judge_circuit([Sum(*terms) for terms in parts], torch.tensor([True, False]), seed=1)
    value, interval = expected
    share = verdict.faithfulness
    assert share.value == pytest.approx(value)
    if interval is None:
        assert (share.low, share.high) == (None, None)
        assert share.shown.spans[1:] == ((" -", "dim"),)
    else:
        assert (share.low, share.high) == pytest.approx(interval)
    json.dumps(vars(share), allow_nan=False)


def test_what_no_set_reaches_takes_all_heads():
    pairs = [Sum(1.0, 3.0, 2.0, beside=0.06)]
    assert find_circuit(pairs, 1.0).kept.tolist() == [True] * 3
    # Digits that rounding takes do not cost a head that is needed, nor keep one that is not
    pairs = [Sum(1.0, 3.0, 0.0, beside=1e-5)]
    assert find_circuit(pairs, 1.0).kept.tolist() == [True, True, False]


def check_sets(ours, theirs, decisions, inputs):
    """Compares random sets of kept heads with as many hooks at once."""
    first, second = (Probe(ours, choice) for choice in decisions)
    both, pairs = PatchedPair(first, second), pairs_of(first, second)
    torch.manual_seed(2)
    sets = torch.rand(6, len(both.heads)) < torch.tensor([0.0, 0.2, 0.5, 0.5, 0.8, 1.1])[:, None]
    expected = []
    for kept in sets:
        edits = []
        for head, is_kept in zip(both.heads, kept.tolist(), strict=True):
            module = theirs.places[head.kind, head.layer]
            new, other = (theirs.record(batch, module, before=True) for batch in inputs)
            partners = pairs["enc" if head.kind == "enc" else "dec"]
            for i, j in partners:
                new[:, i] = other[:, j]
            places = [i for i, _ in partners]
            edits += [] if is_kept else [theirs.in_head(head, new, places)]
        expected.append(theirs.d(inputs[0], decisions[0].position, edits))
    assert both.d(sets).tolist() == pytest.approx(expected, abs=1e-5)
    assert len({round(value, 4) for value in expected}) > 4
    # All rows together or one at a time
    both.first.rows_per_pass = 1
    assert both.d(sets).tolist() == pytest.approx(expected, abs=1e-5)
    # A single head is patched as `Probe` patches it
    head, mask = both.heads[-1], torch.ones(1, len(both.heads), dtype=torch.bool)
    place, stack = (head.kind, head.layer), "enc" if head.kind == "enc" else "dec"
    change = head.head, EVERYWHERE, first.transplant(place, second, pairs[stack])
    mask[0, -1] = False
    alone = both.first.d + both.first.replace_heads(place, [change])
    assert both.d(mask).item() == pytest.approx(alone.item(), abs=1e-6)


def test_sets_of_heads_of_marian(pair):  # noqa: F811
    pytest.importorskip("transformers")
    ours, theirs = pair[0].eval(), pair[1]
    sources, prefix = [[5, 9, 7, 11, 6, 3], [5, 9, 12, 11, 6, 3]], [2, 20, 24, 21]
    places = {}
    for number, layer in enumerate(theirs.model.encoder.layers):
        places["enc", number] = layer.self_attn.out_proj
    for number, layer in enumerate(theirs.model.decoder.layers):
        places["dec", number] = layer.self_attn.out_proj
        places["cross", number] = layer.encoder_attn.out_proj
    inputs = [
        {
            "input_ids": torch.tensor([ids]),
            "attention_mask": torch.ones(1, len(ids), dtype=torch.long),
            "decoder_input_ids": torch.tensor([prefix]),
        }
        for ids in sources
    ]
    parts = Theirs(theirs, CHOICE, places, {}, {}, 8)
    check_sets(ours, parts, [decision(ids, prefix, 3) for ids in sources], inputs)


def test_sets_of_heads_of_gpt2_texts_of_two_lengths(gpt2_directory, tmp_path):  # noqa: F811
    pytest.importorskip("transformers")
    from tests.foreign.test_gpt2 import import_both

    path, theirs, _ = gpt2_directory()
    gpt2, directory = import_both(path, tmp_path)
    texts = [[8, 40, 21, 33, 9], [8, 40, 50, 21, 33, 9]]
    places = {("dec", n): block.attn.c_proj for n, block in enumerate(theirs.transformer.h)}
    parts = Theirs(theirs, [gpt2.ids[word] for word in CHOICE], places, {}, {}, 4)
    inputs = [{"input_ids": torch.tensor([[gpt2.ids[word] for word in ids]])} for ids in texts]
    decisions = [decision([], ids, len(ids) - 1) for ids in texts]
    check_sets(directory.model, parts, decisions, inputs)
