"""GPT-2 models of Hugging Face and nanoGPT, imported: the same tokens, logits and greedy texts.

Every parameter is random, biases and norms too, so that nothing can be left out unnoticed.
"""

import pickle

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from tests.foreign.spm import pad_rows
from tformer_cli.artifacts.model_directory import load_model_directory
from tformer_cli.errors import ArtifactError, DataError, UsageError
from tformer_cli.foreign.hugging_face import byte_pieces
from tformer_cli.foreign.import_model import import_model
from tformer_cli.kinds.lines.generate import generate_texts
from tformer_cli.text.tokenizer import parse_tokenizer

transformers = pytest.importorskip("transformers")

TEXT = "First Citizen: before we proceed any further, hear me speak. It's 12 o'clock.\n" * 3
SAMPLES = ["First citizen", " speak", "it's  é🙂\n\n12", "</s> <pad>"]
SHAPE = {"n_positions": 48, "n_embd": 16, "n_layer": 2, "n_head": 4}


def write_tokenizer(path):
    """Writes vocab.json and merges.txt as GPT-2 has them; returns the tokenizer."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=[byte_pieces.END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([TEXT], trainer)
    tokenizer.model.save(str(path))
    return tokenizer


def random_gpt2(size, **changes):
    options = {**SHAPE, "activation_function": "gelu_new", **changes}
    config = transformers.GPT2Config(
        vocab_size=size, bos_token_id=0, eos_token_id=0, attn_implementation="eager", **options
    )
    torch.manual_seed(3)
    model = transformers.GPT2LMHeadModel(config).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model


@pytest.fixture
def directory(tmp_path):
    """Writes a directory; keyword arguments change its settings."""

    def write(**changes):
        path = tmp_path / "theirs"
        path.mkdir()
        tokenizer = write_tokenizer(path)
        model = random_gpt2(pad_rows(tokenizer.get_vocab_size()), **changes)
        model.save_pretrained(path)
        return path, model, tokenizer

    return write


def logits_of(ours, ids):
    nothing = torch.tensor([[3]])
    with torch.inference_mode():
        return ours.model(nothing, nothing == 3, torch.tensor([ids]))[0]


def import_both(path, tmp_path):
    foreign = import_model(str(path), tmp_path / "ours")
    return foreign, load_model_directory(tmp_path / "ours", tasks=("language-model",))


def check_logits(imported, ours, their_logits, ids, n_tokens):
    """Compares logits of all tokens that the foreign vocabulary has."""
    kept = [n for n, foreign in enumerate(imported.ids) if n > 2 and 0 <= foreign < n_tokens]
    logits = logits_of(ours, ids)[:, kept]
    expected = their_logits[:, [imported.ids[n] for n in kept]]
    assert (logits - expected).abs().max() <= 1e-5
    assert expected.abs().max() > 0.5


@pytest.mark.parametrize(
    "changes",
    [{}, {"activation_function": "relu", "n_inner": 20}, {"tie_word_embeddings": False}],
    ids=str,
)
def test_logits_tokens_and_greedy_texts_are_theirs(directory, tmp_path, changes):
    path, theirs, tokenizer = directory(**changes)
    found, ours = import_both(path, tmp_path)
    assert found.kind == "Hugging Face GPT-2"
    for text in SAMPLES:
        ids = ours.tokenizer.target.encode(text)
        foreign = [found.ids[n] for n in ids]
        assert foreign == tokenizer.encode(text).ids
        assert ours.tokenizer.target.decode(ids) == text
        with torch.no_grad():
            expected = theirs(torch.tensor([foreign])).logits[0]
            written = theirs.generate(
                torch.tensor([foreign]), max_new_tokens=12, do_sample=False, pad_token_id=0
            )[0, len(foreign) :]
        check_logits(found, ours, expected, ids, tokenizer.get_vocab_size())
        (generation,) = generate_texts(tmp_path / "ours", [text], beam_size=1, max_length=12)
        # rows without a piece may be written there, and never here
        if max(written.tolist()) < tokenizer.get_vocab_size():
            texts = generation.texts[0]
            ended = [found.ids[n] for n in texts.token_ids] + [0] * texts.is_finished
            assert ended == written.tolist()[: len(ended)]


def test_from_nothing_is_behind_the_end_of_a_text(directory, tmp_path):
    path, theirs, _ = directory()
    found, ours = import_both(path, tmp_path)
    with torch.no_grad():
        expected = theirs(torch.tensor([[0]])).logits[0]
    check_logits(found, ours, expected, [2], 300)
    assert generate_texts(tmp_path / "ours", [""])[0].texts[0].token_ids


def test_a_tokenizer_json_alone_will_do(directory, tmp_path):
    path, _, tokenizer = directory()
    tokenizer.save(str(path / "tokenizer.json"))
    (path / "vocab.json").unlink()
    found, ours = import_both(path, tmp_path)
    ids = ours.tokenizer.target.encode(SAMPLES[2])
    assert [found.ids[n] for n in ids] == tokenizer.encode(SAMPLES[2]).ids


def nano_gpt(path, *, bias=True, compiled=False, characters="\n abcd"):
    """Writes a checkpoint and its meta.pkl as nanoGPT does; returns the same model."""
    theirs = random_gpt2(len(characters), activation_function="gelu")
    state = {}
    for name, tensor in theirs.state_dict().items():
        is_bias = name.endswith(".bias")
        if is_bias and not bias:
            tensor.zero_()
            continue
        transposed = any(part in name for part in ("c_attn.w", "c_proj.w", "c_fc.w"))
        ours = f"_orig_mod.{name}" if compiled else name
        state[ours] = (tensor.T if transposed else tensor).contiguous().clone()
    settings = {"block_size": 48, "n_embd": 16, "n_layer": 2, "n_head": 4, "bias": bias}
    torch.save({"model": state, "model_args": settings, "config": {"dataset": "x"}}, path)
    stoi = {character: place for place, character in enumerate(characters)}
    meta = {"vocab_size": len(stoi), "stoi": stoi, "itos": {v: k for k, v in stoi.items()}}
    (path.parent / "meta.pkl").write_bytes(pickle.dumps(meta))
    return theirs


@pytest.mark.parametrize("options", [{}, {"bias": False}, {"compiled": True}], ids=str)
def test_checkpoints_of_nano_gpt(tmp_path, options):
    theirs = nano_gpt(tmp_path / "ckpt.pt", **options)
    found, ours = import_both(tmp_path / "ckpt.pt", tmp_path)
    assert found.kind == "nanoGPT"
    text = "ab\ncd a"
    ids = ours.tokenizer.target.encode(text)
    assert ours.tokenizer.target.decode(ids) == text
    foreign = [found.ids[n] for n in ids]
    assert foreign == ["\n abcd".index(character) for character in text]
    with torch.no_grad():
        expected = theirs(torch.tensor([foreign])).logits[0]
    check_logits(found, ours, expected, ids, 6)
    (text,) = generate_texts(tmp_path / "ours", ["ab"], max_length=20)[0].texts
    assert len(text.text) == 20
    with pytest.raises(UsageError, match="PROMPT: is empty, but this model has no token to begin"):
        generate_texts(tmp_path / "ours", [""])


def test_another_programs_checkpoint_is_said_to_be_that(tmp_path):
    nano_gpt(tmp_path / "ckpt.pt")
    checkpoint = torch.load(tmp_path / "ckpt.pt", weights_only=True)
    torch.save({**checkpoint, "model_args": {"num_heads": 3, "dim": 4}}, tmp_path / "ckpt.pt")
    with pytest.raises(ArtifactError) as refused:
        import_model(str(tmp_path / "ckpt.pt"), tmp_path / "ours")
    assert str(refused.value) == (
        f"{tmp_path / 'ckpt.pt'}: its model_args are dim, num_heads, not block_size, n_embd, "
        "n_head, n_layer, so another program wrote it; tformer reads nanoGPT and minGPT, and "
        "Hugging Face directories"
    )


def test_a_file_of_a_directory_names_the_model(directory, tmp_path):
    path, *_ = directory()
    named = import_model(str(path / "model.safetensors"), None)
    assert named.kind == import_model(str(path), None).kind


@pytest.mark.parametrize("text", ["", '{"pieces": [], "merges": 3}', '{"pieces": ["a"]}'])
def test_a_damaged_tokenizer_is_one_line(text):
    data = '{"tformer_tokenizer": 1, "kind": "bytes"' + (f", {text[1:]}" if text else "")
    with pytest.raises(DataError, match="damaged"):
        parse_tokenizer(data, "here")
