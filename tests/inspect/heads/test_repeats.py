"""Scores on repeated random tokens: of patterns and of heads that are made by hand."""

import pytest
import torch

from tests.commands import output_of, records_of, refused
from tests.inspect.cases import stored_model
from tests.models import LINES
from tformer_cli.errors import UsageError
from tformer_cli.heads.names import head_layout
from tformer_cli.inspect.heads.repeats import (
    SCORES,
    Repeats,
    block_length,
    measure_repeats,
    repeat_scores,
    repeated_blocks,
)
from tformer_cli.model.config import ModelConfig
from tformer_cli.model.transformer import Transformer
from tformer_cli.search.config import DecodingConfig
from tformer_cli.text.config import TokenizerConfig
from tformer_cli.text.train_tokenizer import train_tokenizer

N_TOKENS, N_PLACES, WIDTH = 20, 33, 40
SHARP = 60.0


def pattern(n_rows, key_of):
    """A map in which row i looks at key key_of(i) alone."""
    weights = torch.zeros(n_rows, n_rows)
    for row in range(n_rows):
        weights[row, max(0, key_of(row))] = 1.0
    return weights


@pytest.mark.parametrize("n_before", [0, 1])
def test_patterns_have_their_own_score_alone(n_before):
    length = 5
    n_rows = n_before + 2 * length
    keys = {
        "previous": lambda row: row - 1,
        "duplicate": lambda row: row - length,
        "induction": lambda row: row - length + 1,
        "first": lambda row: 0,
    }
    weights = torch.stack([pattern(n_rows, keys[name]) for name in SCORES])
    scores = repeat_scores(weights[None], length)[0]
    expected = torch.eye(4).double()
    if not n_before:  # the earlier occurrence of the first token is at the first position
        expected[1, 3] = expected[3, 1] = 1 / length
    assert torch.allclose(scores, expected)
    even = torch.ones(n_rows, n_rows).tril() / torch.arange(1, n_rows + 1)[:, None]
    rows = torch.arange(n_rows - length + 1, n_rows + 1)
    assert torch.allclose(repeat_scores(even[None, None], length)[0, 0], (1 / rows).mean().double())


def induction_model() -> Transformer:
    """Makes a model of heads with known answers.

    Hidden states are one-hot: the token, the place, and the token before, which dec.0.0 writes.
    dec.0.1 looks at the first place, dec.1.0 at where the token before is the one that is read, and
    dec.1.1 at where the token is the one that is read: itself and its earlier occurrence.
    """
    config = ModelConfig(
        d_model=2 * WIDTH, n_heads=2, d_ff=4, n_encoder_layers=0, n_decoder_layers=2, norm="pre",
        norm_kind="rms", positions="learned", max_positions=N_PLACES, scale_embeddings=False,
    )  # fmt: skip
    model = Transformer(config, N_TOKENS).eval()
    tokens, before = slice(0, N_TOKENS), slice(N_TOKENS + N_PLACES, 2 * N_TOKENS + N_PLACES)
    assert before.stop <= 2 * WIDTH
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" not in name:
                parameter.zero_()
        model.target_matrix[:, tokens] = torch.eye(N_TOKENS)
        model.decoder_input.positions.table[:, N_TOKENS : N_TOKENS + N_PLACES] = torch.eye(N_PLACES)
        # (2, H, E, D): queries, keys and values of each head
        layers = [
            layer.self_attention.in_projection.weight.view(3, 2, WIDTH, 2 * WIDTH)
            for layer in model.decoder.layers
        ]
        places = torch.eye(2 * WIDTH)[N_TOKENS : N_TOKENS + N_PLACES]
        layers[0][0, 0, : N_PLACES - 1] = SHARP * places[1:]  # place p asks for p - 1
        layers[0][1, 0, : N_PLACES - 1] = places[:-1]
        layers[0][2, 0, :N_TOKENS] = torch.eye(2 * WIDTH)[tokens]
        model.decoder.layers[0].self_attention.out_projection.weight[before, :N_TOKENS] = torch.eye(
            N_TOKENS
        )
        layers[0][0, 1, 0] = SHARP * places.sum(dim=0)  # every place asks for the first
        layers[0][1, 1, 0] = places[0]
        for head, keys in ((0, before), (1, tokens)):
            layers[1][0, head, :N_TOKENS] = SHARP * torch.eye(2 * WIDTH)[tokens]
            layers[1][1, head, :N_TOKENS] = torch.eye(2 * WIDTH)[keys]
    return model


@pytest.fixture
def measured():
    model = induction_model()
    *done, repeats = measure_repeats(model, "made", list(head_layout(model)), 12, 3)
    assert done == [8, 12]
    assert isinstance(repeats, Repeats)
    return repeats


def test_an_induction_pair_is_found(measured):
    scores = {str(head.head): head.scores for head in measured.heads}
    assert measured.length == 16
    assert scores["dec.0.0"]["previous"] == pytest.approx(1.0, abs=1e-3)
    assert scores["dec.0.1"]["first"] == pytest.approx(1.0, abs=1e-3)
    assert scores["dec.1.0"]["induction"] == pytest.approx(1.0, abs=1e-3)
    assert scores["dec.1.1"]["duplicate"] == pytest.approx(0.5, abs=1e-3)
    roles = [head.role for head in measured.heads]
    assert roles == ["previous", "first", "induction", "other"]
    for head in measured.heads:
        for name in SCORES:
            low, high = head.intervals[name]
            assert low - 1e-9 <= head.scores[name] <= high + 1e-9


def test_the_losses_are_those_of_both_copies(measured):
    model = induction_model()
    ids = repeated_blocks(model, 12, 16, 3)
    with torch.inference_mode():
        nothing = ids[:, :1]
        logits = model(nothing, nothing >= 0, ids[:, :-1]).double()
    losses = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none"
    ).view(12, -1)
    expected = losses[:, :16].mean().item(), losses[:, 16:].mean().item()
    assert measured.losses == pytest.approx(expected)


def test_blocks_are_of_different_tokens_and_come_twice():
    model = induction_model()
    ids = repeated_blocks(model, 5, 16, 1)
    assert ids.shape == (5, 33)
    assert (ids[:, 0] == 2).all()
    assert torch.equal(ids[:, 1:17], ids[:, 17:])
    assert all(len(set(row[1:17].tolist())) == 16 for row in ids)
    assert ids[:, 1:].min() >= 4
    assert torch.equal(ids, repeated_blocks(model, 5, 16, 1))
    assert not torch.equal(ids, repeated_blocks(model, 5, 16, 2))


def test_intervals_are_those_of_a_mean(language_model):
    """Half the width is 1.96 standard errors, of random heads on many blocks."""
    from tformer_cli.artifacts.model_directory import load_model_directory

    model = load_model_directory(language_model, tasks=("language-model",)).model
    heads = list(head_layout(model))[:1]
    *_, repeats = measure_repeats(model, "m", heads, 64, 1)
    length = block_length(model)
    from tformer_cli.inspect.capture.forced import capture_maps

    singles = [
        repeat_scores(
            torch.from_numpy(capture_maps(model, (), row[1:].tolist()).dec[0][None]), length
        )[0, 0, 0].item()
        for row in repeated_blocks(model, 64, length, 1)
    ]
    values = torch.tensor(singles, dtype=torch.float64)
    (head,) = repeats.heads
    assert head.scores["previous"] == pytest.approx(values.mean().item(), abs=1e-6)
    low, high = head.intervals["previous"]
    error = values.std(correction=0).item() / 8
    assert (high - low) / 2 == pytest.approx(1.96 * error, rel=0.15)


def test_the_command_writes_a_table_and_lines(tmp_path, one_thread):
    tokenizer = train_tokenizer(LINES * 3, TokenizerConfig(algorithm="char", vocab_size=N_TOKENS))
    model = induction_model()
    if tokenizer.vocab_size != N_TOKENS:
        pytest.skip("the vocabulary has another size")
    stored_model(tmp_path / "m", model, tokenizer, DecodingConfig(sampling=True))
    command = ("inspect-heads", tmp_path / "m", "--repeats", "8", "-q")
    shown = output_of(*command, "--format", "text")
    assert "8 blocks of 16 random tokens, twice" in " ".join(shown.split())
    first, _ = records_of(*command, "--heads", "dec.1")
    fields = first["schema"], first["id"], first["role"]
    assert fields == ("tformer.repeats/1", "dec.1.0", "induction")
    assert first["ci95"]["induction"][0] > 0.99


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["TEXT"], "TEXT: reads a text, but --repeats draws its own"),
        (["--corpus"], "--corpus: reads a text, but --repeats draws its own"),
        (["--format", "svg"], "--repeats: only for text and jsonl"),
        (["--heads", "cross.0"], "--heads"),
    ],
)
def test_what_does_not_fit_is_one_line(language_model, options, message):
    refused("inspect-heads", language_model, "--repeats", "4", *options, "-q", says=message)


def test_a_classifier_and_a_model_that_is_too_small_are_refused(classifier):
    refused("inspect-heads", classifier, "--repeats", "4", "-q", says="is a classifier")
    config = ModelConfig(
        d_model=8, n_heads=2, d_ff=4, n_encoder_layers=0, n_decoder_layers=1, max_positions=8
    )
    with pytest.raises(UsageError, match="needs blocks of 4 different tokens, twice, but the mo"):
        block_length(Transformer(config, 40))
