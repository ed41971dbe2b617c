"""Masked texts: shares of what is chosen and hidden, and gaps in texts by every tokenizer."""

import numpy as np
import pytest

from tformer_cli.errors import DataError
from tformer_cli.text.config import TokenizerConfig
from tformer_cli.text.joint_tokenizer import ALGORITHMS
from tformer_cli.text.masking import Masking, masking_of
from tformer_cli.text.tokenizer import EOS_ID, PAD_ID, parse_tokenizer
from tformer_cli.text.train_tokenizer import train_tokenizer

MASK = 50
TEXTS = ["the old cat often meows here.", "a small bird sings, and it sings well!"] * 5


def mask_texts(n_texts, length, seed=0):
    rng = np.random.default_rng(7)
    texts = [rng.integers(4, 50, length).tolist() for _ in range(n_texts)]
    batch = Masking(mask_id=MASK, vocab_size=60).batch(texts, np.random.default_rng(seed))
    return np.array(texts), batch.source.numpy()[:, :-1], batch.target_output.numpy()[:, :-1]


def test_shares_are_those_of_bert():
    texts, source, target = mask_texts(500, 40)
    chosen = target != PAD_ID
    assert (chosen.sum(1) == 6).all()  # 15 % of 40
    assert (target[chosen] == texts[chosen]).all()
    assert (source[~chosen] == texts[~chosen]).all()
    hidden = (source[chosen] == MASK).mean()
    same = (source[chosen] == texts[chosen]).mean()
    assert hidden == pytest.approx(0.8, abs=0.02)
    assert same == pytest.approx(0.1, abs=0.02)
    drawn = source[chosen][(source[chosen] != MASK) & (source[chosen] != texts[chosen])]
    assert set(drawn) <= {*range(4, MASK), *range(MASK + 1, 60)}
    assert set(drawn) > {*range(4, 40)}


def test_draws_follow_from_the_generator():
    first, again, different = (mask_texts(20, 30, seed) for seed in (1, 1, 2))
    assert (first[1] == again[1]).all()
    assert (first[1] != different[1]).any()


def test_specials_are_not_chosen_and_texts_end():
    masking = Masking(mask_id=MASK, vocab_size=60)
    for seed in range(30):
        batch = masking.batch([[2, 1, 9], [1]], np.random.default_rng(seed))
        assert batch.target_output.tolist() == [[PAD_ID, PAD_ID, 9, PAD_ID], [1, 0, 0, 0]]
        assert batch.source[0, 3] == batch.source[1, 1] == EOS_ID
        assert batch.source_mask.tolist() == [[True] * 4, [True, True, False, False]]
        assert batch.n_target_tokens == 2


@pytest.fixture(scope="module", params=ALGORITHMS)
def tokenizer(request):
    size = {"byte": 260, "char": 100}.get(request.param, 290)
    plain = train_tokenizer(iter(TEXTS), TokenizerConfig(algorithm=request.param, vocab_size=size))
    return plain, plain.with_mask()


def test_a_mask_is_one_more_piece_that_no_text_becomes(tokenizer):
    plain, with_mask = tokenizer
    assert plain.source.mask_id is None
    assert with_mask.vocab_size == plain.vocab_size + 1
    assert with_mask.source.mask_id == plain.vocab_size
    assert with_mask.with_mask() is with_mask
    text = "the [MASK] sings [MASK]"
    assert with_mask.source.encode(text) == plain.source.encode(text)
    read = parse_tokenizer(with_mask.to_json())
    assert read.source.mask_id == plain.vocab_size
    assert masking_of(read).vocab_size == read.vocab_size
    with pytest.raises(DataError, match="has no token for gaps"):
        masking_of(plain)
    with pytest.raises(DataError, match="has no token for gaps"):
        plain.source.encode_gaps(["a ", " b"])


def test_gaps_are_cut_as_the_words_in_their_place(tokenizer):
    _, with_mask = tokenizer
    side = with_mask.source
    mask = side.mask_id
    is_by_words = with_mask.algorithm in ("bpe", "unigram", "word")
    for word, parts in (
        ("cat", ["the old ", " often"]),
        ("the", ["", " old cat"]),
        (
            "here",
            [
                "often meows ",
                ".",
            ],
        ),
        ("bird", ["a small ", " sings, and it ", "!"]),
    ):
        whole = side.encode_with_spans([word.join(parts)])[0]
        gaps = side.encode_gaps(parts)
        assert gaps.count(mask) == len(parts) - 1
        if not is_by_words:
            assert side.decode([token for token in gaps if token != mask]) == "".join(parts)
            continue
        # the pieces of the other words are those of the text with the word
        places, start = [], 0
        for part in parts[:-1]:
            start += len(part)
            places.append((start, start + len(word)))
            start += len(word)
        others = [
            number
            for number, (first, last) in zip(*whole, strict=True)
            if not any(first < end and last > begin for begin, end in places)
            # a gap has the space before it, also where that is a piece
            and not (side.piece_bytes[number] == b" " and last in {begin for begin, _ in places})
        ]
        assert [token for token in gaps if token != mask] == others


def test_gaps_beside_each_other_are_as_many(tokenizer):
    side = tokenizer[1].source
    assert side.encode_gaps(["", "", ""]).count(side.mask_id) == 2
    assert side.encode_gaps(["a", "", "\ua4d0b"]).count(side.mask_id) == 2
