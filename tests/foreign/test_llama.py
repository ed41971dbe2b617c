"""LLaMA models of Hugging Face and llama2.c, imported: the same tokens, logits and greedy texts.

Every parameter is random, norms too, so that nothing can be left out unnoticed.
"""

import os
import struct
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.foreign.spm import PIECES, spm
from tests.foreign.test_gpt2 import import_both, logits_of
from tformer_cli.foreign.import_model import import_model
from tformer_cli.kinds.lines.generate import generate_texts
from tformer_cli.text.tokenizer import BOS_ID

transformers = pytest.importorskip("transformers")

BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
SHAPE = {
    "hidden_size": 16,
    "intermediate_size": 20,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 48,
    "rms_norm_eps": 1e-3,
}


def random_llama(size, **changes):
    options = {**SHAPE, "num_key_value_heads": 2, "tie_word_embeddings": False, **changes}
    config = transformers.LlamaConfig(
        vocab_size=size, bos_token_id=1, eos_token_id=2, attn_implementation="eager", **options
    )
    torch.manual_seed(3)
    model = transformers.LlamaForCausalLM(config).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    model.tie_weights()
    return model


@pytest.fixture
def directory(tmp_path):
    """Writes a directory with a SentencePiece model; keyword arguments change its settings."""

    def write(**changes):
        path = tmp_path / "theirs"
        model = random_llama(len(PIECES), **changes)
        model.save_pretrained(path)
        (path / "tokenizer.model").write_bytes(spm(PIECES, algorithm=2))
        return path, model

    return write


def check_logits(actual, ours, expected, ids):
    kept = [n for n, foreign in enumerate(actual.ids) if n != BOS_ID and foreign >= 0]
    logits = logits_of(ours, ids)[:, kept]
    assert (logits - expected[:, [actual.ids[n] for n in kept]]).abs().max() <= 1e-5
    assert expected.abs().max() > 0.5


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"num_key_value_heads": 4},
        {"num_key_value_heads": 1, "tie_word_embeddings": True},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}},
    ],
    ids=str,
)
def test_logits_and_greedy_texts_are_theirs(directory, tmp_path, changes):
    path, theirs = directory(**changes)
    found, ours = import_both(path, tmp_path)
    assert found.kind == "Hugging Face LLaMA"
    ids = [BOS_ID, *ours.tokenizer.target.encode("a b cd e")]
    foreign = [found.ids[n] for n in ids]
    assert foreign[0] == 1
    assert foreign[1:] == [PIECES.index(piece) for piece in ("▁a", "▁b", "▁c", "d", "▁e")]
    with torch.no_grad():
        expected = theirs(torch.tensor([foreign])).logits[0]
    check_logits(found, ours, expected, ids)
    (text,) = generate_texts(tmp_path / "ours", ["a b cd e"], beam_size=1, max_length=1)[0].texts
    allowed = expected[-1].clone()
    allowed[:2] = -torch.inf  # unknown and start are never written
    assert [found.ids[n] for n in text.token_ids] in ([int(allowed.argmax())], [])


def write_file(path, model, *, is_tied):
    """Writes a model as llama2.c's export.py does, version 0, and its tokenizer."""
    config = model.config
    state = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    size = config.vocab_size if is_tied else -config.vocab_size
    shape = (
        *(config.hidden_size, config.intermediate_size, config.num_hidden_layers),
        *(config.num_attention_heads, config.num_key_value_heads, size),
        config.max_position_embeddings,
    )
    width = config.hidden_size // config.num_attention_heads

    def pair_rows(matrix):
        """Undoes what Hugging Face's converter does to queries and keys."""
        halves = matrix.reshape(-1, 2, width // 2, matrix.shape[1])
        return halves.transpose(0, 2, 1, 3).reshape(matrix.shape)

    def layers(name):
        for layer in range(config.num_hidden_layers):
            matrix = state[f"model.layers.{layer}.{name}.weight"]
            yield pair_rows(matrix) if name.endswith(("q_proj", "k_proj")) else matrix

    parts = [state["model.embed_tokens.weight"], *layers("input_layernorm")]
    for name in "qkvo":
        parts += layers(f"self_attn.{name}_proj")
    parts += layers("post_attention_layernorm")
    for name in ("gate", "down", "up"):
        parts += layers(f"mlp.{name}_proj")
    frequencies = np.zeros(config.max_position_embeddings * width)
    parts += [state["model.norm.weight"], frequencies]
    parts += [] if is_tied else [state["lm_head.weight"]]
    numbers = b"".join(part.astype("<f4").tobytes() for part in parts)
    path.write_bytes(struct.pack("<7i", *shape) + numbers)
    pieces = ["<unk>", "\n<s>\n", "\n</s>\n", *BYTES, " ", "a", "b", " a", "ab", " ab"]
    entries = b"".join(
        struct.pack("<fi", -float(n), len(piece.encode())) + piece.encode()
        for n, piece in enumerate(pieces)
    )
    (path.parent / f"tok{len(pieces)}.bin").write_bytes(struct.pack("<i", 7) + entries)
    return pieces


@pytest.mark.parametrize("is_tied", [True, False])
def test_files_of_llama2_c(tmp_path, is_tied):
    theirs = random_llama(265, tie_word_embeddings=is_tied, rms_norm_eps=1e-5)
    pieces = write_file(tmp_path / "model.bin", theirs, is_tied=is_tied)
    found, ours = import_both(tmp_path / "model.bin", tmp_path)
    assert found.kind == "llama2.c"
    text = "ab a\nb é"
    ids = [BOS_ID, *ours.tokenizer.target.encode(text)]
    foreign = [found.ids[n] for n in ids]
    written = [" ab", " a", "<0x0A>", "b", " ", "<0xC3>", "<0xA9>"]
    assert foreign == [1, *map(pieces.index, written)]
    assert ours.tokenizer.target.decode(ids) == text
    with torch.no_grad():
        expected = theirs(torch.tensor([foreign])).logits[0]
    check_logits(found, ours, expected, ids)


STORY = (
    "Once upon a time, there was a little girl named Lily. She loved to play outside in the park. "
    "One day, she saw a big, red ball. She wanted to play with it, but it was too high.\n"
    "Lily's mom said, \"Lily, let's go to the park.\" Lily was sad and didn't know what to do. She "
    'said, "I want to play with your ball, but I can\'t find it."\n'
    "Lily was sad and didn't know what to do. She said, \"I'm sorry, Lily. I didn't know what to "
    'do."\n'
    "Lily didn't want to help her mom, so she said, \"I'm sorry, mom. I didn't know what to do.\" "
    "Her mom said, \"Don't worry, Lily. We can help you."
)
"""The greedy text of stories260K in llama2.c's doc/stories260K.md, 257 tokens with `<s>`."""


@pytest.mark.long
@pytest.mark.skipif(
    "TFORMER_STORIES" not in os.environ, reason="TFORMER_STORIES names no stories260K.bin"
)
def test_the_published_story_is_written_again(tmp_path):
    import_model(str(Path(os.environ["TFORMER_STORIES"])), tmp_path / "ours")
    (found,) = generate_texts(tmp_path / "ours", [""], beam_size=1, max_length=256)
    assert found.texts[0].text == STORY
