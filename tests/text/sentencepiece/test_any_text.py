"""Properties that hold for every text."""

import json
import warnings

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sentencepiece import SentencePieceProcessor

from tests.text.sentencepiece.test_segmenter import NAMES
from tests.text.sentencepiece.test_tokenizer import MARIAN, NLLB, SPECIAL, TAGS, vocabulary
from tests.text.sentencepiece.texts import hard_text
from tformer_cli.text.sentencepiece.spm_file import SpmFile
from tformer_cli.text.sentencepiece.tokenizer import Languages, SentencePieceTokenizer
from tformer_cli.text.tokenizer import BOS_ID, EOS_ID, PAD_ID, UNK_ID

quick = settings(max_examples=60)
no_specials = hard_text.filter(lambda text: not any(piece in text for piece in SPECIAL))


@pytest.fixture(scope="module")
def models(spms):
    """For each model the library, and a tokenizer that knows two languages."""
    found = {}
    for name, data in spms.items():
        pieces = vocabulary(data, more=TAGS.values())
        made = SentencePieceTokenizer.build(data, None, list(dict.fromkeys(pieces)))
        found[name] = SentencePieceProcessor(model_proto=data), made
    return found


@pytest.fixture(scope="module")
def marian(spms, tmp_path_factory):
    """A tokenizer of two models with one vocabulary, the same of `transformers`, and its ids."""
    transformers = pytest.importorskip("transformers")
    shared = vocabulary(spms["unigram"], spms["other"], more=TAGS.values())
    pieces = [*shared[:40], *shared[50:]]  # some are missing
    order = ["</s>", "<unk>", *pieces[4:], "<pad>", "<s>"]
    ids = {piece: number for number, piece in enumerate(order)}
    place = tmp_path_factory.mktemp("marian")
    files = [place / "source.spm", place / "target.spm", place / "vocab.json"]
    contents = [spms["unigram"], spms["other"], json.dumps(ids).encode()]
    for file, content in zip(files, contents, strict=True):
        file.write_bytes(content)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # recommends a package
        theirs = transformers.MarianTokenizer(*map(str, files))
    ours = SentencePieceTokenizer.build(*contents[:2], pieces, languages=MARIAN)
    return ours, theirs, [ids[piece] for piece in pieces]


@pytest.mark.parametrize("name", NAMES)
@quick
@given(text=hard_text)
def test_decoded_text_is_that_of_the_library(models, name, text):
    library, tokenizer = models[name]
    known = [token for token in library.encode(text) if token != library.unk_id()]
    ids = tokenizer.target.encode(text)
    if UNK_ID not in ids or library.unk_id() in library.encode(text):
        known_ids = [token for token in ids if token != UNK_ID]
        assert tokenizer.target.decode(known_ids) == library.decode(known).strip()


@pytest.mark.parametrize("name", NAMES)
@quick
@given(text=hard_text)
@example(text="</s>")
@example(text="<s> <pad>>>deu<<")
def test_no_text_becomes_a_special_token(models, name, text):
    _, tokenizer = models[name]
    for side in (tokenizer.source, tokenizer.target):
        assert not {PAD_ID, BOS_ID, EOS_ID} & set(side.encode(text))


def test_unknown_text_becomes_no_special_token_and_no_language(spms):
    """A model without Latin letters: what it does not know is sought in the vocabulary."""
    file = SpmFile(spms["unigram"], "x")
    unknown = [">>жж<<", "</ж>"]
    pieces = [piece for piece in vocabulary(spms["unigram"]) if piece not in "<>/"]
    languages = Languages(tokens={"ж": "жж"}, before_target=True)
    made = SentencePieceTokenizer.build(spms["unigram"], None, [*pieces, "жж"], languages=languages)
    assert file.unknown in file.encode_batch(["жж"])[0]
    assert made.source.id_of("жж") not in made.source.encode("жж")
    assert all(UNK_ID in made.source.encode(text) for text in unknown)


@quick
@given(text=no_specials, tag=st.sampled_from(["", ">>fra<<", ">>deu<< ", ">>xx<<", ">>"]))
@example(text="", tag=">>fra<<")
@example(text="The dog >>deu<< sees", tag="")
def test_ids_of_sources_are_those_of_transformers(marian, text, tag):
    ours, theirs, foreign = marian
    expected = theirs(tag + text).input_ids[:-1]
    assert [foreign[token] for token in ours.source.encode(tag + text)] == expected


@quick
@given(text=no_specials.filter(lambda text: not text.startswith(">>")))
def test_ids_of_targets_are_those_of_transformers(marian, text):
    ours, theirs, foreign = marian
    expected = theirs(text_target=text).input_ids[:-1]
    assert [foreign[token] for token in ours.target.encode(text)] == expected


@quick
@given(data=st.data())
def test_decoded_ids_are_the_text_of_transformers(marian, data):
    """`<s>` is no special token there, and tokens that name a language are text."""
    ours, theirs, foreign = marian
    numbers = [n for n in range(ours.vocab_size - len(TAGS)) if n != BOS_ID]
    ids = data.draw(st.lists(st.sampled_from(numbers), max_size=20))
    expected = theirs.decode([foreign[token] for token in ids], skip_special_tokens=True)
    assert ours.target.decode(ids) == expected


@pytest.mark.parametrize("languages", [MARIAN, MARIAN.choose_languages(None, "fra"), Languages()])
@quick
@given(text=st.one_of(hard_text, hard_text.map(lambda text: ">>fra<<" + text)))
def test_spans_lie_in_the_text_in_order(spms, languages, text):
    data = spms["unigram"]
    pieces = vocabulary(data, more=TAGS.values())
    tokenizer = SentencePieceTokenizer.build(data, None, pieces, languages=languages)
    for side in (tokenizer.source, tokenizer.target):
        ((ids, spans),) = side.encode_with_spans([text])
        assert ids == side.encode(text)
        assert len(ids) == len(spans)
        assert all(0 <= start <= end <= len(text) for start, end in spans)
        assert [start for start, _ in spans] == sorted(start for start, _ in spans)


def test_languages_of_both_sides_come_back_from_the_file(spms):
    pieces = vocabulary(spms["bpe"], more=NLLB.tokens.values())
    chosen = NLLB.choose_languages("eng", "fra")
    made = SentencePieceTokenizer.build(spms["bpe"], None, pieces, languages=chosen)
    again = SentencePieceTokenizer.parse(made.to_json())
    assert again.languages == chosen
    again.check_languages()
