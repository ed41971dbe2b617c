import itertools

import pytest
import torch

from tformer_cli.model.config import ModelConfig
from tformer_cli.model.transformer import Transformer
from tformer_cli.search.beam_search import beam_search
from tformer_cli.search.config import DecodingConfig
from tformer_cli.search.engine import DecodingModel
from tformer_cli.search.models import Ensemble
from tformer_cli.text.tokenizer import BOS_ID, EOS_ID


def small(seed, d_model):
    torch.manual_seed(seed)
    config = ModelConfig(
        d_model=d_model, n_heads=2, d_ff=32, n_encoder_layers=1, n_decoder_layers=1, max_positions=9
    )
    model = Transformer(config, EOS_ID + 3).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2.0)
    return model


@pytest.mark.parametrize("space", ["probability", "log"])
def test_an_ensemble_searches_its_joint_distribution_exhaustively(batch, space):
    models, weights = [small(1, 16), small(2, 32)], [3.0, 1.0]
    config = DecodingConfig(beam_size=15, n_best=15, max_length=3)
    sources = batch([4, 5, 5], [5])
    found = beam_search(Ensemble(models, weights, space), *sources, config)
    for row, hypotheses in enumerate(found):
        expected = []
        for target in (s for n in range(4) for s in itertools.product((4, 5), repeat=n)):
            with torch.inference_mode():
                own = [
                    model(
                        sources[0][row : row + 1],
                        sources[1][row : row + 1],
                        torch.tensor([[BOS_ID, *target]]),
                    )[0].log_softmax(-1)
                    for model in models
                ]
            if space == "probability":
                joint = (0.75 * own[0].exp() + 0.25 * own[1].exp()).log()
            else:
                joint = (0.75 * own[0] + 0.25 * own[1]).log_softmax(-1)
            total = joint.gather(1, torch.tensor([[*target, EOS_ID]]).T).sum().item()
            expected.append((total / ((6 + len(target)) / 6) ** 0.6, target))
        expected.sort(reverse=True)
        assert [h.score for h in hypotheses] == pytest.approx(
            [score for score, _ in expected], abs=1e-4
        )


def test_a_model_with_itself_is_the_model(random_model, batch):
    config = DecodingConfig(beam_size=3, n_best=3, max_length=9)
    sources = batch([7, 8, 9], [11] * 5)
    alone = beam_search(random_model, *sources, config)
    for space in ("probability", "log"):
        together = beam_search(Ensemble([random_model] * 2, None, space), *sources, config)
        for one, other in zip(alone, together, strict=True):
            assert [h.token_ids for h in one] == [h.token_ids for h in other]
            assert [h.score for h in one] == pytest.approx([h.score for h in other], abs=1e-4)


@pytest.mark.parametrize(
    ("weights", "message"),
    [([1.0], "must be 2"), ([1.0, 0.0], "above 0"), ([1.0, -2.0], "above 0")],
)
def test_weights_that_make_no_sense_are_refused(weights, message):
    with pytest.raises(ValueError, match=message):
        Ensemble([small(1, 16)] * 2, weights)


def test_whatever_decodes_step_by_step_is_a_decoding_model(tabulated, random_model):
    models = (random_model, Ensemble([random_model]), tabulated(vocab_size=9))
    assert all(isinstance(model, DecodingModel) for model in models)
    assert not isinstance(torch.nn.Linear(2, 2), DecodingModel)
