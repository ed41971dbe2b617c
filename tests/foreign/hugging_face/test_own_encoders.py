"""Encoders, classifiers and taggers of one's own, as Hugging Face's libraries see them."""

import json
from itertools import groupby

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from tests.foreign.own import own_model
from tests.models import tokenizer_of
from tformer_cli.artifacts.config_file import ModelInfo
from tformer_cli.artifacts.model_directory import load_model_directory
from tformer_cli.errors import UsageError
from tformer_cli.foreign.import_model import import_model
from tformer_cli.kinds.opening import open_model
from tformer_cli.kinds.tag import tag_texts, windows
from tformer_cli.plugins.interchange.export import EXPORTED, export_hugging_face
from tformer_cli.search.source_batches import source_batch

transformers = pytest.importorskip("transformers")

SHAPE = {"d_model": 16, "n_heads": 2, "d_ff": 24, "n_encoder_layers": 2, "n_decoder_layers": 0,
         "max_positions": 24, "norm": "pre"}  # fmt: skip
POST = {"norm": "post", "embedding_norm": True, "scale_embeddings": False, "activation": "gelu"}
LABELS = ("no", "yes", "maybe")
FIRST = {"pooling": "first", "pooler": "tanh"}
LINES = [
    "A dog in the street.", " Two </s> men", "naïve\u00a0漢字 <pad>", "a", "x  y\u2028z ",
    "\U0001f600" * 9, "a long one " * 20, "<s>", "[MASK",
]  # fmt: skip
HEADS = {
    "classifier": ("MegatronBertForSequenceClassification", {"n_labels": 3, **FIRST}),
    "post-norm classifier": ("BertForSequenceClassification", {"n_labels": 3, **POST, **FIRST}),
    "tagger": ("MegatronBertForTokenClassification", {"head": "tags", "n_labels": 3}),
    "post-norm tagger": ("BertForTokenClassification", {"head": "tags", "n_labels": 3, **POST}),
    "no biases": (
        "MegatronBertForTokenClassification",
        {"head": "tags", "n_labels": 3, "bias": False, "positions": "learned"},
    ),
    "gaps": ("MegatronBertForMaskedLM", {"head": "tokens", "activation": "gelu"}),
    "gaps, untied": (
        "BertForMaskedLM",
        {"head": "tokens", "tied_embeddings": "none", **POST, "positions": "learned"},
    ),
    "vectors": ("MegatronBertModel", {"head": "none"}),
}


def directory(path, settings, algorithm="bpe", **text):
    """Writes a model of one's own, exports it, and returns it with the name of the class."""
    tokenizer = tokenizer_of(algorithm=algorithm, **text)
    if settings.get("head") == "tokens":
        tokenizer = tokenizer.with_mask()
    labels = LABELS if settings.get("n_labels") else ()
    own_model(path / "ours", tokenizer, {**SHAPE, **settings}, info=ModelInfo(labels=labels))
    name = export_hugging_face(path / "ours", path / "theirs")
    return load_model_directory(path / "ours", tasks=EXPORTED), name


def read(ours, lines):
    """The (B, S) ids of lines and their mask, as commands cut and pad them."""
    longest = ours.config.longest_source
    ids = [row[:longest] for row in ours.tokenizer.source.encode_batch(lines)]
    return source_batch(ids, ours.config.max_positions, "cpu", eos=True)


@pytest.mark.parametrize("algorithm", ["bpe", "unigram", "word", "char", "byte"])
def test_the_library_cuts_lines_as_tformer_does(tmp_path, algorithm):
    ours, _ = directory(tmp_path, {"head": "tags", "n_labels": 3}, algorithm)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "theirs")
    ids, mask = read(ours, LINES)
    assert theirs.model_max_length == ours.config.max_positions
    for number, line in enumerate(LINES):
        assert theirs(line, truncation=True)["input_ids"] == ids[number][mask[number]].tolist()
    words = ["A", "dog's", "naïve", "漢字", ","]
    (window,) = windows(ours.tokenizer.source, " ".join(words))
    cut = theirs(words, is_split_into_words=True)
    assert cut["input_ids"] == [*window.ids, 3]
    assert [cut.word_ids().index(n) for n in range(len(words))] == window.places


@pytest.mark.parametrize("case", HEADS)
def test_a_class_computes_the_same_and_is_imported_again(tmp_path, case):
    name, settings = HEADS[case]
    ours, written = directory(tmp_path, settings)
    assert written == name
    auto = {"": "AutoModel", "labels": "AutoModelForSequenceClassification"}
    auto |= {"tags": "AutoModelForTokenClassification", "tokens": "AutoModelForMaskedLM"}
    kind = getattr(transformers, auto.get(ours.config.head, "AutoModel"))
    theirs = kind.from_pretrained(tmp_path / "theirs").eval()
    assert type(theirs).__name__ == name
    ids, mask = read(ours, LINES)
    with torch.inference_mode():
        found = theirs(input_ids=ids, attention_mask=mask.long())[0]
        expected = ours.encoder(ids, mask)
        if name.endswith("Model"):
            expected = ours.encoder.encode(ids, mask)
    where = mask if expected.ndim == 3 else slice(None)
    assert (found[where] - expected[where]).abs().max() <= 1e-5
    if ours.config.n_labels:
        assert theirs.config.id2label == dict(enumerate(LABELS))
    import_model(str(tmp_path / "theirs"), tmp_path / "again")
    again = load_model_directory(tmp_path / "again", tasks=EXPORTED)
    assert again.info.labels == ours.info.labels
    with torch.inference_mode():
        back = again.encoder(*read(again, LINES))
        assert (back - ours.encoder(ids, mask))[
            where if back.ndim == 3 else ...
        ].abs().max() <= 1e-5


def test_a_gap_is_filled_by_its_name(tmp_path):
    ours, _ = directory(tmp_path, {"head": "tokens"})
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "theirs")
    side = ours.tokenizer.source
    for line in ("The [MASK] dog", "[MASK] dog.", "a [MASK] [MASK].", "[MASK]"):
        assert theirs(line)["input_ids"] == [*side.encode_gaps(line.split("[MASK]")), 3]
    assert theirs.mask_token_id == side.mask_id


@pytest.mark.parametrize(
    "settings",
    [
        {"head": "none", "pooling": "mean"},
        {"head": "none", "pooling": "first", "unit_length": True},
        {"n_labels": 3, "pooling": "mean"},
        {"n_labels": 3, "pooling": "first", "bias": False},
        {"n_labels": 3, "pooling": "mean", "pooler": "relu"},
        {"n_labels": 3, **POST, "pooling": "mean", "pooler": "tanh"},
    ],
)
def test_other_poolings_are_modules_on_the_encoder(tmp_path, settings):
    ours, name = directory(tmp_path, settings)
    path = tmp_path / "theirs"
    states = transformers.AutoModel.from_pretrained(path).eval()
    assert name == ("SentenceTransformer" if ours.info.labels else type(states).__name__)
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    batch = tokenizer(LINES, padding=True, truncation=True, return_tensors="pt")
    with torch.inference_mode():
        found = states(**batch)[0].numpy()
    first, pooling, *rest = json.loads((path / "modules.json").read_text())
    assert first["path"] == ""
    # as sentence-transformers computes its modules
    modes = json.loads((path / pooling["path"] / "config.json").read_text())
    if modes["pooling_mode_cls_token"]:
        vectors = found[:, 0]
    else:
        mask = batch["attention_mask"].numpy()[:, :, None]
        vectors = (found * mask).sum(1) / mask.sum(1)
    for module in rest:
        if module["type"].endswith("Normalize"):
            vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
            continue
        parts = json.loads((path / module["path"] / "config.json").read_text())
        weights = load_file(path / module["path"] / "model.safetensors")
        vectors = vectors @ weights["linear.weight"].T + weights.get("linear.bias", 0.0)
        assert parts["bias"] == ("linear.bias" in weights)
        activation = parts["activation_function"].rpartition(".")[2]
        vectors = getattr(torch.nn, activation)()(torch.from_numpy(vectors)).numpy()
    with torch.inference_mode():
        expected = ours.encoder(*read(ours, LINES)).numpy()
    assert np.abs(vectors - expected).max() <= 1e-5
    if not ours.info.labels:
        import_model(str(path), tmp_path / "again")
        again = load_model_directory(tmp_path / "again", tasks=EXPORTED)
        same = ("pooling", "unit_length", "max_positions")
        assert [getattr(again.config, n) for n in same] == [getattr(ours.config, n) for n in same]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"positions": "rotary"}, r'of Hugging Face has no positions = "rotary"; train with'),
        ({"norm": "post"}, 'no embedding_norm = False; train with embedding_norm = true or norm'),
        ({"norm_kind": "rms"}, 'has no norm_kind = "rms"; train with norm_kind = "layer", or'),
        ({"gated": True}, "has no gated = True; train with gated = false, or export with --format"),
    ],
)  # fmt: skip
def test_what_prevents_an_export_is_named_with_what_does_not(tmp_path, settings, message):
    tagger = {"head": "tags", "n_labels": 3, **settings}
    with pytest.raises(UsageError, match=message):
        directory(tmp_path, tagger)
    assert not (tmp_path / "theirs").exists()


@pytest.mark.filterwarnings("ignore:Tokenizer does not support real words")
@pytest.mark.parametrize("algorithm", ["bpe", "unigram", "word"])
@pytest.mark.parametrize("strategy", ["first", "simple"])
def test_the_library_joins_the_words_of_a_tagger(tmp_path, algorithm, strategy):
    lines = ["A man's dog, the naïve one.", "café été über dog", "Zebras sleep", "a"]
    known = [line.replace("Zebras", "") for line in lines] * 3
    directory(tmp_path, {"head": "tags", "n_labels": 3}, algorithm, lines=known, vocab_size=380)
    path = tmp_path / "theirs"
    pipeline = transformers.pipeline(
        "token-classification", model=path, aggregation_strategy=strategy
    )
    ours = tag_texts(open_model(tmp_path / "ours", "tag"), lines)
    for tagged, line in zip(ours, lines, strict=True):
        found = pipeline(line)
        for word in found:
            # a piece may be a part of a letter, and unknown words are named
            if not {"\ufffd", "<"} & {*word["word"]}:
                assert word["word"].strip() == line[word["start"] : word["end"]].strip()
        # with "unigram" a space may be a piece by itself, which the library takes for a word
        if strategy == "simple" or algorithm == "unigram":
            continue
        groups = groupby(tagged.words, key=lambda word: word.label)
        expected = [(label, " ".join(word.word for word in group)) for label, group in groups]
        # unknown words of a "word" tokenizer keep the space before them
        strip = str.strip if algorithm == "word" else str
        assert [(word["entity_group"], strip(word["word"])) for word in found] == expected
    import_model(str(path), tmp_path / "again")
    again = tag_texts(open_model(tmp_path / "again", "tag"), lines)
    assert [result.line("text") for result in again] == [result.line("text") for result in ours]
