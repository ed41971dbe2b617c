import math

import pytest
import torch

from tformer_cli.errors import DataError
from tformer_cli.evaluate.evaluate import (
    evaluate_model,
    read_texts,
    reference_loss,
    score_hypotheses,
)
from tformer_cli.kinds.lines.translate import translate_lines
from tformer_cli.kinds.opening import open_model

LINES = ["A man sleeps.", "Two dogs run in the snow.", "the street", "A woman and a dog."]


REFERENCES = ["Ein Mann schläft.", "", "die Straße", "Eine Frau und ein Hund."]


def test_a_model_is_scored_by_its_translations(model):
    found = evaluate_model(model, LINES, [REFERENCES])
    translations = [t.text for t in translate_lines(model, LINES)]
    assert list(found.hypotheses) == translations
    assert found.scores == score_hypotheses(translations, [REFERENCES]).scores
    assert [score.name for score in found.scores] == ["BLEU", "chrF2", "TER"]
    assert found.perplexity == pytest.approx(math.exp(found.loss))


def test_hypotheses_alone_have_no_loss():
    found = score_hypotheses(REFERENCES, [REFERENCES])
    assert found.scores[0].value == pytest.approx(100.0)
    assert found.loss is None
    assert found.perplexity is None


def test_the_loss_is_the_mean_over_all_tokens_with_each_end(model):
    opened = open_model(model)
    network, tokenizer = opened.directory.model, opened.directory.tokenizer
    total, n_tokens = 0.0, 0
    for source, reference in zip(LINES, REFERENCES, strict=True):
        source_ids = torch.tensor([[*tokenizer.encode(source), 3]])
        ids = tokenizer.encode(reference)
        logits = network(
            source_ids, torch.ones_like(source_ids, dtype=torch.bool), torch.tensor([[2, *ids]])
        )
        log_probabilities = logits.log_softmax(-1)[0]
        total -= sum(log_probabilities[i, t].item() for i, t in enumerate([*ids, 3]))
        n_tokens += len(ids) + 1
    assert reference_loss(opened, LINES, REFERENCES) == pytest.approx(total / n_tokens, rel=1e-5)


def test_longer_texts_than_the_model_takes_have_a_loss(model):
    loss = reference_loss(open_model(model), ["dog " * 200], ["Hund " * 200])
    assert math.isfinite(loss)


def test_different_numbers_of_lines_name_the_files(model, tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text("a\nb\n")
    two.write_text("a\n")
    with pytest.raises(DataError, match=r"one, .*two: different numbers of lines \(2 and 1\)"):
        read_texts([one, two])
    with pytest.raises(
        DataError, match=r"the source, reference 1: different numbers of lines \(3 and 4\)"
    ):
        evaluate_model(model, LINES[:3], [REFERENCES])
