"""Every key of a file of a foreign model is used, without effect, noted, or refused by name."""

import json
import re
import shutil
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("transformers")

from tests.foreign import encoders, test_refusals
from tests.foreign.hugging_face import test_importing as translators
from tests.foreign.key_tables import tables
from tformer_cli.errors import ArtifactError
from tformer_cli.foreign.hugging_face.families import CONFIGS
from tformer_cli.foreign.import_model import import_model
from tformer_cli.foreign.keys import USED, Fate, Keys, Parts, no_effect, omit, only

FILE = Path("there.json")
KEYS = Keys(
    "there.json",
    "toys",
    {
        "width": USED,
        "dropout": no_effect("only in training"),
        "crop": omit("nothing is cropped", 1.0),
        "act": only("relu", None),
        "inner": {"depth": only(2)},
        "part": Parts({"Lower": {"strong": only(True)}, None: {}}, in_sequence=True),
        "one": Parts({"Lower": {}}),
    },
)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"made_up": 3}, "made_up = 3 is unknown"),
        ({"made_up": {"x": 1}}, "made_up = a dict is unknown"),
        ({"a\x1b[31m": 1}, r'"a\u001b[31m" = 1 is unknown'),
        ({"act": "gelu"}, 'act = "gelu" is not supported'),
        ({"inner": {"made_up": 1}}, "inner.made_up = 1 is unknown"),
        ({"inner": [{"depth": 2}, {"depth": 3}]}, "inner.depth = 3 is not supported"),
        ({"inner": 5}, "inner = 5 is not supported"),
        ({"part": {"type": "Upper"}}, 'part.type = "Upper" is not supported'),
        ({"part": {"type": "Lower", "strong": False}}, "part.strong = false is not supported"),
        ({"part": {"type": "Sequence", "parts": [{"type": "No"}]}}, 'part.type = "No" is not'),
        ({"one": {"type": "Sequence", "parts": []}}, 'one.type = "Sequence" is not supported'),
        ({"one": None}, "one.type = null is not supported"),
        ({"part": {"type": ["Lower"]}}, "part = a dict is not supported"),
    ],
)
def test_what_a_table_lacks_is_refused_by_name(values, message):
    with pytest.raises(ArtifactError, match=f"^there.json: {re.escape(message)}"):
        KEYS.read(FILE, values)


def test_keys_that_only_early_versions_of_the_library_read_are_known():
    """As in the package rxnfp's classifier."""
    assert CONFIGS["bert"].read(FILE, {"eos_token_ids": 0, "output_past": True}) == []


def test_what_is_omitted_is_noted_once():
    values = {"width": 5, "dropout": 0.1, "act": None, "inner": None, "part": None, "other": None}
    assert KEYS.read(FILE, values) == []
    assert KEYS.read(FILE, {"crop": 1.0}) == []
    assert KEYS.read(FILE, {"crop": 0.9}) == ["crop = 0.9: nothing is cropped"]
    assert KEYS.read(FILE, {"inner": [{"depth": 2}], "part": {"type": "Sequence"}}) == []


@pytest.mark.parametrize("table", tables(), ids=lambda keys: f"{keys.file} of {keys.models}")
def test_every_table_refuses_or_notes_what_it_does_not_know(table):
    """Made-up keys, and made-up values of those keys whose values are limited."""
    file = Path(table.file)
    with pytest.raises(ArtifactError, match="made_up = 3 is unknown"):
        table.read(file, {"made_up": 3})
    for key, row in table.rows.items():
        if isinstance(row, Parts) or (isinstance(row, Fate) and row.kind == "only"):
            with pytest.raises(ArtifactError, match=f"{re.escape(key)} = .* is not supported"):
                table.read(file, {key: "made up"})
        elif isinstance(row, Fate) and row.kind == "noted":
            assert table.read(file, {key: "made up"}) == [f'{key} = "made up": {row.why}']
        if isinstance(row, Fate) and row.kind in ("noted", "no effect"):
            assert row.why


KINDS = {
    "marian": translators.marian,
    **{kind: partial(translators.multilingual, kind=kind) for kind in ("m2m", "nllb", "mbart")},
    "pegasus": translators.pegasus,
    "t5": test_refusals.t5,
    "gpt2": test_refusals.KINDS["whole gpt2"],
    "llama": test_refusals.llama,
    **{
        kind: partial(encoders.write_directory, kind=kind, head="Model") for kind in encoders.SHAPES
    },
    "sentences": test_refusals.sentences,
}
FILES = {
    "config.json": {"is_encoder_decoder": "made up"},
    "tokenizer_config.json": {"tokenizer_class": "BertJapaneseTokenizer"},
    "special_tokens_map.json": {"unk_token": "<made up>"},
    "added_tokens.json": {"<made up>": 5},
    "tokenizer.json": {"normalizer": {"type": "MadeUp"}},
    "generation_config.json": {"begin_suppress_tokens": [5]},
    "modules.json": {"type": "made.up.Dense"},
    "sentence_bert_config.json": {"transformer_task": "made up"},
    "config_sentence_transformers.json": {"default_prompt_name": "made up"},
    "1_Pooling/config.json": {"pooling_mode_max_tokens": True},
    "2_Normalize/config.json": {"made_up_too": 1},
}
"""A made-up value in each file."""
SENTENCE_FILES = list(FILES)[6:]
WITHOUT = {
    # the library has no tokenizer of Marian that reads it
    "marian": {"tokenizer.json", *SENTENCE_FILES},
    # encoders write nothing
    **{key: {"generation_config.json", *SENTENCE_FILES} for key in encoders.SHAPES},
    "sentences": {"generation_config.json"},
}
CASES = [
    (kind, file)
    for kind in KINDS
    for file in FILES
    if file not in WITHOUT.get(kind, SENTENCE_FILES)
]


@pytest.fixture(scope="module")
def directories(tmp_path_factory):
    """Directories of all kinds."""
    made = {}

    def directory(kind):
        if kind not in made:
            made[kind] = tmp_path_factory.mktemp("kinds") / kind
            KINDS[kind](made[kind])
        return made[kind]

    return directory


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_made_up_keys_and_values_of_every_file_are_refused_by_name(
    directories, tmp_path, kind, name
):
    path = shutil.copytree(directories(kind), tmp_path / kind)
    import_model(str(path), None)
    file = path / name
    stored = json.loads(file.read_text()) if file.exists() else {}
    file.parent.mkdir(exist_ok=True)
    known = FILES[name]
    if name == "special_tokens_map.json":
        own = path / "tokenizer_config.json"
        settings = json.loads(own.read_text()) if own.exists() else {}
        own.write_text(json.dumps({**settings, "unk_token": "<unk>"}))
    for change in ({"made_up": 3}, known):
        changed = (
            [{**stored[0], **change}, *stored[1:]]
            if isinstance(stored, list)
            else {**stored, **change}
        )
        file.write_text(json.dumps(changed))
        (key,) = change
        with pytest.raises(
            ArtifactError, match=key.strip("<>").replace("type", "modules")
        ) as error:
            import_model(str(path), None)
        assert "\n" not in str(error.value)
