"""Random lines with random constraints through `tformer translate`: kept, satisfied or reported.

Models are tiny and random, so nothing they would say by themselves helps. A line and a glossary
require and ban phrases: several at once, of words that the tokenizer does not know, longer than a
translation may be, one inside another, the same one required and banned; what is required or banned
is often what the model would have said, and where that meets the demands it stays. Lines are blank,
short, or too long to be translated whole. Phrases are looked up here by a search of their own.
TFORMER_CONSTRAINTS names the number of lines.
"""

import json
import os
import random

import pytest

from tests.commands import records_of
from tests.models import save_random, tokenizer_of
from tests.phrases import cut_phrases, stands_in

TEXT = (
    "the a cat cats bobcat category dog dogs man men woman snow street street-car sees holds and "
    "two 12 3.5 l'animal été naïve über (red) red reddish here . , ! “quoted” 雪 ein_wort don't"
)
WORDS = TEXT.split()
UNKNOWN_WORDS = ("zzyzx", "Ωmega", "☃", "QQ", "7%")
"""Words that no text has: some tokenizers have no tokens for them."""
N_LINES = int(os.environ.get("TFORMER_CONSTRAINTS", "72")) // 9


def phrase(dice):
    """Draws one word to three, rarely with unknown ones or far too many."""
    if dice.random() < 0.02:
        return " ".join(dice.choices(WORDS, k=60))
    words = UNKNOWN_WORDS if dice.random() < 0.05 else WORDS
    return " ".join(dice.choices(words, k=dice.choice((1, 1, 1, 2, 2, 3))))


def own_constraints(dice, spoken):
    """Draws what a line itself demands, some of it what the model says without any."""
    required = [phrase(dice) for _ in range(dice.choice((0, 0, 1, 1, 2, 3)))]
    banned = [phrase(dice) for _ in range(dice.choice((0, 0, 0, 1, 2)))]
    if spoken and dice.random() < 0.4:
        return list(cut_phrases(dice, spoken, 3)), banned
    if spoken.split() and dice.random() < 0.5:
        banned.append(dice.choice(spoken.split()))
    if required and dice.random() < 0.1:
        banned.append(dice.choice(dice.choice(required).split()))
    return required, banned


@pytest.mark.parametrize("beam_size", [1, 2, 4])
@pytest.mark.parametrize(("algorithm", "longest"), [("bpe", 24), ("word", 24), ("char", 36)])
def test_constraints_are_satisfied_or_reported(tmp_path, algorithm, longest, beam_size):
    dice = random.Random(f"{algorithm} {beam_size}")
    text = [" ".join(dice.sample(WORDS, 6)) for _ in range(300)]
    tokenizer = tokenizer_of(text, 400, algorithm)
    model = save_random(tmp_path / "model", tokenizer=tokenizer, seed=3, max_positions=64)
    glossary = [
        *((source, phrase(dice)) for source in dice.sample(WORDS, 8)),
        *((source, phrase(dice), "ban") for source in dice.sample(WORDS, 4)),
        ("", dice.choice(WORDS), "ban"),
    ]
    (tmp_path / "glossary").write_text("".join("\t".join(row) + "\n" for row in glossary))
    lengths = dice.choices((0, 3, 8, 80), weights=(2, 48, 48, 2), k=N_LINES)
    sources = [" ".join(dice.choices(WORDS, k=length)) for length in lengths]
    options = ["--beam-size", beam_size, "--max-length", longest, "--format", "jsonl", "-q"]
    command = ["translate", model, *options]
    spoken = records_of(*command, stdin="".join(f"{source}\n" for source in sources))
    demands = [own_constraints(dice, record["translation"]) for record in spoken]
    given = [
        {"source": source, "required": required, "banned": banned, "id": number}
        for number, (source, (required, banned)) in enumerate(zip(sources, demands, strict=True))
    ]
    command += ["--input-format", "jsonl", "--glossary", tmp_path / "glossary"]
    records = records_of(*command, stdin="".join(f"{json.dumps(record)}\n" for record in given))
    assert [(record["index"], record["id"], record["source"]) for record in records] == [
        (number, number, source) for number, source in enumerate(sources)
    ]
    n_satisfied = n_required = 0
    for record, free, (required, banned) in zip(records, spoken, demands, strict=True):
        source, said = record["source"], record["translation"]
        called = [
            entry for entry in glossary if source and (not entry[0] or stands_in(source, entry[0]))
        ]
        required = {*required, *(entry[1] for entry in called if len(entry) == 2)}
        banned = {*banned, *(entry[1] for entry in called if len(entry) == 3)}
        wrong, was_wrong = (
            {words for words in required if not stands_in(text, words)}
            | {words for words in banned if stands_in(text, words)}
            for text in (said, free["translation"])
        )
        assert set(record.get("unsatisfied", [])) == wrong, record
        assert len(wrong) <= len(was_wrong)
        if not was_wrong:
            assert record == {**record, **free}
        n_satisfied += not wrong
        n_required += bool(required)
    assert n_satisfied > 0.2 * N_LINES
    assert n_required > 0.5 * N_LINES
