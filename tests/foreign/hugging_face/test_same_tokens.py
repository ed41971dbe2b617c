"""Every setting of a tokenizer.json is computed as `tokenizers` computes it, or is refused.

Each key whose table allows more than one value gets another one; so do the parts of its sections.
"""

import json
from functools import partial

import pytest

pytest.importorskip("transformers")

import transformers
from tokenizers import Tokenizer

from tests.foreign import encoders, test_odd_models, test_qwen2, test_refusals
from tests.foreign.hugging_face import test_importing as translators
from tests.foreign.spm import spm
from tests.foreign.t5 import test_importing as test_t5
from tformer_cli.artifacts.model_directory import load_model_directory
from tformer_cli.errors import ArtifactError
from tformer_cli.foreign.hugging_face.keys import TOKENIZER, WHOLE_TOKENIZERS
from tformer_cli.foreign.import_model import import_model
from tformer_cli.foreign.keys import Fate, Parts


def pegasus(path):
    translators.pegasus(path)
    transformers.PegasusTokenizer.from_pretrained(path).save_pretrained(path)


def t5(path):
    test_refusals.t5(path)
    transformers.T5Tokenizer.from_pretrained(path, extra_ids=5).save_pretrained(path)


# what writes a directory, and the table of its tokenizer.json
KINDS = {
    "t5": (t5, "t5"),
    "whole t5": (partial(test_refusals.t5, whole=True), "t5"),
    "pegasus": (pegasus, "spm"),
    "llama": (test_odd_models.llama_in_both_forms, "llama"),
    "gpt2": (partial(test_refusals.gpt2, whole=True), "gpt2"),
    "qwen2": (test_qwen2.write, "qwen2"),
    **{
        kind: (partial(encoders.write_directory, kind=kind, head="Model"), table)
        for kind, table in (("bert", "bert"), ("roberta", "gpt2"))
    },
}
TEXTS = [
    "a cat  sat on the mat, isn't it?",
    "x yz 漢 é\u0301 🙂b c",
    "Öl 12.50% o f 'ab'",
    "SOME terrible soup",
]
# parts of a section that other tokenizers have
PARTS = {
    "Metaspace": {"replacement": "▁", "prepend_scheme": "always", "split": True},
    "WhitespaceSplit": {},
    "Precompiled": {"precompiled_charsmap": ""},
    "Replace": {"pattern": {"String": " "}, "content": "▁"},
    "Prepend": {"prepend": "▁"},
    "Strip": {"strip_left": True, "strip_right": False},
    "NFC": {},
    "BertNormalizer": {"clean_text": True, "handle_chinese_chars": True, "strip_accents": None,
                       "lowercase": True},
    "BertPreTokenizer": {},
    "ByteLevel": {"add_prefix_space": False, "trim_offsets": True, "use_regex": True},
}  # fmt: skip


def others(row, value):
    """Values of a key that its table allows, besides the one that it has."""
    if isinstance(row, Fate) and row.kind == "only":
        yield from (
            choice for choice in row.values if choice != value and type(choice) is not object
        )
    elif isinstance(row, Fate) and isinstance(value, bool):
        yield not value
    elif isinstance(row, Fate) and isinstance(value, int):
        yield value + 1
    elif isinstance(row, Parts):
        yield None
        named = [{"type": kind, **PARTS[kind]} for kind in row.kinds if kind in PARTS]
        yield from named
        if row.in_sequence:
            inner = next((v for v in (value or {}).values() if isinstance(v, list)), [value])
            key = "normalizers" if row is row_of("normalizer", row) else "pretokenizers"
            for part in named:
                for steps in ([part, *inner], [*inner, part]):
                    yield {"type": "Sequence", key: [step for step in steps if step]}
            yield {"type": "Sequence", key: [step for step in inner if step][::-1]}


def row_of(section, row):
    """The row of a section if it is in a table, so that parts are named as it names them."""
    return next((t.rows[section] for t in WHOLE_TOKENIZERS.values() if t.rows[section] is row), 0)


def changes(values, rows, *within):
    """Each other value, with the keys that lead to it."""
    for key, row in rows.items():
        value = values.get(key)
        for other in others(row, value):
            yield (*within, key), other
        inner = value if isinstance(value, list) else [value]
        if isinstance(row, Parts) and isinstance(value, dict):
            lists = [(k, v) for k, v in value.items() if isinstance(v, list)]
            parts = [((), value)]
            if value["type"] == "Sequence":
                parts = [((k, n), item) for k, v in lists for n, item in enumerate(v)]
            for place, part in parts:
                yield from changes(part, row.kinds.get(part["type"], {}), *within, key, *place)
        elif not isinstance(row, Fate | Parts):
            for place, item in enumerate(inner[:6]):
                at = (place,) if isinstance(value, list) else ()
                yield from changes(item or {}, row, *within, key, *at)


def with_value(values, keys, value):
    *outer, last = keys
    for key in outer:
        values = values[key]
    values[last] = value


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_each_setting_is_computed_or_refused(tmp_path, kind):
    write, table = KINDS[kind]
    path, ours_path = tmp_path / "theirs", tmp_path / "ours"
    write(path)
    file = path / TOKENIZER
    base = file.read_text()
    found = list(changes(json.loads(base), WHOLE_TOKENIZERS[table].rows))
    assert len(found) > 10
    fates = {"computed": 0, "refused": 0}
    for place, (keys, value) in enumerate([((), None), *found]):
        values = json.loads(base)
        if keys:
            with_value(values, keys, value)
        file.write_text(json.dumps(values))
        output = ours_path / str(place)
        try:
            model = import_model(str(path), output)
        except ArtifactError:
            assert keys, "the file as the library writes it"
            fates["refused"] += 1
            continue
        fates["computed"] += 1
        theirs = Tokenizer.from_str(json.dumps(values))
        theirs.no_truncation()
        theirs.no_padding()
        side = load_model_directory(output, tasks=("translate", "language-model", "embed"))
        for text in TEXTS:
            ids = [model.ids[n] for n in side.tokenizer.target.encode_phrases([text])[0]]
            assert ids == theirs.encode(text, add_special_tokens=False).ids, (keys, value, text)
    assert min(fates.values()) > 2, fates


def t5_of(path, pieces, changed):
    """A directory of T5 whose SentencePiece model has some more pieces, with a tokenizer.json."""
    sizes = {"vocab_size": len(pieces) + test_t5.N_SENTINELS}
    test_t5.write(path, *test_t5.random_t5(**sizes)[1:])
    types = {"<unk>": 2, "<pad>": 3, "</s>": 3}
    (path / "spiece.model").write_bytes(spm(pieces, types))
    theirs = transformers.T5Tokenizer.from_pretrained(path, extra_ids=test_t5.N_SENTINELS)
    theirs.save_pretrained(path)
    values = json.loads((path / TOKENIZER).read_text())
    values["pre_tokenizer"] = changed
    (path / TOKENIZER).write_text(json.dumps(values))
    return Tokenizer.from_str(json.dumps(values))


SPLIT, ALWAYS, FIRST = (
    {"type": "WhitespaceSplit"},
    {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True},
    {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": True},
)


def both(*steps):
    return {"type": "Sequence", "pretokenizers": [*steps]}


@pytest.mark.parametrize(
    ("more", "pre_tokenizer", "is_refused"),
    [
        ((), both(SPLIT, ALWAYS), False),
        ((), both(SPLIT, FIRST), True),  # only the first word has a space
        ((), FIRST, True),  # a space before a sentinel is a piece
        ((), both(SPLIT), True),
        (("▁a▁b",), both(SPLIT, ALWAYS), True),  # a piece that crosses a space
        (("▁a▁b",), ALWAYS, True),
    ],
)
def test_two_settings_of_a_pre_tokenizer_are_two_results(tmp_path, more, pre_tokenizer, is_refused):
    pieces = [*test_t5.T5_PIECES[:4], *more, *test_t5.T5_PIECES[4:]]
    theirs = t5_of(tmp_path / "t5", pieces, pre_tokenizer)
    if is_refused:
        with pytest.raises(ArtifactError, match=r"tokenizer\.json: cuts .* differently"):
            import_model(str(tmp_path / "t5"), None)
        return
    foreign = import_model(str(tmp_path / "t5"), tmp_path / "ours")
    side = load_model_directory(tmp_path / "ours").tokenizer.target

    def cut(text):
        return [foreign.ids[n] for n in side.encode_phrases([text])[0]]

    assert "as in seqio; transformers puts one there" in foreign.notes[-1]
    text = "a <extra_id_0>. b<extra_id_1> c"
    expected = theirs.encode(text, add_special_tokens=False).ids
    assert cut(text) != expected
    assert cut("a <extra_id_0> . b <extra_id_1> c") == expected


def test_other_merges_and_another_id_of_the_end_are_refused(tmp_path):
    path = tmp_path / "llama"
    test_odd_models.llama_in_both_forms(path)
    values = json.loads((path / TOKENIZER).read_text())
    model, around = values["model"], values["post_processor"]
    for change, message in (
        ({"model": {**model, "merges": model["merges"][1:]}}, "differently"),
        ({"model": {**model, "unk_token": None}}, "differently"),
        (
            {"post_processor": {**around, "special_tokens": {
                "<s>": {"id": "<s>", "ids": [2], "tokens": ["<s>"]}}}},
            'gives "<s>" the id 2, but it has the id 1',
        ),
    ):  # fmt: skip
        (path / TOKENIZER).write_text(json.dumps({**values, **change}))
        with pytest.raises(ArtifactError, match=message):
            import_model(str(path), None)


@pytest.mark.parametrize(
    ("decoder", "is_refused"),
    [
        (None, False),
        ({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"}, False),
        ({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never"}, False),
        ({"type": "Metaspace", "replacement": "_", "prepend_scheme": "always"}, True),
        ({"type": "WordPiece", "prefix": "##", "cleanup": True}, True),
        ({"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "Fuse"},
            {"type": "Strip", "content": "a", "start": 1, "stop": 1}]}, True),
    ],
    ids=str,
)  # fmt: skip
def test_texts_of_tokens_are_those_of_the_library(tmp_path, decoder, is_refused):
    """A space before a text is none here, whether a decoder removes it or not."""
    t5(tmp_path / "t5")
    values = json.loads((tmp_path / "t5" / TOKENIZER).read_text())
    (tmp_path / "t5" / TOKENIZER).write_text(json.dumps({**values, "decoder": decoder}))
    if is_refused:
        with pytest.raises(ArtifactError, match=r"tokenizer\.json: writes .* differently"):
            import_model(str(tmp_path / "t5"), None)
    else:
        import_model(str(tmp_path / "t5"), None)
