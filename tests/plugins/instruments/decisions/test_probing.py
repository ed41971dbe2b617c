"""Effects on a decision against plain hooks on models of transformers with the same weights."""

from contextlib import ExitStack
from functools import partial

import pytest
import torch

pytest.importorskip("transformers")

from tests.foreign import encoders
from tests.foreign.test_bert import import_both as imported_bert
from tests.foreign.test_gpt2 import directory as gpt2_directory  # noqa: F401 - a fixture
from tests.foreign.test_gpt2 import import_both as imported_gpt2
from tests.model.test_marian import pair  # noqa: F401 - a fixture
from tformer_cli.heads.names import HeadId, attentions, head_layout
from tformer_cli.plugins.instruments.decisions.causes import Causes, pairs_of
from tformer_cli.plugins.instruments.decisions.decision import Decision
from tformer_cli.plugins.instruments.decisions.probing import EVERYWHERE, Pool, Probe
from tformer_cli.text.batching import Batch

CHOICE = (11, 17)


def decision(source, target, position, ids=CHOICE):
    source, target = (torch.tensor([ids], dtype=torch.long) for ids in (source, target))
    mask = torch.ones_like(source, dtype=torch.bool)
    return Decision(batch=Batch(source, mask, target, target), position=position, ids=ids)


class Theirs:
    """A model of transformers: where its parts are, and d by a pass with hooks."""

    def __init__(self, model, ids, places, feeds, layers, width):
        self.model, self.ids, self.width = model, ids, width
        self.places, self.feeds, self.layers = places, feeds, layers

    def d(self, inputs, position, edits=()):
        with ExitStack() as hooks, torch.no_grad():
            for module, before, change in edits:
                hook = module.register_forward_pre_hook if before else module.register_forward_hook
                hooks.callback(hook(change).remove)
            logits = self.model(**inputs).logits[0, position].double()
        first, second = self.ids
        return (logits[first] - logits[second]).item()

    def record(self, inputs, module, *, before):
        values = []

        def keep(module, arguments, output=None):
            value = arguments[0] if before else output
            values.append(value[0] if isinstance(value, tuple) else value)

        self.d(inputs, 0, [(module, before, keep)])
        return values[-1].clone()

    def in_head(self, head, new, positions=EVERYWHERE):
        """Replaces what a head hands to its output projection, (B, Q, H·E)."""
        columns = slice(head.head * self.width, (head.head + 1) * self.width)

        def change(module, arguments):
            context = arguments[0].clone()
            context[:, positions, columns] = 0.0 if new is None else new[:, positions, columns]
            return (context, *arguments[1:])

        return self.places[head.kind, head.layer], True, change


def replaced_output(new, module, arguments, output):
    return (new, *output[1:]) if isinstance(output, tuple) else new


def check_all(ours, theirs, decisions, inputs):
    """Ablation, patching and states of every part, as by hooks."""
    probes = [Probe(ours, choice) for choice in decisions]
    first, second = probes
    at = [choice.position for choice in decisions]
    before = theirs.d(inputs[0], at[0])
    assert first.d == pytest.approx(before, abs=1e-5)
    pairs = pairs_of(first, second)
    for head in head_layout(ours):
        place = (head.kind, head.layer)
        partners = pairs["enc" if head.kind == "enc" else "dec"]
        own = theirs.record(inputs[0], theirs.places[place], before=True)
        other = theirs.record(inputs[1], theirs.places[place], before=True)
        for i, j in partners:
            own[:, i] = other[:, j]
        spot = partners[len(partners) // 2][0]
        new = first.transplant(place, second, partners)
        effects = first.replace_heads(
            place,
            [(head.head, EVERYWHERE, None), (head.head, EVERYWHERE, new), (head.head, [spot], new)],
        )
        edits = [
            theirs.in_head(head, None),
            theirs.in_head(head, own),
            theirs.in_head(head, own, [spot]),
        ]
        expected = [theirs.d(inputs[0], at[0], [edit]) - before for edit in edits]
        assert effects.tolist() == pytest.approx(expected, abs=1e-5)
    for place, module in theirs.feeds.items():
        zero = torch.zeros_like(first.values.feed_forward_output(place))[None]
        hook = partial(replaced_output, zero)
        expected = theirs.d(inputs[0], at[0], [(module, False, hook)]) - before
        assert first.with_fed(place, zero).item() == pytest.approx(expected, abs=1e-5)
    for (kind, number), layer in theirs.layers.items():
        i, j = pairs[kind][1]
        own, other = (theirs.record(batch, layer, before=True) for batch in inputs)
        own[:, i] = other[:, j]

        def change(module, arguments, kwargs=None, new=own):
            return (new, *arguments[1:])

        expected = theirs.d(inputs[0], at[0], [(layer, True, change)]) - before
        effects = first.patch(kind, number, second, [(i, j)])
        assert effects.item() == pytest.approx(expected, abs=1e-5)


def test_marian_and_m2m(pair):  # noqa: F811
    ours, theirs = pair[0].eval(), pair[1]
    sources = [[5, 9, 7, 11, 6, 3], [5, 9, 12, 11, 6, 3]]
    prefix = [2, 20, 24, 21]
    encoder, decoder = theirs.model.encoder.layers, theirs.model.decoder.layers
    places, feeds, layers = {}, {}, {}
    for number, layer in enumerate(encoder):
        places["enc", number] = layer.self_attn.out_proj
        feeds["enc", number], layers["enc", number] = layer.fc2, layer
    for number, layer in enumerate(decoder):
        places["dec", number] = layer.self_attn.out_proj
        places["cross", number] = layer.encoder_attn.out_proj
        feeds["dec", number], layers["dec", number] = layer.fc2, layer
    tensors = [torch.tensor([ids]) for ids in (*sources, prefix)]
    inputs = [
        {
            "input_ids": source,
            "attention_mask": torch.ones_like(source),
            "decoder_input_ids": tensors[2],
        }
        for source in tensors[:2]
    ]
    parts = Theirs(theirs, CHOICE, places, feeds, layers, 8)
    check_all(ours, parts, [decision(ids, prefix, 3) for ids in sources], inputs)


def test_gpt2(gpt2_directory, tmp_path):  # noqa: F811
    path, theirs, _ = gpt2_directory()
    gpt2, directory = imported_gpt2(path, tmp_path)
    ours = directory.model
    texts = [[8, 40, 21, 33, 9], [8, 40, 50, 21, 33, 9]]
    blocks = theirs.transformer.h
    parts = Theirs(
        theirs,
        [gpt2.ids[word] for word in CHOICE],
        {("dec", n): block.attn.c_proj for n, block in enumerate(blocks)},
        {("dec", n): block.mlp for n, block in enumerate(blocks)},
        {("dec", n): block for n, block in enumerate(blocks)},
        4,
    )
    inputs = [{"input_ids": torch.tensor([[gpt2.ids[word] for word in ids]])} for ids in texts]
    decisions = [decision([], ids, len(ids) - 1) for ids in texts]
    check_all(ours, parts, decisions, inputs)


def test_bert(tmp_path):
    path = tmp_path / "theirs"
    theirs, _ = encoders.write_directory(path, "bert", "ForMaskedLM")
    bert, directory = imported_bert(path, tmp_path)
    ours = directory.masked_model
    texts = [[2, 20, 31, 22, 23, 3], [2, 20, 32, 22, 23, 3]]
    layers = theirs.bert.encoder.layer
    parts = Theirs(
        theirs,
        [bert.ids[word] for word in CHOICE],
        {("enc", n): layer.attention.output.dense for n, layer in enumerate(layers)},
        {("enc", n): layer.output.dense for n, layer in enumerate(layers)},
        {("enc", n): layer for n, layer in enumerate(layers)},
        4,
    )
    inputs = [{"input_ids": torch.tensor([[bert.ids[word] for word in ids]])} for ids in texts]
    check_all(ours, parts, [decision(ids, ids, 3) for ids in texts], inputs)


def test_all_weights_of_a_head_knocked_out_are_the_head_switched_off(pair):  # noqa: F811
    model = pair[0].eval()
    probe = Probe(model, decision([5, 9, 7, 3], [2, 20, 24], 2))
    for kind, layer, attention in attentions(model):
        head = attention.n_heads - 1
        weights = probe.values.taps[kind, layer].weights()[0, head]
        cells = [(head, i, j) for i, j in weights.nonzero().tolist()]
        single, together = probe.without_edges((kind, layer), [cells[:1], cells]).tolist()
        (off,) = probe.replace_heads((kind, layer), [(head, EVERYWHERE, None)]).tolist()
        assert together == pytest.approx(off, abs=1e-6)
        assert abs(single - off) > 1e-6


def test_effects_do_not_depend_on_how_many_rows_go_together(pair):  # noqa: F811
    model = pair[0].eval()
    chosen = decision([5, 9, 7, 3], [2, 20, 24], 2)
    changes = [(head, [place], None) for head in range(4) for place in range(3)]
    few, many = (
        Probe(model, chosen, largest).replace_heads(("cross", 1), changes)
        for largest in (10, 1 << 13)
    )
    assert torch.allclose(few, many, atol=1e-6)
    assert few.abs().max() > 1e-4
    assert str(HeadId("cross", 1, 0)) == "cross.1.0"


def test_a_value_that_is_alone_is_not_replaced_by_itself(pair):  # noqa: F811
    probe = Probe(pair[0].eval(), decision([5, 9, 7, 3], [2], 0))
    causes = Causes(
        probe=probe, other=None, labels=({"enc": "abcd", "dec": "e"},), terms=None,
        methods=frozenset(["zero", "mean", "resample"]), pool=Pool([probe.values], 1),
    )  # fmt: skip
    decoder, encoder = (causes.of_heads((kind, 0), [0])[0].effects for kind in ("cross", "enc"))
    assert (*decoder, *encoder) == (
        *("zero", "estimate"),
        *("zero", "mean", "resample", "estimate"),
    )
