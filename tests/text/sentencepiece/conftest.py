"""Small SentencePiece models, trained by the library itself."""

import io

import pytest
import torch
from sentencepiece import SentencePieceTrainer

from tformer_cli.artifacts.config_file import ModelInfo
from tformer_cli.artifacts.model_directory import save_model_directory
from tformer_cli.model.config import ModelConfig
from tformer_cli.model.transformer import Transformer
from tformer_cli.search.config import DecodingConfig
from tformer_cli.text.sentencepiece.spm_file import read_spm
from tformer_cli.text.sentencepiece.tokenizer import Languages, SentencePieceTokenizer

SPECIAL = ["<pad>", "<unk>", "<s>", "</s>"]
LANGUAGES = Languages(
    tokens={"eng": "eng_Latn", "fra": "fra_Latn"}, before_source="source", before_target=True
)

SENTENCES = [
    f"{who} {verb} the {what} in {place}, and {n} others: ＡＢ é 漢字 Straße."
    for who in ("A man", "The woman", "Nobody")
    for verb in ("sees", "finds", "wanted", "buys")
    for what in ("dog", "house", "children")
    for place in ("Köln", "München", "the garden")
    for n in (1, 25, 308)
]


def train_spm(**settings):
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
        "unigram": train_spm(),
        "other": train_spm(vocab_size=130, seed_sentencepiece_size=2000),
        "bpe": train_spm(model_type="bpe", vocab_size=200),
        "bytes": train_spm(byte_fallback=True, vocab_size=400),
        "bpe in bytes": train_spm(model_type="bpe", byte_fallback=True, vocab_size=460),
        "symbols": train_spm(
            user_defined_symbols=[">>fra<<", "[X]", "[XY]"], control_symbols=["<c>"]
        ),
        "bpe with symbols": train_spm(
            model_type="bpe", vocab_size=200, user_defined_symbols=["[X]", "[XY]"]
        ),
        "spaces": train_spm(remove_extra_whitespaces=False, add_dummy_prefix=False),
        "across words": train_spm(split_by_whitespace=False, vocab_size=300),
        "identity": train_spm(normalization_rule_name="identity"),
        "lower case": train_spm(normalization_rule_name="nmt_nfkc_cf"),
    }


def write_foreign_model(path):
    """Writes a model with random weights, two vocabularies and languages on both sides."""
    spms = train_spm(), train_spm(model_type="bpe", vocab_size=140)
    own = [sorted({*read_spm(spm, "x.spm").pieces} - {*SPECIAL}) for spm in spms]
    pieces = [[*SPECIAL, *some, *LANGUAGES.tokens.values()] for some in own]
    tokenizer = SentencePieceTokenizer.build(*spms, *pieces, languages=LANGUAGES)
    config = ModelConfig(
        d_model=32, n_heads=2, d_ff=32, n_encoder_layers=1, n_decoder_layers=1, max_positions=40,
        tied_embeddings="decoder", source_vocab_size=tokenizer.source.vocab_size,
    )  # fmt: skip
    torch.manual_seed(1)
    save_model_directory(
        path,
        Transformer(config, tokenizer.vocab_size).state_dict(),
        config=config,
        tokenizer=tokenizer,
        decoding=DecodingConfig(beam_size=2, max_length=6),
        info=ModelInfo(),
    )
