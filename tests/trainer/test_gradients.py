"""The loss, its gradients, and a run that diverges."""

import json
import math
import random

import pytest
import torch
from torch.nn import functional

from tests.oracles.plain_loss import plain_loss, plain_r_drop_loss
from tformer_cli.model.config import ModelConfig
from tformer_cli.model.transformer import Transformer
from tformer_cli.text.batching import collate
from tformer_cli.text.tokenizer import EOS_ID
from tformer_cli.trainer import gradients
from tformer_cli.trainer import loss as module
from tformer_cli.trainer.gradients import add_gradients, batch_loss, clip_gradients
from tformer_cli.trainer.loss import Loss, count_targets, projected_loss, smoothing_entropy
from tformer_cli.trainer.report_interval import (
    JUDGED_STEPS,
    REMEMBERED,
    Diverged,
    LossHistory,
    ReportInterval,
    highest_mean,
    uniform_loss,
)

SOURCE = [[5, 6, 7], [8, 9], [10], [11, 12, 13, 14]]
TARGET = [[6], [7, 8, 9, 10], [11, 12], [13, 14, 15]]


def model(dropout=0.0):
    torch.manual_seed(4)
    config = ModelConfig(
        d_model=16, n_heads=2, d_ff=24, n_encoder_layers=1, n_decoder_layers=1, dropout=dropout
    )
    return Transformer(config, 20)


def gradients_of(batches):
    trained, window = model(), ReportInterval(0.0)
    add_gradients(trained, batches, window, label_smoothing=0.1, precision="float32")
    return [parameter.grad for parameter in trained.parameters()], window


def test_accumulated_batches_give_the_gradient_of_one_large_batch():
    large, whole = gradients_of([collate(SOURCE, TARGET)])
    parts = [collate(SOURCE[:1], TARGET[:1]), collate(SOURCE[1:], TARGET[1:])]
    small, summed = gradients_of(parts)
    for theirs, ours in zip(large, small, strict=True):
        assert torch.allclose(theirs, ours, atol=1e-6)
    assert math.isclose(whole.mean_loss, summed.mean_loss, rel_tol=1e-5)
    assert whole.n_target_tokens == summed.n_target_tokens == 14


def test_padding_adds_nothing_to_the_loss():
    batch = collate(SOURCE, TARGET)
    alone = [collate([source], [target]) for source, target in zip(SOURCE, TARGET, strict=True)]
    trained = model()
    together = batch_loss(trained, batch, label_smoothing=0.1, precision="float32")
    parts = [batch_loss(trained, part, label_smoothing=0.1, precision="float32") for part in alone]
    assert torch.allclose(together.smoothed, sum(part.smoothed for part in parts), atol=1e-4)


def test_r_drop_without_dropout_is_the_ordinary_loss_and_counts_each_token_once():
    batch, settings = collate(SOURCE, TARGET), {"label_smoothing": 0.1, "precision": "float32"}
    trained, twice, window = model(), model(), ReportInterval(0.0)
    add_gradients(trained, [batch], expected := ReportInterval(0.0), **settings)
    add_gradients(twice, [batch], window, r_drop=5.0, **settings)
    for plain, doubled in zip(trained.parameters(), twice.parameters(), strict=True):
        assert torch.allclose(plain.grad, doubled.grad, atol=1e-6)
    assert math.isclose(window.mean_loss, expected.mean_loss, rel_tol=1e-5)
    assert math.isclose(window.perplexity, expected.perplexity, rel_tol=1e-5)
    assert window.n_target_tokens == expected.n_target_tokens == 14
    assert window.n_cells == expected.n_cells


def test_r_drop_is_the_plain_formula_of_two_passes_with_their_own_dropout(monkeypatch):
    trained = model(dropout=0.3)
    batch, seen = collate(SOURCE, TARGET), []

    def noting(hidden, matrix, targets, *settings):
        seen.append((hidden @ matrix.T, targets))
        return projected_loss(hidden, matrix, targets, *settings)

    monkeypatch.setattr(gradients, "projected_loss", noting)
    loss = batch_loss(trained, batch, label_smoothing=0.1, precision="float32", r_drop=5.0)
    ((logits, targets),) = seen
    first, second = logits[0::2], logits[1::2]
    assert targets.tolist() == [token for row in TARGET for token in [*row, EOS_ID]]
    assert (first - second).abs().min() > 0.0, "no token has the same dropout twice"
    expected = plain_r_drop_loss(first, second, targets, 0.1, 5.0)
    assert torch.allclose(loss.smoothed, expected.smoothed)
    assert loss.smoothed > plain_r_drop_loss(first, second, targets, 0.1, 0.0).smoothed
    got = torch.autograd.grad(loss.smoothed, list(trained.parameters()), retain_graph=True)
    for ours, theirs in zip(
        got, torch.autograd.grad(expected.smoothed, list(trained.parameters())), strict=True
    ):
        assert torch.allclose(ours, theirs, atol=1e-5)


@pytest.mark.parametrize("largest", [0.01, 1e6, 0.0])
def test_clipping_scales_down_to_the_norm_and_never_up(largest):
    trained = model()
    batch = collate(SOURCE, TARGET)
    add_gradients(trained, [batch], ReportInterval(0.0), label_smoothing=0.1, precision="float32")
    flat = torch.cat([p.grad.flatten() for p in trained.parameters()])
    norm = clip_gradients(trained, largest)
    clipped = torch.cat([p.grad.flatten() for p in trained.parameters()])
    assert math.isclose(float(norm), float(flat.norm()), rel_tol=1e-5)
    if largest == 0.01:
        assert math.isclose(float(clipped.norm()), 0.01, rel_tol=1e-3)
    else:
        assert torch.equal(clipped, flat)


def smoothed_targets(targets, n_classes, smoothing):
    q = torch.full((len(targets), n_classes), smoothing / n_classes)
    q[torch.arange(len(targets)), targets] += 1.0 - smoothing
    return q


def test_equals_torchs_kl_divergence_from_the_smoothed_distribution():
    torch.manual_seed(0)
    logits, targets = torch.randn(9, 13), torch.randint(0, 13, (9,))
    loss = plain_loss(logits, targets, 0.1)
    expected = functional.kl_div(
        logits.log_softmax(-1), smoothed_targets(targets, 13, 0.1), reduction="sum"
    )
    assert torch.allclose(loss.smoothed, expected, atol=1e-5)


def test_differs_from_torchs_smoothed_cross_entropy_by_the_entropy_and_not_in_the_gradient():
    torch.manual_seed(0)
    targets = torch.randint(0, 13, (9,))
    ours = torch.randn(9, 13, requires_grad=True)
    theirs = ours.detach().clone().requires_grad_()
    loss = plain_loss(ours, targets, 0.2).smoothed
    entropy = functional.cross_entropy(theirs, targets, label_smoothing=0.2, reduction="sum")
    assert math.isclose(entropy.item() - loss.item(), 9 * smoothing_entropy(0.2, 13), rel_tol=1e-5)
    loss.backward()
    entropy.backward()
    assert torch.allclose(ours.grad, theirs.grad, atol=1e-6)


def test_tokens_that_never_come_have_no_share_of_the_smoothing():
    trained = model()
    assert count_targets(trained) == 20
    trained.output_bias = torch.nn.Parameter(torch.tensor([0.0] * 17 + [-1e9, -math.inf, -1e3]))
    assert count_targets(trained) == 18


def test_is_zero_for_a_perfect_prediction_and_never_below():
    targets = torch.tensor([2, 0])
    perfect = smoothed_targets(targets, 7, 0.1).log()
    assert abs(plain_loss(perfect, targets, 0.1).smoothed.item()) < 1e-5
    assert plain_loss(perfect + torch.randn(2, 7), targets, 0.1).smoothed.item() > 0


def test_likelihood_is_without_smoothing():
    logits, targets = torch.randn(5, 11), torch.randint(0, 11, (5,))
    expected = functional.cross_entropy(logits, targets, reduction="sum")
    assert torch.allclose(plain_loss(logits, targets, 0.3).negative_log_likelihood, expected)
    plain = plain_loss(logits, targets, 0.0)
    assert torch.equal(plain.smoothed, plain.negative_log_likelihood)


GUESS = uniform_loss(0.1, 8000)


def feed(history, means, start=0, tokens=1000):
    for number, mean in enumerate(means, start=start + 1):
        history.add(number * JUDGED_STEPS, mean * tokens, tokens, GUESS)


def falling(noise=0.3):
    draw = random.Random(3)
    return [1.5 + 8.0 / (1 + 0.3 * i) + draw.uniform(-noise, noise) for i in range(200)]


def test_a_run_that_learns_noisily_is_never_called_diverged():
    history = LossHistory()
    feed(history, falling())
    assert len(history.means) == REMEMBERED


def test_the_start_may_rise_as_it_likes():
    feed(LossHistory(), [GUESS + 1, GUESS, GUESS + 6, GUESS + 12])


@pytest.mark.parametrize("good", [5, 50])
def test_losing_half_of_what_was_learned_is_a_divergence(good):
    history = LossHistory()
    feed(history, falling()[:good])
    best = min(history.means)
    with pytest.raises(Diverged, match="the loss rose from ") as seen:
        feed(history, [highest_mean(best, GUESS) + 0.01], start=good)
    assert seen.value.last_good_step == good * JUDGED_STEPS
    assert 1.0 <= highest_mean(best, GUESS) - best < GUESS


def test_a_mean_over_few_steps_is_not_judged_but_waited_for():
    history = LossHistory()
    feed(history, [1.0])
    history.add(JUDGED_STEPS + 1, 90.0, 10, GUESS)  # one odd batch
    history.add(2 * JUDGED_STEPS, 190.0, 190, GUESS)
    assert history.means == [1.0, 280 / 200]


def test_a_guesser_loses_the_logarithm_of_the_vocabulary():
    assert uniform_loss(0.0, 1000) == pytest.approx(6.907755)
    assert 0.0 < uniform_loss(0.1, 1000) < 6.9


def window(loss=6.0, norm=1.0):
    sums = ReportInterval(0.0)
    batch = collate([[4, 5, 6], [4]], [[7], [8]])  # 4 + 2 source, 2 + 2 target tokens, with </s>
    sums.add_batch(batch, Loss(torch.tensor(loss), torch.tensor(8.0)))
    sums.add_norm(torch.tensor(norm))
    return sums


def test_means_are_per_target_token_and_padding_is_a_share_of_all_cells():
    sums = window()
    assert sums.mean_loss == 1.5
    assert math.isclose(sums.perplexity, math.exp(2.0))
    assert math.isclose(sums.padding, 1 - 10 / 12)
    assert sums.mean_lengths == (3.0, 2.0)


@pytest.mark.parametrize(("loss", "norm"), [(math.nan, 1.0), (math.inf, 1.0), (1.0, math.inf)])
def test_what_is_not_finite_sends_the_run_back(loss, norm):
    window().check_finite(3)
    sums = window(loss, norm)
    sums.add_norm(torch.tensor(1.0))  # a good step afterwards hides nothing
    with pytest.raises(Diverged, match="NaN or infinity") as seen:
        sums.check_finite(3)
    assert seen.value.last_good_step == 3


def test_sums_go_through_json_unchanged():
    sums = window(loss=6.1)
    restored = ReportInterval.from_json(json.loads(json.dumps(sums.to_json())))
    assert restored.to_json() == sums.to_json()
    assert isinstance(restored.n_target_tokens, int)
    more = Loss(torch.tensor(0.7), torch.tensor(8.0))
    batch = collate([[4]], [[7]])
    for interval in (sums, restored):
        interval.add_batch(batch, more)
    assert restored.mean_loss == sums.mean_loss


def case(n_tokens, dtype=torch.float64):
    torch.manual_seed(3)
    hidden = torch.randn(n_tokens, 6, dtype=dtype, requires_grad=True)
    matrix = torch.randn(17, 6, dtype=dtype, requires_grad=True)
    return hidden, matrix, torch.randint(0, 17, (n_tokens,))


def assert_same_loss_and_gradients(fast, plain, inputs, atol):
    assert torch.allclose(fast.smoothed, plain.smoothed.double(), rtol=1e-6)
    assert torch.allclose(
        fast.negative_log_likelihood, plain.negative_log_likelihood.double(), rtol=1e-6
    )
    got = torch.autograd.grad(fast.smoothed / 7, inputs)
    expected = torch.autograd.grad(plain.smoothed / 7, inputs)
    for ours, theirs in zip(got, expected, strict=True):
        assert torch.allclose(ours, theirs, atol=atol)


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
@pytest.mark.parametrize("rows", [1, 2, 100])
@pytest.mark.parametrize("chunk_loss", [None, module.compiled_loss])
def test_equals_the_plain_formula_whatever_the_chunks(
    monkeypatch, rows, label_smoothing, chunk_loss
):
    monkeypatch.setitem(module.CHUNK_CELLS, "cpu", rows * 17)
    monkeypatch.setattr(module, "_compile_loss", lambda: module._fusable_loss)
    hidden, matrix, targets = case(5)
    fast = projected_loss(hidden, matrix, targets, label_smoothing, loss=chunk_loss)
    plain = plain_loss(hidden @ matrix.T, targets, label_smoothing)
    assert_same_loss_and_gradients(fast, plain, [hidden, matrix], atol=1e-6)


@pytest.mark.parametrize("label_smoothing", [0.0, 0.2])
def test_gradient_equals_finite_differences(label_smoothing):
    hidden, matrix, targets = case(4)
    assert torch.autograd.gradcheck(
        lambda h, w: projected_loss(h, w, targets, label_smoothing).smoothed, (hidden, matrix)
    )


def biased_case(n_tokens):
    """The same with a bias, which keeps two tokens from ever coming."""
    hidden, matrix, targets = case(n_tokens)
    bias = torch.randn(17, dtype=torch.float64)
    bias[:2] = -1e9
    return hidden, matrix, bias.requires_grad_(), targets.clamp(min=2)


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
@pytest.mark.parametrize("r_drop", [0.0, 3.0])
def test_a_bias_is_added_and_smoothing_spares_tokens_that_never_come(
    monkeypatch, label_smoothing, r_drop
):
    monkeypatch.setitem(module.CHUNK_CELLS, "cpu", 4 * 17)
    hidden, matrix, bias, targets = biased_case(10 if r_drop else 5)
    some = targets[:5]
    fast = projected_loss(hidden, matrix, some, label_smoothing, r_drop, bias=bias)
    logits = (hidden @ matrix.T + bias)[:, 2:]
    plain = (
        plain_loss(logits, some - 2, label_smoothing)
        if not r_drop
        else (plain_r_drop_loss(logits[0::2], logits[1::2], some - 2, label_smoothing, r_drop))
    )
    assert_same_loss_and_gradients(fast, plain, [hidden, matrix, bias], atol=1e-5)


@pytest.mark.parametrize("label_smoothing", [0.0, 0.2])
def test_gradient_of_the_bias_equals_finite_differences(label_smoothing):
    hidden, matrix, targets = case(4)
    bias = torch.randn(17, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda h, w, b: projected_loss(h, w, targets, label_smoothing, bias=b).smoothed,
        (hidden, matrix, bias),
    )


def test_autocast_computes_in_bfloat16_and_hands_on_float32():
    hidden, matrix, targets = case(64, torch.float32)
    exact = torch.autograd.grad(projected_loss(hidden, matrix, targets, 0.1).smoothed, matrix)[0]
    with torch.autocast("cpu", torch.bfloat16):
        loss = projected_loss(hidden, matrix, targets, 0.1).smoothed
    rounded = torch.autograd.grad(loss, matrix)[0]
    assert rounded.dtype == torch.float32
    difference = ((rounded - exact).norm() / exact.norm()).item()
    assert 0.0 < difference < 0.02


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_the_formula_for_a_compiler_is_that_of_torch(dtype):
    torch.manual_seed(2)
    logits = 4.0 * torch.randn(40, 300, dtype=torch.float64)
    targets, results = torch.randint(0, 300, (40,)), []
    for loss in (module.torch_loss, module._fusable_loss):
        rows = logits.to(dtype, copy=True)
        lse, target_logit = loss(rows, targets, 0.9, writes_gradient=True)
        results.append((lse, target_logit, rows))
        assert rows.dtype == dtype
        untouched = logits.to(dtype, copy=True)
        assert torch.equal(loss(untouched, targets, 0.9, writes_gradient=False)[0], lse)
        assert torch.equal(untouched, logits.to(dtype))
    rounding = torch.finfo(dtype).eps
    for ours, theirs in zip(*(result[:2] for result in results), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(*(rows for *_, rows in results), rtol=rounding, atol=1e-6)


def test_without_gradients_only_the_loss_is_computed():
    hidden, matrix, targets = case(9)
    with torch.inference_mode():
        alone = projected_loss(hidden, matrix, targets, 0.1)
    assert torch.equal(alone.smoothed, projected_loss(hidden, matrix, targets, 0.1).smoothed)


def two_passes(n_tokens, dtype=torch.float64):
    hidden, matrix, targets = case(2 * n_tokens, dtype)
    return hidden, matrix, targets[:n_tokens]


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
@pytest.mark.parametrize("rows", [1, 3, 4, 100])
def test_r_drop_equals_the_plain_formula_whatever_the_chunks(monkeypatch, rows, label_smoothing):
    monkeypatch.setitem(module.CHUNK_CELLS, "cpu", rows * 17)
    hidden, matrix, targets = two_passes(5)
    fast = projected_loss(hidden, matrix, targets, label_smoothing, r_drop=3.0)
    logits = hidden @ matrix.T
    plain = plain_r_drop_loss(logits[0::2], logits[1::2], targets, label_smoothing, 3.0)
    assert_same_loss_and_gradients(fast, plain, [hidden, matrix], atol=1e-5)


def test_r_drop_equals_the_papers_equation_written_out():
    first, second = torch.tensor([[0.2, 0.5, 0.3]]), torch.tensor([[0.6, 0.3, 0.1]])
    kl = (first * (first / second).log()).sum() + (second * (second / first).log()).sum()
    paper = -first[0, 1].log() - second[0, 1].log() + 5.0 / 2.0 * kl
    loss = plain_r_drop_loss(first.log(), second.log() + 2.0, torch.tensor([1]), 0.0, 5.0)
    assert torch.allclose(loss.smoothed, paper / 2.0)
    assert torch.allclose(loss.negative_log_likelihood, -(0.5 * 0.3 * torch.ones(())).log() / 2)


@pytest.mark.parametrize("label_smoothing", [0.0, 0.2])
def test_r_drops_gradient_equals_finite_differences(label_smoothing):
    hidden, matrix, targets = two_passes(4)
    assert torch.autograd.gradcheck(
        lambda h, w: 2.0 * projected_loss(h, w, targets, label_smoothing, 5.0).smoothed,
        (hidden, matrix),
    )


def test_two_passes_that_agree_have_the_ordinary_loss():
    hidden, matrix, targets = case(5)
    doubled = hidden.repeat_interleave(2, dim=0)
    twice, once = (
        projected_loss(doubled, matrix, targets, 0.1, 5.0),
        projected_loss(hidden, matrix, targets, 0.1),
    )
    assert torch.allclose(twice.smoothed, once.smoothed, rtol=1e-12)
    got = torch.autograd.grad(twice.smoothed, [hidden, matrix])
    expected = torch.autograd.grad(once.smoothed, [hidden, matrix])
    for ours, theirs in zip(got, expected, strict=True):
        assert torch.allclose(ours, theirs, atol=1e-12)


def test_r_drop_under_autocast_is_near_float32():
    hidden, matrix, targets = two_passes(64, torch.float32)
    exact = torch.autograd.grad(projected_loss(hidden, matrix, targets, 0.1, 5.0).smoothed, matrix)
    with torch.autocast("cpu", torch.bfloat16):
        loss = projected_loss(hidden, matrix, targets, 0.1, 5.0).smoothed
    rounded = torch.autograd.grad(loss, matrix)[0]
    assert rounded.dtype == torch.float32
    assert 0.0 < (rounded - exact[0]).norm() / exact[0].norm() < 0.03
