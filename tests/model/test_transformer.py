import pytest
import torch
from torch import nn

from tests.model.conftest import VOCAB_SIZE, small_model
from tests.oracles.plain_transformer import plain_logits
from tformer_cli.model.attention import MultiHeadAttention, causal_mask, key_mask
from tformer_cli.model.cache import DecoderCache
from tformer_cli.model.embedding import PositionedEmbedding
from tformer_cli.model.feed_forward import FeedForward
from tformer_cli.model.positions import Positions, TablePositions
from tformer_cli.model.similarity import DotProduct
from tformer_cli.model.stacks import Layer, Stack
from tformer_cli.model.transformer import Transformer

VARIANTS = [
    {},
    {"norm": "pre"},
    {"activation": "gelu", "positions": "learned"},
    {"tied_embeddings": "none", "bias": False},
    {"positions": "rotary", "activation": "swish"},
    {"tied_embeddings": "decoder", "norm": "pre", "n_encoder_layers": 3, "n_decoder_layers": 1},
    {"output_bias": True, "final_norm": "always", "positions": "table"},
    {"embedding_norm": True, "scale_embeddings": False, "tied_embeddings": "decoder"},
    {"source_vocab_size": 60, "tied_embeddings": "none", "output_bias": True, "norm": "pre"},
    {"positions": "relative", "relative_buckets": 8, "relative_distance": 6},
    {"positions": "alibi", "norm": "pre"},
    {"positions": "none"},
    {"similarity": "dot"},
    {"similarity": "cosine", "positions": "alibi"},
    {"similarity": "distance", "norm": "pre"},
    {"similarity": "additive", "positions": "relative"},
    {"norm_kind": "rms", "embedding_norm": True},
    {"norm_kind": "rms", "norm": "pre", "bias": False, "gated": True, "activation": "gelu-tanh"},
    {"gated": True},
    {"activation": "gelu-tanh"},
    {"n_key_heads": 2, "similarity": "cosine"},
    {"n_key_heads": 1, "bias": False, "positions": "relative"},
    {"d_head": 6, "tied_embeddings": "inputs"},
    {"d_head": 6, "n_key_heads": 2, "positions": "rotary"},
    {"projections": False},
    {"projections": False, "norm": "pre", "similarity": "distance", "positions": "alibi"},
    {"decoder_cell": "ssru"},
    {"decoder_cell": "ssru", "norm": "pre", "bias": False, "positions": "learned"},
]


def copy_attention(theirs, ours):
    theirs.in_proj_weight.copy_(ours.in_projection.weight)
    theirs.in_proj_bias.copy_(ours.in_projection.bias)
    theirs.out_proj.weight.copy_(ours.out_projection.weight)
    theirs.out_proj.bias.copy_(ours.out_projection.bias)


def copy_module(theirs, ours):
    theirs.load_state_dict(ours.state_dict())


def copy_layer(their, our):
    copy_attention(their.self_attn, our.self_attention)
    copy_module(their.norm1, our.self_attention_norm)
    copy_module(their.linear1, our.feed_forward.inner)
    copy_module(their.linear2, our.feed_forward.outer)
    copy_module(their.norm2, our.feed_forward_norm)


def torchs_stack(config, stack):
    """A torch.nn.TransformerEncoder with the weights of a stack of ours without a memory."""
    layer = nn.TransformerEncoderLayer(
        config.d_model, config.n_heads, config.d_ff, 0.0, activation=config.activation,
        norm_first=config.norm == "pre", batch_first=True,
    )  # fmt: skip
    final = nn.LayerNorm(config.d_model) if config.has_final_norm else None
    theirs = nn.TransformerEncoder(layer, len(stack.layers), final, enable_nested_tensor=False)
    with torch.no_grad():
        for their, our in zip(theirs.layers, stack.layers, strict=True):
            copy_layer(their, our)
        if final is not None:
            copy_module(theirs.norm, stack.final_norm)
    return theirs


def torchs_own(model: Transformer) -> nn.Transformer:
    """A torch.nn.Transformer with the weights of one of ours."""
    config = model.config
    theirs = nn.Transformer(
        config.d_model, config.n_heads, config.n_encoder_layers, config.n_decoder_layers,
        config.d_ff, config.dropout, activation=config.activation, norm_first=config.norm == "pre",
        batch_first=True,
    ).eval()  # fmt: skip
    with torch.no_grad():
        for their, our in zip(theirs.encoder.layers, model.encoder.layers, strict=True):
            copy_layer(their, our)
        for their, our in zip(theirs.decoder.layers, model.decoder.layers, strict=True):
            copy_attention(their.self_attn, our.self_attention)
            copy_attention(their.multihead_attn, our.cross_attention)
            copy_module(their.norm1, our.self_attention_norm)
            copy_module(their.norm2, our.cross_attention_norm)
            copy_module(their.norm3, our.feed_forward_norm)
            copy_module(their.linear1, our.feed_forward.inner)
            copy_module(their.linear2, our.feed_forward.outer)
        for their, our in ((theirs.encoder, model.encoder), (theirs.decoder, model.decoder)):
            if config.norm == "pre":
                copy_module(their.norm, our.final_norm)
            else:
                their.norm = None  # torch always adds one; the paper has none after post-norm
    return theirs


def their_hidden(theirs, model, source, source_mask, target):
    embedded = [
        model.encoder_input(source, model.source_embedding.weight),
        model.decoder_input(target, model.target_matrix),
    ]
    return theirs(
        *embedded,
        tgt_mask=~causal_mask(target.shape[1]).visible,
        src_key_padding_mask=~source_mask,
        memory_key_padding_mask=~source_mask,
    )


@pytest.mark.parametrize(
    "changes", [variant for variant in VARIANTS if variant.get("positions") != "rotary"], ids=str
)
@torch.no_grad()
def test_logits_equal_the_formulas(changes, sentences):
    source, source_mask, target = sentences
    model = small_model(**changes)
    if model.config.source_vocab_size:
        source[0, 3] = VOCAB_SIZE + 7  # a token that the target language does not have
    logits = model(source, source_mask, target)
    for index in range(3):
        tokens = source[index][source_mask[index]]
        expected = plain_logits(model.config, model.state_dict(), tokens, target[index])
        assert torch.allclose(logits[index], expected, atol=2e-5)


# torch's post-norm encoder takes a fast path in evaluation mode that warns of its nested tensors
@pytest.mark.filterwarnings("ignore:.*nested tensors.*", "ignore:.*norm_first.*")
@pytest.mark.parametrize("changes", [{}, {"norm": "pre"}, {"activation": "gelu"}])
def test_equals_torch_nn_transformer_forward_and_gradients(changes, sentences):
    source, source_mask, target = sentences
    model = small_model(**changes)
    theirs = torchs_own(model)
    logits = model(source, source_mask, target)
    expected = their_hidden(theirs, model, source, source_mask, target) @ model.output_matrix.T
    assert torch.allclose(logits, expected, atol=1e-5)

    for result in (logits, expected):
        result.log_softmax(-1)[..., 7].sum().backward()
    ours, own = model.encoder.layers[0], theirs.encoder.layers[0]
    assert torch.allclose(
        ours.feed_forward.inner.weight.grad, own.linear1.weight.grad, atol=1e-5, rtol=1e-4
    )
    last, their_last = model.decoder.layers[-1], theirs.decoder.layers[-1]
    for our_grad, their_grad in (
        (ours.self_attention.in_projection.weight.grad, own.self_attn.in_proj_weight.grad),
        (
            last.cross_attention.in_projection.weight.grad,
            their_last.multihead_attn.in_proj_weight.grad,
        ),
        (last.self_attention_norm.weight.grad, their_last.norm1.weight.grad),
    ):
        assert torch.allclose(our_grad, their_grad, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("changes", VARIANTS)
def test_decoding_with_the_cache_equals_decoding_in_full(changes, sentences):
    source, source_mask, target = sentences
    model = small_model(**changes)
    full = model(source, source_mask, target)
    cache = model.start_cache(model.encode(source, source_mask), source_mask, 1, 6)
    for position in range(6):
        logits = model.decode_step(target[:, position], cache)
        assert torch.allclose(logits, full[:, position], atol=1e-5)


@pytest.mark.parametrize(
    "changes", [variant for variant in VARIANTS if "decoder_cell" not in variant], ids=str
)
@torch.inference_mode()
def test_it_does_to_the_last_bit_where_there_is_no_recurrence(changes, sentences):
    source, source_mask, target = sentences
    model = small_model(**changes)
    full = model(source, source_mask, target)
    cache = model.start_cache(model.encode(source, source_mask), source_mask, 1, 6)
    steps = [model.decode_step(target[:, position], cache) for position in range(6)]
    assert torch.equal(torch.stack(steps, dim=1), full)


@pytest.mark.parametrize("cell", ["attention", "ssru"])
def test_a_reordered_and_shrunken_cache_goes_on_as_its_rows_did(cell, sentences):
    source, source_mask, _ = sentences
    model = small_model(decoder_cell=cell)
    n_positions, beam_size = 20, 2  # 20 positions: the cache grows once on the way
    tokens = torch.randint(4, VOCAB_SIZE, (3, beam_size, n_positions))
    cache = model.start_cache(
        model.encode(source, source_mask), source_mask, beam_size, n_positions + 1
    )
    for position in range(n_positions):
        model.decode_step(tokens[:, :, position].flatten(), cache)
    # keep sentences 2 and 0, with their hypotheses 1, 1 and 0, 1
    cache.reorder(torch.tensor([5, 5, 0, 1]), [2, 0])
    last = torch.tensor([9, 10, 11, 12])
    logits = model.decode_step(last, cache)
    histories = torch.stack([tokens[2, 1], tokens[2, 1], tokens[0, 0], tokens[0, 1]])
    whole = torch.cat((histories, last.unsqueeze(1)), dim=1)
    rows = torch.tensor([2, 2, 0, 0])
    full = model(source[rows], source_mask[rows], whole)
    assert torch.allclose(logits, full[:, -1], atol=1e-5)


def test_the_cache_refuses_more_positions_than_it_was_made_for(sentences):
    source, source_mask, target = sentences
    model = small_model()
    cache = model.start_cache(model.encode(source, source_mask), source_mask, 1, 1)
    model.decode_step(target[:, 0], cache)
    with pytest.raises(ValueError, match="holds max_length = 1 positions"):
        model.decode_step(target[:, 1], cache)
    assert isinstance(cache, DecoderCache)


@pytest.mark.parametrize("changes", VARIANTS)
def test_padding_and_neighbors_change_nothing(changes, sentences):
    source, source_mask, target = sentences
    model = small_model(**changes)
    batch = model(source, source_mask, target)
    alone = model(source[1:2, :5], source_mask[1:2, :5], target[1:2])
    assert torch.allclose(batch[1:2], alone, atol=1e-5)


@pytest.mark.parametrize("changes", VARIANTS)
def test_a_later_target_token_changes_no_earlier_logit(changes, sentences):
    source, source_mask, target = sentences
    model = small_model(**changes)
    before = model(source, source_mask, target)
    changed = target.clone()
    changed[:, 3] = (changed[:, 3] + 1) % VOCAB_SIZE
    after = model(source, source_mask, changed)
    assert torch.equal(before[:, :3], after[:, :3])
    assert not torch.allclose(before[:, 3], after[:, 3])


def test_a_table_of_positions_is_stored_and_not_trained():
    model = small_model(positions="table", output_bias=True)
    names = {name for name, _ in model.named_parameters()}
    tables = {f"{side}_input.positions.table" for side in ("encoder", "decoder")}
    assert not tables & names
    assert tables < set(model.state_dict())
    assert "output_bias" in names


def test_tied_matrices_are_one_parameter():
    names = {name for name, _ in small_model().named_parameters()}
    assert "target_embedding.weight" not in names
    assert "output_projection.weight" not in names
    untied = small_model(tied_embeddings="none")
    assert untied.output_matrix is not untied.target_matrix
    assert untied.target_matrix is not untied.source_embedding.weight


def test_too_many_positions_are_refused():
    model = small_model(max_positions=8)
    with pytest.raises(ValueError, match="at most max_positions = 8 tokens, but has 9"):
        model.encode(torch.zeros(1, 9, dtype=torch.long), torch.ones(1, 9, dtype=torch.bool))


def test_the_same_seed_gives_the_same_weights():
    first, second = small_model(7).state_dict(), small_model(7).state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)


class Slopes(Positions):
    """A bias that falls with the distance of query and key (ALiBi, Press et al. 2022)."""

    biases = True

    def bias(self, queries, keys):
        slopes = 2.0 ** -torch.arange(1.0, 5.0)
        # (…, Q) and (K) -> (…, 1, Q, K) -> (…, H, Q, K)
        distances = (queries.unsqueeze(-1) - keys).abs().unsqueeze(-3)
        return -distances * slopes.view(4, 1, 1)


def small_stack(positions, **settings):
    """An input and two layers without cross-attention."""
    layers = [
        Layer(MultiHeadAttention(32, 4, 8, positions=positions), FeedForward(32, 64), **settings)
        for _ in range(2)
    ]
    embedding, stack = PositionedEmbedding(32, 64, positions), Stack(layers)
    for parameter in [*embedding.parameters(), *stack.parameters()]:
        torch.nn.init.normal_(parameter, std=0.3)
    return embedding.eval(), stack.eval()


@pytest.mark.parametrize(
    "positions", [TablePositions(64, 32, is_learned=True), Slopes(), Positions()]
)
@pytest.mark.parametrize("is_pre_norm", [True, False])
@torch.no_grad()
def test_a_stack_without_cross_attention_decodes_step_by_step(positions, is_pre_norm):
    torch.manual_seed(0)
    embedding, stack = small_stack(positions, is_pre_norm=is_pre_norm)
    matrix = torch.randn(VOCAB_SIZE, 32)
    tokens = torch.randint(0, VOCAB_SIZE, (3, 9))
    whole = stack(embedding(tokens, matrix), causal_mask(9))
    nothing, is_token = torch.zeros(3, 1, 32), torch.ones(3, 1, dtype=torch.bool)
    cache = stack.start_cache(nothing, is_token, 1, 9)
    for position in range(9):
        at = slice(position, position + 1)
        if position == 4:  # three hypotheses of each sentence from here on, the second of them read
            cache.reorder(torch.arange(3).repeat_interleave(3), range(3))
        hidden = embedding(tokens[:, at].repeat_interleave(cache.beam_size, 0), matrix, at)
        step = stack.step(hidden, cache).view(3, cache.beam_size, 32)
        assert torch.allclose(step[:, cache.beam_size // 2], whole[:, position], atol=1e-5)


def test_a_bias_of_positions_is_seen_by_a_tap_and_by_fused_attention():
    torch.manual_seed(0)
    attention = MultiHeadAttention(32, 4, 8, positions=Slopes()).eval()
    taps = []
    attention.tap(taps.append)
    hidden = torch.randn(2, 200, 32)
    for n_positions in (9, 200):  # the plain formula, and the fused kernel
        attention(hidden[:, :n_positions], mask=causal_mask(n_positions))
        weights = taps[-1].weights()
        assert torch.allclose(weights @ taps[-1].value, taps[-1].context, atol=1e-5)
        unbiased = taps[-1]._replace(bias=None).weights()
        assert not torch.allclose(weights, unbiased, atol=1e-2)


@torch.no_grad()
def test_a_scale_of_its_own_is_seen_by_a_tap_and_by_fused_attention():
    torch.manual_seed(0)
    attention = MultiHeadAttention(32, 4, 8, similarity=DotProduct(4, 8)).eval()
    assert not attention.is_plain
    taps = []
    attention.tap(taps.append)
    hidden = torch.randn(2, 200, 32)
    for n_positions in (9, 200):  # the plain formula, and the fused kernel
        attention(hidden[:, :n_positions])
        query, key, value, *_, context, scale, _ = taps[-1]
        assert scale == 1.0
        expected = torch.softmax(query @ key.mT, -1) @ value
        assert torch.allclose(context, expected, atol=1e-5)
        assert torch.allclose(taps[-1].weights() @ value, expected, atol=1e-5)


def test_an_encoder_only_and_a_decoder_only_model_come_from_the_same_parts():
    torch.manual_seed(0)
    embedding, stack = small_stack(TablePositions(64, 32, is_learned=True))
    matrix = torch.randn(VOCAB_SIZE, 32)
    tokens = torch.randint(0, VOCAB_SIZE, (2, 9))
    visible = torch.ones(2, 9, dtype=torch.bool)
    assert stack(embedding(tokens, matrix), key_mask(visible)).shape == (2, 9, 32)

    causal = causal_mask(9)
    before = stack(embedding(tokens, matrix), causal) @ matrix.T
    changed = tokens.clone()
    changed[:, 6] = (changed[:, 6] + 1) % VOCAB_SIZE
    after = stack(embedding(changed, matrix), causal) @ matrix.T
    assert torch.equal(before[:, :6], after[:, :6])
    assert not torch.allclose(before[:, 6:], after[:, 6:])


def test_autocast_rounds_the_memory_once_for_all_layers():
    model = small_model(n_decoder_layers=3, dropout=0.0).train()
    source, target = torch.randint(4, 20, (4, 9)), torch.randint(4, 20, (4, 7))
    mask, results = torch.ones(4, 9, dtype=torch.bool), []
    memory = model.encode(source, mask).detach()
    for by_layer in (False, True):
        leaf = memory.clone().requires_grad_()
        states = leaf * 1.0  # autocast keeps what it rounds of a leaf
        with torch.autocast("cpu", torch.bfloat16):
            if by_layer:
                embedded = model.decoder_input(target, model.target_matrix)
                hidden = model.decoder(embedded, causal_mask(7), states, key_mask(mask))
            else:
                hidden = model.decode_hidden(target, states, mask)
        hidden.square().sum().backward()
        results.append((hidden, leaf.grad))
    (once, gradient), (thrice, expected) = results
    assert torch.equal(once, thrice)
    # Gradients of the layers are added in bfloat16
    assert 0.0 < (gradient - expected).norm() / expected.norm() < 2**-7
