"""ONNX graphs of encoders, computed by ONNX Runtime."""

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from tests.foreign.own import own_model
from tests.models import tokenizer_of
from tests.zoo import tformer
from tformer_cli.artifacts.config_file import ModelInfo
from tformer_cli.artifacts.model_directory import load_model_directory
from tformer_cli.errors import ArtifactError
from tformer_cli.foreign.import_model import import_model
from tformer_cli.plugins.interchange.export import EXPORTED, export_onnx
from tformer_cli.search.source_batches import source_batch

pytest.importorskip("onnxscript", reason="the extra onnx is not installed")
onnxruntime = pytest.importorskip("onnxruntime")
transformers = pytest.importorskip("transformers")

from tests.foreign import encoders  # noqa: E402 - needs transformers

SHAPE = {"d_model": 16, "n_heads": 2, "d_ff": 24, "n_encoder_layers": 2, "n_decoder_layers": 0,
         "max_positions": 24}  # fmt: skip
LINES = ["A dog in the street.", " Two men", "a", "a long one " * 20]
LABELS = ("no", "yes", "maybe")
OWN = {
    "classifier": {"n_labels": 3, "norm": "pre"},
    "tagger": {"head": "tags", "n_labels": 3, "positions": "rotary", "norm_kind": "rms"},
    "gaps": {"head": "tokens", "activation": "gelu", "positions": "relative"},
    "vectors": {"head": "none", "unit_length": True, "positions": "alibi", "pooling": "first"},
}  # fmt: skip


def compare_outputs(path, ours):
    """The largest difference of a graph's last output from a model, for all lines and for one."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    graph = onnxruntime.InferenceSession(path / "onnx/model.onnx")
    most = 0.0
    for lines in (LINES, LINES[2:3]):
        batch = tokenizer(lines, padding=True, truncation=True, return_tensors="np")
        given = {name: batch[name].astype(np.int64) for name in ("input_ids", "attention_mask")}
        *_, found = graph.run(None, given)
        longest = ours.config.longest_source
        ids = [row[:longest] for row in ours.tokenizer.source.encode_batch(lines)]
        with torch.inference_mode():
            expected = ours.encoder(*source_batch(ids, ours.config.max_positions, "cpu")).numpy()
        if found.ndim == 3:  # batches here are padded to other lengths
            mask = given["attention_mask"].astype(bool)
            found, expected = found[mask], expected[:, : mask.shape[1]][mask]
        most = max(most, float(np.abs(found - expected).max()))
    return most


@pytest.mark.long
@pytest.mark.parametrize("case", OWN)
def test_a_graph_computes_the_same(tmp_path, case):
    tokenizer = tokenizer_of().with_mask() if case == "gaps" else tokenizer_of()
    labels = LABELS if "n_labels" in OWN[case] else ()
    own_model(tmp_path / "ours", tokenizer, {**SHAPE, **OWN[case]}, info=ModelInfo(labels=labels))
    export_onnx(tmp_path / "ours", tmp_path / "graph")
    ours = load_model_directory(tmp_path / "ours", tasks=EXPORTED)
    assert compare_outputs(tmp_path / "graph", ours) <= 1e-4
    config = transformers.AutoConfig.from_pretrained(tmp_path / "graph")
    assert type(config).__name__ == "BertConfig"
    heads = {"labels": "ForSequenceClassification", "tags": "ForTokenClassification"}
    heads |= {"tokens": "ForMaskedLM", "none": "Model"}
    assert config.architectures == [f"Bert{heads[ours.config.head]}"]
    if labels:
        assert config.id2label == dict(enumerate(labels))


def test_an_imported_encoder_keeps_its_ids(tmp_path, zoo):
    outputs = export_onnx(zoo["sentences"], tmp_path / "graph")
    assert outputs == "token_embeddings and sentence_embedding"
    ours = load_model_directory(zoo["sentences"], tasks=EXPORTED)
    assert compare_outputs(tmp_path / "graph", ours) <= 1e-4


def test_other_models_are_refused(tmp_path, zoo):
    for name in ("images", "translate"):
        with pytest.raises(ArtifactError, match=r"this takes classifiers, taggers, masked"):
            export_onnx(zoo[name], tmp_path / "graph")


@pytest.mark.parametrize("kind", ["bert", "roberta"])
def test_a_tokenizer_file_is_whole(tmp_path, kind):
    """Programs such as transformers.js read no vocab.txt, and no merges.txt."""
    encoders.write_directory(tmp_path / "theirs", kind, "ForMaskedLM")
    import_model(str(tmp_path / "theirs"), tmp_path / "ours")
    export_onnx(tmp_path / "ours", tmp_path / "graph")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "theirs")
    whole = Tokenizer.from_file(str(tmp_path / "graph/tokenizer.json"))
    for text in (*LINES, *encoders.TEXTS, f"a{theirs.mask_token} b"):
        assert whole.encode(text).ids == theirs(text).input_ids
    with pytest.raises(ArtifactError, match="holds an ONNX graph, which is not read"):
        import_model(str(tmp_path / "graph"), tmp_path / "back")


@pytest.mark.slow
@pytest.mark.skipif(
    "TFORMER_TRANSFORMERS_JS" not in os.environ,
    reason="TFORMER_TRANSFORMERS_JS names no folder with node_modules/@huggingface/transformers",
)
@pytest.mark.parametrize(
    ("name", "task", "text"),
    [
        ("classifier", "text-classification", "The old house is green."),
        ("bert_classifier", "text-classification", "The old house is green."),
        ("tagger", "token-classification", "The old house"),
        ("masked", "fill-mask", "The [MASK] house"),
    ],
)
def test_transformers_js_computes_the_same(tmp_path, zoo, name, task, text):
    export_onnx(zoo[name], tmp_path / "graph")
    script = Path(os.environ["TFORMER_TRANSFORMERS_JS"]) / "of-a-test.mjs"
    script.write_text(
        "import { pipeline, env } from '@huggingface/transformers';\n"
        f"env.allowRemoteModels = false; env.localModelPath = {json.dumps(f'{tmp_path}/')};\n"
        f"const made = await pipeline('{task}', 'graph', {{ dtype: 'fp32' }});\n"
        f"console.log(JSON.stringify(await made({json.dumps(text)}, {{}})));\n"
    )
    done = subprocess.run(["node", script], capture_output=True, text=True, check=True)
    script.unlink()
    best = json.loads(done.stdout)[0]
    verb = {"text-classification": "classify", "token-classification": "tag", "fill-mask": "fill"}
    written = tformer(verb[task], zoo[name], text, "--format", "jsonl", "-q").stdout
    record = json.loads(written)
    record = record["gaps"][0][0] if task == "fill-mask" else record.get("words", [record])[0]
    assert best["score"] == pytest.approx(record["probability"], abs=1e-5)
