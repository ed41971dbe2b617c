"""Foreign models of all kinds, from the converters' own tests, and ways to damage them."""

import json
import shutil

import torch

from tests.foreign import encoders, test_gpt2, test_llama
from tests.foreign import test_library_tokenizers as library
from tests.foreign.hugging_face import test_importing as hugging_face
from tests.foreign.own import own_model
from tests.foreign.spm import MERGES, PIECES, pad_rows, spm
from tests.foreign.t5 import test_importing as t5
from tests.models import tokenizer_of
from tests.plugins.interchange.ctranslate2 import test_importing as ctranslate2
from tests.plugins.interchange.marian import test_importing as marian
from tests.plugins.legacy import test_fairseq, test_mingpt
from tests.plugins.legacy import test_opennmt as opennmt
from tformer_cli.artifacts.config_file import ModelInfo
from tformer_cli.plugins.interchange.export import export_hugging_face

NUMBERS = (-1, 0, 1, 2**15, 2**31, 2**32 - 1, 2**53, 2**63, 10**30, 1e308, 0.5)
VALUES = (*NUMBERS, None, True, "", "x", "\ud800", "\x1b[31m\u202e", "a" * 20_000, [], {}, [[]])
RATINGS = {"d_model": 16, "n_heads": 2, "d_ff": 24, "n_encoder_layers": 1, "n_decoder_layers": 0,
           "max_positions": 24, "norm": "pre", "n_labels": 3, "pooler": "tanh"}  # fmt: skip
CUT = "cut"
"""Damage after which an import must not silently yield another model."""


def write_seeds(path):
    """Writes models into directories; returns the paths for `tformer import`."""
    for kind in encoders.KINDS:
        for files in ("whole", "parts"):
            encoders.write_directory(path / f"{kind}-{files}", kind, "ForMaskedLM", files=files)
        encoders.write_directory(path / f"{kind}-labels", kind, "ForSequenceClassification")
    for shared, safe in ((True, True), (False, True), (True, False)):
        hugging_face.marian(path / f"opus-{shared}-{safe}", shared=shared, safe=safe)
    for kind in ("m2m", "nllb", "mbart"):
        hugging_face.multilingual(path / kind, kind)
    hugging_face.pegasus(path / "pegasus")
    for legacy in (False, True):
        t5.write(path / f"t5-{legacy}", *t5.random_t5()[1:], legacy=legacy)
    (path / "gpt2").mkdir()
    tokenizer = test_gpt2.write_tokenizer(path / "gpt2")
    test_gpt2.random_gpt2(pad_rows(tokenizer.get_vocab_size())).save_pretrained(path / "gpt2")
    model = test_llama.random_llama(len(PIECES))
    model.save_pretrained(path / "llama")
    (path / "llama/tokenizer.model").write_bytes(spm(PIECES, algorithm=2))
    for variant in ("post-norm", "separate"):
        options = marian.OPTIONS | marian.VARIANTS[variant]
        marian.write(path / f"marian-{variant}", marian.weights(options), options)
    options = marian.OPTIONS | marian.VARIANTS["ssru"]
    marian.bergamot(path / "bergamot", marian.weights(options), options)
    in_yaml = marian.write(path / "marian-yaml", marian.weights(marian.OPTIONS), marian.OPTIONS)
    lines = (f"{json.dumps(piece)}: {n}\n" for n, piece in enumerate(marian.VOCABULARY))
    (in_yaml / "vocab.yml").write_text("".join(lines))
    decoder = in_yaml / "model.npz.decoder.yml"
    decoder.write_text(decoder.read_text().replace("vocab.spm", "vocab.yml"))
    for quantization in ("float32", "int16"):
        ctranslate2.write_model(path / f"ctranslate2-{quantization}", None, quantization)
    in_lines = ctranslate2.write_model(path / "ctranslate2-lines")
    for file in in_lines.glob("*_vocabulary.json"):
        file.with_suffix(".txt").write_text("".join(f"{p}\n" for p in json.loads(file.read_text())))
        file.unlink()
    (path / "argos").mkdir()
    shutil.rmtree(ctranslate2.argos(path / "argos/en_fr.argosmodel"))
    (path / "argos/sentencepiece.model").unlink()
    for is_old in (False, True):
        test_fairseq.fairseq_model(path / f"fairseq-{is_old}", is_old=is_old)
    test_fairseq.fairseq_model(path / "fairseq-codes")
    (path / "fairseq-codes/bpecodes").write_text(f"#version: 0.2\n{MERGES}")
    opennmt.opennmt_model(path / "opennmt")
    opennmt.eole_model(path / "eole")
    (path / "eole/en.spm.model").write_bytes(spm(PIECES))
    test_mingpt.write_run(path / "mingpt")
    for name in ("llama 3", "gpt-neox"):
        kind, make, options = library.CASES[name]
        library.write(path / name.replace(" ", ""), kind, make, **options)
    folder = path.with_name(f"{path.name}-own")
    info = ModelInfo(labels=("no", "yes", "maybe"))
    own_model(folder, tokenizer_of(), RATINGS, info=info)
    export_hugging_face(folder, path / "ratings")
    torch.manual_seed(1)
    return sorted(folder for folder in path.iterdir() if folder.is_dir())


def damage(rng, file):
    """Damages a file; returns the name of the damage."""
    data = file.read_bytes()
    kind = rng.choice([CUT, CUT, "bytes", "structure", "structure"])
    if kind == CUT:
        at = rng.randrange(len(data))
        if rng.random() < 0.4:  # at a place that looks whole
            at = max(data.rfind(b"\n", 0, at) + 1, data.rfind(b"}", 0, at) + 1)
        if rng.random() < 0.2:
            at = max(0, len(data) - rng.randrange(1, 40))
        file.write_bytes(data[:at])
        return CUT
    if kind == "structure" and file.suffix == ".json":
        file.write_text(json.dumps(_change_value(rng, json.loads(data))))
        return "json"
    if kind == "structure" and file.suffix in (".txt", ".yml", "") and b"\n" in data:
        lines = data.split(b"\n")
        at, other = rng.randrange(len(lines)), rng.randrange(len(lines))
        change = rng.choice(["remove", "repeat", "swap", "replace"])
        if change == "remove":
            del lines[at]
        elif change == "repeat":
            lines.insert(other, lines[at])
        elif change == "swap":
            lines[at], lines[other] = lines[other], lines[at]
        else:
            lines[at] = rng.choice(
                [b"", b"\xff\xfe", b"\x1b[31m", b"a" * 100_000, b"x: 2147483648"]
            )
        file.write_bytes(b"\n".join(lines))
        return "lines"
    changed = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 8])):
        # headers are short and decide most
        at = rng.randrange(len(data) if rng.random() < 0.5 else min(len(data), 400))
        size = rng.choice([1, 1, 2, 4, 8])
        value = rng.choice([rng.randbytes(size), b"\xff" * size, bytes(size), b"\x7f" * size])
        where = slice(at, at + (size if rng.random() < 0.8 else 0))
        changed[where] = value
    file.write_bytes(changed)
    return "bytes"


def _change_value(rng, values):
    """Changes a random value in a JSON document."""
    if not isinstance(values, dict | list) or not values or rng.random() < 0.15:
        return rng.choice(VALUES)
    place = rng.choice(list(values) if isinstance(values, dict) else range(len(values)))
    change = rng.random()
    if change < 0.15:
        values.pop(place)
    elif change < 0.25 and isinstance(values, dict):
        values["made up"] = rng.choice(VALUES)
    else:
        values[place] = _change_value(rng, values[place])
    return values
