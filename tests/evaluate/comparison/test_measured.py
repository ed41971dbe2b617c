import pytest
from sacrebleu.metrics.bleu import BLEU

from tests.evaluate.comparison.systems import REFERENCES, SECOND, SYSTEMS
from tformer_cli.evaluate.comparison.paired_tests import MeasuredMetric
from tformer_cli.metrics.scores import make_metric


@pytest.mark.parametrize("name", ["bleu", "chrf", "ter"])
def test_scores_of_texts_parts_and_sentences_are_sacrebleus_public_ones(name):
    measured = MeasuredMetric(make_metric(name), [REFERENCES, SECOND])
    plain = make_metric(name)
    for lines in SYSTEMS.values():
        whole = plain.corpus_score(list(lines), [list(REFERENCES), list(SECOND)])
        assert measured.score(lines) == pytest.approx(whole.score)
        part = plain.corpus_score(
            [lines[i] for i in (3, 9, 40)],
            [[stream[i] for i in (3, 9, 40)] for stream in (REFERENCES, SECOND)],
        )
        assert measured.score(lines, [3, 9, 40]) == pytest.approx(part.score)
        by_sentence = BLEU(effective_order=True) if name == "bleu" else plain
        expected = [
            by_sentence.sentence_score(line, list(references)).score
            for line, *references in zip(lines, REFERENCES, SECOND, strict=True)
        ]
        assert measured.sentence_scores(lines) == pytest.approx(expected)
    assert measured.less_is_better == (name == "ter")
    assert measured.score(SECOND, []) == 0.0


def test_a_text_is_read_once(monkeypatch):
    metric = make_metric("bleu")
    calls = []
    tokenizer = metric.tokenizer
    metric.tokenizer = lambda line: calls.append(line) or tokenizer(line)
    measured = MeasuredMetric(metric, [REFERENCES])
    measured.score(SECOND)
    n_calls = len(calls)
    assert n_calls >= len(SECOND)
    measured.sentence_scores(SECOND)
    measured.score(SECOND, [1])
    assert len(calls) == n_calls
