"""Phrases of a text, looked up and cut out by a check of their own."""

import regex

from tformer_cli.wording import is_blank

IN_WORD = regex.compile(r"[\p{L}\p{N}\p{M}_]")
UNSPACED = regex.compile(r"[\p{Ideographic}\p{Hiragana}\p{Line_Break=SA}]")
MARK = regex.compile(r"\p{M}")


def stands_in(text, part):
    """Looks for a phrase of whole words: none reaches over either of its ends."""
    starts = [n for n in range(len(text)) if text.startswith(part, n)]
    ends = [(start, start + len(part)) for start in starts]
    return not all(is_inside(text, start) or is_inside(text, end) for start, end in ends)


def is_inside(text, place):
    """Tells whether the characters around a place belong to one word."""
    pair = text[place - 1 : place + 1] if place else ""
    if len(pair) < 2 or not all(map(IN_WORD.match, pair)):
        return False
    return bool(MARK.match(pair[1])) or not any(map(UNSPACED.match, pair))


def cut_phrases(dice, text, n):
    """Draws phrases that stand in a text; they may be nested, overlap, or be the same."""
    places = [place for place in range(len(text) + 1) if not is_inside(text, place)]
    phrases = []
    for _ in range(n):
        first = dice.randrange(len(places))
        last = min(len(places) - 1, first + dice.choice((1, 1, 2, 3, 5)))
        # white space around a phrase does not count, so it may end within a longer run of it
        phrase = text[places[first] : places[last]].strip()
        if not is_blank(phrase) and stands_in(text, phrase):
            phrases += [phrase] * dice.choice((1, 1, 1, 2))
    return tuple(phrases)
