"""Models that sentence-transformers saves: the same vectors, or a refusal by name."""

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("transformers")

from tests.foreign import encoders
from tests.foreign.test_odd_models import TEXTS, bert, edit
from tformer_cli.errors import ArtifactError
from tformer_cli.foreign.import_model import import_model
from tformer_cli.kinds.lines.embed import embed_texts
from tformer_cli.kinds.opening import open_model

LIBRARY = "TFORMER_SENTENCE_TRANSFORMERS"
"""Python of an environment with torch, transformers and sentence-transformers (6.2)."""
VARIANTS = {
    "mean": "[T(), P('mean')]",
    "cls": "[T(), P('cls')]",
    "normalize": "[T(), P('mean'), models.Normalize()]",
    "cls, normalize": "[T(), P('cls'), models.Normalize()]",
    "dropout": "[T(), P('mean'), models.Dropout(0.1), models.Normalize()]",
    "lowercase": "[T(do_lower_case=True), P('mean')]",
    "no prompt in the pooling": "[T(), P('mean', include_prompt=False)]",
    "max": "[T(), P('max')]",
    "last": "[T(), P('lasttoken')]",
    "weighted": "[T(), P('weightedmean')]",
    "root": "[T(), P('mean_sqrt_len_tokens')]",
    "two": "[T(), P(('mean', 'cls'))]",
    "dense": "[T(), P('mean'), models.Dense(16, 8)]",
    "layer norm": "[T(), P('mean'), models.LayerNorm(16)]",
    "static": "[models.StaticEmbedding(T().tokenizer, embedding_dim=16)]",
}
OPTIONS = {
    "dot": {"similarity_fn_name": "dot"},
    "prompts": {"prompts": {"query": "query: "}},
    "default prompt": {"prompts": {"query": "query: "}, "default_prompt_name": "query"},
    "narrow": {"truncate_dim": 8},
}
REFUSED = {
    "max": "max", "last": "lasttoken", "weighted": "weightedmean", "root": "mean_sqrt_len_tokens",
    "two": "mean, cls", "dense": "Dense", "layer norm": "LayerNorm", "static": "StaticEmbedding",
    "default prompt": "default_prompt_name", "narrow": "truncate_dim", "pairs": "CrossEncoder",
    "sparse": "SparseEncoder",
}  # fmt: skip
PROGRAM = """
import json, sys
import torch, transformers
import sentence_transformers as library
from sentence_transformers import SentenceTransformer, models
base, folder, variants, options, texts = sys.argv[1], sys.argv[2], *map(json.loads, sys.argv[3:])
T = lambda **more: models.Transformer(base, **more)
P = lambda mode, **more: models.Pooling(16, mode, **more)
made = {}
for name, how in variants.items():
    made[name] = SentenceTransformer(modules=eval(how), device="cpu")
for name, more in options.items():
    made[name] = SentenceTransformer(modules=[T(), P("mean")], device="cpu", **more)
made["short"] = SentenceTransformer(modules=[T(), P("mean")], device="cpu")
made["short"].max_seq_length = 9
made["plain"] = SentenceTransformer(base, device="cpu")
found = {}
for name, model in made.items():
    model.save_pretrained(f"{folder}/{name}")
    found[name] = SentenceTransformer(f"{folder}/{name}", device="cpu").encode(texts).tolist()
library.CrossEncoder(base, num_labels=1).save_pretrained(f"{folder}/pairs")
library.SparseEncoder(base).save_pretrained(f"{folder}/sparse")
print(json.dumps(found))
"""


def vectors(path, texts):
    return np.array([result.vector for result in embed_texts(open_model(path, "embed"), texts)])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "lowercase"),
    [("bert", True), ("bert", False), ("distilbert", True), ("roberta", True)],
)
def test_what_the_library_saves_has_its_vectors_or_is_refused(tmp_path, kind, lowercase):
    python = os.environ.get(LIBRARY, "")
    if not Path(python).is_file():
        pytest.skip(f"{LIBRARY} does not name a Python with sentence-transformers")
    # RoBERTa's tokenizer does not know that its positions begin at 2
    longest = 300 if kind == "roberta" else 90
    options = {"lowercase": lowercase, "max_position_embeddings": longest}
    bert(tmp_path / "base", kind=kind, head="ForMaskedLM", **options)
    texts = [*TEXTS, " ".join(TEXTS * 3), "Query: SOUP"]
    folder = tmp_path / "saved"
    done = subprocess.run(
        [python, "-c", PROGRAM, str(tmp_path / "base"), str(folder),
         *map(json.dumps, (VARIANTS, OPTIONS, texts))],
        capture_output=True, text=True, check=False,
        env={"PATH": os.environ["PATH"], "HF_HUB_OFFLINE": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    expected = json.loads(done.stdout.splitlines()[-1])
    for path in folder.iterdir():
        name = path.name
        if name in REFUSED:
            with pytest.raises(ArtifactError, match=REFUSED[name]):
                import_model(str(path), None)
            continue
        if name == "lowercase" and (kind == "roberta" or not lowercase):
            # the library's classes forget it when they load
            with pytest.raises(ArtifactError, match="normalizer"):
                import_model(str(path), None)
            continue
        import_model(str(path), tmp_path / "ours" / name)
        found = vectors(tmp_path / "ours" / name, texts)
        assert np.abs(found - np.array(expected[name])).max() <= 1e-5, name
    assert len(expected) == len(VARIANTS) + len(OPTIONS) + 2


# files as sentence-transformers 6.2 writes them
TODAY = {
    "1_Pooling/config.json": {
        "embedding_dimension": 16, "pooling_mode": "mean", "include_prompt": True,
    },
    "2_Normalize/config.json": {
        "module_input_name": "sentence_embedding", "module_output_name": "sentence_embedding",
    },
    "config_sentence_transformers.json": {
        "__version__": {
            "pytorch": "2.13.0+cpu", "sentence_transformers": "6.2.0", "transformers": "5.24.0",
        },
        "default_prompt_name": None, "model_type": "SentenceTransformer",
        "prompts": {"document": "", "query": ""}, "similarity_fn_name": "cosine",
    },
    "sentence_bert_config.json": {
        "transformer_task": "feature-extraction",
        "modality_config": {
            "text": {"method": "forward", "method_output_name": "last_hidden_state"},
        },
        "module_output_name": "token_embeddings",
    },
}  # fmt: skip
TYPES = {
    "Transformer": "sentence_transformers.base.modules.transformer.Transformer",
    "Pooling": "sentence_transformers.sentence_transformer.modules.pooling.Pooling",
    "Dropout": "sentence_transformers.sentence_transformer.modules.dropout.Dropout",
    "Dense": "sentence_transformers.base.modules.dense.Dense",
    "Normalize": "sentence_transformers.base.modules.normalize.Normalize",
}


def write_today(path, *modules, longest=90):
    """Writes a directory as the library does; returns the encoder and its tokenizer."""
    model, tokenizer = encoders.write_directory(path, "bert", "Model", max_position_embeddings=90)
    edit(path, "tokenizer.json", truncation=None, padding=None)
    edit(path, "tokenizer_config.json", tokenizer_class="BertTokenizer", model_max_length=longest,
         backend="tokenizers", is_local=True, local_files_only=False)  # fmt: skip
    for name, values in TODAY.items():
        if not name.startswith("2_") or "Normalize" in modules:
            file = path / name.replace("2_", f"{len(modules) + 1}_")
            file.parent.mkdir(exist_ok=True)
            file.write_text(json.dumps(values))
    rows = [
        {"idx": n, "name": str(n), "path": f"{n}_{kind}" if n else "", "type": TYPES[kind]}
        for n, kind in enumerate(("Transformer", "Pooling", *modules))
    ]
    (path / "modules.json").write_text(json.dumps(rows))
    return model, tokenizer


@pytest.mark.parametrize(
    ("modules", "pooling"),
    [((), "mean"), (("Normalize",), "mean"), (("Normalize",), "cls"),
     (("Dropout", "Normalize"), "mean")],
)  # fmt: skip
def test_files_as_the_library_writes_them_today(tmp_path, modules, pooling):
    model, tokenizer = write_today(tmp_path / "theirs", *modules, longest=9)
    edit(tmp_path / "theirs", "1_Pooling/config.json", pooling_mode=pooling)
    if "Dropout" in modules:
        edit(tmp_path / "theirs", "2_Dropout/config.json", dropout=0.1)
    import_model(str(tmp_path / "theirs"), tmp_path / "ours")
    tokenizer.enable_truncation(9)
    for text, found in zip(TEXTS, vectors(tmp_path / "ours", TEXTS), strict=True):
        ids = tokenizer.encode(text).ids
        assert len(ids) <= 9
        with torch.no_grad():
            states = model(input_ids=torch.tensor([ids])).last_hidden_state[0]
        wanted = states.mean(0) if pooling == "mean" else states[0]
        wanted = wanted / wanted.norm() if "Normalize" in modules else wanted
        assert np.abs(found - wanted.numpy()).max() <= 1e-5


@pytest.mark.parametrize(
    ("file", "values", "message"),
    [
        ("1_Pooling/config.json", {"pooling_mode": "lasttoken"}, "its pooling .lasttoken. is not"),
        ("1_Pooling/config.json", {"pooling_mode": ["mean", "cls"]}, r"its pooling .mean, cls. is"),
        ("2_Normalize/config.json", {"module_input_name": "token_embeddings"}, "module_input_name"),
        ("config_sentence_transformers.json", {"model_type": "CrossEncoder"}, '"CrossEncoder" is'),
        ("config_sentence_transformers.json", {"truncate_dim": 8}, "truncate_dim = 8 is not"),
        ("sentence_bert_config.json", {"query_length": 8}, "query_length = 8 is unknown"),
        ("tokenizer.json", {"normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Lowercase"}, {"type": "BertNormalizer", "lowercase": False}]}}, "Lowercase"),
    ],
)  # fmt: skip
def test_what_is_not_computed_is_refused_by_name(tmp_path, file, values, message):
    write_today(tmp_path / "theirs", "Normalize")
    edit(tmp_path / "theirs", file, **values)
    with pytest.raises(ArtifactError, match=message):
        import_model(str(tmp_path / "theirs"), None)


def test_modules_and_prompts_that_are_not_computed(tmp_path):
    write_today(tmp_path / "dense", "Dense", "Normalize")
    with pytest.raises(ArtifactError, match="modules Transformer, Pooling, Dense, Normalize are"):
        import_model(str(tmp_path / "dense"), None)
    write_today(tmp_path / "prompts")
    file = "config_sentence_transformers.json"
    edit(tmp_path / "prompts", file, prompts={"document": "", "query": "query: "})
    notes = import_model(str(tmp_path / "prompts"), None).notes
    assert any("write them before yours" in note for note in notes)
    edit(tmp_path / "prompts", "1_Pooling/config.json", include_prompt=False)
    notes = import_model(str(tmp_path / "prompts"), None).notes
    assert any("the pooling leaves them out" in note for note in notes)
