"""Terms that add up to the decision, gradients, and a model that was built to copy."""

import pytest
import torch

from tests.inspect.conftest import made_model
from tests.plugins.instruments.decisions.test_probing import decision
from tformer_cli.heads.names import HeadId
from tformer_cli.model.config import ModelConfig
from tformer_cli.model.encoder_only import Classifier, MaskedLanguageModel, Tagger
from tformer_cli.model.transformer import Transformer
from tformer_cli.plugins.instruments.decisions.attribution import (
    direct_terms,
    integrate_gradients,
    slopes_of,
)
from tformer_cli.plugins.instruments.decisions.causes import Causes
from tformer_cli.plugins.instruments.decisions.probing import EVERYWHERE, Pool, Probe
from tformer_cli.plugins.instruments.observed import stacks_of

SOURCE, PREFIX = [5, 9, 7, 3], [2, 20, 24]
SHAPE = {"d_model": 32, "n_heads": 4, "d_ff": 48, "n_encoder_layers": 2, "n_decoder_layers": 0}
ALONE = {
    "classifier": (Classifier, {"n_labels": 20, "pooling": "mean", "pooler": "tanh"}),
    "first": (Classifier, {"n_labels": 20, "pooling": "first", "norm": "pre", "pooler": "relu"}),
    "masked": (MaskedLanguageModel, {"head": "tokens", "activation": "gelu"}),
    "masked relu": (MaskedLanguageModel, {"head": "tokens", "norm": "pre", "norm_kind": "rms"}),
    "tagger": (Tagger, {"head": "tags", "n_labels": 20}),
}


def of_pair(**settings):
    return Probe(made_model(**settings), decision(SOURCE, PREFIX, 2))


def of_alone(name):
    kind, settings = ALONE[name]
    torch.manual_seed(4)
    model = kind(ModelConfig(**SHAPE | settings), 40).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    position = 0 if kind is Classifier else 2
    return Probe(model, decision(SOURCE, SOURCE, position))


def check_terms(probe, n_heads):
    terms = direct_terms(probe)
    assert sum(terms.values()) == pytest.approx(probe.d, abs=1e-5)
    assert sum(name[-1].isdigit() for name in terms) == n_heads
    assert min(abs(term) for name, term in terms.items() if name != "bias") > 0
    return terms


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"norm": "pre"},
        {"norm": "pre", "norm_kind": "rms", "gated": True, "bias": False, "positions": "rotary"},
        {"final_norm": "always"},
        {"output_bias": True, "tied_embeddings": "none", "n_key_heads": 2},
    ],
    ids=str,
)
def test_direct_terms_of_a_decoder_add_up_to_the_decision(one_thread, settings):
    check_terms(of_pair(**settings), 2 * 2 * 4)


def test_a_recurrent_unit_has_a_term(one_thread):
    terms = check_terms(of_pair(decoder_cell="ssru"), 2 * 4)
    assert {"dec.0.unit", "dec.1.unit"} < terms.keys()


@pytest.mark.parametrize("name", [*ALONE])
def test_direct_terms_of_an_encoder_add_up_to_the_decision(one_thread, name):
    check_terms(of_alone(name), 2 * 4)


def test_a_direct_term_is_the_effect_of_a_part_that_nothing_reads(one_thread):
    """Without norms after it, what the last layer writes is only written."""
    model = made_model(norm="pre")
    model.decoder.final_norm = torch.nn.Identity()
    probe = Probe(model, decision(SOURCE, PREFIX, 2))
    off = probe.with_fed(
        ("dec", 1), torch.zeros_like(probe.values.feed_forward_output(("dec", 1)))[None]
    )
    assert off.item() == pytest.approx(-direct_terms(probe)["dec.1.ff"], abs=1e-5)


PROBES = [{"norm": "pre"}, {"norm": "post", "tied_embeddings": "inputs"}, "classifier", "masked"]


@pytest.mark.parametrize("setup", PROBES, ids=str)
def test_integrated_gradients_add_up_to_the_change_from_average_tokens(one_thread, setup):
    probe = of_alone(setup) if isinstance(setup, str) else of_pair(**setup)
    whole, bare, model = integrate_gradients(probe), {}, probe.model
    for kind in stacks_of(model):
        is_source = kind == "enc"
        inputs = model.encoder_input if is_source else model.decoder_input
        matrix = model.source_embedding.weight if is_source else model.target_matrix
        n_tokens, mean = len(whole.tokens[kind]), 32**0.5 * matrix.mean(dim=0)
        bare[kind] = inputs.add_positions(mean.expand(1, n_tokens, 32)).detach()
    with torch.no_grad():
        hidden = probe.states.rest(model, "enc", 0, bare["enc"], bare.get("dec"))
        change = probe.d - probe.decision.of(model, hidden).item()
    total = sum(values.sum().item() for values in whole.tokens.values())
    assert abs(total - change) <= 0.01 * abs(change)
    assert whole.missing == pytest.approx(abs(total - change) / abs(change), abs=1e-4)


def test_slopes_are_finite_differences(one_thread):
    probe = Probe(made_model(torch.float64), decision(SOURCE, PREFIX, 2))
    slopes, step = slopes_of(probe), 1e-6
    for place in (("enc", 0), ("dec", 1), ("cross", 0)):
        new = probe.values.context(place) * (1 - step)
        (change,) = probe.replace_heads(place, [(1, EVERYWHERE, new)]).tolist()
        estimate = slopes.of_change(probe, place, None).sum(dim=1)[1].item()
        assert change / step == pytest.approx(estimate, rel=1e-3)
        # All weights of a head together are the head
        edges = slopes.of_edges(probe, place).sum(dim=(1, 2))[1].item()
        assert edges == pytest.approx(estimate, rel=1e-6)


def copying_model():
    """A model whose only working head, cross.0.1, reads the last source token and writes it.

    Head cross.0.0 attends to the very same token, but has no values.
    """
    shape = {"d_model": 24, "n_heads": 2, "d_ff": 8, "n_encoder_layers": 1, "n_decoder_layers": 1}
    config = ModelConfig(
        **shape, max_positions=8, tied_embeddings="none", positions="learned", bias=False,
        norm="pre", scale_embeddings=False, source_eos=False,
    )  # fmt: skip
    model = Transformer(config, 12).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_() if parameter.dim() > 1 else parameter.fill_(1.0)
        # Tokens are one-hot in the second half, positions in the first
        model.source_embedding.weight[:, 12:] = 4 * torch.eye(12)
        model.target_embedding.weight[:, 12:] = 0.1 * torch.eye(12)
        for number, stack in enumerate((model.encoder_input, model.decoder_input)):
            table = stack.positions.table
            table[:, :8] = (8 - 4 * number) * torch.eye(8)
        cross = model.decoder.layers[0].cross_attention
        query, key, value = cross.in_projection.weight.split(24)
        for head in (0, 1):
            # Position 1 of the target looks for position 2 of the source, with either head
            query[12 * head, 1], key[12 * head, 2] = 8.0, 8.0
        value[12:, 12:] = torch.eye(12)
        cross.out_projection.weight[12:, 12:] = torch.eye(12)
        model.output_projection.weight[:, 12:] = torch.eye(12)
    return model


def test_a_model_that_copies_is_explained_as_it_was_built(one_thread):
    model = copying_model()
    first, second = ([4, 5, 6], [4, 5, 7])
    first_probe, other = (Probe(model, decision(ids, [2, 8], 1, (6, 7))) for ids in (first, second))
    assert first_probe.d > 1 > -1 > other.d
    labels = {"enc": ("four", "five", "six"), "dec": ("<s>", "eight")}
    pool = Pool([first_probe.values, other.values], seed=1)
    methods = frozenset({"zero", "mean", "resample", "patch", "direct"})
    causes = Causes(
        probe=first_probe, other=other, labels=(labels, labels), methods=methods, pool=pool,
        terms=direct_terms(first_probe),
    )  # fmt: skip
    decoy, copies = causes.of_heads(("cross", 0), [0, 1])
    assert decoy.attends[0][0] == copies.attends[0][0] == "six"
    assert decoy.attends[0][1] > 0.99
    assert set(decoy.effects.values()) == {0.0}
    assert copies.effects["zero"] == pytest.approx(-first_probe.d, abs=1e-5)
    assert copies.effects["patch"] == pytest.approx(other.d - first_probe.d, abs=1e-5)
    assert copies.effects["back"] == pytest.approx(first_probe.d - other.d, abs=1e-5)
    assert copies.effects["direct"] == pytest.approx(first_probe.d, abs=1e-5)
    for part in (*causes.of_heads(("enc", 0), [0, 1]), *causes.of_heads(("dec", 0), [0, 1])):
        assert max(map(abs, part.effects.values())) < 1e-5
    # Only the last source token is patched to any effect, and only where the decoder decides
    maps = {(m.direction, m.kind): m for m in causes.maps([HeadId("cross", 0, 1)])}
    assert maps["patch", "enc"].strongest == [2]
    (edge,) = causes.edges([HeadId("cross", 0, 0), HeadId("cross", 0, 1)], 1)
    assert (edge.head, edge.query, edge.key) == ("cross.0.1", "eight", "six")
    assert edge.effect == pytest.approx(-first_probe.d, abs=1e-3)
    tokens = integrate_gradients(first_probe).tokens["enc"]
    assert tokens.abs().argmax() == 2
    assert list(stacks_of(model)) == ["enc", "dec"]
