"""Every engine, export and cache refuses a setting, a value or a format that it does not know."""

from dataclasses import field, fields, make_dataclass, replace
from types import MappingProxyType, SimpleNamespace
from typing import Literal, get_args, get_origin, get_type_hints

import pytest
import torch

from tformer_cli.errors import DataError, UsageError
from tformer_cli.fast import native_search
from tformer_cli.fast.native import weights
from tformer_cli.fast.native_search import CompiledEngine
from tformer_cli.foreign.hugging_face.families import FAMILIES
from tformer_cli.model.config import PLAIN_TRANSLATION, ModelConfig
from tformer_cli.model.transformer import Transformer
from tformer_cli.plugins.interchange.ctranslate2 import exporting as ctranslate2_export
from tformer_cli.plugins.page import export as page_export
from tformer_cli.search import config as decoding_config
from tformer_cli.search import torch_search
from tformer_cli.search.config import DecodingConfig
from tformer_cli.search.engine import Searcher, Sentence
from tformer_cli.search.source_batches import source_batch
from tformer_cli.search.torch_engine import KNOWN_DEMANDS, TorchEngine
from tformer_cli.settings import ANY, unknown_setting
from tformer_cli.text import config as data_config
from tformer_cli.text import corpora
from tformer_cli.text.config import CorpusConfig, DataConfig
from tformer_cli.text.loading import encoded
from tformer_cli.text.loading.encoded import cache_key

CPU = torch.device("cpu")
SHAPE = {"d_model": 8, "n_heads": 2, "d_ff": 8, "n_encoder_layers": 1, "n_decoder_layers": 1}
TABLES = [
    (DecodingConfig, decoding_config.BEAM_SEARCH),
    (DecodingConfig, decoding_config.PLAIN_SEARCH),
    (DecodingConfig, decoding_config.ANY_SEARCH),
    (Sentence, KNOWN_DEMANDS),
    (DecodingConfig, decoding_config.KERNEL_SEARCH),
    (Sentence, native_search.KNOWN_DEMANDS),
    (ModelConfig, weights.KNOWN_MODELS),
    (ModelConfig, ctranslate2_export.KNOWN_MODELS),
    (ModelConfig, FAMILIES["marian"].known),
    (ModelConfig, page_export.KNOWN_MODELS),
    (DecodingConfig, page_export.KNOWN_SEARCH),
    (CorpusConfig, encoded.KNOWN_CORPUS_KEYS),
    (DataConfig, encoded.KNOWN_DATA_KEYS),
]


def made_up_values(kind):
    """For every setting of a few named values (and for no or yes), one that there is not."""
    for name, hint in get_type_hints(kind).items():
        if get_origin(hint) is Literal:
            assert "made up" not in get_args(hint)
            yield name, "made up"
        elif hint is bool:
            yield name, "made up"


def with_value(settings, name, value):
    """The same settings with a value that their own checks would refuse."""
    changed = replace(settings)
    object.__setattr__(changed, name, value)
    return changed


def with_made_up_field(settings):
    """The same settings and one more, at its default."""
    kind = make_dataclass(
        type(settings).__name__,
        [("made_up", bool, field(default=False))],
        bases=(type(settings),),
        frozen=type(settings).__dataclass_params__.frozen,  # ours take no frozen subclass
        kw_only=True,
    )
    return kind(**{key.name: getattr(settings, key.name) for key in fields(settings)})


def model_of(**settings):
    model = Transformer(ModelConfig(**SHAPE), 12).eval()
    model.config = replace(model.config, **settings)
    return model


@pytest.mark.parametrize(("kind", "table"), TABLES)
def test_tables_name_fields_that_exist_and_know_the_defaults(kind, table):
    assert set(table) == {key.name for key in fields(kind)}
    corpus = CorpusConfig(tsv="x")
    needed = {
        CorpusConfig: {"tsv": "x"},
        DataConfig: {"train": (corpus,)},
        Sentence: {"tokens": (5, 6)},
    }
    assert unknown_setting(kind(**needed.get(kind, {})), table) is None


@pytest.mark.parametrize("family", FAMILIES.values(), ids=lambda family: family.title)
def test_tables_of_families_name_every_setting(family):
    assert set(family.known) == {key.name for key in fields(ModelConfig)}


def test_a_plain_translation_model_has_neutral_values_alone():
    for name, values in PLAIN_TRANSLATION.items():
        if name in ("n_encoder_layers", "n_decoder_layers"):
            assert 0 not in values
        else:
            assert values == (getattr(ModelConfig, name),)


@pytest.fixture(scope="module")
def engines():
    return [
        TorchEngine(CPU),
        CompiledEngine(),
    ]


def test_a_made_up_decoding_setting_is_refused_by_every_engine(engines):
    model = model_of()
    batch = source_batch([[5, 6]], 20, CPU)
    made_up = [replace(DecodingConfig(), **{n: v}) for n, v in made_up_values(DecodingConfig)]
    assert len(made_up) == 4
    for config in (*made_up, with_made_up_field(DecodingConfig())):
        assert not decoding_config.is_beam_search(config)
        for engine in engines:
            assert "made" in engine.supports(config, model)
        with pytest.raises(ValueError, match="does not know the setting"):
            torch_search.search(model, [Sentence(tokens=(5, 6))], *batch, config)
        with pytest.raises(UsageError, match=r"--engine: torch cannot search here: .*made"):
            Searcher(model, engines[::-1]).search([Sentence(tokens=(5, 6))], config)


def test_a_made_up_demand_on_a_sentence_is_refused_by_every_engine(engines):
    sentence = with_made_up_field(Sentence(tokens=(5, 6)))
    for engine in engines:
        assert "made_up" in engine.takes(sentence)
    with pytest.raises(UsageError, match="--engine: torch cannot search here: made_up"):
        Searcher(model_of(), engines[::-1]).search([sentence], DecodingConfig())


def test_a_made_up_model_setting_is_refused_by_what_computes_it_by_itself(tmp_path, monkeypatch):
    monkeypatch.setattr(
        ctranslate2_export, "import_ctranslate2", lambda: SimpleNamespace(specs=None)
    )
    made_up = [with_value(ModelConfig(**SHAPE), *case) for case in made_up_values(ModelConfig)]
    assert len(made_up) >= 5
    for config in (*made_up, with_made_up_field(ModelConfig(**SHAPE))):
        model = model_of()
        model.config = config
        assert "do not know" in weights.unsupported_shape(config, 12, in_integers=False)
        assert "do not know" in CompiledEngine().supports(DecodingConfig(), model)
        directory = SimpleNamespace(model=model, tokenizer=None, path=tmp_path)
        with pytest.raises(UsageError, match="does not know"):
            ctranslate2_export.export_ctranslate2(directory, tmp_path / "out", "float32")
    assert not list(tmp_path.iterdir())


@pytest.fixture
def corpus(tmp_path):
    (tmp_path / "pairs.tsv").write_text("one\ttwo\n")
    return CorpusConfig(tsv=str(tmp_path / "pairs.tsv"))


def test_a_made_up_setting_of_data_is_refused_by_the_cache(corpus):
    tokenizer = SimpleNamespace(to_json=lambda: "{}")
    data = DataConfig(train=(corpus,))
    assert cache_key(corpus, data, tokenizer)
    pairs = (with_made_up_field(corpus), data), (corpus, with_made_up_field(data))
    for source, settings in pairs:
        with pytest.raises(DataError, match="does not know made_up"):
            cache_key(source, settings, tokenizer)


def test_a_made_up_corpus_format_is_refused_by_reader_and_cache(corpus, monkeypatch):
    kind = make_dataclass(
        "C", [("xml", str, field(default=""))], bases=(CorpusConfig,), frozen=True
    )
    with pytest.raises(ValueError, match="found none of them"):
        kind(xml="a.xml")
    keys = MappingProxyType({**data_config.FORMAT_KEYS, "xml": ("xml",)})
    monkeypatch.setattr(data_config, "FORMAT_KEYS", keys)
    made_up = kind(xml="a.xml")
    with pytest.raises(DataError, match="there is no reader for xml"):
        corpora.read_corpus(made_up)
    tokenizer = SimpleNamespace(to_json=lambda: "{}")
    with pytest.raises(DataError, match="does not know xml"):
        cache_key(made_up, DataConfig(train=(corpus,)), tokenizer)
    monkeypatch.setattr(encoded, "KNOWN_CORPUS_KEYS", {**encoded.KNOWN_CORPUS_KEYS, "xml": ANY})
    with pytest.raises(DataError, match="there is no reader for xml"):
        cache_key(made_up, DataConfig(train=(corpus,)), tokenizer)


def test_every_format_has_a_reader_and_says_what_is_hashed():
    assert set(corpora.FORMATS) == set(data_config.FORMAT_KEYS)


def test_the_built_in_corpus_is_named_by_its_grammar(corpus, tmp_path, monkeypatch):
    from tformer_cli.plugins.built_in import grammar

    built_in = CorpusConfig(built_in="test", pairs=10)
    tokenizer = SimpleNamespace(to_json=lambda: "{}")
    data = DataConfig(train=(corpus,))
    first = cache_key(built_in, data, tokenizer)
    (tmp_path / "grammar").mkdir()
    (tmp_path / "grammar" / "rules.py").write_text("another grammar")
    (tmp_path / "grammar" / "lexicon.toml").write_text("a word")
    monkeypatch.setattr(grammar, "__path__", [str(tmp_path / "grammar")])
    other_rules = cache_key(built_in, data, tokenizer)
    (tmp_path / "grammar" / "lexicon.toml").write_text("another word")
    assert len({first, other_rules, cache_key(built_in, data, tokenizer)}) == 3
