"""Rows of the output that a directory has, shares with the embedding, or has lost."""

import json

import pytest
import torch

pytest.importorskip("transformers")

import transformers
from safetensors.torch import load_file, save_file

from tests.foreign import test_library_tokenizers, test_refusals
from tformer_cli.errors import ArtifactError
from tformer_cli.foreign.import_model import import_model

MASKED, WRITERS = "AutoModelForMaskedLM", "AutoModelForCausalLM"
# what writes a directory, the library's class, its embedding and its output
KINDS = {
    "gpt2": (WRITERS, "transformer.wte.weight", "lm_head.weight"),
    "llama": (WRITERS, "model.embed_tokens.weight", "lm_head.weight"),
    "qwen2": (WRITERS, "model.embed_tokens.weight", "lm_head.weight"),
    "gpt-neox": (WRITERS, "gpt_neox.embed_in.weight", "embed_out.weight"),
    "t5": ("AutoModelForSeq2SeqLM", "shared.weight", "lm_head.weight"),
    "bert": (MASKED, "bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight"),
    "roberta": (MASKED, "roberta.embeddings.word_embeddings.weight", "lm_head.decoder.weight"),
    "distilbert": (
        MASKED, "distilbert.embeddings.word_embeddings.weight", "vocab_projector.weight",
    ),
    "electra": (
        MASKED, "electra.embeddings.word_embeddings.weight", "generator_lm_head.weight",
    ),
}  # fmt: skip


def write(path, kind, tied, *, has_rows):
    """Writes a directory that says or does not say whether the output is the embedding."""
    auto, embedding, output = KINDS[kind]
    if kind == "gpt-neox":
        tokenized = test_library_tokenizers
        tokenized.write(path, "GPTNeoX", tokenized.neox, **tokenized.NEOX)
    elif auto == MASKED:
        test_refusals.encoder(kind, "ForMaskedLM")(path)
    else:
        test_refusals.KINDS[kind](path)
    settings = json.loads((path / "config.json").read_text())
    settings |= {"tie_word_embeddings": tied}
    kept = {key: value for key, value in settings.items() if value is not None}
    (path / "config.json").write_text(json.dumps(kept))
    file = path / "model.safetensors"
    tensors = load_file(file)
    tensors.pop(output, None)
    for name in ("cls.predictions", "lm_head"):
        if f"{name}.bias" in tensors:
            tensors[f"{name}.decoder.bias"] = tensors[f"{name}.bias"].clone()
    if has_rows:
        torch.manual_seed(4)
        tensors[output] = torch.randn(tensors[embedding].shape)
    save_file(tensors, file, {"format": "pt"})


@pytest.mark.parametrize("has_rows", [True, False])
@pytest.mark.parametrize("tied", [None, True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_the_output_is_what_the_library_loads_or_is_refused(tmp_path, kind, tied, has_rows):
    path = tmp_path / kind
    write(path, kind, tied, has_rows=has_rows)
    auto, _, output = KINDS[kind]
    theirs, loaded = getattr(transformers, auto).from_pretrained(path, output_loading_info=True)
    is_tied = tied or (tied is None and theirs.config.tie_word_embeddings)
    if not (is_tied or has_rows):
        # random numbers there, but for T5, all of which version 5 ties
        assert bool({output, "lm_head.weight"} & loaded["missing_keys"]) == (kind != "t5")
        with pytest.raises(ArtifactError, match=rf"tie_word_embeddings = false.*no .*{output}"):
            import_model(str(path), None)
        return
    imported = import_model(str(path), tmp_path / "ours")
    written = load_file(tmp_path / "ours/model.safetensors")
    names = ("output_projection.weight", "source_embedding.weight", "target_embedding.weight")
    ours = next(written[name] for name in names if name in written)
    rows = theirs.get_output_embeddings().weight.detach()
    kept = [n for n, foreign in enumerate(imported.ids) if n > 3 and foreign >= 0]
    assert torch.equal(ours[kept], rows[[imported.ids[n] for n in kept]])
    assert any("rows of its own" in note for note in imported.notes) == (has_rows and is_tied)


@pytest.mark.parametrize("kind", ["bert", "roberta"])
def test_an_output_of_its_own_has_the_bias_of_its_name(tmp_path, kind):
    """The other name of the bias is added to nothing where the two are not tied."""
    path = tmp_path / kind
    write(path, kind, tied=False, has_rows=True)
    tensors = load_file(path / "model.safetensors")
    head = KINDS[kind][2].removesuffix(".decoder.weight")
    tensors[f"{head}.decoder.bias"] = torch.randn(tensors[f"{head}.bias"].shape)
    save_file(tensors, path / "model.safetensors", {"format": "pt"})
    imported = import_model(str(path), tmp_path / "ours")
    bias = load_file(tmp_path / "ours/model.safetensors")["output_bias"]
    kept = [n for n, foreign in enumerate(imported.ids) if n > 3 and foreign >= 0]
    expected = tensors[f"{head}.decoder.bias"][[imported.ids[n] for n in kept]]
    assert torch.equal(bias[kept], expected)


@pytest.mark.parametrize("kind", KINDS)
def test_a_tied_matrix_may_have_the_name_of_the_output_alone(tmp_path, kind):
    path = tmp_path / kind
    write(path, kind, True, has_rows=False)
    import_model(str(path), tmp_path / "ours")
    _, embedding, output = KINDS[kind]
    tensors = load_file(path / "model.safetensors")
    tensors[output] = tensors.pop(embedding)
    save_file(tensors, path / "model.safetensors", {"format": "pt"})
    import_model(str(path), tmp_path / "again")
    own, other = (load_file(tmp_path / n / "model.safetensors") for n in ("ours", "again"))
    assert own.keys() == other.keys()
    assert all(torch.equal(tensor, other[name]) for name, tensor in own.items())
    (path / "config.json").write_text(
        (path / "config.json").read_text().replace('ings": true', 'ings": false')
    )
    with pytest.raises(ArtifactError, match=f"has no tensor .*{embedding.rpartition('.')[0][-9:]}"):
        import_model(str(path), None)
