"""Language models with only a tokenizer.json, both ways: the library's tokens, logits, files."""

import json

import pytest
import torch
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from tests.foreign.hugging_face.test_decoders import check_import, check_weights, load
from tests.foreign.spm import MERGES, PIECES, pad_rows, spm
from tests.foreign.test_gpt2 import SAMPLES, TEXT, check_logits, import_both
from tformer_cli.errors import ArtifactError, DataError
from tformer_cli.foreign.import_model import import_model
from tformer_cli.kinds.lines.generate import generate_texts
from tformer_cli.plugins.interchange.export import export_hugging_face
from tformer_cli.text.foreign_pieces import QWEN2_WORDS, LibraryTokenizer
from tformer_cli.text.tokenizer import parse_tokenizer

transformers = pytest.importorskip("transformers")

TEXTS = [
    *SAMPLES,
    "It'S 123456 cafe\u0301\n\n  x!?\r\n",
    "a b  cd e",
    "<tool_call>x</tool_call>",
    "",
]
LLAMA3_WORDS = QWEN2_WORDS.replace(r"\p{N}|", r"\p{N}{1,3}|")
BEGIN, END, TURN = "<|begin_of_text|>", "<|endoftext|>", "<|im_end|>"
SHAPE = {"hidden_size": 16, "intermediate_size": 20, "num_hidden_layers": 2,
         "num_attention_heads": 4, "max_position_embeddings": 48}  # fmt: skip


def in_bytes(*, use_regex):
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)


def split(pattern):
    return pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(pattern), "isolated"), in_bytes(use_regex=False)]
    )


def train_tokenizer(pre_tokenizer, *, normalizer=None, begins=False, added=()):
    """Makes a tokenizer of bytes as published models have it."""
    tokenizer = Tokenizer(models.BPE(ignore_merges=begins))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator([TEXT], trainer)
    tokenizer.add_special_tokens([END, TURN, BEGIN])
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token in added])
    first = (BEGIN, tokenizer.token_to_id(BEGIN))
    around = {"single": f"{BEGIN} $A", "special_tokens": [first]} if begins else {"single": "$A"}
    template = processors.TemplateProcessing(**around)
    tokenizer.post_processor = processors.Sequence(
        [processors.ByteLevel(trim_offsets=False), template]
    )
    return tokenizer


def llama3():
    return train_tokenizer(split(LLAMA3_WORDS), begins=True)


def smol():
    digits = pre_tokenizers.Digits(individual_digits=True)
    return train_tokenizer(pre_tokenizers.Sequence([digits, in_bytes(use_regex=True)]))


def qwen25():
    return train_tokenizer(split(QWEN2_WORDS), normalizer=normalizers.NFC(), added=["<tool_call>"])


def neox():
    """Runs of spaces are tokens that were added."""
    return train_tokenizer(
        in_bytes(use_regex=True), normalizer=normalizers.NFC(), added=["  ", "   "]
    )


def write(path, kind, make, end=END, **changes):
    """Writes a directory as the library saves it; returns the model and its tokenizer."""
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=make(), bos_token=BEGIN, eos_token=END
    )
    end = tokenizer.convert_tokens_to_ids(end)
    options = {**SHAPE, "bos_token_id": None, "eos_token_id": end, **changes}
    size = options.pop("vocab_size", pad_rows(len(tokenizer)))
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=size, attn_implementation="eager", **options
    )
    model = getattr(transformers, f"{kind}ForCausalLM")(config).eval()
    torch.manual_seed(3)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    model.tie_weights()
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return model, tokenizer


def llama2():
    """Steps of texts are in the normalizer, and characters without a piece are bytes."""
    special = ["<unk>", BEGIN, END, TURN]
    pieces = [*special, *(f"<0x{byte:02X}>" for byte in range(256)), *PIECES[3:]]
    merges = [tuple(pair.split(" ")) for pair in MERGES.splitlines()]
    vocab = {piece: place for place, piece in enumerate(pieces)}
    model = models.BPE(vocab, merges, unk_token=special[0], fuse_unk=True, byte_fallback=True)
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    parts = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*parts, decoders.Strip(" ", 1, 0)])
    tokenizer.add_special_tokens(special)
    return tokenizer


NEOX = {"use_parallel_residual": False, "rotary_pct": 1.0}
CASES = {
    "llama 3": ("Llama", llama3, {"num_key_value_heads": 2}),
    "llama 2": ("Llama", llama2, {}),
    "smollm": ("Llama", smol, {"tie_word_embeddings": True}),
    "qwen2.5": ("Qwen2", qwen25, {"num_key_value_heads": 1, "end": TURN}),
    "gpt-neox": ("GPTNeoX", neox, {**NEOX, "rotary_emb_base": 500.0}),
    "tied gpt-neox": ("GPTNeoX", neox, {**NEOX, "tie_word_embeddings": True, "hidden_act": "relu",
                                        "layer_norm_eps": 1e-3}),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_tokens_logits_texts_and_files_are_theirs_both_ways(tmp_path, case):
    kind, make, changes = CASES[case]
    theirs, tokenizer = write(tmp_path / "theirs", kind, make, **changes)
    found, ours = import_both(tmp_path / "theirs", tmp_path)
    side = ours.tokenizer.target
    own = Tokenizer.from_file(str(tmp_path / "theirs/tokenizer.json"))
    start = [2] if ours.config.target_bos else []
    assert bool(start) == (case == "llama 3")
    for text in TEXTS:
        ids = [*start, *side.encode(text)]
        foreign = [found.ids[n] for n in ids]
        assert foreign == own.encode(text).ids
        assert foreign == tokenizer(text).input_ids
        assert side.decode(ids) == tokenizer.decode(foreign, skip_special_tokens=True)
        spans = side.encode_with_spans([text])[0]
        assert spans[0] == side.encode(text)
        if not ids or text in TEXTS[3:]:
            continue
        with torch.no_grad():
            prompt = torch.tensor([foreign])
            expected = theirs(prompt).logits[0]
            options = {"max_new_tokens": 8, "do_sample": False, "pad_token_id": 0}
            row = theirs.generate(prompt, attention_mask=torch.ones_like(prompt), **options)[0]
            written = row[len(foreign) :].tolist()
        check_logits(found, ours, expected, ids, len(tokenizer))
        (generation,) = generate_texts(tmp_path / "ours", [text], beam_size=1, max_length=8)
        # rows without a piece, and the start, may be written there, and never here
        banned = {tokenizer.bos_token_id} if start else set()
        if max(written) < len(tokenizer) and not banned & {*written}:
            best = generation.texts[0]
            end = [theirs.config.eos_token_id] * best.is_finished
            assert [found.ids[n] for n in best.token_ids] + end == written
    assert parse_tokenizer(ours.tokenizer.to_json()).to_json() == ours.tokenizer.to_json()
    assert export_hugging_face(tmp_path / "ours", tmp_path / "hf") == f"{kind}ForCausalLM"
    again, read = load(tmp_path / "hf")
    check_weights(again, theirs)
    for text in TEXTS:
        assert read(text).input_ids == tokenizer(text).input_ids
    check_import(tmp_path)


def test_a_sentencepiece_tokenizer_that_version_5_saves(tmp_path):
    """It writes tokenizer.json alone, with bytes for characters that have no piece."""
    path = tmp_path / "theirs"
    write(path, "Llama", llama3, vocab_size=320)
    (path / "tokenizer.json").unlink()
    pieces = [*PIECES, *(f"<0x{byte:02X}>" for byte in range(256))]
    (path / "tokenizer.model").write_bytes(
        spm(pieces, {"<unk>": 2, "<s>": 3, "</s>": 3, **dict.fromkeys(pieces[-256:], 6)}, 2)
    )
    (path / "tokenizer_config.json").unlink()
    tokenizer = transformers.LlamaTokenizer.from_pretrained(path, add_bos_token=True)
    tokenizer.save_pretrained(path)
    (path / "tokenizer.model").unlink()
    file = path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"eos_token_id": 2}))
    (path / "generation_config.json").unlink()
    found, ours = import_both(path, tmp_path)
    for text in ("a b cd e", "  a", "naïve \U0001f642", "a </s>"):
        ids = [2, *ours.tokenizer.target.encode(text)]
        if "</s>" not in text:  # special tokens in a text are text here
            assert [found.ids[n] for n in ids] == tokenizer(text).input_ids
        theirs = tokenizer.decode([found.ids[n] for n in ids], skip_special_tokens=True)
        assert ours.tokenizer.target.decode(ids) == theirs
    assert b"".join(ours.tokenizer.target.piece_bytes[n] for n in ids) == f" {text}".encode()


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("generation_config.json", {"eos_token_id": [5, 6]}, r"generation_config.*eos_token_id = "),
        ("config.json", {"rotary_pct": 0.25, "rope_parameters": None}, "rotary_pct = 0.25 turns"),
        ("config.json", {"use_parallel_residual": True}, "use_parallel_residual = true adds"),
        ("config.json", {"attention_bias": False}, "attention_bias = false is not supported"),
        ("config.json", {"made_up": 3}, "made_up = 3 is unknown"),
        ("tokenizer.json", {"pre_tokenizer": {"type": "Magic"}}, 'type = "Magic" is not supported'),
        ("tokenizer.json", {"made_up": 3}, "made_up = 3 is unknown"),
        ("tokenizer.json", {"model": {"type": "WordLevel", "vocab": {}}}, 'type = "WordLevel"'),
        ("tokenizer_config.json", {"add_bos_token": True}, "says add_bos_token = true, but"),
        ("tokenizer_config.json", {"add_eos_token": True}, "add_eos_token = true is not supp"),
        ("tokenizer_config.json", {"add_prefix_space": True}, "add_prefix_space = true, but"),
        ("tokenizer_config.json", {"additional_special_tokens": ["<x>"]}, "the added token"),
        ("tokenizer.json", None, "has no tokenizer.json"),
    ],
)  # fmt: skip
def test_what_differs_is_refused_by_name(tmp_path, name, change, message):
    write(tmp_path / "theirs", "GPTNeoX", neox, **NEOX)
    file = tmp_path / "theirs" / name
    if change is None:
        file.unlink()
    else:
        file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(ArtifactError, match=message):
        import_model(str(tmp_path / "theirs"), tmp_path / "ours")
    assert not (tmp_path / "ours").exists()


@pytest.mark.parametrize(
    ("kind", "make", "name", "is_noted"),
    [
        ("Llama", smol, "GPT2Tokenizer", True),
        ("Llama", smol, "LlamaTokenizer", False),
        ("Llama", llama2, "LlamaTokenizerFast", True),
        ("Qwen2", smol, "PreTrainedTokenizerFast", True),
        ("Qwen2", llama3, "TokenizersBackend", True),
        ("Qwen2", qwen25, "TokenizersBackend", False),
    ],
)
def test_a_class_that_cuts_otherwise_is_noted(tmp_path, kind, make, name, is_noted):
    write(tmp_path / "theirs", kind, make, num_key_value_heads=4)
    file = tmp_path / "theirs" / "tokenizer_config.json"
    settings = json.loads(file.read_text())
    file.write_text(json.dumps(settings | {"tokenizer_class": name}))
    found, ours = import_both(tmp_path / "theirs", tmp_path)
    assert any("tokenizer_class = " in note for note in found.notes) == is_noted
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "theirs")
    start = [2] * ours.config.target_bos
    rows = [[*start, *ours.tokenizer.target.encode(text)] for text in [*TEXTS, "  a"]]
    own = [[found.ids[n] for n in row] for row in rows]
    assert is_noted or own == [theirs(text).input_ids for text in [*TEXTS, "  a"]]


def test_a_pattern_that_never_ends_is_an_error(capfd):
    content = json.loads(train_tokenizer(split("(a+)+$")).to_str())
    ids = [-1, -1, -1, -1, *range(303)]
    pieces = ["<pad>", "<unk>", "<s>", "</s>", *map(str, range(303))]
    with pytest.raises(DataError, match="the model's tokenizer cannot tokenize a text"):
        LibraryTokenizer(content, ids, pieces).encode("a" * 40 + "b")
    capfd.readouterr()


def test_a_list_of_one_end_is_that_end(tmp_path):
    write(tmp_path / "theirs", "Llama", smol)
    expected = import_model(str(tmp_path / "theirs"), tmp_path / "ours")
    file = tmp_path / "theirs" / "generation_config.json"
    settings = json.loads(file.read_text())
    file.write_text(json.dumps(settings | {"eos_token_id": [settings["eos_token_id"]]}))
    other = import_model(str(tmp_path / "theirs"), tmp_path / "again")
    assert (expected.ids, expected.config, expected.notes) == (other.ids, other.config, other.notes)
