"""T5 models of Hugging Face, imported: the same logits, gradients, tokens and translations.

Every parameter is random, norms and biases of distances too, so that nothing can be left out
unnoticed. Files are written as the published ones are, some as version 5 of the library writes.
"""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from tests.foreign.spm import PIECES, pad_rows, spm
from tformer_cli.artifacts.model_directory import load_model_directory
from tformer_cli.errors import UsageError
from tformer_cli.foreign.hugging_face import families
from tformer_cli.foreign.import_model import import_model
from tformer_cli.inspect.jobs.heads import inspect_heads
from tformer_cli.inspect.pages import render_html
from tformer_cli.kinds.lines.translate import translate_lines

transformers = pytest.importorskip("transformers")

T5_PIECES = ["<pad>", "</s>", "<unk>", *PIECES[3:], "▁de", "▁to:"]
N_SENTINELS = 5
SIZE = pad_rows(len(T5_PIECES) + N_SENTINELS)
"""Rows of the models: some are without a piece."""
SHAPE = {
    "vocab_size": SIZE,
    "d_model": 16,
    "d_kv": 8,
    "d_ff": 24,
    "num_layers": 2,
    "num_decoder_layers": 3,
    "num_heads": 2,
    "layer_norm_epsilon": 1e-3,
    "decoder_start_token_id": 0,
}
VARIANTS = {
    "t5": {},
    "1.1": {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False, "d_kv": 6},
    "mt5": {"model_type": "mt5", "tie_word_embeddings": False, "d_kv": 10, "num_heads": 3},
    "gated, tied": {"feed_forward_proj": "gated-silu", "relative_attention_num_buckets": 12},
}
TASKS = {
    "translation_en_to_de": {"prefix": "a to: ", "num_beams": 3, "max_length": 40},
    "summarization": {"prefix": "b: "},
}


def randomize_weights(model, scale=0.2):
    torch.manual_seed(7)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(torch.randn(parameter.shape) * scale)
            if "norm" in name:
                parameter.uniform_(0.5, 1.5)
    return model.eval()


def random_t5(**changes):
    """A model, its raw config.json, and its tensors as the published files have them."""
    raw = {"model_type": "t5", **SHAPE, **changes}
    kinds = {
        "t5": (transformers.T5Config, transformers.T5ForConditionalGeneration),
        "mt5": (transformers.MT5Config, transformers.MT5ForConditionalGeneration),
    }
    config_kind, kind = kinds[raw["model_type"]]
    options = {name: value for name, value in raw.items() if name != "model_type"}
    model = kind(config_kind(dropout_rate=0.0, attn_implementation="eager", **options))
    if raw.get("tie_word_embeddings") is False:
        model.lm_head.weight = torch.nn.Parameter(torch.empty(model.shared.weight.shape))
    randomize_weights(model)
    tensors = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    return model, raw, tensors


def write(path, raw, tensors, *, legacy=False):
    """Writes a directory as the published ones are: old ones with all copies of the embedding."""
    path.mkdir()
    (path / "config.json").write_text(json.dumps(raw))
    (path / "spiece.model").write_bytes(spm(T5_PIECES, {"<unk>": 2, "<pad>": 3, "</s>": 3}))
    (path / "tokenizer_config.json").write_text(json.dumps({"extra_ids": N_SENTINELS}))
    if legacy:
        unread = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
        torch.save({**tensors, unread: torch.zeros(32, 2)}, path / "pytorch_model.bin")
        return
    shared = tensors["shared.weight"]
    kept = {
        name: tensor
        for name, tensor in tensors.items()
        if name == "shared.weight" or tensor.shape != shared.shape or not tensor.equal(shared)
    }
    save_file(kept, path / "model.safetensors", {"format": "pt"})


def both(path, variant="t5", *, legacy=False, **changes):
    """The library's model, what was imported, and the model directory."""
    model, raw, tensors = random_t5(**VARIANTS.get(variant, {}), **changes)
    write(path / "theirs", raw, tensors, legacy=legacy)
    foreign = import_model(str(path / "theirs"), path / "ours")
    return model, foreign, load_model_directory(path / "ours")


def batch(n_tokens=(150, 7, 1, 20), n_written=140):
    """Sources of ordinary tokens, so long that the last buckets count, and targets."""
    torch.manual_seed(3)
    source = torch.randint(4, len(T5_PIECES), (len(n_tokens), max(n_tokens)))
    mask = torch.arange(max(n_tokens)) < torch.tensor(n_tokens)[:, None]
    return source, mask, torch.randint(4, len(T5_PIECES), (len(n_tokens), n_written))


def logits_of_both(model, imported, ours):
    source, mask, target = batch()
    ids = torch.tensor(imported.ids)
    start = torch.full((len(target), 1), model.config.decoder_start_token_id)
    theirs = model(
        input_ids=torch.where(mask, ids[source], model.config.pad_token_id),
        attention_mask=mask.long(),
        decoder_input_ids=torch.cat([start, ids[target]], dim=1),
    ).logits
    first = torch.full((len(target), 1), 2)
    logits = ours.model(source, mask, torch.cat([first, target], dim=1))
    columns = [n for n in range(len(ids)) if logits[0, 0, n] > -1e8]
    assert len(columns) == len(T5_PIECES) + N_SENTINELS - 1  # padding is never written
    return theirs[..., ids[columns]], logits[..., columns]


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("variant", VARIANTS)
def test_logits_are_theirs(tmp_path, variant, legacy):
    model, found, ours = both(tmp_path, variant, legacy=legacy)
    with torch.inference_mode():
        theirs, logits = logits_of_both(model, found, ours)
    assert theirs.abs().max() > 0.5
    assert (theirs - logits).abs().max() <= 1e-5


def gradients_of_both(model, imported, ours):
    ours.model.requires_grad_(True)
    theirs, logits = logits_of_both(model, imported, ours)
    weights = torch.randn(theirs.shape, generator=torch.Generator().manual_seed(1))
    for values in (theirs, logits):
        (values * weights).sum().backward()
    return dict(model.named_parameters()), dict(ours.model.named_parameters())


def rows_of(imported, gradient):
    """A gradient of an embedding of ours in the order of theirs; some rows stand twice."""
    summed = torch.zeros(SIZE, gradient.shape[1])
    return summed.index_add(0, torch.tensor(imported.ids), gradient)


@pytest.mark.parametrize("variant", ["t5", "1.1"])
def test_gradients_are_theirs(tmp_path, variant):
    theirs, ours = gradients_of_both(*(parts := both(tmp_path, variant)))
    model, found, _ = parts
    layer = "decoder.block.2.layer"
    attention = [theirs[f"{layer}.1.EncDecAttention.{n}.weight"].grad for n in "qkv"]
    side = "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
    pairs = {
        "encoder_input.positions.table": theirs[side].grad,
        "decoder.layers.2.cross_attention.in_projection.weight": torch.cat(attention),
        "decoder.layers.2.feed_forward.outer.weight": theirs[
            f"{layer}.2.DenseReluDense.wo.weight"
        ].grad,
        "encoder.final_norm.weight": theirs["encoder.final_layer_norm.weight"].grad,
    }
    for name, expected in pairs.items():
        assert (ours[name].grad - expected).abs().max() <= 1e-4 * expected.abs().max(), name
    factor = model.config.d_model**-0.5 if variant == "t5" else 1.0
    expected = theirs["decoder.final_layer_norm.weight"].grad
    norm = ours["decoder.final_norm.weight"].grad * factor
    assert (norm - expected).abs().max() <= 1e-4 * expected.abs().max()
    embedding = rows_of(found, ours["source_embedding.weight"].grad)
    # padding has a gradient of the start of targets, which here is a row of its own
    expected = theirs["shared.weight"].grad
    written = [n for n in range(len(T5_PIECES) + N_SENTINELS) if n]
    assert (embedding - expected)[written].abs().max() <= 1e-4 * expected.abs().max()


MUTATIONS = {
    "epsilon": ({"layer_norm_epsilon": 1e-6}, {}),
    "far distance": ({"relative_attention_max_distance": 64}, {}),
    "factor": ({"tie_word_embeddings": True, "scale_decoder_outputs": False}, {}),
    "activation": ({"feed_forward_proj": "gelu"}, {}),
    "exact gelu": ({"feed_forward_proj": "gated-gelu"}, {"feed_forward_proj": "gated-gelu"}),
}


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_what_is_read_otherwise_shows(tmp_path, monkeypatch, mutation):
    changed, made = MUTATIONS[mutation]
    model, raw, tensors = random_t5(**made)
    write(tmp_path / "theirs", {**raw, **changed}, tensors)
    if mutation == "exact gelu":
        monkeypatch.setattr(families, "PROJECTIONS", {"gated-gelu": ("gelu", True)})
    foreign = import_model(str(tmp_path / "theirs"), tmp_path / "ours")
    with torch.inference_mode():
        theirs, logits = logits_of_both(model, foreign, load_model_directory(tmp_path / "ours"))
    assert (theirs - logits).abs().max() > 1e-4


def test_buckets_of_the_encoder_are_of_both_sides(tmp_path):
    model, found, ours = both(tmp_path)
    ours.model.encoder_input.positions._is_causal = True
    with torch.inference_mode():
        theirs, logits = logits_of_both(model, found, ours)
    assert (theirs - logits).abs().max() > 1e-3


TEXTS = [
    "a cat",
    "the old house is green",
    "no",
    "z z z z q <extra_id_0> w",
    "b \u00e9 c",
    " x  y ",
]


def theirs_ids(path, text):
    sentencepiece = pytest.importorskip("sentencepiece")
    processor = sentencepiece.SentencePieceProcessor(model_file=str(path / "theirs/spiece.model"))
    return processor.encode(text)


def test_tokens_are_those_of_sentencepiece(tmp_path):
    _, found, ours = both(tmp_path)
    for text in TEXTS:
        ids = [found.ids[n] for n in ours.tokenizer.source.encode(text)]
        if "<extra" not in text:
            assert ids == theirs_ids(tmp_path, text)
    # the sentinels count down from the end, as words of their own
    texts = ["<extra_id_0>", "a <extra_id_4> b", "a<extra_id_0> <pad> </s>"]
    first, second, third = ([found.ids[n] for n in ours.tokenizer.source.encode(t)] for t in texts)
    last = len(T5_PIECES) + N_SENTINELS - 1
    assert first == [last]
    assert second == [T5_PIECES.index("\u2581a"), last - 4, T5_PIECES.index("\u2581b")]
    assert not {0, 1, last} & set(third)  # nothing else in a text is a special token
    ids = [found.ids.index(n) for n in second]
    assert ours.tokenizer.target.decode(ids) == "a <extra_id_4> b"


def test_sentences_are_translated_alike_by_directories_of_version_5(tmp_path):
    """The library's own directories: a tokenizer.json, and settings that say all is tied."""
    model, raw, tensors = random_t5(**VARIANTS["1.1"])
    write(tmp_path / "theirs", raw, tensors)
    theirs = transformers.T5Tokenizer.from_pretrained(tmp_path / "theirs", extra_ids=N_SENTINELS)
    theirs.save_pretrained(tmp_path / "saved")
    model.save_pretrained(tmp_path / "saved")
    assert not (tmp_path / "saved/spiece.model").exists()
    assert json.loads((tmp_path / "saved/config.json").read_text())["tie_word_embeddings"]
    first = import_model(str(tmp_path / "theirs"), tmp_path / "first")
    second = import_model(str(tmp_path / "saved"), tmp_path / "second")
    assert first.config == second.config
    assert first.ids == second.ids
    own, other = (load_model_directory(tmp_path / n) for n in ("first", "second"))
    for name, weight in own.model.state_dict().items():
        assert torch.equal(weight, other.model.state_dict()[name])
    for text in TEXTS:
        ids = other.tokenizer.source.encode(text)
        assert own.tokenizer.source.encode(text) == ids
        assert [second.ids[n] for n in ids] == theirs(text).input_ids[:-1]


def test_bytes_are_byt5s(tmp_path):
    model, raw, tensors = random_t5(**VARIANTS["1.1"], vocab_size=384)
    write(tmp_path / "theirs", raw, tensors)
    (tmp_path / "theirs/spiece.model").unlink()
    settings = json.dumps({"tokenizer_class": "ByT5Tokenizer"})
    (tmp_path / "theirs/tokenizer_config.json").write_text(settings)
    imported = import_model(str(tmp_path / "theirs"), tmp_path / "ours")
    ours = load_model_directory(tmp_path / "ours")
    theirs = transformers.ByT5Tokenizer()
    for text in (*TEXTS, "漢字 \U0001f600 \t"):
        ids = ours.tokenizer.source.encode(text)
        if "<extra" not in text:
            assert [imported.ids[n] for n in ids] == theirs(text).input_ids[:-1]
        assert ours.tokenizer.target.decode(ids) == text
    source = torch.tensor([[*ours.tokenizer.source.encode("a cat"), 3]])
    with torch.inference_mode():
        logits = ours.model(source, source > 0, torch.tensor([[2, 70, 71]]))
        foreign = torch.tensor(imported.ids)
        expected = model(
            input_ids=foreign[source], decoder_input_ids=torch.tensor([[0, 69, 70]])
        ).logits
    assert [imported.ids[n] for n in (70, 71)] == [69, 70]
    assert (logits[..., 3:260] - expected[..., foreign[3:260]]).abs().max() <= 1e-5
    assert logits[..., 260:].max() < -1e8  # no row without a byte is written


def test_prompts_of_t5_are_languages(tmp_path):
    both(tmp_path, task_specific_params=TASKS)
    ours = load_model_directory(tmp_path / "ours")
    assert ours.decoding.beam_size == 3
    assert ours.tokenizer.language_codes == ("de",)
    with_prompt = ours.tokenizer.for_languages(None, "de").source
    written = ours.tokenizer.source
    for text in ("cat", "cat cat", "x"):
        expected = written.encode(f"a to: {text}")
        assert with_prompt.encode(text) == expected
        assert with_prompt.encode(f"a to: {text}") == expected  # none is added to one in the text
        ids, spans = with_prompt.encode_with_spans([text])[0]
        assert ids == expected
        assert [text[slice(*span)] for span in spans[2:]] == [*text] or " " in text
        assert written.for_parts_of(f"a to: {text}").encode(text) == expected
    assert with_prompt.encode("") == []
    assert written.encode("cat") != with_prompt.encode("cat")
    (there,) = translate_lines(tmp_path / "ours", ["cat"], target_language="de")
    (here,) = translate_lines(tmp_path / "ours", ["a to: cat"])
    assert there.hypotheses == here.hypotheses
    with pytest.raises(UsageError, match='--target-language: this model does not know "fr"'):
        list(translate_lines(tmp_path / "ours", ["cat"], target_language="fr"))


def test_languages_of_madlad_are_pieces(tmp_path):
    """Its ids of special tokens are others, and a translation begins with `<unk>`."""
    pieces = ["<unk>", "<s>", "</s>", "<2de>", "<2zh_Hant>", *PIECES[3:]]
    specials = {"<unk>": 2, "<s>": 3, "</s>": 3, "<2de>": 4, "<2zh_Hant>": 4}
    ids = {"pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 0}
    model, raw, tensors = random_t5(**VARIANTS["1.1"], **ids, vocab_size=len(pieces))
    write(tmp_path / "theirs", raw, tensors)
    (tmp_path / "theirs/spiece.model").write_bytes(spm(pieces, specials))
    imported = import_model(str(tmp_path / "theirs"), tmp_path / "ours")
    ours = load_model_directory(tmp_path / "ours")
    assert ours.tokenizer.language_codes == ("de", "zh_Hant")
    side = ours.tokenizer.for_languages(None, "zh_Hant").source
    text = "<2zh_Hant> a cat"
    assert [imported.ids[n] for n in side.encode("a cat")] == theirs_ids(tmp_path, text)
    assert pieces.index("<2zh_Hant>") in theirs_ids(tmp_path, text)
    assert ours.tokenizer.source.encode(text) == side.encode("a cat")
    source = torch.tensor([[*side.encode("a cat"), 3]])
    foreign = torch.tensor(imported.ids)
    with torch.inference_mode():
        logits = ours.model(source, source > 0, torch.tensor([[2, 9]]))[..., 3:]
        expected = model(
            input_ids=foreign[source], decoder_input_ids=torch.tensor([[0, imported.ids[9]]])
        ).logits[..., foreign[3:]]
    assert (logits - expected).abs().max() <= 1e-5


@pytest.mark.parametrize("variant", ["t5", "1.1"])
def test_heads_are_captured_of_the_translation(tmp_path, variant):
    both(tmp_path, variant)
    (record,) = inspect_heads(tmp_path / "ours", ["a cat"], max_length=8)
    assert max(record.maps.residuals.values()) < 1e-5
    assert [len(record.maps.layers(kind)) for kind in ("enc", "dec", "cross")] == [2, 3, 3]
    (translation,) = translate_lines(tmp_path / "ours", ["a cat"], max_length=8)
    assert record.target == translation.text
    for weights in ("norm", "alti"):
        (weighted,) = inspect_heads(tmp_path / "ours", ["a cat"], weights=weights, max_length=8)
        assert max(weighted.maps.residuals.values()) < 1e-4


def test_the_page_has_the_biases_that_scores_are_made_of(tmp_path):
    both(tmp_path)
    (record,) = inspect_heads(tmp_path / "ours", ["a cat"], max_length=8, for_page=True)
    vectors = record.extras.vectors
    assert vectors.factors[("enc", 0)] == 1.0
    assert ("cross", 0) not in vectors.positions
    scores = vectors.queries["enc", 1] @ vectors.keys["enc", 1].swapaxes(1, 2)
    scores = torch.from_numpy(scores + vectors.positions["enc", 1])
    weights = record.captured.enc[1]
    np.testing.assert_allclose(scores.softmax(dim=-1), weights, atol=1e-5)
    assert '"terms"' in render_html([record])


def test_tasks_that_are_none_are_no_prompts(tmp_path):
    both(tmp_path, task_specific_params=7)
