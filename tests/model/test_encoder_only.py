"""Encoders alone, bare and with the head of a masked language model: against transformers' BERT."""

from functools import partial

import pytest
import torch

from tests.model.conftest import VOCAB_SIZE, small_config
from tests.model.test_transformer import copy_module
from tformer_cli.model.encoder_only import Classifier, EncoderOnly, MaskedLanguageModel
from tformer_cli.model.operations import OneDnnProducts
from tformer_cli.model.weight_shapes import parameter_count, parameter_shapes

transformers = pytest.importorskip("transformers")

BERT = {
    "activation": "gelu",
    "positions": "learned",
    "embedding_norm": True,
    "scale_embeddings": False,
    "norm_epsilon": 1e-12,
}
KINDS = {
    "labels": (Classifier, {"n_labels": 5, "pooler": "tanh", "pooling": "first"}),
    "tokens": (MaskedLanguageModel, {}),
    "none": (EncoderOnly, {}),
}


def encoder_config(head, **changes):
    _, own = KINDS[head]
    return small_config(n_decoder_layers=0, head=head, **{**own, **changes})


def encoder(head, scale=0.3, **changes):
    """A model whose weights are all random, norms and biases too."""
    torch.manual_seed(1)
    model = KINDS[head][0](encoder_config(head, **changes), VOCAB_SIZE).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=scale)
    return model


@torch.no_grad()
def copy_layers(ours, theirs):
    """Copies our encoder into a BertModel or RobertaModel."""
    theirs.embeddings.word_embeddings.weight.copy_(ours.source_embedding.weight)
    table = theirs.embeddings.token_type_embeddings.weight
    torch.nn.init.normal_(table)
    theirs.embeddings.position_embeddings.weight.copy_(
        ours.encoder_input.positions.table - table[0]
    )
    copy_module(theirs.embeddings.LayerNorm, ours.encoder_input.norm)
    for their, our in zip(theirs.encoder.layer, ours.encoder.layers, strict=True):
        attention = our.self_attention
        parts = (their.attention.self.query, their.attention.self.key, their.attention.self.value)
        matrices = attention.in_projection.weight.chunk(3)
        biases = attention.in_projection.bias.chunk(3)
        for part, matrix, bias in zip(parts, matrices, biases, strict=True):
            part.weight.copy_(matrix)
            part.bias.copy_(bias)
        copy_module(their.attention.output.dense, attention.out_projection)
        copy_module(their.attention.output.LayerNorm, our.self_attention_norm)
        copy_module(their.intermediate.dense, our.feed_forward.inner)
        copy_module(their.output.dense, our.feed_forward.outer)
        copy_module(their.output.LayerNorm, our.feed_forward_norm)


def bert(**changes):
    settings = {
        "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
        "intermediate_size": 64, "max_position_embeddings": 64, "num_labels": 5,
        "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
    }  # fmt: skip
    return transformers.BertConfig(
        vocab_size=VOCAB_SIZE, attn_implementation="eager", **{**settings, **changes}
    )


def masked_pair(**changes):
    """A masked language model of ours and BERT's with the same weights."""
    ours = encoder("tokens", **{**BERT, **changes})
    theirs = transformers.BertForMaskedLM(bert()).eval()
    copy_layers(ours, theirs.bert)
    head = theirs.cls.predictions
    with torch.no_grad():
        copy_module(head.transform.dense, ours.transform)
        copy_module(head.transform.LayerNorm, ours.transform_norm)
        head.decoder.bias.copy_(ours.output_bias)
        if ours.output_projection is not None:
            head.decoder.weight = ours.output_projection.weight
        head.bias.copy_(ours.output_bias)
    return ours, theirs


def labeled_pair(**changes):
    """A classifier of ours and BERT's with the same weights."""
    ours = encoder("labels", **{**BERT, **changes})
    theirs = transformers.BertForSequenceClassification(bert()).eval()
    copy_layers(ours, theirs.bert)
    with torch.no_grad():
        copy_module(theirs.bert.pooler.dense, ours.pooler)
        theirs.classifier.weight.copy_(ours.output_matrix)
        theirs.classifier.bias.copy_(ours.output_bias)
    return ours, theirs


def bare_pair(**changes):
    """A bare encoder of ours and BERT's with the same weights."""
    ours = encoder("none", **{**BERT, **changes})
    theirs = transformers.BertModel(bert(), add_pooling_layer=False).eval()
    copy_layers(ours, theirs)
    return ours, theirs


def outputs(pair, sentences):
    """Logits, or states, of both models at tokens."""
    source, mask, _ = sentences
    ours, theirs = pair
    found = ours.encode(source, mask) if type(ours) is EncoderOnly else ours(source, mask)
    answer = theirs(input_ids=source, attention_mask=mask.long())
    expected = answer.logits if hasattr(answer, "logits") else answer.last_hidden_state
    return (found, expected) if found.ndim == 2 else (found[mask], expected[mask])


@pytest.mark.parametrize(
    "make",
    [masked_pair, partial(masked_pair, tied_embeddings="none"), labeled_pair, bare_pair],
    ids=["tied", "untied", "labels", "bare"],
)
def test_outputs_and_gradients_are_those_of_bert(make, sentences):
    pair = make()
    found, expected = outputs(pair, sentences)
    assert expected.abs().max() > 0.5
    assert (found - expected).abs().max() <= 1e-5
    weights = torch.randn(found.shape, generator=torch.Generator().manual_seed(2))
    for result in (found, expected):
        (result.softmax(-1) * weights).sum().backward()
    ours, theirs = pair
    body = getattr(theirs, "bert", theirs)
    for our, their in (
        (ours.source_embedding.weight, body.embeddings.word_embeddings.weight),
        (ours.encoder_input.positions.table, body.embeddings.position_embeddings.weight),
        (ours.encoder.layers[0].feed_forward.inner.weight,
         body.encoder.layer[0].intermediate.dense.weight),
    ):  # fmt: skip
        error = (our.grad - their.grad).abs().max()
        assert error <= 1e-4 * their.grad.abs().max()


@pytest.mark.parametrize(
    "changes",
    [
        {"norm_epsilon": 1e-5, "scale": 1e-3},
        {"activation": "gelu-tanh"},
        {"scale_embeddings": True},
        {"norm": "pre"},
        {"pooler": "relu"},
        {"pooling": "mean"},
    ],
    ids=str,
)
def test_another_setting_gives_other_outputs(changes, sentences):
    changes = dict(changes)
    scale = changes.pop("scale", 0.3)
    of_labels = changes.keys() & {"pooler", "pooling"}
    ours, theirs = (labeled_pair if of_labels else masked_pair)(scale=scale)
    found, expected = outputs((ours, theirs), sentences)
    assert (found - expected).abs().max() <= 1e-5 * expected.abs().max()
    head = "labels" if of_labels else "tokens"
    other = encoder(head, scale, **{**BERT, **changes})
    other.load_state_dict(ours.state_dict(), strict=False)
    found, expected = outputs((other, theirs), sentences)
    assert (found - expected).abs().max() > 1e-4 * expected.abs().max()


@pytest.mark.parametrize("head", KINDS)
@pytest.mark.parametrize(
    "changes", [{}, BERT, {"bias": False}, {"norm": "pre", "norm_kind": "rms"}], ids=str
)
def test_parameters_are_named_and_counted_without_a_model(head, changes):
    config = encoder_config(head, **changes)
    model = KINDS[head][0](config, VOCAB_SIZE)
    shapes = {name: tuple(weight.shape) for name, weight in model.state_dict().items()}
    assert parameter_shapes(config, VOCAB_SIZE) == shapes
    assert sum(p.numel() for p in model.parameters()) == parameter_count(config, VOCAB_SIZE)


@pytest.mark.parametrize("head", KINDS)
def test_a_text_has_the_same_bits_whatever_is_beside_it(head, one_thread):
    model = encoder(head)
    generator = torch.Generator().manual_seed(5)
    source = torch.randint(4, VOCAB_SIZE, (9, 16), generator=generator)
    mask = torch.arange(16) < torch.tensor([16, 3, 5, 16, 1, 9, 12, 16, 2]).unsqueeze(1)
    with torch.inference_mode(), OneDnnProducts():
        together = model(source, mask)
        for row in range(9):
            alone = model(source[row : row + 1], mask[row : row + 1])[0]
            is_token = mask[row] if alone.ndim == 2 else slice(None)
            assert torch.equal(alone[is_token], together[row][is_token])


def test_vectors_may_have_length_one(sentences):
    source, mask, _ = sentences
    model = encoder("none", unit_length=True)
    vectors = model(source, mask)
    hidden = model.encode(source, mask)
    mean = torch.stack([row[kept].mean(0) for row, kept in zip(hidden, mask, strict=True)])
    assert torch.allclose(vectors, mean / mean.norm(dim=1, keepdim=True), atol=1e-6)
    first = model.pool(hidden, mask, "first")
    assert torch.equal(first, hidden[:, 0])


@pytest.mark.parametrize(
    ("head", "changes", "message"),
    [
        ("none", {"tied_embeddings": "none"}, "tied_embeddings: with n_decoder_layers = 0"),
        ("tokens", {"tied_embeddings": "decoder"}, "tied_embeddings: with n_decoder_layers = 0"),
    ],
)
def test_settings_of_other_heads_are_refused(head, changes, message):
    with pytest.raises(ValueError, match=message):
        encoder_config(head, **changes)


@pytest.mark.parametrize(("own", "other"), [("none", "tokens"), ("tokens", "none")])
def test_a_class_has_its_own_head(own, other):
    with pytest.raises(ValueError, match=f'head: must be "{own}"'):
        KINDS[own][0](encoder_config(other), VOCAB_SIZE)
