"""The page's terms of a score, of models whose scores are no scaled products alone."""

import pytest
import torch

from tests.conftest import LINES
from tformer_cli.artifacts.config_file import ModelInfo
from tformer_cli.artifacts.model_directory import save_model_directory
from tformer_cli.inspect.jobs.heads import inspect_heads
from tformer_cli.inspect.page.heads_data import render_html
from tformer_cli.model.config import ModelConfig
from tformer_cli.model.transformer import Transformer
from tformer_cli.search.config import DecodingConfig
from tformer_cli.text.config import TokenizerConfig
from tformer_cli.text.train_tokenizer import train_tokenizer

KINDS = {
    "dot": {"similarity": "dot"},
    "cosine": {"similarity": "cosine"},
    "distance": {"similarity": "distance"},
    "additive": {"similarity": "additive", "positions": "alibi"},
    "relative": {"positions": "relative"},
    "distance and relative": {"similarity": "distance", "positions": "relative"},
    "rotary": {"positions": "rotary"},
    "segments": {
        "positions": "segments", "n_encoder_layers": 0, "memory": 4, "max_positions": 6,
        "target_eos": False, "target_bos": False,
    },
}  # fmt: skip
SELFTEST = """
  const shown = document.createElement("pre");
  shown.id = "selftest";
  const found = [];
  for (let s = 0; s < data.sentences.length; s++) for (const head of data.sentences[s].heads) {
    update({ s: String(s), head: head.id });
    const vectors = vectorsOf(head), k = columnsOf(head).length;
    const own = weightsOf(head);
    let error = 0;
    for (let row = 0; row < vectors.queries.length; row++) {
      const { first, weights } = scoresOf(head, vectors, row), whole = new Float32Array(k);
      whole.set(weights, first);
      whole.forEach((one, j) => error = Math.max(error, Math.abs(one - own[row * k + j])));
    }
    const text = document.getElementById("qk-terms")?.textContent ?? "";
    found.push({ sentence: data.sentences.indexOf(sentence), id: head.id, error, text,
      title: byId("qk-title").textContent,
      bars: document.querySelectorAll("#qk-body svg").length });
  }
  shown.textContent = encodeURIComponent(JSON.stringify(found));
  document.body.append(shown);
"""


def record_of(path, changes):
    tokenizer = train_tokenizer(LINES * 3, TokenizerConfig(vocab_size=300))
    settings = {
        "d_model": 32, "n_heads": 2, "d_ff": 32, "n_encoder_layers": 2, "n_decoder_layers": 1,
        "max_positions": 40, "positions": "none",
    }  # fmt: skip
    config = ModelConfig(**{**settings, **changes})
    torch.manual_seed(7)
    weights = Transformer(config, tokenizer.vocab_size).state_dict()
    random = {name: one + 0.3 * torch.randn_like(one) for name, one in weights.items()}
    save_model_directory(
        path, random, config=config, tokenizer=tokenizer, decoding=DecodingConfig(max_length=6),
        info=ModelInfo(),
    )  # fmt: skip
    (record,) = inspect_heads(path, ["Two dogs run in the street"], for_page=True, device="cpu")
    return record


# A browser takes half a second to open a page: all models that read a source are on one
@pytest.mark.parametrize(
    "kinds",
    [[kind for kind in KINDS if kind != "segments"], ["segments"]],
    ids=["translation", "text"],
)
def test_terms_make_the_weights_that_the_map_has(tmp_path, visit, kinds):
    records = [record_of(tmp_path / kind, KINDS[kind]) for kind in kinds]
    visited = visit(render_html(records), script=SELFTEST)
    assert visited.console == []
    for number, (kind, record) in enumerate(zip(kinds, records, strict=True)):
        heads = [head for head in visited.selftest if head["sentence"] == number]
        assert [head["id"] for head in heads] == [str(head) for head in record.heads]
        check_terms(kind, heads)


def check_terms(kind, heads):
    for head in heads:
        assert head["error"] < 5e-3  # queries and keys are float16
        is_cross, has_positions = head["id"].startswith("cross"), "positions" in KINDS[kind]
        assert head["title"].endswith("The query times the key") == (kind == "rotary")
        assert head["bars"] == (kind != "additive")
        assert ("what positions add" in head["text"]) == (
            has_positions and not is_cross and kind != "rotary"
        )
        assert ("what the similarity adds" in head["text"]) == ("distance" in kind)
    if kind == "additive":
        assert "v·tanh(q + k_j)" in heads[0]["text"]
