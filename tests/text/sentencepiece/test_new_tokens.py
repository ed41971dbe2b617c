"""New tokens of imported vocabularies: other text is cut as the SentencePiece library does it."""

import json

import pytest
from sentencepiece import SentencePieceProcessor

from tests.text.sentencepiece.conftest import LANGUAGES, SPECIAL
from tformer_cli.errors import DataError
from tformer_cli.text.sentencepiece.tokenizer import Languages, SentencePieceTokenizer
from tformer_cli.text.tokenizer import UNK_ID, parse_tokenizer

WORDS = ["<x>", "Żółć", "<x>y"]
TAGS = Languages(tokens={"fra": ">>fra<<"}, before_source="target", in_text=True)
TEXTS = [
    "<x> A man sees the dog", "A man <x> sees <x>y the dog in Köln Żółć", "A man sees the dog <x>",
    "<x>", "<x> <x> Żółć", "A man<x> sees <x>the dog", "  A  man   <x>  sees \t<x>y\u00a0the",
    "漢字 <x> 🤖", "", " ",
]  # fmt: skip
KINDS = ["unigram", "bpe", "bytes", "bpe in bytes", "symbols", "spaces", "across words", "identity"]


def pieces_of(data):
    processor = SentencePieceProcessor(model_proto=data)
    return [processor.id_to_piece(i) for i in range(processor.vocab_size())]


def vocabulary(*spms, more=()):
    known = [piece for data in spms for piece in pieces_of(data)]
    return [*SPECIAL, *dict.fromkeys(p for p in known if p not in SPECIAL), *more]


@pytest.fixture(params=KINDS)
def both(request, spms):
    spm = spms[request.param]
    before = SentencePieceTokenizer.build(spm, None, vocabulary(spm))
    return SentencePieceProcessor(model_proto=spm), before, before.with_new_tokens(WORDS)


def without_new(text):
    """The parts of a text between its new tokens, and those, as the library would get them."""
    parts = [""]
    for word in text.split(" "):
        if word in WORDS:
            parts += [word, ""]
        else:
            parts[-1] = f"{parts[-1]} {word}" if parts[-1] else word
    return parts


@pytest.mark.parametrize("text", [text for text in TEXTS if " ".join(text.split()) == text])
def test_the_library_cuts_what_is_around_them(both, text):
    library, before, after = both
    expected = []
    for n, part in enumerate(without_new(text)):
        if part in WORDS:
            expected.append(before.vocab_size + WORDS.index(part))
        else:
            # a model without a space before texts has one behind a new token
            is_behind = n and part and not library.encode("a", out_type=str)[0].startswith("▁")
            given = f" {part}" if is_behind else part
            found = library.encode(given, out_type=str)
            expected += [before.source.id_of(piece) or UNK_ID for piece in found]
    assert after.source.encode(text) == expected


@pytest.mark.parametrize("text", TEXTS)
def test_every_way_of_encoding_agrees_and_text_comes_back(both, text):
    _, before, after = both
    side = after.source
    ids = side.encode(text)
    assert [n for n in ids if n >= before.vocab_size] == [
        before.vocab_size + WORDS.index(word) for word in text.split() if word in WORDS
    ]
    again = parse_tokenizer(after.to_json())
    assert again.to_json() == after.to_json()
    assert again.new_tokens == tuple(WORDS)
    assert again.source.encode_batch([text, "A dog", text]) == [ids, side.encode("A dog"), ids]
    (found, spans), *_ = side.encode_with_spans([text])
    assert found == ids
    for token, (first, end) in zip(found, spans, strict=True):
        if token >= before.vocab_size:
            assert text[first:end] == WORDS[token - before.vocab_size]
        assert 0 <= first <= end <= len(text)
    # as without new tokens, but that they may be letters the model lacks
    if not any(word in text.split() for word in WORDS):
        assert ids == before.source.encode(text)
    elif UNK_ID not in ids:
        decoded = side.decode(ids)
        assert decoded.split() == text.split()


def test_decoding_gives_the_words_whole(both):
    _, before, after = both
    size = before.vocab_size
    assert after.vocab_size == size + len(WORDS)
    assert after.target.decode([size, size + 2, size + 1]) == "<x> <x>y Żółć"
    assert after.target.decode(after.target.encode("A man <x> sees")) == "A man <x> sees"
    assert after.target.piece_bytes[size + 1] == " Żółć".encode()
    assert after.target.pieces([size]) == ["▁<x>"]
    assert after.target.id_of("▁<x>") == size


def test_two_vocabularies_grow_each_at_its_end(spms):
    own = vocabulary(spms["unigram"]), vocabulary(spms["bpe"])
    made = SentencePieceTokenizer.build(spms["unigram"], spms["bpe"], *own)
    grown = made.with_new_tokens(["<x>"]).with_new_tokens(["<y>"])
    again = parse_tokenizer(grown.to_json())
    for side, pieces in ((again.source, own[0]), (again.target, own[1])):
        assert side.encode("<y> <x>") == [len(pieces) + 1, len(pieces)]
    assert len(own[0]) != len(own[1])


def test_languages_stay_around_them(spms):
    spm = spms["bpe in bytes"]
    pieces = vocabulary(spm, more=LANGUAGES.tokens.values())
    made = SentencePieceTokenizer.build(spm, None, pieces, languages=LANGUAGES)
    chosen = made.with_new_tokens(["<x>"]).for_languages("eng", "fra")
    assert chosen.source.encode("<x> A") == [
        made.source.id_of("eng_Latn"),
        len(pieces),
        *made.source.encode_phrases(["A"])[0],
    ]
    with pytest.raises(DataError, match='"eng_Latn": is a piece of the vocabulary; omit it'):
        made.with_new_tokens(["eng_Latn"])


def test_a_new_token_may_be_a_tag_before_a_text(spms):
    pieces = vocabulary(spms["unigram"], more=TAGS.tokens.values())
    made = SentencePieceTokenizer.build(spms["unigram"], None, pieces, languages=TAGS)
    side = made.with_new_tokens([">>nds<<", "<x>"]).source
    plain = made.source.encode("A dog")
    assert side.encode(">>nds<< A dog") == [len(pieces), *plain]
    assert side.encode(">>fra<<<x> A dog") == [len(pieces) - 1, len(pieces) + 1, *plain]
    ids, spans = side.encode_with_spans([">>fra<<<x> A"])[0]
    assert ids[:2] == [len(pieces) - 1, len(pieces) + 1]
    assert spans[:2] == [(0, 7), (7, 10)]


def test_a_word_that_is_there_or_is_no_word_is_refused(spms):
    pieces = vocabulary(spms["bpe"])
    made = SentencePieceTokenizer.build(spms["bpe"], None, pieces)
    there = next(piece[1:] for piece in pieces if piece.startswith("▁") and len(piece) > 2)
    for words in (["a b"], [""], ["\udc80"], [there], ["<x>", "<x>"]):
        with pytest.raises(DataError, match=r"is not a word|is a piece"):
            made.with_new_tokens(words)
    with pytest.raises(DataError, match="is a piece"):
        made.with_new_tokens(["<x>"]).with_new_tokens(["<x>"])


def test_files_with_new_tokens_have_a_version_of_their_own(spms):
    """Versions of tformer that would cut the words refuse the file."""
    spm = spms["unigram"]
    made = SentencePieceTokenizer.build(spm, None, vocabulary(spm))
    assert json.loads(made.to_json())["tformer_tokenizer"] == 1
    assert "new_tokens" not in made.to_json()
    data = json.loads(made.with_new_tokens(["<x>"]).to_json())
    assert (data["tformer_tokenizer"], data["new_tokens"]) == (2, ["<x>"])


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.update(new_tokens=["<y>"]),
        lambda data: data.update(new_tokens=["<x>", "<x>"]),
        lambda data: data.update(new_tokens="<x>"),
        lambda data: data.update(new_tokens=[3]),
        lambda data: data.update(new_tokens=[""]),
        lambda data: data.pop("new_tokens"),
        lambda data: data["source"]["pieces"].append("z"),
        lambda data: data.update(tformer_tokenizer=3),
        lambda data: data.update(new_tokens=["<x>"] * 1000),
    ],
)
def test_damaged_files_are_refused_in_one_line(spms, change):
    spm = spms["unigram"]
    made = SentencePieceTokenizer.build(spm, None, vocabulary(spm)).with_new_tokens(["<x>"])
    data = json.loads(made.to_json())
    change(data)
    with pytest.raises(DataError) as caught:
        parse_tokenizer(json.dumps(data), "t.json")
    assert str(caught.value).startswith("t.json: ")
    assert "\n" not in str(caught.value)
