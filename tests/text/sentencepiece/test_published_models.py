"""Real models: their tokenizers, and sentences of many languages."""

import gzip
import json
import os
import warnings
from pathlib import Path

import pytest

from tformer_cli.text.sentencepiece.tokenizer import SentencePieceTokenizer
from tformer_cli.text.tokenizer import SPECIAL_PIECES

TOKENIZERS = os.environ.get("TFORMER_OPUS_TOKENIZERS")
"""A folder with a folder for each model: source.spm, target.spm and vocab.json."""
SENTENCES = os.environ.get("TFORMER_FLORES")
"""A folder of FLORES sentences: a file `*.txt.gz` for each language."""
MODELS = sorted(p.name for p in Path(TOKENIZERS).iterdir() if p.is_dir()) if TOKENIZERS else []
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        not (TOKENIZERS and SENTENCES),
        reason="TFORMER_OPUS_TOKENIZERS and TFORMER_FLORES name no folders",
    ),
]


@pytest.fixture(scope="module")
def sentences():
    lines = []
    for file in sorted(Path(SENTENCES).glob("*.txt.gz")):
        lines += gzip.decompress(file.read_bytes()).decode("utf-8").splitlines()
    return lines


@pytest.mark.parametrize("name", MODELS)
def test_all_sentences_are_read_as_by_transformers(name, sentences):
    transformers = pytest.importorskip("transformers")
    folder = Path(TOKENIZERS) / name
    files = [folder / file for file in ("source.spm", "target.spm", "vocab.json")]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # recommends a package
        theirs = transformers.MarianTokenizer(*map(str, files))
    foreign = json.loads(files[2].read_text(encoding="utf-8"))
    pieces = [*SPECIAL_PIECES, *(piece for piece in foreign if piece not in SPECIAL_PIECES)]
    ours = SentencePieceTokenizer.build(files[0].read_bytes(), files[1].read_bytes(), pieces)
    numbers = [foreign.get(piece, -1) for piece in pieces]
    for side, arguments in (
        (ours.source, {"text": sentences}),
        (ours.target, {"text_target": sentences}),
    ):
        expected = [ids[:-1] for ids in theirs(**arguments).input_ids]
        assert [
            [numbers[token] for token in ids] for ids in side.encode_batch(sentences)
        ] == expected
    decoded = ours.target.decode_batch(ours.target.encode_batch(sentences))
    assert decoded == theirs.batch_decode(expected, skip_special_tokens=True)
