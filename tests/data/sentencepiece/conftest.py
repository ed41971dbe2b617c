"""Small SentencePiece models, trained by the library itself."""

import io

import pytest
from sentencepiece import SentencePieceTrainer

SENTENCES = [
    f"{who} {verb} the {what} in {place}, and {n} others: ＡＢ é 漢字 Straße."
    for who in ("A man", "The woman", "Nobody")
    for verb in ("sees", "finds", "wanted", "buys")
    for what in ("dog", "house", "children")
    for place in ("Köln", "München", "the garden")
    for n in (1, 25, 308)
]


def trained(**settings):
    written = io.BytesIO()
    settings = {"vocab_size": 150, "hard_vocab_limit": False, "minloglevel": 2} | settings
    SentencePieceTrainer.train(
        sentence_iterator=iter(SENTENCES), model_writer=written, num_threads=1, **settings
    )
    return written.getvalue()


@pytest.fixture(scope="session")
def spms():
    """Models by name, of the settings that change how text is cut."""
    return {
        "unigram": trained(),
        "other": trained(vocab_size=130, seed_sentencepiece_size=2000),
        "bpe": trained(model_type="bpe", vocab_size=200),
        "bytes": trained(byte_fallback=True, vocab_size=400),
        "bpe in bytes": trained(model_type="bpe", byte_fallback=True, vocab_size=460),
        "symbols": trained(
            user_defined_symbols=[">>fra<<", "[X]", "[XY]"], control_symbols=["<c>"]
        ),
        "bpe with symbols": trained(
            model_type="bpe", vocab_size=200, user_defined_symbols=["[X]", "[XY]"]
        ),
        "spaces": trained(remove_extra_whitespaces=False, add_dummy_prefix=False),
        "across words": trained(split_by_whitespace=False, vocab_size=300),
        "identity": trained(normalization_rule_name="identity"),
        "lower case": trained(normalization_rule_name="nmt_nfkc_cf"),
    }
