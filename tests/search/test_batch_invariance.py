"""In float32 a line's scores are the same to the last bit whatever is translated beside it."""

import pytest
import torch

from tformer_cli.fast.products import can_pack, pack, quantized_matrices, use_integers
from tformer_cli.model.config import ModelConfig
from tformer_cli.model.operations import StandardProducts
from tformer_cli.model.transformer import Transformer
from tformer_cli.search.beam_search import beam_search
from tformer_cli.search.config import DecodingConfig
from tformer_cli.search.sampling import greedy_search
from tformer_cli.search.source_batches import plan_source_batches, source_batch


def translations(model, sentences, config, batch_tokens, known=None):
    """Finds them batch by batch; a batch that is known already is not searched again."""
    search = greedy_search if config.beam_size == 1 else beam_search
    found, known = {}, {} if known is None else known
    lengths = [len(sentence) + 1 for sentence in sentences]
    for indices in map(tuple, plan_source_batches(lengths, batch_tokens, 10**6)):
        if indices not in known:
            batch = source_batch([sentences[i] for i in indices], 1024, "cpu")
            known[indices] = search(model, *batch, config)
        found.update(zip(indices, known[indices], strict=True))
    return [found[i] for i in range(len(sentences))]


@pytest.mark.parametrize("n_threads", [1, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("d_model", "n_heads", "d_ff", "changes"),
    [
        (64, 2, 256, {}),
        (256, 4, 1536, {}),
        (66, 3, 130, {}),
        (66, 3, 130, {"positions": "rotary", "activation": "swish"}),
        (66, 3, 130, {"positions": "relative", "similarity": "cosine"}),
        (66, 3, 130, {"positions": "alibi", "similarity": "distance"}),
        (66, 3, 130, {"positions": "segments"}),
        (66, 3, 130, {"similarity": "additive", "gated": True, "norm_kind": "rms"}),
        (66, 3, 130, {"n_key_heads": 1, "positions": "rotary"}),
        (66, 3, 130, {"d_head": 14, "positions": "relative", "similarity": "dot"}),
        (66, 3, 130, {"projections": False}),
        (66, 3, 130, {"norm": "pre", "norm_kind": "rms", "activation": "gelu-tanh"}),
        (66, 3, 130, {"decoder_cell": "ssru", "output_bias": True, "embedding_norm": True}),
    ],
)
@pytest.mark.parametrize("beam_size", [4, pytest.param(1, marks=pytest.mark.slow)])
def test_a_line_alone_equals_the_line_in_a_batch(
    d_model, n_heads, d_ff, changes, beam_size, n_threads, repeatable_products
):
    if not (repeatable_products or torch.backends.mkl.is_available()):
        pytest.skip("neither oneDNN's float32 products nor MKL's are to be had here")
    torch.manual_seed(3)
    config = ModelConfig(
        d_model=d_model,
        n_heads=n_heads,
        d_ff=d_ff,
        n_encoder_layers=1,
        n_decoder_layers=1 if changes else 2,
        **changes,
    )
    model = Transformer(config, 300).eval()
    # with its end one fills 16 padded positions, the next passes them; several share a length
    sentences = [torch.randint(4, 300, (n,)).tolist() for n in (1, 3, 3, 15, 16, 30)]
    # past the 16 tokens that the cache first has room for
    settings, known = DecodingConfig(beam_size=beam_size, max_length=18), {}
    torch.set_num_threads(n_threads)
    try:
        alone = translations(model, sentences, settings, 1, known)
        for batch_tokens in (50, 20_000):
            assert translations(model, sentences, settings, batch_tokens, known) == alone
        assert sorted(map(len, known)) == [1] * 6 + [2, 3, 4]
    finally:
        torch.set_num_threads(1)


@pytest.mark.parametrize(("n_heads", "head_width"), [(2, 33), (4, 22), (1, 22)])
def test_integers_and_heads_of_odd_width_give_a_line_alone_the_same_bits(n_heads, head_width):
    torch.manual_seed(3)
    config = ModelConfig(
        d_model=n_heads * head_width,
        n_heads=n_heads,
        d_ff=130,
        n_encoder_layers=2,
        n_decoder_layers=2,
    )
    model = Transformer(config, 270).eval()
    use_integers(model, quantized_matrices(model.state_dict()))
    sentences = [torch.randint(4, 270, (n,)).tolist() for n in (1, 3, 3, 15, 16, 31)]
    for beam_size in (1, 2):
        settings = DecodingConfig(beam_size=beam_size, max_length=12)
        alone = translations(model, sentences, settings, batch_tokens=1)
        assert translations(model, sentences, settings, batch_tokens=20_000) == alone


@pytest.mark.parametrize("beam_size", [1, 4])
def test_packed_products_give_the_same_bits_alone_in_a_batch_and_unpacked(
    beam_size, repeatable_products
):
    if not (repeatable_products and can_pack()):
        pytest.skip("oneDNN's float32 products are not to be had here")
    torch.manual_seed(3)
    config = ModelConfig(
        d_model=256, n_heads=4, d_ff=512, n_encoder_layers=1, n_decoder_layers=1, norm="pre"
    )
    model = Transformer(config, 300).eval()
    sentences = [torch.randint(4, 300, (n,)).tolist() for n in (1, 2, 3, 8, 15, 16, 31, 40)]
    settings = DecodingConfig(beam_size=beam_size, max_length=12)
    unpacked = translations(model, sentences, settings, batch_tokens=500)
    pack(model)
    with StandardProducts():
        for batch_tokens in (1, 50, 20_000):
            assert translations(model, sentences, settings, batch_tokens) == unpacked


def test_a_batch_holds_one_padded_length_within_the_budget():
    lengths = [3, 40, 16, 17, 5, 500, 32, 1]
    batches = plan_source_batches(lengths, batch_tokens=48, most_sentences=10)
    assert batches == [[0, 2, 4], [7], [3], [6], [1], [5]]
    assert plan_source_batches([1] * 5, 10_000, most_sentences=2) == [[0, 1], [2, 3], [4]]


def test_sources_are_padded_to_a_multiple_of_sixteen_after_their_end():
    source, mask = source_batch([[7, 8], [9] * 16], 1024, "cpu")
    assert source.shape == mask.shape == (2, 32)
    assert source[0].tolist() == [7, 8, 3] + [0] * 29
    assert mask.sum(dim=1).tolist() == [3, 17]


def test_padding_stays_within_the_positions_of_the_model():
    source, _ = source_batch([[7] * 17, [8] * 19], 20, "cpu")
    assert source.shape == (2, 20)


@pytest.mark.parametrize("beam_size", [1, 3])
def test_the_last_sentence_left_is_searched_with_its_own_source(beam_size):
    torch.manual_seed(7)
    config = ModelConfig(
        d_model=64, n_heads=2, d_ff=128, n_encoder_layers=1, n_decoder_layers=2, max_positions=90
    )
    model = Transformer(config, 300).eval()
    # of one padded length, but of different limits: the first ones end before the last
    sentences = [torch.randint(4, 300, (n,)).tolist() for n in (1, 4, 9, 15)]
    settings = DecodingConfig(beam_size=beam_size)
    together = translations(model, sentences, settings, batch_tokens=10_000)
    assert together == translations(model, sentences, settings, batch_tokens=1)
    assert len({len(hypotheses[0].token_ids) for hypotheses in together}) > 1
