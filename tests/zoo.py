"""Tiny models of every kind, and the texts and images to feed them.

`tformer train` makes their directories in one step; then all weights are replaced by multiples of
1/64 drawn from a seed, so that a model has the same bytes on every processor. Only the command line
and the files of a model directory are used here: the zoo stays when modules of the package move.
"""

import json
import re
import shutil
import struct
import tempfile
import zlib
from functools import cache
from itertools import combinations
from pathlib import Path

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file
from typer.testing import CliRunner

ENGLISH = [
    "The old house is green.", "A man sleeps.", "Two dogs run in the snow.", "the street",
    "A woman and a dog.", "The animal was tired, and it slept in the old house.",
    "My sister saw 25 children in the garden.", "It is cold today. We stay at home.",
]  # fmt: skip
FRENCH = [
    "La vieille maison est verte.", "Un homme dort.", "Deux chiens courent dans la neige.",
    "la rue", "Une femme et un chien.",
    "L’animal était fatigué, et il dormait dans la vieille maison.",
    "Ma sœur a vu 25 enfants dans le jardin.", "Il fait froid aujourd’hui. Nous restons ici.",
]  # fmt: skip
N_BYTES = 260
"""Special tokens and bytes, the first ones of a vocabulary of bytes."""
STARS = ["good", "fair", "bad"]
SHAPE = """
d_model = 16
n_heads = 2
d_ff = 24
max_positions = 40
norm = "pre"
"""
TRAINING = """
[training]
max_steps = 1
tokens_per_batch = 200
precision = "float32"
average = "none"
[validation]
max_sentences = 2
"""
PAIRS = """
[data]
source_language = "en"
target_language = "fr"
train = [{ source = "in/text.en", target = "in/text.fr" }]
valid = [{ source = "in/text.en", target = "in/text.fr" }]
"""
RECIPES = {
    # what the kernels compute, in a joint vocabulary of bytes
    "translate": f"""{PAIRS}[tokenizer]\nvocab_size = 320\n[model]{SHAPE}
n_encoder_layers = 2\nn_decoder_layers = 2
[decoding]\nbeam_size = 3\nmax_length = 12\n""",
    # what only torch computes
    "variant": f"""{PAIRS}[tokenizer]\nalgorithm = "unigram"\nvocab_size = 340\n[model]{SHAPE}
n_encoder_layers = 1\nn_decoder_layers = 1\nnorm_kind = "rms"\nactivation = "swish"\ngated = true
positions = "rotary"\nn_key_heads = 1\nbias = false\ntied_embeddings = "none"
[decoding]\nbeam_size = 2\nmax_length = 10\n""",
    "language_model": f"""[task]\nkind = "language-model"
[data]\ntrain = [{{ text = "in/text.en" }}]\nvalid = [{{ text = "in/text.en" }}]
[tokenizer]\nvocab_size = 320\n[model]{SHAPE}
n_decoder_layers = 2\npositions = "learned"
[decoding]\nmax_length = 10\n""",
    # the layers of GPT-2 and of LLaMA
    "gpt": f"""[task]\nkind = "language-model"
[data]\ntrain = [{{ text = "in/text.en" }}]\nvalid = [{{ text = "in/text.en" }}]
[tokenizer]\nvocab_size = 320\n[model]{SHAPE}
n_decoder_layers = 1\npositions = "learned"\nscale_embeddings = false\nactivation = "gelu-tanh"
[decoding]\nmax_length = 10\nbeam_size = 1\nsampling = false\n""",
    "llama": f"""[task]\nkind = "language-model"
[data]\ntrain = [{{ text = "in/text.en" }}]\nvalid = [{{ text = "in/text.en" }}]
[tokenizer]\nvocab_size = 320\n[model]{SHAPE}
n_decoder_layers = 1\nnorm_kind = "rms"\nactivation = "swish"\ngated = true
positions = "rotary"\nbias = false\nn_key_heads = 1\ntied_embeddings = "none"
[decoding]\nmax_length = 10\nbeam_size = 1\nsampling = false\n""",
    "memory": f"""[task]\nkind = "language-model"
[data]\ntrain = [{{ text = "in/text.en" }}]\nvalid = [{{ text = "in/text.en" }}]
text = "stream"\nmax_length = 8
[tokenizer]\nalgorithm = "char"\nvocab_size = 60
[model]{SHAPE.replace("40", "9")}
n_decoder_layers = 1\npositions = "segments"\nmemory = 12
[decoding]\nmax_length = 10\n""",
    "classifier": f"""[task]\nkind = "classify"
[data]\ntrain = [{{ tsv = "in/stars.tsv" }}]
valid = [{{ tsv = "in/stars.tsv" }}]
[tokenizer]\nalgorithm = "word"\nvocab_size = 60
[model]{SHAPE}
n_encoder_layers = 2\n""",
    "masked": f"""[task]\nkind = "masked"
[data]\ntrain = [{{ text = "in/text.en" }}]\nvalid = [{{ text = "in/text.en" }}]
[tokenizer]\nvocab_size = 320\n[model]{SHAPE}
n_encoder_layers = 2\n""",
    "images": """[task]\nkind = "image"
[data]\ntrain = [{ images = "in/photos" }]\nvalid = [{ images = "in/photos" }]
[model]\nd_model = 16\nn_heads = 2\nd_ff = 24\nn_encoder_layers = 2\nnorm = "pre"
activation = "gelu"\npositions = "learned"\npatch_size = 4\nclass_token = true\npooling = "first"
""",
    "tagger": f"""[task]\nkind = "tag"
[data]\ntrain = [{{ source = "in/text.en", target = "in/tags" }}]
valid = [{{ source = "in/text.en", target = "in/tags" }}]
[tokenizer]\nvocab_size = 320\n[model]{SHAPE}
n_encoder_layers = 2\n""",
}
TWIN_SEED = 14
"""Of no model of `RECIPES`."""
MODELS = (*RECIPES, "twin", "int8", "opus", "sentences", "bert_classifier")
FOREIGN = ("bert", "opus-mt")
"""Directories of other tools, which `sentences` and `opus` are imported from."""


@cache
def application():
    """Returns the program with all its commands; making it takes a second."""
    from tformer_cli.cli.app import make_app

    return make_app()


def tformer(*arguments, stdin=None):
    """Runs a command in this process, which must succeed."""
    done = CliRunner().invoke(application(), [str(argument) for argument in arguments], input=stdin)
    assert done.exit_code == 0, done.stderr
    return done


def write_inputs(folder):
    """Writes the texts, labels, tables and images that the models learn and read."""
    folder.mkdir(parents=True)
    for name, lines in (
        ("text.en", ENGLISH), ("text.fr", FRENCH), ("other.fr", [*FRENCH[:4], *FRENCH[3:7]]),
        ("odd.en", ["The old house.", "", "  ", "dog " * 60, "Caf\u00e9\u2028 \U0001f600!\r"]),
        ("labels", [STARS[n % 3] for n in range(8)]),
        ("tags", [" ".join(map(tag_of, line.split())) for line in ENGLISH]),
        ("other.labels", [STARS[n % 2] for n in range(8)]),
        ("gaps", ["The <mask> house.", "no gap", "", "<mask> <mask> dog."]),
        ("glossary.tsv", ["house\tmaison", "dog\tchat\tban"]),
        ("align", ["0-0 1-2 2-1", "0-0 1-1", *["0-0"] * 6]),
        ("prompts", ["The old", "", "A man"]),
        ("stars.tsv", [f"{text}\t{STARS[n % 3]}" for n, text in enumerate(ENGLISH * 2)]),
        ("pairs.tsv", [f"{s}\t{t}" for s, t in zip(ENGLISH, FRENCH, strict=True)]),
        ("decisions.tsv", [f"{a}\t{b}" for a, b in [*combinations(ENGLISH, 2)][:24]]),
        ("pixels.csv", [f"ant,{','.join(str((n * k) % 256) for k in range(64))}" for n in (3, 7)]),
    ):  # fmt: skip
        (folder / name).write_text("".join(f"{line}\n" for line in lines), newline="")
    records = [
        {"source": s, "target": t, "n": n, "label": STARS[n % 3]}
        for n, (s, t) in enumerate(zip(ENGLISH, FRENCH, strict=True))
    ]
    (folder / "pairs.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))
    constraints = [
        {"source": "The old house.", "target_prefix": "La"},
        {"source": "A dog.", "required": ["un chien"], "banned": ["chat"]},
    ]
    (folder / "constraints.jsonl").write_text("".join(f"{json.dumps(c)}\n" for c in constraints))
    (folder / "systems.toml").write_text(
        '[one]\nreference = ["in/text.fr"]\nsystems = { a = "in/other.fr", b = "in/text.en" }\n'
        '[two]\nreference = ["in/other.fr"]\nsystems = { a = "in/text.fr", b = "in/text.en" }\n'
    )
    write_json(folder / "odd-config.json", {"model_type": "rwkv", "vocab_size": 9})
    (folder / "bytes.en").write_bytes(b"A \xff\xfe man.\nThe house.\n")
    for number in range(6):
        picture = folder / "photos" / ("ant", "bee")[number % 2] / f"{number}.png"
        picture.parent.mkdir(parents=True, exist_ok=True)
        picture.write_bytes(png(np.random.default_rng(number).integers(0, 256, (8, 8, 1))))
    pixels = np.random.default_rng(9).integers(0, 256, (4, 8, 8), np.uint8)
    (folder / "four.idx").write_bytes(struct.pack(">HBB3I", 0, 8, 3, 4, 8, 8) + pixels.tobytes())


def tag_of(word):
    """Returns the label of a word: a number, at the end of a sentence, a capital, or another."""
    kinds = (word[0].isdigit(), word.endswith("."), word[0].isupper(), True)
    return ("NUM", "END", "CAP", "LOW")[kinds.index(True)]


def png(pixels):
    """Returns the file of a gray picture: (height, width, 1) values from 0 to 255."""
    height, width, _ = pixels.shape
    rows = b"".join(b"\0" + bytes(row) for row in pixels.reshape(height, width).tolist())

    def chunk(kind, data):
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    head = struct.pack(">2I5B", width, height, 8, 0, 0, 0, 0)
    parts = (chunk(b"IHDR", head), chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def draw_weights(shapes, seed):
    """Draws weights: vectors near 0, those of norms near 1, matrices whose products keep size."""
    weights = {}
    for number, (name, shape) in enumerate(sorted(shapes.items())):
        integers = np.random.default_rng([seed, number]).integers(-64, 65, shape) / 64
        if len(shape) > 1:  # powers of two keep the numbers exact
            scale = 1 if "embed" in name else 4  # or each token is most like itself
            weights[name] = scale * integers * 2.0 ** -round(np.log2(shape[-1]) / 2)
        else:
            weights[name] = integers / 4 + (name.endswith("weight") and "norm" in name.lower())
        if shape[0] > N_BYTES and shape[1:]:  # whole words are written, not bytes
            weights[name][:N_BYTES] /= 4
    return {name: weight.astype(np.float32) for name, weight in weights.items()}


def redraw(file, seed):
    """Replaces the weights of a file by drawn ones; the rest of the file stays."""
    with safe_open(file, "numpy") as stored:
        shapes = {name: tuple(stored.get_slice(name).get_shape()) for name in stored.keys()}  # noqa: SIM118
        metadata = stored.metadata()
    save_file(draw_weights(shapes, seed), file, metadata=metadata)


def write_bert(path, *, labels=(), width=16, n_layers=2):
    """Writes an encoder as sentence-transformers stores BERT, or a classifier of transformers."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    words = sorted({word for line in ENGLISH for word in re.findall(r"\w+|[^\w\s]", line.lower())})
    letters = sorted({letter for word in words for letter in word})
    # the library's trainer takes pieces of the same frequency in any order
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters]
    pieces += [*(f"##{letter}" for letter in letters), *(w for w in words if len(w) > 1)]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))  # noqa: S106
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.add_special_tokens(pieces[:5])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    size, inner = tokenizer.get_vocab_size(), width + 8
    shapes = {
        "embeddings.word_embeddings.weight": (size, width),
        "embeddings.position_embeddings.weight": (40, width),
        "embeddings.token_type_embeddings.weight": (2, width),
        **layer("embeddings.LayerNorm", width),
        **layer("pooler.dense", width, width),
    }
    for number in range(n_layers):
        start = f"encoder.layer.{number}"
        for name in ("attention.self.query", "attention.self.key", "attention.self.value"):
            shapes |= layer(f"{start}.{name}", width, width)
        shapes |= layer(f"{start}.attention.output.dense", width, width)
        shapes |= layer(f"{start}.attention.output.LayerNorm", width)
        shapes |= layer(f"{start}.intermediate.dense", inner, width)
        shapes |= layer(f"{start}.output.dense", width, inner)
        shapes |= layer(f"{start}.output.LayerNorm", width)
    kind = "BertForSequenceClassification" if labels else "BertModel"
    if labels:
        shapes = {f"bert.{name}": shape for name, shape in shapes.items()}
        shapes |= layer("classifier", len(labels), width)
    config = {
        "model_type": "bert", "architectures": [kind], "vocab_size": size,
        "hidden_size": width, "num_hidden_layers": n_layers, "num_attention_heads": 2,
        "intermediate_size": inner, "max_position_embeddings": 40, "type_vocab_size": 2,
        "hidden_act": "gelu", "layer_norm_eps": 1e-12, "pad_token_id": 0,
    }  # fmt: skip
    path.mkdir(parents=True)
    tokenizer.save(str(path / "tokenizer.json"))
    write_json(path / "tokenizer_config.json", {"tokenizer_class": "BertTokenizer"})
    save_file(draw_weights(shapes, 7), path / "model.safetensors", metadata={"format": "pt"})
    if labels:
        write_json(path / "config.json", {**config, "id2label": dict(enumerate(labels))})
        return
    write_json(path / "config.json", config)
    kinds = {"": "Transformer", "1_Pooling": "Pooling", "2_Normalize": "Normalize"}
    modules = [
        {"idx": n, "name": str(n), "path": folder, "type": f"sentence_transformers.models.{kind}"}
        for n, (folder, kind) in enumerate(kinds.items())
    ]
    write_json(path / "modules.json", modules)
    write_json(path / "sentence_bert_config.json", {"max_seq_length": 40, "do_lower_case": False})
    (path / "1_Pooling").mkdir()
    pooling = {"word_embedding_dimension": width, "pooling_mode_mean_tokens": True}
    write_json(path / "1_Pooling" / "config.json", pooling)


def write_opus(path, *, width=16, inner=24):
    """Writes a translation model as transformers stores one of OPUS-MT."""
    import sentencepiece

    path.mkdir(parents=True)
    for name, lines in (("source.spm", ENGLISH), ("target.spm", FRENCH)):
        with (path / name).open("wb") as file:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(lines * 4), model_writer=file, vocab_size=80,
                hard_vocab_limit=False, minloglevel=2, num_threads=1,
            )  # fmt: skip
    pieces = {"</s>": 0, "<unk>": 1}
    for name in ("source.spm", "target.spm"):
        spm = sentencepiece.SentencePieceProcessor(model_file=str(path / name))
        for number in range(3, spm.get_piece_size()):
            pieces.setdefault(spm.id_to_piece(number), len(pieces))
    pad = pieces["<pad>"] = len(pieces)
    shapes = {"model.shared.weight": (len(pieces), width), "final_logits_bias": (1, len(pieces))}
    for stack, attentions in (
        ("encoder", ("self_attn",)),
        ("decoder", ("self_attn", "encoder_attn")),
    ):
        start = f"model.{stack}.layers.0"
        for attention in attentions:
            for part in ("q_proj", "k_proj", "v_proj", "out_proj"):
                shapes |= layer(f"{start}.{attention}.{part}", width, width)
            shapes |= layer(f"{start}.{attention}_layer_norm", width)
        shapes |= layer(f"{start}.fc1", inner, width) | layer(f"{start}.fc2", width, inner)
        shapes |= layer(f"{start}.final_layer_norm", width)
    save_file(draw_weights(shapes, 8), path / "model.safetensors", metadata={"format": "pt"})
    write_json(path / "vocab.json", pieces)
    write_json(path / "tokenizer_config.json", {"source_lang": "en", "target_lang": "fr"})
    config = {
        "model_type": "marian", "architectures": ["MarianMTModel"], "vocab_size": len(pieces),
        "d_model": width, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
        "decoder_attention_heads": 2, "encoder_ffn_dim": inner, "decoder_ffn_dim": inner,
        "activation_function": "swish", "max_position_embeddings": 40, "scale_embedding": True,
        "static_position_embeddings": True, "normalize_before": False, "eos_token_id": 0,
        "pad_token_id": pad, "decoder_start_token_id": pad, "max_length": 12, "num_beams": 2,
        "bad_words_ids": [[pad]],
    }  # fmt: skip
    write_json(path / "config.json", config)


def layer(name, *shape):
    """Returns the shapes of a weight and its bias."""
    return {f"{name}.weight": shape, f"{name}.bias": shape[:1]}


def write_json(file, content):
    """Writes a JSON file."""
    file.write_text(json.dumps(content))


class Zoo:
    """A folder whose models and inputs are made when they are first asked for."""

    def __init__(self, folder):
        self.folder = Path(folder)

    @property
    def inputs(self):
        """The folder of texts, labels, tables and images."""
        folder = self.folder / "in"
        if not folder.exists():
            write_inputs(folder)
        return folder

    def __getitem__(self, name):
        """Returns the directory of a model, one of `MODELS` or `FOREIGN`."""
        path = self.folder / name
        if not path.exists():
            made = self.folder / f".{name}"
            shutil.rmtree(made, ignore_errors=True)
            self._make(name, made)
            made.rename(path)
        return path

    def make_all(self):
        """Makes every model and input; returns the folder."""
        for name in (*MODELS, *FOREIGN):
            self[name]
        return self.folder

    def _make(self, name, directory):
        match name:
            case "bert":
                write_bert(directory)
            case "opus-mt":
                write_opus(directory)
            case "int8":
                tformer("export", self["translate"], "--format", "int8", "-o", directory, "-q")
            case "twin":
                shutil.copytree(self["translate"], directory)
                redraw(directory / "model.safetensors", TWIN_SEED)
            case "sentences":
                tformer("import", self["bert"], "-o", directory, "-q")
            case "opus":
                tformer("import", self["opus-mt"], "-o", directory, "-q")
            case "bert_classifier":
                foreign = self.folder / ".bert-classifier"
                shutil.rmtree(foreign, ignore_errors=True)
                write_bert(foreign, labels=STARS)
                tformer("import", foreign, "-o", directory, "-q")
            case _:
                self._train(name, directory)

    def _train(self, name, directory):
        with tempfile.TemporaryDirectory() as folder:
            recipe, run = Path(folder) / "recipe.toml", Path(folder) / "run"
            recipe.write_text(recipe_of(name, self.inputs))
            tformer("train", recipe, "-o", run, "-q", "--threads", 1)
            directory.mkdir()
            for file in ("config.json", "tokenizer.json", "model.safetensors"):
                shutil.copy(run / file, directory)
        redraw(directory / "model.safetensors", MODELS.index(name))


def recipe_of(name, inputs):
    """Returns the recipe of a model of `RECIPES` that reads the inputs of a folder."""
    return RECIPES[name].replace('"in/', f'"{inputs}/') + TRAINING
