"""Adapters of peft: merged as numpy merges them, and as peft itself computes."""

import json
import os
import shutil
import subprocess
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from typer.testing import CliRunner

from tests.foreign import encoders, test_library_tokenizers, test_qwen2, test_refusals, test_vit
from tests.foreign.hugging_face.test_importing import marian, multilingual
from tformer_cli.artifacts.adapter_directory import read_adapter
from tformer_cli.artifacts.model_directory import load_model_directory
from tformer_cli.artifacts.tensors import load_tensors
from tformer_cli.artifacts.weights_file import MODULES, library_name
from tformer_cli.cli.app import app
from tformer_cli.errors import ArtifactError
from tformer_cli.foreign.foreign_model import foreign_names
from tformer_cli.foreign.hugging_face.families import MARIAN
from tformer_cli.foreign.import_model import import_model, resolve_model
from tformer_cli.kinds.opening import open_model
from tformer_cli.model.adapter_config import adaptable_parts
from tformer_cli.model.config import ModelConfig
from tformer_cli.plugins.interchange.export import export_hugging_face, export_int8

transformers = pytest.importorskip("transformers")

PEFT = "TFORMER_PEFT"
"""Python of an environment with torch, transformers and peft (0.21.2)."""
PROGRAM = """
import json, sys
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForSeq2SeqLM
base, path, options = sys.argv[1:4]
torch.manual_seed(3)
config = LoraConfig(**json.loads(options))
made = get_peft_model(AutoModelForSeq2SeqLM.from_pretrained(base), config)
for name, weight in made.named_parameters():
    if "lora_" in name:
        torch.nn.init.normal_(weight, std=0.2)
made.save_pretrained(path)
model = PeftModel.from_pretrained(AutoModelForSeq2SeqLM.from_pretrained(base), path).eval()
source, target = torch.tensor([[8, 9, 30, 5]]), torch.tensor([[7, 6, 11]])
with torch.no_grad():
    print(json.dumps(model(input_ids=source, decoder_input_ids=target).logits[0].tolist()))
"""
# as peft 0.21.2 writes it
CONFIG = {
    "alora_invocation_tokens": None,
    "alpha_pattern": {},
    "arrow_config": None,
    "auto_mapping": None,
    "base_model_name_or_path": "base",
    "bias": "none",
    "corda_config": None,
    "ensure_weight_tying": False,
    "eva_config": None,
    "exclude_modules": None,
    "fan_in_fan_out": False,
    "inference_mode": True,
    "init_lora_weights": True,
    "kasa_config": None,
    "layer_replication": None,
    "layers_pattern": None,
    "layers_to_transform": None,
    "loftq_config": {},
    "lora_alpha": 6,
    "lora_bias": False,
    "lora_dropout": 0.05,
    "lora_ga_config": None,
    "megatron_config": None,
    "megatron_core": "megatron.core",
    "modules_to_save": None,
    "monteclora_config": None,
    "peft_type": "LORA",
    "peft_version": "0.21.2",
    "qalora_group_size": 16,
    "r": 3,
    "rank_pattern": {},
    "revision": None,
    "target_modules": ["v_proj", "q_proj", "fc1"],
    "target_parameters": None,
    "task_type": "SEQ_2_SEQ_LM",
    "trainable_token_indices": None,
    "use_bdlora": None,
    "use_dora": False,
    "use_qalora": False,
    "use_rslora": False,
    "velora_config": None,
}
PREFIX = "base_model.model."
LAYERS = {"encoder": 2, "decoder": 3}


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def attention_modules():
    """Names of the modules that `CONFIG` adapts."""
    for side, n_layers in LAYERS.items():
        for layer in range(n_layers):
            for attention in ("self_attn", "encoder_attn")[: 1 if side == "encoder" else 2]:
                yield f"model.{side}.layers.{layer}.{attention}.q_proj"
                yield f"model.{side}.layers.{layer}.{attention}.v_proj"
            yield f"model.{side}.layers.{layer}.fc1"


def write_adapter(path, modules=(), dtype=torch.float32, **changed):
    """Writes an adapter with random numbers, as peft would; returns its tensors."""
    path.mkdir(parents=True, exist_ok=True)
    config = {**CONFIG, **changed}
    (path / "adapter_config.json").write_text(json.dumps(config))
    torch.manual_seed(5)
    tensors = {}
    for name in modules or attention_modules():
        n_rows = 24 if name.endswith("fc1") else 16
        tensors[f"{PREFIX}{name}.lora_A.weight"] = torch.randn(config["r"], 16).to(dtype)
        tensors[f"{PREFIX}{name}.lora_B.weight"] = torch.randn(n_rows, config["r"]).to(dtype)
    save_file(tensors, path / "adapter_model.safetensors", {"format": "pt"})
    return tensors


def merged_by_hand(base, tensors, scale, path):
    """Writes the model with the adapter added, under the library's own names, by numpy."""
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(base)
    state = model.state_dict()
    for name, a in tensors.items():
        if ".lora_A." in name:
            weight = state[name.removeprefix(PREFIX).replace(".lora_A.", ".")]
            b = tensors[name.replace("lora_A", "lora_B")].double().numpy()
            weight += torch.from_numpy(scale * (b @ a.double().numpy()))
    model.save_pretrained(path)
    for file in (*base.glob("*.json"), *base.glob("*.spm"), *base.glob("*.model")):
        if not (path / file.name).exists():
            (path / file.name).write_bytes(file.read_bytes())


def assert_close(first, second):
    found, wanted = (load_tensors(path / "model.safetensors") for path in (first, second))
    assert found.keys() == wanted.keys()
    for name, tensor in found.items():
        torch.testing.assert_close(tensor, wanted[name], rtol=0, atol=2e-6)


def test_names_are_those_of_the_importer():
    """Every part of a model has the name that the importer reads its rows from."""
    config = ModelConfig(n_encoder_layers=2, n_decoder_layers=1)
    for part in adaptable_parts(config):
        names = foreign_names(f"{part.module}.weight", MARIAN.modules)
        place = part.first // (part.last - part.first)
        assert f"{MARIAN.prefix}{names[place]}" == f"{library_name(part)}.weight"
    assert set(MODULES) > {"self_attention.in_projection", "feed_forward.outer"}


def test_every_part_has_a_name_of_its_own():
    """Shared keys and gates, which the library's classes do not have, included."""
    config = ModelConfig(n_encoder_layers=1, n_decoder_layers=1, n_key_heads=2, gated=True)
    names = [library_name(part) for part in adaptable_parts(config)]
    assert len(set(names)) == len(names) == 3 * 4 + 2 * 3
    assert names[:4] == [
        f"model.encoder.layers.0.self_attn.{x}_proj" for x in ("q", "k", "v", "out")
    ]
    assert "model.decoder.layers.0.gate" in names


@pytest.mark.parametrize(
    ("kind", "dtype", "rslora"),
    [
        ("opus", torch.float32, False), ("opus", torch.float16, True),
        ("nllb", torch.bfloat16, True), ("mbart", torch.float16, False),
    ],
)  # fmt: skip
def test_an_adapter_is_merged_as_numpy_merges_it(tmp_path, kind, dtype, rslora):
    base, made, by_hand = tmp_path / "base", tmp_path / "made", tmp_path / "by-hand"
    marian(base) if kind == "opus" else multilingual(base, kind)
    tensors = write_adapter(tmp_path / "adapter", dtype=dtype, use_rslora=rslora)
    merged_by_hand(base, tensors, 6 / (3**0.5 if rslora else 3), by_hand)
    args = ["export", str(base), "--adapter", str(tmp_path / "adapter"), "--format", "tformer"]
    result = CliRunner().invoke(app, [*args, "-o", str(made)])
    assert result.exit_code == 0, result.stderr
    assert "an adapter of peft for base; it fits MODEL's shape, but that" in result.stderr
    import_model(str(by_hand), tmp_path / "wanted")
    assert_close(made, tmp_path / "wanted")


def test_commands_take_the_adapter_and_say_that_the_base_is_unknown(tmp_path):
    base, adapter = tmp_path / "base", tmp_path / "adapter"
    marian(base)
    write_adapter(adapter)

    def run(*args):
        result = CliRunner().invoke(app, [*map(str, args)])
        assert result.exit_code == 0, result.stderr
        return result

    text = ["ab cd", "--max-length", "5"]
    plain = run("translate", base, *text)
    result = run("translate", base, *text, "--adapter", adapter)
    assert plain.stdout != result.stdout
    assert result.stderr.count("cannot be verified") == 1
    assert "verified" not in plain.stderr
    assert run("translate", base, *text, "--adapter", adapter, "-q").stderr == ""
    heads = run("inspect-heads", base, "ab", "--adapter", adapter, "--format", "jsonl")
    assert "cannot be verified" in heads.stderr
    run("export", base, "--adapter", adapter, "--format", "huggingface", "-o", tmp_path / "hf")
    import_model(str(tmp_path / "hf"), tmp_path / "back")
    assert run("translate", tmp_path / "back", *text).stdout == result.stdout
    in_int8 = run("translate", base, *text, "--adapter", adapter, "--precision", "int8")
    assert in_int8.stdout


def test_a_directory_of_peft_is_a_model_as_a_base_is(tmp_path):
    base, adapter = tmp_path / "base", tmp_path / "adapter"
    marian(base)
    write_adapter(adapter, base_model_name_or_path=str(base))
    model = import_model(str(adapter), tmp_path / "made")
    assert model.kind == "Hugging Face Marian (OPUS-MT) with an adapter of peft"
    assert "cannot be verified" in model.notes[-1]
    whole = load_model_directory(resolve_model(base), adapter=adapter).model.state_dict()
    tensors = load_tensors(tmp_path / "made/model.safetensors")
    assert all(torch.equal(tensors[name], tensor) for name, tensor in whole.items())
    export_hugging_face(tmp_path / "made", tmp_path / "hf")  # has the base's ids
    first, said = resolve_model(adapter), []
    assert resolve_model(adapter, said.append) == first
    assert not said
    # another base in the same place is another model
    os.utime(base / "model.safetensors", (1, 1))
    assert resolve_model(adapter, said.append) != first
    assert said


def test_the_base_must_be_there_and_a_model_of_the_library(tmp_path):
    base, adapter = tmp_path / "base", tmp_path / "adapter"
    write_adapter(adapter, base_model_name_or_path=str(base))
    for change, message in (
        (lambda: None, "adapter: is an adapter for .*base: no such file"),
        (lambda: write_adapter(base, base_model_name_or_path=str(adapter)), "not a model of Hugg"),
        (lambda: write_adapter(adapter, base_model_name_or_path=None), "does not name its model"),
    ):
        change()
        with pytest.raises(ArtifactError, match=message) as caught:
            import_model(str(adapter), None)
        assert "\n" not in str(caught.value)


REFUSED = {
    "peft_type": "IA3",
    "use_dora": True,
    "bias": "lora_only",
    "lora_bias": True,
    "rank_pattern": {"q_proj|.*(k|v)_proj": 4},
    "alpha_pattern": {"q_proj": "4"},
    "init_lora_weights": "pissa",
    "layer_replication": [[0, 2]],
    "trainable_token_indices": [3],
    "target_parameters": ["weight"],
    "use_qalora": True,
    "loftq_config": {"loftq_bits": 4},
    "a_setting_of_tomorrow": True,
    "use_rslora": 1,
    "r": True,
}


@pytest.mark.parametrize("name", REFUSED)
def test_settings_that_are_not_known_are_refused_by_name(tmp_path, name):
    write_adapter(tmp_path / "adapter")
    file = tmp_path / "adapter/adapter_config.json"
    file.write_text(json.dumps({**CONFIG, name: REFUSED[name]}))
    with pytest.raises(ArtifactError) as caught:
        read_adapter(tmp_path / "adapter")
    if name == "r":
        assert "has no rank and alpha above 0" in str(caught.value)
    else:
        assert f'"{name}": {json.dumps(REFUSED[name])} is not supported' in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_setting_of_tomorrow_that_is_not_set_does_no_harm(tmp_path):
    write_adapter(tmp_path / "adapter", a_setting_of_tomorrow=None)
    assert read_adapter(tmp_path / "adapter").settings.scale_of("x") == 2.0


MISFITS = {
    "a deeper model": (
        {"modules": [*attention_modules(), "model.encoder.layers.2.fc1"]},
        "unknown tensor .*encoder.layers.2.fc1",
    ),
    "a shallower model": (
        {"modules": [name for name in attention_modules() if "decoder.layers.2" not in name]},
        r"has no tensors of model\.decoder\.layers\.2",
    ),
    "the head": (
        {"modules": [*attention_modules(), "lm_head"]},
        "unknown tensor base_model.model.lm_head",
    ),
    "another rank": ({"changed": {"r": 4}}, "tensors of .* do not fit"),
    "nothing of one": ({"drop": "lora_B"}, "tensors of .* do not fit"),
    "magnitudes": ({"more": "lora_magnitude_vector"}, "unknown tensor .*magnitude"),
}


@pytest.mark.parametrize("case", MISFITS)
def test_adapters_of_other_models_are_refused_in_one_line(tmp_path, case):
    how, message = MISFITS[case]
    base, adapter = tmp_path / "base", tmp_path / "adapter"
    marian(base)
    tensors = write_adapter(adapter, how.get("modules", ()))
    config = adapter / "adapter_config.json"
    config.write_text(json.dumps({**CONFIG, **how.get("changed", {})}))
    if "drop" in how:
        tensors = {name: tensor for name, tensor in tensors.items() if how["drop"] not in name}
    if "more" in how:
        tensors[next(iter(tensors)).replace("lora_A.weight", how["more"])] = torch.ones(16)
    save_file(tensors, adapter / "adapter_model.safetensors")
    with pytest.raises(ArtifactError, match=message) as caught:
        load_model_directory(resolve_model(base), adapter=adapter)
    assert "\n" not in str(caught.value)
    assert "name the model that it was trained for (base)" in str(caught.value)


def test_pickles_and_integers_are_refused(tmp_path):
    base, adapter = tmp_path / "base", tmp_path / "adapter"
    marian(base)
    write_adapter(adapter)
    export_int8(base, tmp_path / "int8")
    with pytest.raises(ArtifactError, match="int8 weights, but adapters are added to float32"):
        open_model(tmp_path / "int8", adapter=adapter)
    (adapter / "adapter_model.safetensors").rename(adapter / "adapter_model.bin")
    with pytest.raises(ArtifactError, match=r"adapter_model\.bin: is a pickle"):
        read_adapter(adapter)


VARIANTS = {
    "queries and values": {"target_modules": ["q_proj", "v_proj"]},
    "all": {"target_modules": "all-linear", "r": 4, "lora_alpha": 9, "use_rslora": True},
    "a pattern": {"target_modules": r".*decoder.*(fc1|encoder_attn\.k_proj)"},
    "some layers": {
        "target_modules": ["fc2", "out_proj"],
        "layers_to_transform": [1],
        "layers_pattern": "layers",
    },
}


@pytest.mark.long
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("kind", ["opus", "nllb", "mbart"])
def test_a_model_with_an_adapter_computes_as_peft_does(tmp_path, variant, kind):
    python = os.environ.get(PEFT, "")
    if not Path(python).is_file():
        pytest.skip(f"{PEFT} does not name a Python with peft")
    base, adapter = tmp_path / "base", tmp_path / "adapter"
    marian(base) if kind == "opus" else multilingual(base, kind)
    options = json.dumps({"task_type": "SEQ_2_SEQ_LM", **VARIANTS[variant]})
    done = subprocess.run(
        [python, "-c", PROGRAM, str(base), str(adapter), options],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    expected = np.array(json.loads(done.stdout.splitlines()[-1]))
    with safe_open(adapter / "adapter_model.safetensors", "np") as stored:
        assert len(stored.keys()) >= 4
    import_model(str(adapter), tmp_path / "made")
    export_hugging_face(tmp_path / "made", tmp_path / "hf")
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "hf").eval()
    source, target = torch.tensor([[8, 9, 30, 5]]), torch.tensor([[7, 6, 11]])
    with torch.no_grad():
        logits = theirs(input_ids=source, decoder_input_ids=target).logits[0].numpy()
    pad = theirs.config.pad_token_id if kind == "opus" else None
    written = [n for n in range(logits.shape[1]) if n != pad]
    assert np.abs(logits[:, written] - expected[:, written]).max() < 2e-4 * np.abs(expected).max()


def classifier(kind, **changes):
    return partial(encoders.write_directory, kind=kind, head="ForSequenceClassification", **changes)


def vit(path):
    config = transformers.ViTConfig(**test_vit.SHAPE, intermediate_size=40, num_labels=3)
    processor = transformers.ViTImageProcessorPil(size={"height": 12, "width": 12})
    test_vit.save_model(transformers.ViTForImageClassification, config, path, processor)


def neox(path):
    """Its queries, keys and values are one matrix, whose rows stand together for each head."""
    options = test_library_tokenizers.NEOX
    test_library_tokenizers.write(path, "GPTNeoX", test_library_tokenizers.neox, **options)


# what writes a model, its class, the modules that are adapted, and those that are saved whole
KINDS = {
    "gpt2": (partial(test_refusals.gpt2, whole=True), "CausalLM", ("c_attn", "mlp.c_proj"), ()),
    "llama": (test_refusals.llama, "CausalLM", ("q_proj", "k_proj", "o_proj", "gate_proj"), ()),
    "qwen2": (test_qwen2.write, "CausalLM", ("k_proj", "v_proj", "down_proj", "up_proj"), ()),
    "gpt_neox": (neox, "CausalLM", ("query_key_value", "attention.dense"), ()),
    "bert": (classifier("bert"), "SequenceClassification",
             ("query", "attention.output.dense", "pooler.dense"), ("classifier",)),
    "roberta": (classifier("roberta"), "SequenceClassification", ("value", "key"), ("classifier",)),
    "distilbert": (classifier("distilbert"), "SequenceClassification", ("q_lin", "lin2"),
                   ("classifier",)),
    "t5": (test_refusals.t5, "Seq2SeqLM", ("q", "v", "wi", "EncDecAttention.o"), ()),
    "vit": (vit, "ImageClassification", ("query", "q_proj", "fc1", "intermediate.dense"),
            ("classifier",)),
}  # fmt: skip


def adapt(path, base, kind, rank=3, layers=None, **changed):
    """Writes an adapter with the names of the library's modules, and the merged model beside."""
    name, targets, saved = kind
    model = getattr(transformers, f"AutoModelFor{name}").from_pretrained(base)
    config = {**CONFIG, "base_model_name_or_path": str(base), "r": rank, "task_type": None,
              "target_modules": list(targets), "modules_to_save": list(saved) or None,
              "layers_to_transform": layers, **changed}  # fmt: skip
    path.mkdir()
    (path / "adapter_config.json").write_text(json.dumps(config))
    torch.manual_seed(5)
    tensors = {}
    for module, layer in model.named_modules():
        number = next((int(word) for word in module.split(".") if word.isdecimal()), 0)
        is_target = any(module == end or module.endswith(f".{end}") for end in targets)
        if not is_target or (layers is not None and number not in layers):
            if saved and any(module.split(".")[0] == name for name in saved):
                for part, weight in layer.named_parameters(recurse=False):
                    weight.data = torch.randn(weight.shape)
                    tensors[f"{PREFIX}{module}.{part}"] = weight.data.clone()
            continue
        is_conv = isinstance(layer, transformers.pytorch_utils.Conv1D)
        n_rows, n_inputs = layer.weight.T.shape if is_conv else layer.weight.shape
        own = config["rank_pattern"].get(module.rpartition(".")[2], rank)
        a, b = torch.randn(own, n_inputs), torch.randn(n_rows, own)
        tensors |= {f"{PREFIX}{module}.lora_A.weight": a, f"{PREFIX}{module}.lora_B.weight": b}
        alpha = config["alpha_pattern"].get(module.rpartition(".")[2], config["lora_alpha"])
        delta = alpha / (own**0.5 if config["use_rslora"] else own) * (b.double() @ a.double())
        layer.weight.data += (delta.T if is_conv else delta).float()
    assert any("lora_A" in name for name in tensors)
    save_file(tensors, path / "adapter_model.safetensors", {"format": "pt"})
    merged = path.with_name("merged")
    shutil.copytree(base, merged)
    model.save_pretrained(merged)


@pytest.mark.parametrize(
    ("kind", "changed"),
    [
        *((kind, {}) for kind in KINDS),
        (
            "llama",
            {"use_rslora": True, "rank_pattern": {"q_proj": 2}, "alpha_pattern": {"k_proj": 5}},
        ),
        ("gpt2", {"fan_in_fan_out": True, "layers": [1], "layers_pattern": "h"}),
        ("bert", {"layers": [0], "layers_to_transform": 0}),
    ],
    ids=str,
)
def test_adapters_of_every_family_are_added(tmp_path, kind, changed):
    base = tmp_path / "base"
    KINDS[kind][0](base)
    adapt(tmp_path / "adapter", base, KINDS[kind][1:], **changed)
    import_model(str(tmp_path / "merged"), tmp_path / "wanted")
    foreign = import_model(str(tmp_path / "adapter"), tmp_path / "found")
    assert foreign.kind.endswith("with an adapter of peft")
    assert_close(tmp_path / "found", tmp_path / "wanted")
    import_model(str(base), tmp_path / "plain")
    tasks = ("translate", "language-model", "classify", "image")
    added = load_model_directory(tmp_path / "plain", adapter=tmp_path / "adapter", tasks=tasks)
    wanted = load_tensors(tmp_path / "wanted/model.safetensors")
    for name, weight in added.load().state_dict().items():
        torch.testing.assert_close(weight, wanted[name], rtol=0, atol=2e-6)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("llama", "unknown tensor .*lm_head.lora_A.weight; name .* q_proj, k_proj, v_proj, o_proj"),
        ("gpt2", "unknown tensor .*lm_head.lora_A.weight; name .*c_attn, c_proj, c_fc can be"),
        ("bert", "unknown tensor .*lm_head.lora_A.weight; name .*query, key, value, dense, class"),
    ],
)
def test_what_is_not_a_matrix_of_layers_is_refused_with_the_names_of_the_model(
    tmp_path, kind, message
):
    KINDS[kind][0](tmp_path / "base")
    adapt(tmp_path / "adapter", tmp_path / "base", KINDS[kind][1:])
    file = tmp_path / "adapter/adapter_model.safetensors"
    more = {f"{PREFIX}lm_head.lora_A.weight": torch.ones(3, 16)}
    save_file({**load_tensors(file), **more}, file)
    with pytest.raises(ArtifactError, match=message):
        import_model(str(tmp_path / "adapter"), None)


def test_scales_of_dinov2_are_in_its_matrices(tmp_path):
    """So what is added to the matrices before them is refused."""
    sizes = {**test_vit.SHAPE, "mlp_ratio": 2, "num_labels": 3}
    processor = transformers.ViTImageProcessorPil(size={"height": 12, "width": 12})
    kind = transformers.Dinov2ForImageClassification
    base = tmp_path / "base"
    test_vit.save_model(kind, transformers.Dinov2Config(**sizes), base, processor)
    for targets, is_refused in ((("query", "q_proj"), False), (("fc2",), True)):
        path = tmp_path / targets[0]
        path.mkdir()
        adapt(path / "adapter", base, ("ImageClassification", targets, ()))
        if not is_refused:
            import_model(str(path / "merged"), path / "wanted")
            import_model(str(path / "adapter"), path / "found")
            assert_close(path / "found", path / "wanted")
            continue
        with pytest.raises(ArtifactError, match=r"unknown tensor .*fc2"):
            import_model(str(path / "adapter"), None)


PEFT_PROGRAM = """
import json, sys
import torch, transformers
from peft import LoraConfig, PeftModel, get_peft_model
base, path, kind, options = sys.argv[1:5]
load = getattr(transformers, f"AutoModelFor{kind}").from_pretrained
torch.manual_seed(3)
made = get_peft_model(load(base), LoraConfig(**json.loads(options)))
for name, weight in made.named_parameters():
    if weight.requires_grad:
        torch.nn.init.normal_(weight, std=0.2)
made.save_pretrained(path)
model = PeftModel.from_pretrained(load(base), path).eval()
values = {"input_ids": torch.tensor([[8, 9, 11, 5]])}
if kind == "ImageClassification":
    values = {"pixel_values": torch.randn(1, 3, 12, 12)}
if kind == "Seq2SeqLM":
    values["decoder_input_ids"] = values["input_ids"]
with torch.no_grad():
    wanted = model(**values).logits
    merged = model.merge_and_unload()
    assert (merged(**values).logits - wanted).abs().max() <= 1e-4 * wanted.abs().max()
merged.save_pretrained(f"{path}-merged")
"""
SETTINGS = {
    "defaults": {},
    "all": {"target_modules": "all-linear", "use_rslora": True, "r": 4, "lora_alpha": 9},
    "patterns": {"r": 4, "rank_pattern": {"{0}": 2}, "alpha_pattern": {"{1}": 3}},
    "some layers": {"layers_to_transform": [1]},
}
TYPES = {"CausalLM": "CAUSAL_LM", "SequenceClassification": "SEQ_CLS", "Seq2SeqLM": "SEQ_2_SEQ_LM"}


@pytest.mark.slow
@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("kind", [*KINDS])
def test_adapters_that_peft_writes_are_added_as_it_adds_them(tmp_path, kind, name):
    python = os.environ.get(PEFT, "")
    if not Path(python).is_file():
        pytest.skip(f"{PEFT} does not name a Python with peft")
    write, auto, targets, _ = KINDS[kind]
    base, path = tmp_path / "base", tmp_path / "adapter"
    write(base)
    text = json.dumps({"target_modules": list(targets), **SETTINGS[name]})
    for place, end in enumerate(targets[:2]):
        text = text.replace(f"{{{place}}}", end)
    options = {"task_type": TYPES.get(auto), **json.loads(text)}
    if kind == "distilbert":  # whose classifier peft cannot save whole
        options["task_type"] = None
    done = subprocess.run(
        [python, "-c", PEFT_PROGRAM, str(base), str(path), auto, json.dumps(options)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    import_model(str(path), tmp_path / "found")
    merged = tmp_path / "adapter-merged"
    for file in base.iterdir():
        if not (merged / file.name).exists():
            shutil.copy(file, merged)
    import_model(str(merged), tmp_path / "wanted")
    assert_close(tmp_path / "found", tmp_path / "wanted")
