"""Random lines with random constraints through `tformer translate`: satisfied, or reported?

    python tests/benchmarks/constraint_fuzz.py [--cases 10000] [--seed 1]

Models are tiny and random, so nothing they would say by themselves helps. A line may require and
ban phrases, and so may a glossary: several at once, of words the text is made of, of words that the
tokenizer does not know, longer than a translation may be, one inside another, the same one required
and banned; what is banned is often what the model would have said. Lines are blank, short, or too
long to be translated whole.

Whether a phrase stands in a translation is looked up by a search of its own, not by the program's.
A line counts as satisfied if it holds all it must and nothing it must not, and as reported if
"unsatisfied" names exactly what is wrong with it. Exit status 1 if a line is neither, has lost
its number or is another's.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from harness import TFORMER, say, work_directory, write

from tests.models import save_random, tokenizer_of
from tformer_cli.text.tokenizer import UNK_ID

TEXT = (
    "the a cat cats bobcat category dog dogs man men woman snow street street-car sees holds and "
    "two 12 3.5 l'animal été naïve über (red) red reddish here . , ! “quoted” 雪 ein_wort don't"
)
WORDS = TEXT.split()
UNKNOWN_WORDS = ("zzyzx", "Ωmega", "☃", "QQ", "7%")
"""Words that no text has: some tokenizers have no tokens for them."""
LONGEST = {"bpe": 24, "word": 24, "char": 60}
"""Most tokens of a translation by tokenizer; a phrase that has more cannot be said."""
BEAM_SIZES = (1, 2, 4)
WORDS_TOO_MANY = 60
"""Of a phrase that no translation has room for."""
POSITIONS = 64
"""Tokens a model reads; longer lines are split."""
PROGRESS = ("lines", "satisfied", "reported", "neither")
LARGEST_GROUP = 250
"""Most lines of a model and a glossary."""


class Case(NamedTuple):
    """A line and what is demanded of its translation: by itself, and by the glossary as well."""

    source: str
    required: tuple[str, ...]
    banned: tuple[str, ...]
    all_required: tuple[str, ...]
    all_banned: tuple[str, ...]


def main():
    parser = argparse.ArgumentParser(description="Fuzzes constraints of `tformer translate`.")
    parser.add_argument("--cases", type=int, default=10_000, help="lines in all [10000]")
    parser.add_argument("--seed", type=int, default=1, help="of lines, constraints, models [1]")
    parser.add_argument(
        "--processes", type=int, default=os.cpu_count(), help="side by side [all cores]"
    )
    arguments = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    kinds = [(algorithm, beam) for algorithm in LONGEST for beam in BEAM_SIZES]
    n_groups = -(-arguments.cases // LARGEST_GROUP)
    counts = Counter()
    begun = time.perf_counter()
    with work_directory(None) as work, ThreadPoolExecutor(arguments.processes) as pool:

        def group(i):
            # as many each, the first ones one more where the number is no multiple
            n_cases = arguments.cases // n_groups + (i < arguments.cases % n_groups)
            dice = random.Random(f"{arguments.seed} {i}")
            return fuzz(work / str(i), *kinds[i % len(kinds)], n_cases, dice)

        for found in pool.map(group, range(n_groups)):
            counts += found
            say(", ".join(f"{counts[name]:,} {name}" for name in PROGRESS))
    for name in (
        "lines", "with constraints", "satisfied", "reported", "neither", "out of place",
        "reported although there is room", "phrases required", "of which said",
        "phrases banned", "of which said all the same",
    ):  # fmt: skip
        write(f"{counts[name]:>8,} {name}")
    write(f"{time.perf_counter() - begun:>8,.0f} s")
    if counts["neither"] or counts["out of place"] or counts["lines"] != arguments.cases:
        sys.exit(1)


def fuzz(folder, algorithm, beam_size, n_cases, dice):
    """Makes a model, translates lines under constraints and counts what came of them."""
    folder.mkdir()
    text, longest = [" ".join(dice.sample(WORDS, 6)) for _ in range(300)], LONGEST[algorithm]
    tokenizer = tokenizer_of(text, 400, algorithm)
    model = save_random(
        folder / "model", tokenizer=tokenizer, seed=dice.randrange(1 << 30), max_positions=POSITIONS
    )
    glossary = a_glossary(dice)
    entries = "".join("\t".join(entry) + "\n" for entry in glossary)
    (folder / "glossary.tsv").write_text(entries, encoding="utf-8")
    sources = [a_line(dice) for _ in range(n_cases)]
    command = [
        *TFORMER, "translate", model, "--beam-size", beam_size, "--max-length", longest,
        "--format", "jsonl", "--threads", "1", "--quiet",
    ]  # fmt: skip
    plain = "".join(f"{source}\n" for source in sources)
    spoken = [json.loads(row)["translation"] for row in output_of(command, plain)]
    cases = [
        a_case(dice, source, text, glossary) for source, text in zip(sources, spoken, strict=True)
    ]
    records = "".join(
        json.dumps({"source": c.source, "required": c.required, "banned": c.banned, "id": i}) + "\n"
        for i, c in enumerate(cases)
    )
    command += ["--input-format", "jsonl", "--glossary", folder / "glossary.tsv"]
    rows = [json.loads(row) for row in output_of(command, records)]
    counts = Counter({"lines": len(rows)})
    for i, (case, row) in enumerate(zip(cases, rows, strict=True)):
        count(counts, i, case, row, has_room(case, tokenizer, longest))
    return counts


def output_of(command, text):
    """Lines that a command makes of a text."""
    done = subprocess.run(
        list(map(str, command)), input=text.encode(), stdout=subprocess.PIPE, check=True
    )
    return done.stdout.decode().split("\n")[:-1]


def a_line(dice):
    """A line, rarely blank or too long."""
    n_words = dice.choices((0, dice.randint(1, 8), 80), weights=(2, 96, 2))[0]
    return " ".join(dice.choice(WORDS) for _ in range(n_words))


def a_phrase(dice):
    """One word to three, rarely with unknown ones or far too many."""
    if dice.random() < 0.02:
        return " ".join(dice.choice(WORDS) for _ in range(WORDS_TOO_MANY))
    words = UNKNOWN_WORDS if dice.random() < 0.05 else WORDS
    return " ".join(dice.choice(words) for _ in range(dice.choice((1, 1, 1, 2, 2, 3))))


def a_glossary(dice):
    """Entries: source, target and, for what is forbidden, "ban"."""
    return [
        *((source, a_phrase(dice)) for source in dice.sample(WORDS, 8)),
        *((source, a_phrase(dice), "ban") for source in dice.sample(WORDS, 4)),
        ("", dice.choice(WORDS), "ban"),
    ]


def a_case(dice, source, spoken, glossary):
    """Draws a line's own constraints, some of what it says without any; adds the glossary's."""
    required = [a_phrase(dice) for _ in range(dice.choice((0, 0, 1, 1, 2, 3)))]
    banned = [a_phrase(dice) for _ in range(dice.choice((0, 0, 0, 1, 2)))]
    if spoken.split() and dice.random() < 0.5:
        banned.append(dice.choice(spoken.split()))
    if required and dice.random() < 0.05:
        banned.append(dice.choice(required))
    if required and dice.random() < 0.05:
        banned.append(dice.choice(dice.choice(required).split()))
    called = [e for e in glossary if (stands_in(source, e[0]) if e[0] else bool(source))]
    return Case(
        source,
        tuple(required),
        tuple(banned),
        all_required=(*required, *(entry[1] for entry in called if len(entry) == 2)),
        all_banned=(*banned, *(entry[1] for entry in called if len(entry) == 3)),
    )


def count(counts, number, case, row, room):
    """Adds what came of a line."""
    text, reported = row["translation"], set(row.get("unsatisfied", []))
    said = {phrase for phrase in case.all_required if stands_in(text, phrase)}
    forbidden = {phrase for phrase in case.all_banned if stands_in(text, phrase)}
    wrong = (set(case.all_required) - said) | forbidden
    counts["phrases required"] += len(set(case.all_required))
    counts["of which said"] += len(said)
    counts["phrases banned"] += len(set(case.all_banned))
    counts["of which said all the same"] += len(forbidden)
    counts["with constraints"] += bool(case.all_required or case.all_banned)
    counts["out of place"] += (row["index"], row["id"], row["source"]) != (
        number, number, case.source,
    )  # fmt: skip
    if reported != wrong:
        counts["neither"] += 1
        say(f"neither: {case}\n  {text!r}\n  reported {reported}, wrong {wrong}")
    elif wrong:
        counts["reported"] += 1
        counts["reported although there is room"] += room
    else:
        counts["satisfied"] += 1


def has_room(case, tokenizer, longest):
    """Whether the required phrases, one after another, would make a translation that is allowed."""
    ids = tokenizer.encode(" ".join(dict.fromkeys(case.all_required)))
    is_contradiction = any(
        stands_in(phrase, banned) for phrase in case.all_required for banned in case.all_banned
    )
    return bool(case.source) and len(ids) < longest and UNK_ID not in ids and not is_contradiction


def stands_in(text, phrase):
    """Whether a phrase stands in a text and no word reaches over either of its ends."""
    start = text.find(phrase)
    while start >= 0:
        end = start + len(phrase)
        is_cut = (start and _in_word(text[start - 1 : start + 1])) or _in_word(
            text[end - 1 : end + 1]
        )
        if not is_cut:
            return True
        start = text.find(phrase, start + 1)
    return False


def _in_word(pair):
    """Whether two characters belong to one word."""
    return len(pair) == 2 and all(character.isalnum() or character == "_" for character in pair)


if __name__ == "__main__":
    main()
