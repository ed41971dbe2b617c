"""BERT, RoBERTa and DistilBERT imported: the same tokens, states and logits as in transformers.

Every parameter is random, biases and norms too, so that nothing can be left out unnoticed.
"""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from tformer_cli.artifacts.model_directory import load_model_directory
from tformer_cli.foreign.import_model import import_model
from tformer_cli.kinds.lines.classify import label_texts
from tformer_cli.kinds.lines.embed import embed_texts
from tformer_cli.kinds.opening import open_model
from tformer_cli.search.source_batches import source_batch
from tformer_cli.text.tokenizer import BOS_ID, EOS_ID

pytest.importorskip("transformers")

from tests.foreign import encoders


def import_both(path, tmp_path):
    foreign = import_model(str(path), tmp_path / "ours")
    return foreign, load_model_directory(tmp_path / "ours", tasks=encoders.TASKS.values())


def batches(imported, ours, tokenizer):
    """All samples in one padded batch, for ours and for theirs; tokens are compared."""
    texts = ours.tokenizer.source.encode_batch(encoders.SAMPLES)
    source, mask = source_batch(texts, ours.config.max_positions, "cpu")
    foreign = torch.tensor(imported.ids)[source]
    for row, is_token, text in zip(foreign, mask, encoders.SAMPLES, strict=True):
        # a name such as "[SEP]" in a text is no special token here
        if "[SEP]" not in text:
            assert row[is_token].tolist() == tokenizer.encode(text).ids
    assert mask.sum(1).min() < mask.shape[1]  # there is padding
    return (source, mask), (foreign, mask.long())


def outputs(model, batch, theirs, their_batch):
    ids, mask = their_batch
    answer = theirs(input_ids=ids, attention_mask=mask)
    expected = answer.logits if hasattr(answer, "logits") else answer.last_hidden_state
    states = not hasattr(answer, "logits")
    return (model.encode(*batch) if states else model(*batch)), expected


def check_gradients(model, theirs, actual, expected):
    """Compares the gradients of a random function of both outputs."""
    weights = torch.randn(actual.shape, generator=torch.Generator().manual_seed(5))
    (actual * weights).sum().backward()
    (expected * weights).sum().backward()
    body = theirs.base_model
    first = body.encoder.layer[0] if hasattr(body, "encoder") else body.transformer.layer[0]
    lin1 = first.ffn.lin1 if hasattr(first, "ffn") else first.intermediate.dense
    pairs = [
        (model.encoder.layers[0].feed_forward.inner.weight, lin1.weight),
        (model.encoder_input.norm.weight, body.embeddings.LayerNorm.weight),
    ]
    for our, their in pairs:
        assert (our.grad - their.grad).abs().max() <= 1e-4 * their.grad.abs().max()


@pytest.mark.parametrize("files", ["whole", "parts"])
@pytest.mark.parametrize(("kind", "head"), encoders.CASES)
def test_tokens_outputs_and_gradients_are_theirs(tmp_path, kind, head, files):
    task = encoders.TASKS[head]
    labels = {"num_labels": 3} if task in ("classify", "tag") else {}
    theirs, tokenizer = encoders.write_directory(
        tmp_path / "theirs", kind, head, files=files, **labels
    )
    found, ours = import_both(tmp_path / "theirs", tmp_path)
    assert found.kind.removeprefix("Hugging Face ").lower() == kind
    ours_read, theirs_read = batches(found, ours, tokenizer)
    model = ours.encoder.requires_grad_(requires_grad=True)
    logits, expected = outputs(model, ours_read, theirs, theirs_read)
    if logits.ndim == 3:
        is_token = ours_read[1]
        logits, expected = logits[is_token], expected[is_token]
        if task == "masked":
            expected = expected[:, list(found.ids)]
    assert (logits - expected).abs().max() <= 1e-5
    assert expected.abs().max() > 0.1
    check_gradients(model, theirs, logits, expected)


def test_texts_stand_between_their_class_and_separator(tmp_path):
    encoders.write_directory(tmp_path / "theirs", "bert", "ForMaskedLM")
    _, ours = import_both(tmp_path / "theirs", tmp_path)
    side = ours.tokenizer.source
    ids = side.encode("the soup")
    assert side.pieces([*ids, EOS_ID])[0 :: len(ids)] == ["[CLS]", "[SEP]"]
    assert side.decode(ids) == "the soup"
    assert side.encode(" ") == []
    ((found_ids, spans),) = side.encode_with_spans(["the soup"])
    assert found_ids == ids
    assert ["the soup"[a:b] for a, b in spans[:2]] == ["", "the"]
    gaps = side.encode_gaps(["the ", " was"])
    assert side.pieces(gaps)[:3] == ["[CLS]", "the", "[MASK]"]
    assert gaps[0] == BOS_ID
    assert ours.tokenizer.source.encode_gaps([" "]) == []


def test_untied_rows_of_tokens_are_kept(tmp_path):
    theirs, tokenizer = encoders.write_directory(
        tmp_path / "theirs", "bert", "ForMaskedLM", tie_word_embeddings=False
    )
    found, ours = import_both(tmp_path / "theirs", tmp_path)
    assert ours.config.tied_embeddings == "none"
    batch, their_batch = batches(found, ours, tokenizer)
    logits, expected = outputs(ours.encoder, batch, theirs, their_batch)
    expected = expected[batch[1]][:, list(found.ids)]
    assert (logits[batch[1]] - expected).abs().max() <= 1e-5


def test_old_checkpoints_with_pre_training_heads_are_read_without_executing(tmp_path):
    theirs, tokenizer = encoders.write_directory(
        tmp_path / "theirs", "bert", "ForPreTraining", files="parts"
    )
    path = tmp_path / "theirs"
    state = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): tensor
        for name, tensor in theirs.state_dict().items()
        if name != "cls.predictions.decoder.bias"
    }
    (path / "model.safetensors").unlink()
    state["bert.embeddings.position_ids"] = torch.arange(40)[None]
    torch.save(state, path / "pytorch_model.bin")
    settings = json.loads((path / "config.json").read_text())
    for name in ("model_type", "architectures"):
        del settings[name]
    (path / "config.json").write_text(json.dumps({**settings, "pruned_heads": {}}))
    found, ours = import_both(path, tmp_path)
    assert any("next-sentence" in note for note in found.notes)
    batch, their_batch = batches(found, ours, tokenizer)
    with torch.inference_mode():
        expected = theirs(input_ids=their_batch[0], attention_mask=their_batch[1]).prediction_logits
        logits = ours.encoder(*batch)
    assert (logits[batch[1]] - expected[batch[1]][:, list(found.ids)]).abs().max() <= 1e-5


def test_labels_are_those_of_config_json(tmp_path):
    names = {0: "bad", 1: "fine", 2: "good"}
    encoders.write_directory(
        tmp_path / "named", "distilbert", "ForSequenceClassification", id2label=names,
        label2id={name: place for place, name in names.items()},
    )  # fmt: skip
    assert import_both(tmp_path / "named", tmp_path)[1].info.labels == ("bad", "fine", "good")


def test_labels_that_are_not_named_are_numbered(tmp_path):
    path = tmp_path / "theirs"
    encoders.write_directory(path, "roberta", "ForSequenceClassification", num_labels=3)
    settings = json.loads((path / "config.json").read_text())
    settings["id2label"] = {"0": "a", "1": "b"}
    (path / "config.json").write_text(json.dumps(settings))
    foreign = import_model(str(path), None)
    assert foreign.labels == ("LABEL_0", "LABEL_1", "LABEL_2")
    assert "does not name its 3 labels" in " ".join(foreign.notes)


def write_pipeline(path, *, pooling="pooling_mode_mean_tokens", modules=("Normalize",), **more):
    kinds = ["Transformer", "Pooling", *modules]
    (path / "modules.json").write_text(
        json.dumps(
            [
                {"idx": n, "name": str(n), "path": "" if n == 0 else f"{n}_{kind}",
                 "type": f"sentence_transformers.models.{kind}"}
                for n, kind in enumerate(kinds)
            ]
        )
    )  # fmt: skip
    (path / "1_Pooling").mkdir(exist_ok=True)
    (path / "1_Pooling" / "config.json").write_text(
        json.dumps({"word_embedding_dimension": 16, pooling: True})
    )
    (path / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 38, **more}))


@pytest.mark.parametrize("pooling", ["mean", "first"])
def test_sentence_transformers_pool_and_normalize(tmp_path, pooling):
    path = tmp_path / "theirs"
    theirs, tokenizer = encoders.write_directory(path, "bert", "Model")
    mode = {"mean": "pooling_mode_mean_tokens", "first": "pooling_mode_cls_token"}[pooling]
    write_pipeline(path, pooling=mode)
    found, ours = import_both(path, tmp_path)
    assert found.kind == "sentence-transformers BERT"
    assert (ours.config.pooling, ours.config.unit_length) == (pooling, True)
    assert ours.config.max_positions == 38
    assert "1_Pooling/config.json" in ours.info.origin.files
    batch, (ids, mask) = batches(found, ours, tokenizer)
    with torch.inference_mode():
        states = theirs(input_ids=ids, attention_mask=mask).last_hidden_state
        vectors = ours.encoder(*batch)
    summed = (states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
    expected = torch.nn.functional.normalize(states[:, 0] if pooling == "first" else summed)
    assert (vectors - expected).abs().max() <= 1e-6


def test_texts_of_a_pipeline_may_be_lower_cased(tmp_path):
    path = tmp_path / "theirs"
    encoders.write_directory(path, "bert", "Model", lowercase=False)
    write_pipeline(path, do_lower_case=True)
    _, ours = import_both(path, tmp_path)
    side = ours.tokenizer.source
    assert side.encode("The SOUP") == side.encode("the soup")


def test_discriminators_are_read_without_their_last_layers(tmp_path):
    theirs, tokenizer = encoders.write_directory(tmp_path / "theirs", "electra", "ForPreTraining")
    found, ours = import_both(tmp_path / "theirs", tmp_path)
    assert "the layers that detect replaced tokens are omitted" in found.notes
    batch, (ids, mask) = batches(found, ours, tokenizer)
    with torch.inference_mode():
        expected = theirs.electra(input_ids=ids, attention_mask=mask).last_hidden_state
        states = ours.encoder.encode(*batch)
    assert (states[batch[1]] - expected[batch[1]]).abs().max() <= 1e-5


def test_a_vocabulary_of_whole_words_is_cut_at_spaces(tmp_path):
    path = tmp_path / "theirs"
    theirs, _ = encoders.write_directory(path, "bert", "ForMaskedLM", files="parts")
    words = [*encoders.SPECIAL, "C", "c1", "(=O)", "[C@@H]"]
    words += [f"c{n}" for n in range(2, theirs.config.vocab_size - 7)]
    (path / "vocab.txt").write_text("".join(f"{word}\n" for word in words))
    (path / "tokenizer_config.json").unlink()
    _, ours = import_both(path, tmp_path)
    side = ours.tokenizer.source
    ids = side.encode("C [C@@H] (=O) c1 N")
    assert side.pieces(ids) == ["[CLS]", "C", "[C@@H]", "(=O)", "c1", "[UNK]"]


@pytest.mark.parametrize("kind", encoders.KINDS)
def test_imported_classifiers_label_texts_as_transformers_does(tmp_path, kind):
    theirs, tokenizer = encoders.write_directory(
        tmp_path / "theirs", kind, "ForSequenceClassification", num_labels=3
    )
    import_both(tmp_path / "theirs", tmp_path)
    opened = open_model(tmp_path / "ours", "classify")
    texts = [text for text in encoders.SAMPLES if "[SEP]" not in text]
    for found in label_texts(opened, texts):
        ids = tokenizer.encode(found.text).ids
        with torch.inference_mode():
            expected = theirs(input_ids=torch.tensor([ids])).logits[0].softmax(0)
        shares = [dict(found.labels)[f"LABEL_{n}"] for n in range(3)]
        assert shares == pytest.approx(expected.tolist(), abs=1e-5)


def test_imported_pipelines_are_embedded_by_the_kernels_as_by_torch(tmp_path):
    path = tmp_path / "theirs"
    encoders.write_directory(path, "bert", "Model")
    write_pipeline(path)
    import_model(str(path), tmp_path / "ours")
    opened = open_model(tmp_path / "ours", "embed", device="cpu")
    if opened.compiled is None:
        pytest.skip("there are no compiled kernels")
    settings = {"pooling": "mean", "unit_length": True}
    vectors = embed_texts(opened, encoders.SAMPLES, **settings)
    expected = embed_texts(replace(opened, compiled=None), encoders.SAMPLES, **settings)
    for result, wanted in zip(vectors, expected, strict=True):
        np.testing.assert_allclose(result.vector, wanted.vector, atol=1e-5)
        assert np.linalg.norm(result.vector) == pytest.approx(1.0)
