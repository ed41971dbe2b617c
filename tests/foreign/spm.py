"""Small SentencePiece files, written field by field."""

import struct


def _field(number, wire, payload):
    return bytes([number << 3 | wire]) + payload


def _sized_field(number, data):
    length, size = len(data), b""
    while length > 127:
        size, length = size + bytes([length & 127 | 128]), length >> 7
    return _field(number, 2, size + bytes([length]) + data)


def spm(pieces, specials=None, algorithm=1, special_score=None, *, keeps_spaces=False):
    """A model of pieces, without a table of replacements.

    Args:
        pieces: the pieces; their scores fall.
        specials: types of some pieces (2: unknown, 3: control), by the piece.
        algorithm: 1 is Unigram, 2 is BPE.
        special_score: score of those; None: as of any other piece.
        keeps_spaces: runs of spaces are kept, as in LLaMA's.
    """
    specials = {"<unk>": 2, "<s>": 3, "</s>": 3} if specials is None else specials
    found = b""
    for number, piece in enumerate(pieces):
        is_given = special_score is not None and piece in specials
        score = special_score if is_given else -1.0 - number / 16
        entry = _sized_field(1, piece.encode()) + _field(2, 5, struct.pack("<f", score))
        if piece in specials:
            entry += _field(3, 0, bytes([specials[piece]]))
        found += _sized_field(1, entry)
    trainer = _field(3, 0, bytes([algorithm]))
    flags = (3, b"\1"), (4, b"\0" if keeps_spaces else b"\1"), (5, b"\1")
    normalizer = b"".join(_field(number, 0, flag) for number, flag in flags)
    return found + _sized_field(2, trainer) + _sized_field(3, normalizer)


def pad_rows(n_pieces):
    """Rows of a model of some pieces, rounded up to a multiple of 8 with one without a piece."""
    return n_pieces // 8 * 8 + 8


LETTERS = [chr(n) for n in range(ord("a"), ord("z") + 1)]
MERGES = "".join(f"▁ {x}\n" for x in LETTERS)
"""What makes the pieces below, as lines of a file of merges."""
PIECES = ["<unk>", "<s>", "</s>", "▁", *(f"▁{x}" for x in LETTERS), *LETTERS]
