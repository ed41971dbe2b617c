r"""The five tokenizer pipelines: everything about them but the vocabulary.

All but "char" work on bytes, so that no text is outside their alphabet. The splitting ones put a
space before the text and take exactly one away when decoding: a word is then the same piece at the
start of a line and inside it, and every space survives. Their pre-tokenizer follows GPT-2's
(Radford et al. 2019, section 2.2) with combining marks kept with their letters and the typographic
apostrophe read as one. It separates ``<`` from letters, so text such as ``</s>`` can never become a
special token.
"""

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from tformer_cli.data.config import Algorithm

ALGORITHMS: tuple[Algorithm, ...] = ("bpe", "unigram", "word", "char", "byte")
BY_WORDS: tuple[Algorithm, ...] = ("bpe", "unigram", "word")
"""Those that split text before it becomes pieces, at every space that is followed by a word."""
SPECIAL_PIECES = ("<pad>", "<unk>", "<s>", "</s>")
UNKNOWN_PIECE = "<unk>"

WORDS = (
    r"['’](?:[sdmt]|ll|ve|re)(?![\p{L}\p{M}])"  # English clitics
    r"| ?[\p{L}\p{M}]+| ?\p{N}+| ?[^\s\p{L}\p{M}\p{N}]+"  # words, numbers, punctuation
    r"|\s+(?!\S)|\s+"  # white space, its last space left to the word that follows
)
CHARACTERS = r"[\s\S]"


def blank_tokenizer(algorithm: Algorithm) -> Tokenizer:
    """A tokenizer of the kind named, complete but for its vocabulary."""
    tokenizer = Tokenizer(_blank_model(algorithm))
    if algorithm == "char":
        tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(CHARACTERS), "isolated")
        tokenizer.decoder = decoders.Fuse()
    elif algorithm == "byte":
        tokenizer.pre_tokenizer = _bytes_of_text()
        tokenizer.decoder = decoders.ByteLevel()
    else:
        tokenizer.normalizer = normalizers.Prepend(" ")
        split = pre_tokenizers.Split(Regex(WORDS), "isolated")
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, _bytes_of_text()])
        tokenizer.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)])
    return tokenizer


def _bytes_of_text() -> pre_tokenizers.ByteLevel:
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)


def _blank_model(algorithm: Algorithm) -> models.Model:
    if algorithm in ("bpe", "byte"):
        return models.BPE()
    if algorithm == "unigram":
        return models.Unigram()
    return models.WordLevel(unk_token=UNKNOWN_PIECE)
