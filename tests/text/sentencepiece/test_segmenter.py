import pytest
from hypothesis import given, settings
from sentencepiece import SentencePieceProcessor

from tests.text.sentencepiece.texts import hard_text
from tformer_cli.text.sentencepiece.spm_file import SpmFile

NAMES = ["unigram", "other", "bpe", "bytes", "bpe in bytes", "symbols", "bpe with symbols",
         "spaces", "across words", "identity", "lower case"]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=60)
@given(text=hard_text)
def test_places_are_of_the_same_pieces_in_the_order_of_the_text(spms, name, text):
    file, library = SpmFile(spms[name], "x.spm"), SentencePieceProcessor(model_proto=spms[name])
    found = file.encode_with_places(text)
    assert [piece for piece, _, _ in found] == file.encode_batch([text])[0] == library.encode(text)
    assert all(0 <= start <= end <= len(text) for _, start, end in found)
    starts = [start for _, start, end in found if start < end]
    assert starts == sorted(starts)


@pytest.mark.parametrize(
    ("name", "text", "spans"),
    [
        ("unigram", "a  ﬁ \x01b", ["", "a", "  ", "ﬁ", "ﬁ", " \x01", "b"]),
        ("bytes", "a😀", ["", "a", "😀", "😀", "😀", "😀"]),
        ("spaces", "½", ["½", "½", "½"]),
        ("unigram", "\ud83d\ude00\ud800", ["", "😀"]),
    ],
    ids=["one character of several pieces", "bytes", "without a space before it", "surrogates"],
)
def test_places_name_all_characters_that_a_piece_is_from(spms, name, text, spans):
    found = SpmFile(spms[name], "x.spm").encode_with_places(text)
    sound = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    assert [sound[start:end] for _, start, end in found] == spans
