import pytest

from tformer_cli.evaluate.comparison.compare import (
    FREQUENCIES,
    bucket_labels,
    bucket_of,
    frequencies,
    word_f1,
    words_of,
)

TRAINING = ["the cat sat on the mat .", "the dog sat .", "a cat and a dog sat on the old mat ."]
TRAINING += ["the the the the"]
REFERENCES = ["the cat sat on the mat .", "a bird sang on the mat", "dogs bark at the cat ."]
SYSTEMS = [
    ["the cat sat on mat mat .", "the bird sang on a a mat", "the the dog barks ."],
    ["a cat sits on the mat .", "a bird sang", "dogs bark at the cat ."],
]
# F1 by compare-mt 0.2.10, `FreqWordBucketer(freq_data=TRAINING).calc_statistics`
OF_COMPARE_MT = [
    {"0": 50.0, "2": 75.0, "3": 100.0, "5–9": 75.0},
    {"0": 90.9090909090909, "2": 76.92307692307692, "3": 80.0, "5–9": 66.66666666666666},
]
SIZES = {"0": 5, "2": 7, "3": 3, "5–9": 4}


def as_it_is(line):
    return line


@pytest.mark.parametrize(("system", "expected"), list(zip(SYSTEMS, OF_COMPARE_MT, strict=True)))
def test_f1_is_that_of_compare_mt(system, expected):
    ours, theirs = words_of(system, as_it_is), words_of(REFERENCES, as_it_is)
    counts = frequencies(TRAINING, [ours, theirs], as_it_is)
    f1, sizes = word_f1(ours, theirs, counts)
    found = dict(zip(bucket_labels(FREQUENCIES), zip(f1, sizes, strict=True), strict=True))
    assert {label: size for label, (_, size) in found.items() if size} == SIZES
    assert {label: f1 for label, (f1, size) in found.items() if size} == pytest.approx(expected)


def test_words_of_other_texts_are_not_kept_and_case_may_be_ignored():
    wanted = [[["the", "cat"], ["bird"]]]
    counts = frequencies(["The the THE dog", "Cat"], wanted, as_it_is, lowercase=True)
    assert counts == {"the": 3, "cat": 1, "bird": 0}
    assert words_of(["The Cat"], as_it_is, lowercase=True) == [["the", "cat"]]


def test_buckets_begin_at_their_edges():
    labels = bucket_labels(FREQUENCIES)
    assert labels == ["0", "1", "2", "3", "4", "5–9", "10–99", "100–999", "1000+"]
    placed = {n: labels[bucket_of(n, FREQUENCIES)] for n in (0, 1, 4, 5, 9, 10, 999, 1000, 5000)}
    assert placed == {
        0: "0", 1: "1", 4: "4", 5: "5–9", 9: "5–9", 10: "10–99", 999: "100–999", 1000: "1000+",
        5000: "1000+",
    }  # fmt: skip
    assert bucket_labels((10, 20)) == ["<10", "10–19", "20+"]
