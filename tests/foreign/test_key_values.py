"""Each key with more than one allowed value gets another one: the library's numbers, or a refusal.

The files of a tokenizer are tried in `hugging_face/test_same_tokens`. Keys that change no number
in either program are seen not to: the numbers stay equal.
"""

import json

import pytest

pytest.importorskip("transformers")

import transformers

from tests.foreign import test_odd_models as odd
from tformer_cli.errors import ArtifactError
from tformer_cli.foreign.hugging_face.families import FAMILIES
from tformer_cli.foreign.import_model import import_model
from tformer_cli.foreign.keys import Fate

FILES = ("config.json", "generation_config.json")
# what writes a directory, and what compares it with the library
KINDS = {
    "bert": (odd.bert, odd.encoder_differs),
    "roberta": (lambda path: odd.bert(path, kind="roberta"), odd.encoder_differs),
    "distilbert": (lambda path: odd.bert(path, kind="distilbert"), odd.encoder_differs),
    "gpt2": (odd.gpt2, odd.decoder_differs),
    "llama": (odd.llama, odd.decoder_differs),
    "marian": (odd.marian, odd.translations_differ),
    "m2m_100": (odd.several, odd.several_differ),
    "mbart": (lambda path: odd.several(path, kind="mbart"), odd.several_differ),
    "t5": (odd.t5, odd.t5_differs),
}


def others(row, value):
    """Values that a key's row allows, besides the one that it has."""
    if isinstance(row, Fate) and row.kind == "only":
        yield from (choice for choice in row.values if choice != value)
    elif isinstance(row, Fate) and isinstance(value, bool):
        yield not value
    elif isinstance(row, Fate) and isinstance(value, int):
        yield from (value + 1, 0)
    elif isinstance(row, Fate) and isinstance(value, float):
        yield value / 2 + 0.1


def changes(kind, stored):
    defaults = transformers.AutoConfig.for_model(kind).to_dict()
    for key, row in FAMILIES[kind].keys.rows.items():
        for other in others(row, stored.get(key, defaults.get(key))):
            yield key, other


# the comparison of these asks for the special tokens that it knows
OWN_TOKENS = ("marian", "t5")


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_another_value_of_each_key_is_computed_or_refused(tmp_path, kind):
    write, differs = KINDS[kind]
    path = tmp_path / "theirs"
    with odd.quiet():
        write(path)
        texts = {name: (path / name).read_text() for name in FILES if (path / name).is_file()}
        n_computed = 0
        for place, (key, value) in enumerate(changes(kind, json.loads(texts[FILES[0]]))):
            if key.endswith("_token_id") and kind in OWN_TOKENS:
                continue
            for name, text in texts.items():  # a search asks the second
                stored = json.loads(text)
                change = {key: value} if name == FILES[0] or key in stored else {}
                (path / name).write_text(json.dumps({**stored, **change}))
            try:
                found = differs(path, tmp_path / str(place))
            except ArtifactError:
                continue
            except (ValueError, RuntimeError, LookupError, ArithmeticError, AttributeError):
                continue  # the library refuses it
            except AssertionError as error:
                if "Padding_idx must be within" in str(error):
                    continue
                raise
            assert found <= odd.CLOSE * 2, (key, value)
            n_computed += 1
    assert n_computed > 10


@pytest.mark.parametrize(
    ("kind", "values", "message"),
    [
        ("roberta", {"pad_token_id": 2}, "pad_token_id = 2, from which positions are counted"),
        ("m2m_100", {"pad_token_id": 2}, "pad_token_id = 2 is a token of texts"),
    ],
)
def test_positions_are_counted_from_a_token_that_pads(tmp_path, kind, values, message):
    KINDS[kind][0](tmp_path / kind)
    odd.edit(tmp_path / kind, "config.json", **values)
    with pytest.raises(ArtifactError, match=message):
        import_model(str(tmp_path / kind), None)


def test_positions_are_counted_by_config_json(tmp_path):
    """The tokens of generation_config.json are those of searches."""
    write, differs = KINDS["m2m_100"]
    write(tmp_path / "theirs")
    odd.edit(tmp_path / "theirs", "config.json", pad_token_id=0)
    assert differs(tmp_path / "theirs", tmp_path / "ours") <= odd.CLOSE * 2


@pytest.mark.parametrize(
    ("kind", "name", "is_refused"),
    [
        ("bert", "ElectraTokenizerFast", False),
        ("bert", "RobertaTokenizer", True),
        ("roberta", "RobertaTokenizerFast", False),
        ("roberta", "BertTokenizer", True),
        ("gpt2", "GPT2Tokenizer", False),
        ("gpt2", "Qwen2Tokenizer", True),
        ("m2m_100", "NllbTokenizer", False),
        ("m2m_100", "MBart50Tokenizer", True),
        ("mbart", "MBart50Tokenizer", False),
        ("mbart", "NllbTokenizer", True),
    ],
)
@pytest.mark.parametrize("file", ["tokenizer_config.json", "config.json"])
def test_a_tokenizer_class_that_cuts_otherwise_is_refused(tmp_path, file, kind, name, is_refused):
    KINDS[kind][0](tmp_path / kind)
    odd.edit(tmp_path / kind, "tokenizer_config.json", tokenizer_class=None)
    odd.edit(tmp_path / kind, file, tokenizer_class=name)
    if is_refused:
        with pytest.raises(ArtifactError, match=f'tokenizer_class = "{name}"'):
            import_model(str(tmp_path / kind), None)
    else:
        import_model(str(tmp_path / kind), None)


@pytest.mark.parametrize("value", [None, True])
def test_whether_prompts_begin_is_said_where_versions_differ(tmp_path, value):
    odd.llama(tmp_path / "llama")
    odd.edit(tmp_path / "llama", "tokenizer_config.json", add_bos_token=value)
    notes = import_model(str(tmp_path / "llama"), None).notes
    assert any("where add_bos_token is not set" in note for note in notes) == (value is None)
