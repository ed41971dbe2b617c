"""Checkpoints of minGPT, imported: logits of the same model, and gpt-nano that sorts.

minGPT's layout is GPT-2's with matrices of `nn.Linear`, so transformers' model is the oracle.
"""

import json

import pytest
import torch

from tests.foreign.test_gpt2 import check_logits, import_both, random_gpt2
from tformer_cli.errors import ArtifactError
from tformer_cli.foreign.import_model import import_model
from tformer_cli.kinds.lines.generate import generate_texts

N_TOKENS = 12
SETTINGS = {"n_layer": 2, "n_head": 4, "n_embd": 16, "model_type": None, "vocab_size": None}


def write_run(path, settings=None, **changes):
    """Writes model.pt and config.json as chargpt does; returns the same model."""
    theirs = random_gpt2(
        N_TOKENS, activation_function="gelu_new", tie_word_embeddings=False, **changes
    )
    state = {}
    for name, tensor in theirs.state_dict().items():
        is_transposed = any(part in name for part in ("c_attn.w", "c_proj.w", "c_fc.w"))
        state[name] = (tensor.T if is_transposed else tensor).contiguous()
    n_positions = theirs.config.n_positions
    mask = torch.tril(torch.ones(n_positions, n_positions)).view(1, 1, n_positions, n_positions)
    for layer in range(theirs.config.n_layer):
        state[f"transformer.h.{layer}.attn.bias"] = mask.clone()
    path.mkdir(exist_ok=True)
    torch.save(state, path / "model.pt")
    values = SETTINGS if settings is None else settings
    (path / "config.json").write_text(json.dumps({"system": {"seed": 1}, "model": values}))
    return theirs


@pytest.mark.parametrize(
    ("settings", "changes"),
    [
        (SETTINGS, {}),
        ({"model_type": "gpt-nano", "n_head": None, "n_embd": None}, {"n_embd": 48, "n_head": 3}),
    ],
)
def test_logits_are_theirs_and_texts_are_numbers(tmp_path, settings, changes):
    theirs = write_run(tmp_path / "run", settings, **changes)
    found, ours = import_both(tmp_path / "run", tmp_path)
    assert found.kind == "minGPT"
    assert any("numbers of its tokens, 0 to 11" in note for note in found.notes)
    text = "0 11 2  1 10"
    ids = ours.tokenizer.target.encode(text.replace("  ", " "))
    foreign = [found.ids[n] for n in ids]
    assert foreign == [0, 11, 2, 1, 10]
    assert ours.tokenizer.target.decode(ids) == "0 11 2 1 10"
    with torch.no_grad():
        expected = theirs(torch.tensor([foreign])).logits[0]
        written = theirs.generate(
            torch.tensor([foreign]), max_new_tokens=6, do_sample=False, eos_token_id=N_TOKENS
        )[0, 5:]
    check_logits(found, ours, expected, ids, N_TOKENS)
    (generation,) = generate_texts(tmp_path / "ours", ["0 11 2 1 10"], beam_size=1, max_length=6)
    assert generation.texts[0].text == "".join(f" {n}" for n in written.tolist())


def test_the_text_beside_it_is_its_alphabet(tmp_path):
    write_run(tmp_path / "run")
    (tmp_path / "run" / "input.txt").write_bytes("hé cab\r\nfed gi\rha".encode())
    found, ours = import_both(tmp_path / "run" / "model.pt", tmp_path)
    ids = ours.tokenizer.target.encode("\n abé")
    assert [found.ids[n] for n in ids] == [0, 1, 2, 3, 11]
    assert ours.tokenizer.target.decode(ids) == "\n abé"


def test_matrices_of_hugging_face_are_refused(tmp_path):
    theirs = write_run(tmp_path / "run")
    mask = {"transformer.h.0.attn.bias": torch.ones(1)}
    torch.save({**theirs.state_dict(), **mask}, tmp_path / "run" / "model.pt")
    with pytest.raises(ArtifactError, match="shape"):
        import_model(str(tmp_path / "run"), tmp_path / "ours")
