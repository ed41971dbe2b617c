import json

import pytest
from sentencepiece import SentencePieceProcessor

from tformer_cli.errors import DataError, UsageError
from tformer_cli.text.sentencepiece.tokenizer import Languages, SentencePieceTokenizer
from tformer_cli.text.tokenizer import EOS_ID, UNK_ID, parse_tokenizer

SPECIAL = ["<pad>", "<unk>", "<s>", "</s>"]
TAGS = {"fra": ">>fra<<", "deu": ">>deu<<"}
MARIAN = Languages(tokens=TAGS, before_source="target", in_text=True)
NLLB = Languages(
    tokens={"eng": "eng_Latn", "fra": "fra_Latn"}, before_source="source", before_target=True
)


def pieces_of(data):
    processor = SentencePieceProcessor(model_proto=data)
    return [processor.id_to_piece(i) for i in range(processor.vocab_size())]


def vocabulary(*spms, more=()):
    known = [piece for data in spms for piece in pieces_of(data)]
    return [*SPECIAL, *dict.fromkeys(p for p in known if p not in SPECIAL), *more]


@pytest.fixture(scope="module")
def marian(spms):
    pieces = vocabulary(spms["unigram"], spms["other"], more=TAGS.values())
    pieces += ["ж", "жц"]  # of the vocabulary alone
    pieces.remove("i")
    return SentencePieceTokenizer.build(spms["unigram"], spms["other"], pieces, languages=MARIAN)


@pytest.fixture(scope="module")
def nllb(spms):
    pieces = vocabulary(spms["bpe in bytes"], more=NLLB.tokens.values())
    return SentencePieceTokenizer.build(spms["bpe in bytes"], None, pieces, languages=NLLB)


def test_ids_are_those_of_the_pieces_by_their_text(marian, spms):
    theirs = SentencePieceProcessor(model_proto=spms["unigram"])
    text = "A man sees the dog in Köln 🤖"
    expected = [marian.source.id_of(p) or UNK_ID for p in theirs.encode(text, out_type=str)]
    assert marian.source.encode(text) == expected
    assert UNK_ID in expected


@pytest.mark.filterwarnings("ignore:Recommended:UserWarning")
def test_ids_are_those_of_transformers(marian, spms, tmp_path):
    from transformers import MarianTokenizer

    (tmp_path / "source.spm").write_bytes(spms["unigram"])
    (tmp_path / "target.spm").write_bytes(spms["other"])
    ids = {piece: number for number, piece in enumerate(marian.source.vocabulary.pieces)}
    (tmp_path / "vocab.json").write_text(json.dumps(ids))
    theirs = MarianTokenizer(
        source_spm=str(tmp_path / "source.spm"),
        target_spm=str(tmp_path / "target.spm"),
        vocab=str(tmp_path / "vocab.json"),
    )
    for text in (
        "The woman buys 25 houses, é ",
        "a жц b ж",
        ">>fra<< A dog",
        ">>xx<<a",
        ">>fra<<",
        "a >>b<<",
    ):
        assert [*marian.source.encode(text), EOS_ID] == theirs(text).input_ids
        target = theirs(text_target=text).input_ids
        if not text.startswith(">>"):
            assert [*marian.target.encode(text), EOS_ID] == target
            decoded = theirs.decode(target, skip_special_tokens=True)
            assert marian.target.decode(target) == decoded


def test_a_language_that_is_chosen_comes_before_the_source(marian):
    french = marian.for_languages(None, "fra")
    tag = marian.source.id_of(">>fra<<")
    assert french.source.encode("A dog") == [tag, *marian.source.encode("A dog")]
    assert french.source.encode(">>deu<< A dog") == marian.source.encode(">>deu<< A dog")
    assert french.source.encode(" ") == []
    ids, spans = french.source.encode_with_spans(["A dog"])[0]
    assert ids == french.source.encode("A dog")
    assert spans[0] == (0, 0)


def test_parts_of_a_line_have_its_language(marian):
    side = marian.source.for_parts_of(">>deu<< A dog")
    assert side.encode("A man")[0] == marian.source.id_of(">>deu<<")
    assert marian.source.for_parts_of("A dog") is marian.source


def test_both_sides_begin_with_their_languages(nllb):
    chosen = nllb.for_languages("eng", "fra")
    plain = nllb.target.encode_phrases(["Köln 漢 🤖"])[0]
    assert UNK_ID not in plain
    assert chosen.source.encode("Köln 漢 🤖") == [nllb.source.id_of("eng_Latn"), *plain]
    assert chosen.target.start == (nllb.source.id_of("fra_Latn"),)
    assert chosen.target.decode(chosen.target.encode("Köln 漢 🤖")) == "Köln 漢 🤖"


def test_unknown_and_missing_languages_are_named(nllb, marian):
    with pytest.raises(UsageError, match=r'--target-language: .*"fre"; choose fra, eng'):
        nllb.for_languages(None, "fre")
    with pytest.raises(UsageError, match=r"--source-language: .*knows 2 languages"):
        nllb.check_languages()
    with pytest.raises(UsageError, match="--target-language"):
        nllb.for_languages("eng", None).check_languages()
    with pytest.raises(UsageError, match=r"--source-language: .*no tokens"):
        marian.for_languages("fra", None)
    nllb.for_languages("eng", "fra").check_languages()
    marian.check_languages()


def test_a_model_of_two_languages_refuses_others(tokenizers):
    with pytest.raises(UsageError, match=r"--target-language: .*omit it"):
        tokenizers["bpe"].for_languages(None, "fra")


@pytest.mark.parametrize("name", ["marian", "nllb"])
def test_a_file_gives_the_same_tokenizer(request, name):
    tokenizer = request.getfixturevalue(name)
    again = parse_tokenizer(tokenizer.to_json())
    assert again.to_json() == tokenizer.to_json()
    text = "Nobody wanted the house 漢"
    assert again.source.encode(text) == tokenizer.source.encode(text)
    assert again.target.encode(text) == tokenizer.target.encode(text)


def test_two_vocabularies_are_kept_apart(spms):
    made = SentencePieceTokenizer.build(
        spms["unigram"], spms["bpe"], vocabulary(spms["unigram"]), vocabulary(spms["bpe"])
    )
    again = parse_tokenizer(made.to_json())
    assert again.source.vocab_size == len(vocabulary(spms["unigram"]))
    assert again.vocab_size == again.target.vocab_size == len(vocabulary(spms["bpe"]))


def test_labels_are_readable_and_unique(nllb):
    labels = nllb.source.pieces(range(nllb.source.vocab_size))
    assert len(set(labels)) == len(labels)
    assert not any(label.split() != [label] for label in labels)
    assert [nllb.source.id_of(label) for label in labels] == list(range(len(labels)))


def test_bytes_of_pieces_spell_the_text(nllb):
    ids = nllb.target.encode("A dog 🤖")
    assert b"".join(nllb.target.piece_bytes[i] for i in ids) == " A dog 🤖".encode()
    assert nllb.target.piece_bytes[nllb.target.id_of("fra_Latn")] == b""


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.update(source=None),
        lambda data: data["source"].update(pieces="abc"),
        lambda data: data["source"].update(pieces=[*SPECIAL, 5]),
        lambda data: data["source"].update(pieces=["a", "b"]),
        lambda data: data["source"].update(spm=None),
        lambda data: data["source"].update(spm=7),
        lambda data: data.update(languages={"tokens": {"x": 5}}),
        lambda data: data["languages"].update(target="xx"),
        lambda data: data.update(tformer_tokenizer=2),
        lambda data: data.pop("target"),
    ],
)
def test_damaged_files_are_refused_in_one_line(marian, change):
    data = json.loads(marian.to_json())
    change(data)
    with pytest.raises(DataError) as caught:
        parse_tokenizer(json.dumps(data), "t.json")
    assert str(caught.value).startswith("t.json: ")
    assert "\n" not in str(caught.value)


def test_damaged_models_and_vocabularies_are_refused(spms):
    with pytest.raises(DataError, match="cut off"):
        SentencePieceTokenizer.build(spms["unigram"][:-3], None, SPECIAL)
    with pytest.raises(DataError, match="twice"):
        SentencePieceTokenizer.build(spms["unigram"], None, [*SPECIAL, "a", "a"])
    with pytest.raises(DataError, match="lacks the language token"):
        SentencePieceTokenizer.build(
            spms["unigram"],
            None,
            SPECIAL,
            languages=Languages(tokens={"x": "<x>"}, before_target=True, target="x"),
        )
