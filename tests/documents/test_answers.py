"""Answers of models to document requests: counts, attention and links."""

import re
from types import SimpleNamespace

import numpy as np

from tests.models import LINES
from tformer_cli.documents.answers import ModelAnswers, links_of
from tformer_cli.documents.projection import Link
from tformer_cli.documents.translating import Request
from tformer_cli.kinds.opening import open_model
from tformer_cli.search.translator import TranslatedText, Translation
from tformer_cli.text.tokenizer import UNK_ID


class Side:
    """One side of a tokenizer; its tokens are the matches of a pattern."""

    def __init__(self, pattern=r"\S+", words=""):
        self.pattern = re.compile(pattern)
        self.piece_bytes = [word.encode() for word in words.split()]

    def for_parts_of(self, line):
        return self

    def encode(self, text):
        return [5 if token.isascii() else UNK_ID for token in self.pattern.findall(text)]

    def encode_with_spans(self, parts):
        by_part = [[match.span() for match in self.pattern.finditer(part)] for part in parts]
        return [([5] * len(spans), spans) for spans in by_part]


def translation(index, source, text="", ids=(), n_ids=(), through=None):
    best = TranslatedText(text or source.upper(), -1.0, -1.0, tuple(ids), True, (len(ids),))
    return Translation(index, source, (best,), tuple(n_ids), 1, False, through=through)


class Words:
    """A word translator; words in another script are unknown."""

    def __init__(self):
        self.side = Side()

    def buffers(self, lines, n_lines=9):
        yield [translation(n, line, n_ids=self.side.encode(line)) for n, line in enumerate(lines)]


def answering(counts=None):
    tokenizer = SimpleNamespace(source=Side())
    opened = SimpleNamespace(translator=Words(), directory=SimpleNamespace(tokenizer=tokenizer))
    answers = ModelAnswers(opened, counts=counts)
    answers.aligner = None
    return answers


def test_what_is_copied_counts_as_no_unknown_word():
    answers = answering()
    lines = [Request("a 😀 b", copied=((2, 3),)), Request("ж 😀", copied=((2, 3),)), Request("я")]
    answers.answers(lines, lambda n: None)
    assert (answers.counts.lines, answers.counts.unknown) == (3, 2)
    # Pieces of a line were counted with the line
    answers.answers([Request("я", is_piece=True)], lambda n: None)
    assert (answers.counts.lines, answers.counts.unknown) == (3, 2)


def test_lines_that_copy_count_the_same():
    answers = answering()
    (buffer,) = Words().buffers(["ж 😀", "я"], 2)
    for translation in answers.restore_lines(buffer):
        answers.counts.add(translation)
    assert answers.counts.unknown == 2


def test_lines_without_words_and_with_branches_stay():
    answers = answering()
    lines = ["some.key", "{n, plural, other {a}}", "a b"]
    (buffer,) = Words().buffers(lines, 3)
    texts = [translation.hypotheses[0].text for translation in answers.restore_lines(buffer)]
    assert texts == [*lines[:2], "A B"]


def test_a_search_listens_for_the_lines_that_need_it(model):
    answers = ModelAnswers(open_model(model))
    translations = answers.copying.translate([LINES[0], f"{LINES[1]} {{x}}"])
    assert [bool(translation.hypotheses[0].attention) for translation in translations] == [
        False,
        True,
    ]


def aligner(pattern, words, *weights):
    tokenizer = SimpleNamespace(source=Side(pattern), target=Side(words=words))
    rows = [np.array(row, dtype=float) for row in weights]
    return SimpleNamespace(
        tokenizer=tokenizer,
        longest=99,
        search_weights=lambda pairs, attentions: dict(enumerate(rows)),
    )


def test_links_through_two_models_are_the_product_of_their_attention():
    # One column per token, and one for the end
    first = aligner(
        r"\w+", "le chat noir",
        [[0.6, 0, 0.1, 0.3], [0, 0, 1, 0], [0, 0.2, 0.1, 0.7]],
    )  # fmt: skip
    # The second model tokenizes the text between differently: "Katze" attends most to "le", but
    # not more than to "ch" and "at" together
    second = aligner(
        r"le|ch|at|noir", "schwarz Katze die x",
        [[0, 0.2, 0, 0.7, 0.1], [0.4, 0.2, 0.3, 0.1, 0], [0.9, 0, 0, 0.1, 0], [0, 0, 0, 0, 1]],
    )  # fmt: skip
    passed = translation(0, "the black cat", "le chat noir", (0, 1, 2))
    chained = translation(0, "the black cat", "schwarz Katze die x", (0, 1, 2, 3), through=passed)
    (links,) = links_of([first, second], [chained], passes=False)
    assert links == [Link((0, 7), (4, 9)), Link((8, 13), (10, 13)), Link((14, 17), (0, 3))]
    # No links if the attention of one model is missing
    second.search_weights = lambda pairs, attentions: {}
    assert links_of([first, second], [chained], passes=False) == [None]
