"""Transformer-XL: positions of segments, against XLNet's, and the memory of earlier segments."""

import pytest
import torch

from tests.model.conftest import VOCAB_SIZE, small_config, small_model
from tests.model.test_language_model import NO_SOURCE, logits_of
from tformer_cli.model.attention import segment_mask
from tformer_cli.model.config import ModelConfig
from tformer_cli.model.operations import OneDnnProducts
from tformer_cli.model.positions import SegmentPositions, sinusoids
from tformer_cli.model.transformer import Transformer
from tformer_cli.model.weight_shapes import parameter_count, parameter_shapes

KINDS = ["segments", "rotary", "relative", "alibi"]


def tolerance(positions):
    """The largest difference of equal computations in float64; sines of rotary ones are float32."""
    return 1e-5 if positions == "rotary" else 1e-9


def segment_model(**changes):
    """A language model that reads segments of 4 tokens and remembers 6; all weights are random."""
    settings = {"positions": "segments", "memory": 6, "max_positions": 4, **changes}
    model = small_model(n_encoder_layers=0, **settings)
    generator = torch.Generator().manual_seed(8)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.3 * torch.randn(weight.shape, generator=generator))
    return model


@pytest.fixture
def text():
    return torch.randint(4, VOCAB_SIZE, (3, 22), generator=torch.Generator().manual_seed(5))


def read_in_segments(model, tokens, length=4, memory=None):
    """Reads a text segment by segment; returns the hidden states of all."""
    hidden, earlier = [], ()
    for start in range(0, tokens.shape[1], length):
        states, earlier = model.read_on(tokens[:, start : start + length], earlier, length)
        assert all(len(states) == len(tokens) for states in earlier)
        assert not any(states.requires_grad for states in earlier)
        hidden.append(states)
    return torch.cat(hidden, dim=1)


@pytest.mark.parametrize("similarity", ["scaled", "dot"])
def test_scores_are_the_four_terms_of_the_paper(similarity):
    """With E = x, a = (q + u)·k, b = (q + v)·W_R·R(i - j): section 3.3, each term by itself."""
    model = segment_model(similarity=similarity)
    attention = model.decoder.layers[1].self_attention
    hidden = torch.randn(1, 7, 32, generator=torch.Generator().manual_seed(1))
    taps = []
    attention.tap(taps.append)
    attention(hidden, mask=segment_mask(0, 7, 7, 0), earlier=None)
    (tap,) = taps
    q, k, _ = attention.in_projection(hidden)[0].view(7, 3, 4, 8).unbind(1)
    terms = attention.relative
    w = terms.projection.view(4, 8, 32)
    for head in range(4):
        for i in range(7):
            for j in range(i + 1):
                r = w[head] @ sinusoids(8, 32)[i - j]
                score = q[i, head] @ k[j, head] + q[i, head] @ r
                score += terms.content[head] @ k[j, head] + terms.position[head] @ r
                found = tap.query[0, head, i] @ tap.key[0, head, j] * tap.scale
                found += tap.bias[0, head, i, j]
                scale = 8**-0.5 if similarity == "scaled" else 1.0
                assert torch.allclose(found, score * scale, atol=1e-5)


def xlnet_of(model):
    """XLNet of one direction with the weights of a model; theirs are sines, then cosines."""
    xlnet = pytest.importorskip("transformers.models.xlnet.modeling_xlnet")
    config = model.config
    theirs = xlnet.XLNetModel(
        xlnet.XLNetConfig(
            vocab_size=VOCAB_SIZE, d_model=config.d_model, n_layer=config.n_decoder_layers,
            n_head=config.n_heads, d_inner=config.d_ff, ff_activation=config.activation,
            attn_type="uni", layer_norm_eps=config.norm_epsilon, dropout=0.0,
            mem_len=config.memory, untie_r=True,
        )
    )  # fmt: skip
    d, width = config.d_model, config.head_width
    halves = torch.cat((torch.arange(0, d, 2), torch.arange(1, d, 2)))
    with torch.no_grad():
        theirs.word_embedding.weight.copy_(model.target_matrix)
        for their, our in zip(theirs.layer, model.decoder.layers, strict=True):
            ours, attention = our.self_attention, their.rel_attn
            parts = ours.in_projection.weight.view(3, config.n_heads, width, d)
            for name, part in zip("qkv", parts, strict=True):
                getattr(attention, name).copy_(part.permute(2, 0, 1))
            out = ours.out_projection.weight.view(d, config.n_heads, width)
            attention.o.copy_(out)
            terms = ours.relative
            rows = terms.projection.view(config.n_heads, width, d)[..., halves]
            attention.r.copy_(rows.permute(2, 0, 1))
            attention.r_w_bias.copy_(terms.content)
            attention.r_r_bias.copy_(terms.position)
            for name, module in (
                ("rel_attn.layer_norm", our.self_attention_norm),
                ("ff.layer_1", our.feed_forward.inner),
                ("ff.layer_2", our.feed_forward.outer),
                ("ff.layer_norm", our.feed_forward_norm),
            ):
                theirs_own = their.get_submodule(name)
                theirs_own.weight.copy_(module.weight)
                theirs_own.bias.copy_(module.bias)
    return theirs.eval(), halves


@pytest.mark.parametrize("memory", [6, 30])
def test_three_segments_equal_xlnets_with_their_gradients(memory, text):
    model = segment_model(memory=memory, scale_embeddings=False, activation="gelu")
    with torch.no_grad():  # XLNet's attention has none
        for layer in model.decoder.layers:
            layer.self_attention.in_projection.bias.zero_()
            layer.self_attention.out_projection.bias.zero_()
    theirs, halves = xlnet_of(model)
    mems, earlier, pairs = None, (), []
    for segment in text[:, :12].split(4, dim=1):
        found = theirs(segment, mems=mems, use_mems=True)
        hidden, earlier = model.read_on(segment, earlier)
        pairs.append((hidden, found.last_hidden_state))
        mems = [states[-memory:] for states in found.mems]
    for hidden, expected in pairs:
        assert torch.allclose(hidden, expected, atol=1e-5)
    weights = torch.randn(3, 4, 32, generator=torch.Generator().manual_seed(2))
    for side in (0, 1):
        sum((pair[side] * weights).sum() for pair in pairs).backward()

    def check(ours, theirs):
        assert (ours - theirs).abs().max() <= 1e-4 * theirs.abs().max()

    check(model.target_matrix.grad, theirs.word_embedding.weight.grad)
    for their, our in zip(theirs.layer, model.decoder.layers, strict=True):
        terms, attention = our.self_attention.relative, their.rel_attn
        check(terms.content.grad, attention.r_w_bias.grad)
        check(terms.position.grad, attention.r_r_bias.grad)
        rows = terms.projection.grad.view(4, 8, 32)[..., halves]
        check(rows.permute(2, 0, 1), attention.r.grad)
        parts = our.self_attention.in_projection.weight.grad.view(3, 4, 8, 32)
        for name, part in zip("qkv", parts, strict=True):
            check(part.permute(2, 0, 1), getattr(attention, name).grad)
        check(our.feed_forward.inner.weight.grad, their.ff.layer_1.weight.grad)


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("positions", KINDS)
@torch.inference_mode()
def test_a_memory_as_long_as_the_text_makes_it_one_causal_pass(norm, positions, text):
    whole = segment_model(norm=norm, positions=positions, memory=0, max_positions=22).double()
    model = segment_model(norm=norm, positions=positions, memory=22).double()
    model.load_state_dict(whole.state_dict())
    found = model.project(read_in_segments(model, text))
    assert torch.allclose(found, logits_of(whole, text), atol=1e-9)


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("positions", KINDS)
@pytest.mark.parametrize("memory", [1, 6, 9])
@torch.inference_mode()
def test_one_pass_equals_segments_one_after_the_other(norm, positions, memory, text):
    model = segment_model(norm=norm, positions=positions, memory=memory).double()
    assert torch.allclose(logits_of(model, text), model.project(read_in_segments(model, text)),
                          atol=tolerance(positions))  # fmt: skip
    several, earlier = [], ()
    for start in range(0, 22, 8):  # two segments at once
        hidden, earlier = model.read_on(text[:, start : start + 8], earlier)
        several.append(hidden)
    assert torch.allclose(
        model.project(torch.cat(several, 1)), logits_of(model, text), atol=tolerance(positions)
    )


@pytest.mark.parametrize("positions", KINDS)
def test_no_position_sees_what_it_must_not(positions, text):
    """Where a logit's gradient reaches is what it sees: by one layer exactly its cells."""
    model = segment_model(positions=positions, n_decoder_layers=1, memory=3)
    embedded = model.target_matrix[text[:1]].detach().requires_grad_()
    visible = segment_mask(0, 22, 4, 3).visible
    for row in range(22):
        hidden = model.decoder(embedded, segment_mask(0, 22, 4, 3))
        (gradient,) = torch.autograd.grad(hidden[0, row].square().sum(), embedded)
        assert torch.equal(gradient[0].any(dim=-1), visible[row])
        expected = {j for j in range(row + 1) if j >= row // 4 * 4 - 3}
        assert set(visible[row].nonzero().flatten().tolist()) == expected


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("positions", KINDS)
@torch.inference_mode()
def test_steps_with_a_cache_equal_the_whole_text(norm, positions, text, one_thread):
    model = segment_model(norm=norm, positions=positions).double()
    with OneDnnProducts():
        whole = logits_of(model, text)
        cache = model.start_cache(model.encode(*NO_SOURCE), NO_SOURCE[1], 1, 22)
        steps = []
        for place in range(22):
            steps.append(model.decode_step(text[:, place], cache))
            assert len(cache.key_positions) <= 4 + 6 + 1
        found = torch.stack(steps, dim=1)
        assert torch.allclose(found, whole, atol=1e-9)
        cache = model.start_cache(
            model.encode(*(n[:1] for n in NO_SOURCE)), NO_SOURCE[1][:1], 1, 22
        )
        for place in range(22):  # a text alone has the same bits
            alone = model.decode_step(text[1:2, place], cache)
            assert torch.equal(alone, steps[place][1:2])


@torch.inference_mode()
def test_hypotheses_that_change_their_slots_keep_their_own_past(text):
    model = segment_model().double()
    cache = model.start_cache(model.encode(*(n[:1] for n in NO_SOURCE)), NO_SOURCE[1][:1], 1, 20)
    model.decode_step(text[:1, 0], cache)
    cache.reorder(torch.tensor([0, 0, 0]), [0])
    histories = [text[:1, 0].tolist()] * 3
    generator = torch.Generator().manual_seed(3)
    for _ in range(15):
        tokens = torch.randint(4, VOCAB_SIZE, (3,), generator=generator)
        logits = model.decode_step(tokens, cache)
        histories = [[*old, int(new)] for old, new in zip(histories, tokens, strict=True)]
        expected = logits_of(model, torch.tensor(histories))[:, -1]
        assert torch.allclose(logits, expected, atol=1e-9)
        rows = torch.randint(0, 3, (3,), generator=generator)
        cache.reorder(rows, [0])
        histories = [histories[row] for row in rows]


@pytest.mark.parametrize("changes", [{}, {"bias": False}, {"n_key_heads": 2}, {"memory": 0}])
def test_parameters_are_named_and_counted_without_a_model(changes):
    settings = {"n_encoder_layers": 0, "positions": "segments", "memory": 5, **changes}
    config = small_config(**settings)
    model = Transformer(config, VOCAB_SIZE)
    shapes = {name: tuple(weight.shape) for name, weight in model.state_dict().items()}
    assert parameter_shapes(config, VOCAB_SIZE) == shapes
    assert sum(p.numel() for p in model.parameters()) == parameter_count(config, VOCAB_SIZE)
    assert sum("relative" in name for name in shapes) == 9


@torch.inference_mode()
def test_an_encoder_tells_before_from_behind():
    positions = SegmentPositions(16, is_causal=False)
    at = torch.arange(5)
    rows, cells = positions.distances(at, at)
    table = sinusoids(5, 16)
    for i in range(5):
        for j in range(5):
            row = rows[cells[i, j]]
            sign = torch.tensor([1.0 if i >= j else -1.0, 1.0]).repeat(8)
            assert torch.equal(row, table[abs(i - j)] * sign)


@torch.inference_mode()
def test_they_serve_an_encoder_and_a_decoder(sentences, one_thread):
    source, source_mask, target = sentences
    model = small_model(positions="segments")
    full = model(source, source_mask, target)
    cache = model.start_cache(model.encode(source, source_mask), source_mask, 1, 6)
    steps = [model.decode_step(target[:, i], cache) for i in range(6)]
    assert torch.allclose(torch.stack(steps, dim=1), full, atol=1e-5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"positions": "learned"}, 'memory: needs positions that say how far.*"learned" begin'),
        (
            {"positions": "alibi", "decoder_cell": "ssru"},
            'memory: needs decoder_cell = "attention"',
        ),
        ({"memory": -1}, "memory: must be 0 to 1048576, but is -1"),
        ({"d_model": 15, "n_heads": 3}, "d_model: segments positions need an even width"),
        ({"similarity": "cosine"}, 'positions: "segments" are of a product'),
        ({"memory": 0, "decoder_cell": "ssru"}, 'positions: "segments" needs self-attention'),
    ],
)
def test_impossible_memories_are_refused(changes, message):
    settings = {"n_encoder_layers": 0, "positions": "segments", "memory": 5, **changes}
    with pytest.raises(ValueError, match=message):
        ModelConfig(**settings)
