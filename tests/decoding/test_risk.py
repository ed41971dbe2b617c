from tformer_cli.decoding.risk import by_expected_utility


def test_the_candidate_the_others_agree_with_comes_first():
    texts = ["a red car goes home", "the dog sleeps", "the dog sleeps now", "the dog sleeps here"]
    for utility in ("chrf", "bleu"):
        order = by_expected_utility(texts, utility)
        assert order[-1] == 0
        assert sorted(order) == [0, 1, 2, 3]


def test_what_was_drawn_often_counts_as_often():
    texts = ["the cat sat", "a dog ran", "a dog ran"]
    assert by_expected_utility(texts, "chrf")[0] == 1


def test_worth_is_the_mean_over_all_others():
    from sacrebleu.metrics import CHRF

    texts = ["one two three", "one two four", "five six", "one"]
    worth = [
        sum(CHRF().sentence_score(a, [b]).score for j, b in enumerate(texts) if j != i)
        for i, a in enumerate(texts)
    ]
    expected = sorted(range(4), key=lambda i: -worth[i])
    assert by_expected_utility(texts, "chrf") == expected
