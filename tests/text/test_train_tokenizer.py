import random
import re
import signal
import subprocess
import sys

import pytest

from tformer_cli.errors import DataError
from tformer_cli.text.config import TokenizerConfig
from tformer_cli.text.joint_tokenizer import ALGORITHMS
from tformer_cli.text.train_tokenizer import sample_lines, train_tokenizer


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_same_lines_give_the_same_bytes(pairs, algorithm):
    lines = [line for pair in pairs for line in pair]
    config = TokenizerConfig(algorithm=algorithm, vocab_size=330)
    first, second = (train_tokenizer(iter(lines), config).to_json() for _ in range(2))
    assert first == second


@pytest.mark.parametrize("algorithm", ["bpe", "unigram", "word", "char"])
def test_the_vocabulary_is_at_most_as_large_as_asked_for(pairs, algorithm):
    lines = [line for pair in pairs for line in pair]
    size = 280 if algorithm in ("bpe", "unigram") else 20
    assert (
        train_tokenizer(lines, TokenizerConfig(algorithm=algorithm, vocab_size=size)).vocab_size
        == size
    )


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("n_pairs", [2, 40])
@pytest.mark.parametrize("size", [260, 261, 265, 300])
def test_a_vocabulary_has_the_size_asked_for_or_says_why_not(pairs, algorithm, n_pairs, size):
    lines = [line for pair in pairs[:n_pairs] for line in pair]
    found = train_tokenizer(lines, TokenizerConfig(algorithm=algorithm, vocab_size=size))
    made = found.vocab_size
    assert (made == size) == (found.notes == ())
    if made != size:
        assert f"the vocabulary has {made} pieces, not {size}" in found.notes[0]
        assert made == 260 if algorithm == "byte" else made < size


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_enormous_words_are_skipped_and_counted(pairs, algorithm):
    lines = [line for pair in pairs for line in pair]
    long = ["a" * 200_000, f"the {'ü' * 2097} and {'0' * 4193} and", " " * 5000 + "end", "b" * 4192]
    config = TokenizerConfig(algorithm=algorithm, vocab_size=310)
    found = train_tokenizer([*lines, *long], config)
    count = "4 words of more than 4,192 bytes skipped in the tokenizer's training"
    assert (count in found.notes) == (algorithm not in ("char", "byte"))
    if algorithm in ("bpe", "unigram"):
        whole = f"the {'ü' * 3000}"
        assert found.decode(found.encode(whole)) == whole


@pytest.mark.parametrize("algorithm", ["bpe", "unigram", "word"])
def test_a_text_of_nothing_but_a_word_too_long_is_refused(algorithm):
    config = TokenizerConfig(algorithm=algorithm, vocab_size=300)
    with pytest.raises(DataError, match="blank or a word of more than 4,192 bytes; give"):
        train_tokenizer(["a" * 5000, " "], config)


def test_bytes_need_no_text():
    assert train_tokenizer([], TokenizerConfig(algorithm="byte")).vocab_size == 260


@pytest.mark.parametrize("algorithm", ["bpe", "unigram", "word", "char"])
def test_text_without_words_is_an_error(algorithm):
    with pytest.raises(DataError, match="tokenizer: every line of the text is blank"):
        train_tokenizer(["", "  "], TokenizerConfig(algorithm=algorithm))


@pytest.mark.parametrize("algorithm", ["bpe", "unigram"])
def test_a_vocabulary_without_room_for_the_bytes_is_an_error(algorithm):
    message = f'vocab_size: must be 260 to 1000000 for "{algorithm}" (256 bytes and 4 special'
    with pytest.raises(ValueError, match=re.escape(message)):
        TokenizerConfig(algorithm=algorithm, vocab_size=259)
    config = TokenizerConfig(algorithm=algorithm, vocab_size=260)
    assert train_tokenizer(["text"] * 3, config).vocab_size == 260


def test_text_that_looks_special_teaches_no_special_piece():
    lines = ["<s> </s> <pad><unk>"] * 50
    for algorithm in ALGORITHMS:
        tokenizer = train_tokenizer(lines, TokenizerConfig(algorithm=algorithm, vocab_size=300))
        ids = tokenizer.encode(lines[0])
        assert min(ids) >= 4
        assert tokenizer.decode(ids) == lines[0]


def test_small_corpora_are_used_whole():
    lines = [str(n) for n in range(1000)]
    assert list(sample_lines(lines, 1000, 1000)) == lines
    assert list(sample_lines(lines, None, 1000)) == lines


@pytest.mark.parametrize("n_lines", [20_000, None])
def test_large_corpora_are_sampled_evenly_and_both_languages_alike(n_lines):
    kept = [int(line) for line in sample_lines(map(str, range(20_000)), n_lines, 4000)]
    assert kept == sorted(set(kept))
    least = 3800 if n_lines else 1900
    assert least < len(kept) < 4200
    assert abs(sum(n % 2 for n in kept) / len(kept) - 0.5) < 0.03
    assert abs(sum(kept) / len(kept) - 10_000) < 300


def test_a_signal_ends_the_training_at_once_where_only_the_library_works(tmp_path):
    # Distinct random words: merging their pairs takes the library many seconds after the last line
    generator = random.Random(1)
    words = ["".join(generator.choices("abcdefghijklmnopqrstuvwxyz", k=12)) for _ in range(400_000)]
    (tmp_path / "text").write_text("\n".join(" ".join(words[i::4000]) for i in range(4000)))
    program = """
from tformer_cli.__main__ import main
from tformer_cli.text import train_tokenizer as module
def told(*arguments, checked=module._check_lines):
    yield from checked(*arguments)
    print("all is read", flush=True)
module._check_lines = told
main()
"""
    command = [sys.executable, "-c", program, "tokenize", "train", "text", "-o", "t.json"]
    with subprocess.Popen(
        [*command, "--vocab-size", "30000"], cwd=tmp_path, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout.readline() == b"all is read\n"
        process.terminate()
        # By the system: Python itself would end it once the library returns, with another status
        assert process.wait() == -signal.SIGTERM
    assert not (tmp_path / "t.json").exists()
