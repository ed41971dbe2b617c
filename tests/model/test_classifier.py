"""Classifiers: against torch's own layers, alone and in batches."""

import pytest
import torch
from torch import nn

from tests.model.conftest import VOCAB_SIZE, small_config
from tests.model.test_transformer import torchs_stack
from tformer_cli.model.encoder_only import Classifier
from tformer_cli.model.operations import OneDnnProducts
from tformer_cli.model.weight_shapes import parameter_count, parameter_shapes
from tformer_cli.search.encoding import label_probabilities

VARIANTS = [
    {},
    {"norm": "pre", "pooling": "first"},
    {"positions": "learned", "bias": False},
    {"positions": "rotary", "activation": "swish", "scale_embeddings": False},
    {"final_norm": "always", "embedding_norm": True},
    {"encoder_heads": (4, 1)},
    {"pooler": "tanh", "pooling": "first"},
    {"pooler": "relu", "bias": False},
]


def classifier_config(**changes):
    return small_config(n_decoder_layers=0, **{"n_labels": 5, **changes})


def classifier(**changes):
    torch.manual_seed(0)
    model = Classifier(classifier_config(**changes), VOCAB_SIZE).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


@pytest.mark.parametrize("changes", VARIANTS, ids=str)
def test_parameters_are_named_and_counted_without_a_model(changes):
    config = classifier_config(**changes)
    model = Classifier(config, VOCAB_SIZE)
    shapes = {name: tuple(weight.shape) for name, weight in model.state_dict().items()}
    assert parameter_shapes(config, VOCAB_SIZE) == shapes
    assert sum(p.numel() for p in model.parameters()) == parameter_count(config, VOCAB_SIZE)
    assert not any("decoder" in name or "target" in name for name in shapes)


@pytest.mark.filterwarnings("ignore:.*norm_first.*")
@pytest.mark.parametrize("pooling", ["mean", "first"])
@pytest.mark.parametrize("changes", [{}, {"norm": "pre"}, {"activation": "gelu"}])
def test_equals_torchs_encoder_and_a_linear_layer(changes, pooling, sentences):
    source, mask, _ = sentences
    model = classifier(pooling=pooling, **changes)
    theirs, head = torchs_stack(model.config, model.encoder), nn.Linear(model.config.d_model, 5)
    with torch.no_grad():
        head.weight.copy_(model.output_matrix)
        head.bias.copy_(model.output_bias)
    embedded = model.encoder_input(source, model.source_embedding.weight)
    hidden = theirs(embedded, src_key_padding_mask=~mask)
    rows = [row[: int(n)] for row, n in zip(hidden, mask.sum(1), strict=True)]
    pooled = torch.stack([row[0] if pooling == "first" else row.mean(0) for row in rows])
    logits, expected = model(source, mask), head(pooled)
    assert torch.allclose(logits, expected, atol=1e-5)
    for result in (logits, expected):
        result.log_softmax(-1)[:, 3].sum().backward()
    ours, own = model.encoder.layers[0].feed_forward, theirs.layers[0]
    assert torch.allclose(ours.inner.weight.grad, own.linear1.weight.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("changes", VARIANTS, ids=str)
def test_a_text_has_the_same_bits_alone_and_in_any_batch(changes, one_thread):
    model = classifier(**changes)
    generator = torch.Generator().manual_seed(5)
    lengths = torch.randint(1, 40, (60,), generator=generator).tolist()
    texts = [torch.randint(4, VOCAB_SIZE, (n,), generator=generator).tolist() for n in lengths]
    with OneDnnProducts():
        together = label_probabilities(model, texts)
        small = label_probabilities(model, texts, batch_tokens=100)
        alone = [label_probabilities(model, [text])[0] for text in texts]
    assert together == small == alone
    assert all(abs(sum(row) - 1.0) < 1e-12 for row in together)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tied_embeddings": "none"}, "tied_embeddings: with n_decoder_layers = 0 there is no"),
        ({"n_encoder_layers": 0}, "n_decoder_layers: the encoder or the decoder must have layers"),
    ],
)
def test_settings_of_a_target_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        classifier_config(**changes)


def test_a_classifier_needs_labels():
    with pytest.raises(ValueError, match="n_labels: a classifier has"):
        Classifier(classifier_config(n_labels=0), VOCAB_SIZE)
