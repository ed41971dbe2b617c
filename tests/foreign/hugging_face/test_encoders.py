"""Encoders exported for transformers: what was imported comes back, tensor by tensor."""

import json
from dataclasses import replace

import pytest
import torch

from tformer_cli.artifacts.model_directory import load_model_directory
from tformer_cli.errors import UsageError
from tformer_cli.foreign.hugging_face.encoders import family_of
from tformer_cli.foreign.hugging_face.families import FAMILIES
from tformer_cli.foreign.import_model import import_model
from tformer_cli.plugins.interchange.export import EXPORTED, export_hugging_face
from tformer_cli.search.source_batches import source_batch

transformers = pytest.importorskip("transformers")
encoders = pytest.importorskip("tests.foreign.encoders")


@pytest.mark.parametrize(("kind", "head"), encoders.CASES)
def test_an_export_computes_the_same_and_is_imported_again(tmp_path, kind, head):
    labels = {"num_labels": 3} if "Class" in head else {}
    theirs, tokenizer = encoders.write_directory(
        tmp_path / "a", kind, head, files="parts", **labels
    )
    import_model(str(tmp_path / "a"), tmp_path / "ours")
    name = export_hugging_face(tmp_path / "ours", tmp_path / "b")
    assert name == type(theirs).__name__
    assert json.loads((tmp_path / "b" / "config.json").read_text())["architectures"] == [name]
    back = getattr(transformers, name).from_pretrained(tmp_path / "b").eval()
    ids = torch.tensor([tokenizer.encode(encoders.TEXTS[0]).ids])
    with torch.inference_mode():
        found, expected = (model(ids)[0] for model in (back, theirs))
    assert (found[..., : expected.shape[-1]] - expected).abs().max() <= 1e-5
    read = transformers.AutoTokenizer.from_pretrained(tmp_path / "b")
    for text in encoders.TEXTS:
        assert read(text)["input_ids"] == tokenizer.encode(text).ids
    mine = {
        n: w for n, w in theirs.state_dict().items() if n.endswith(("query.weight", "q_lin.weight"))
    }
    assert mine
    assert all(torch.equal(weight, back.state_dict()[n]) for n, weight in mine.items())
    import_model(str(tmp_path / "b"), tmp_path / "again")
    own, other = (load_model_directory(tmp_path / n, tasks=EXPORTED) for n in ("ours", "again"))
    assert own.config == other.config
    assert own.info.labels == other.info.labels
    weights = other.encoder.state_dict()
    assert all(torch.equal(w, weights[n]) for n, w in own.encoder.state_dict().items())
    batch = source_batch(own.tokenizer.source.encode_batch(encoders.TEXTS), 40, "cpu")
    again = source_batch(other.tokenizer.source.encode_batch(encoders.TEXTS), 40, "cpu")
    assert torch.equal(batch[0], again[0])


def test_other_encoders_are_refused_by_name(classifier, tmp_path):
    encoders.write_directory(tmp_path / "theirs", "roberta", "Model")
    import_model(str(tmp_path / "theirs"), tmp_path / "ours")
    directory = load_model_directory(tmp_path / "ours", tasks=EXPORTED)
    tagger = replace(directory, config=replace(directory.config, head="tags", n_labels=2))
    with pytest.raises(UsageError, match="RoBERTa of Hugging Face has no taggers that read texts"):
        family_of(tagger)
    with pytest.raises(UsageError, match="of Hugging Face"):
        export_hugging_face(classifier, tmp_path / "b")
    assert not (tmp_path / "b").exists()
    assert "patch_size" in FAMILIES["bert"].known
