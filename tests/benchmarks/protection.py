"""Copied texts in sentences: how many placeholders, addresses and numbers a translation keeps.

    python -m tests.benchmarks.protection MODEL SOURCE REFERENCE [NUMBER]

SOURCE and REFERENCE are files of the same sentences, such as FLORES's (.gz is read through). NUMBER
(10000) lines are made of them: each gets one to three texts that have to be copied, behind words or
marks that both sides have once, so that the reference has them at the right place, too. `tformer
translate` translates the lines with `--protect` and with `--no-protect`.

"verbatim" is the share of these texts that a translation has as often as its source, as whole
words. Numbers may be written in another notation: `--protect` leaves 1 299,50 for 1,299.50 to the
model; "same digits" counts them, too. BLEU is sacreBLEU's (13a, cased) of all lines.
"""

import random
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

from sacrebleu.metrics.bleu import BLEU

from tformer_cli.text.lines import read_lines

WORD = re.compile(r"\w+|[,.;:?!]")
BREAK = re.compile(r"[,.;:]*(?: |$)")
WORDS = ("user", "count", "total", "file", "name", "path", "order", "city", "price", "date")
CHOICES = ("--protect", "--no-protect")


def placeholder(draw):
    word = draw.choice(WORDS)
    return draw.choice(
        (
            f"{{{word}}}",
            f"{{{draw.randrange(9)}}}",
            "%s",
            "%d",
            f"%({word})s",
            f"%{draw.randrange(1, 9)}$s",
            f"${{{word.upper()}}}",
            f"{{{{ {word}.name }}}}",
            f"${word.upper()}",
        )
    )


def url(draw):
    start = draw.choice(("www.", "", "docs."))
    host = f"{start}{draw.choice(WORDS)}.{draw.choice(('org', 'com', 'net'))}"
    rests = (
        "",
        "/",
        f"/{draw.choice(WORDS)}-{draw.randrange(999)}.html",
        f"/{draw.choice(WORDS)}?id={draw.randrange(9999)}&{draw.choice(WORDS)}=1",
    )
    return f"https://{host}{draw.choice(rests)}"


def mail(draw):
    name = f"{draw.choice(WORDS)}.{draw.choice(WORDS)}{draw.randrange(99)}"
    return f"{name}@{draw.choice(WORDS)}.example"


def number(draw):
    return draw.choice(
        (
            f"{draw.randrange(10, 10000)}",
            f"{draw.randrange(1, 999)},{draw.randrange(100, 1000)}",
            f"{draw.randrange(1, 99)}.{draw.randrange(10, 99)}",
            f"{draw.randrange(1, 99)},{draw.randrange(100, 1000)}.{draw.randrange(10, 99)}",
            f"{draw.randrange(2, 20)}.{draw.randrange(9)}.{draw.randrange(9)}",
            f"{draw.randrange(10, 99)}%",
            f"{draw.randrange(10, 900)} {draw.choice(('kg', 'km', 'ms', 'GB'))}",
        )
    )


KINDS = {"placeholders": placeholder, "URLs": url, "mails": mail, "numbers": number}


def anchors(source, reference):
    """Pairs places behind words, or before end marks, that both sides have once."""
    sides = []
    for text in (source, reference):
        places, counts = {}, Counter()
        for match in WORD.finditer(text):
            is_end = match.end() == len(text) and not match[0].isalnum()
            place = match.start() if is_end else match.end()
            counts[match[0]] += 1
            if is_end or BREAK.match(text, place):
                places[match[0]] = place
        sides.append({word: place for word, place in places.items() if counts[word] == 1})
    ours, theirs = sides
    return [(ours[word], theirs[word]) for word in ours if word in theirs]


def put(text, places, copied):
    """Writes texts at places, from the end on; spaces stand around them, but not before marks."""
    for place, part in sorted(zip(places, copied, strict=True), reverse=True):
        behind = text[place:]
        text = f"{text[:place]} {part}{' ' if behind[:1].isalnum() else ''}{behind}"
    return text


def made_lines(sources, references, n_lines):
    draw = random.Random(1)
    pairs = [(*pair, anchors(*pair)) for pair in zip(sources, references, strict=True)]
    pairs = [pair for pair in pairs if pair[2]]
    for n in range(n_lines):
        source, reference, places = pairs[n % len(pairs)]
        chosen = draw.sample(places, min(len(places), draw.randrange(1, 4)))
        kinds = [draw.choice(list(KINDS)) for _ in chosen]
        copied = [KINDS[kind](draw) for kind in kinds]
        ours, theirs = zip(*chosen, strict=True)
        yield (
            put(source, ours, copied),
            put(reference, theirs, copied),
            list(zip(kinds, copied, strict=True)),
        )


def n_whole(copied, text):
    return len(re.findall(rf"(?<!\w){re.escape(copied)}(?!\w)", text))


def n_numbers(number, text):
    """Counts a number in a text in any notation: with other marks, or none, between its digits."""
    pattern = r"[.,\s]?".join(re.sub(r"\D", "", number))
    return len(re.findall(rf"(?<!\d){pattern}(?!\d)", text))


def shares(lines, translations):
    """Counts, by kind: all texts, those that are verbatim, those that have the same digits."""
    counts = {kind: Counter() for kind in KINDS}
    for (source, _, copied), text in zip(lines, translations, strict=True):
        for kind, part in copied:
            is_kept = n_whole(part, text) >= n_whole(part, source)
            same = kind == "numbers" and n_numbers(part, text) >= n_numbers(part, source)
            counts[kind].update(all=1, verbatim=is_kept, digits=is_kept or same)
    return counts


def main(model, source, reference, number="10000"):
    sides = [list(read_lines(Path(file))) for file in (source, reference)]
    lines = list(made_lines(*sides, int(number)))
    found, bleu = {}, {}
    with TemporaryDirectory() as folder:
        given = Path(folder, "lines")
        given.write_text("".join(f"{text}\n" for text, _, _ in lines))
        for choice in CHOICES:
            out = Path(folder, choice)
            command = [
                sys.executable,
                "-m",
                "tformer_cli",
                "translate",
                model,
                "-i",
                given,
                "-o",
                out,
            ]
            subprocess.run([*command, "--threads", "1", "-q", choice], check=True)
            translations = out.read_text().split("\n")[:-1]
            found[choice] = shares(lines, translations)
            references = [[target for _, target, _ in lines]]
            bleu[choice] = BLEU().corpus_score(translations, references).score
    print(f"{'':14}  texts | {' | '.join(f'{choice}: verbatim same digits' for choice in CHOICES)}")  # noqa: T201
    for kind in (*KINDS, "all"):
        rows = [
            sum(found[choice].values(), Counter()) if kind == "all" else found[choice][kind]
            for choice in CHOICES
        ]
        shown = [
            f"{row['verbatim'] / row['all']:{len(name) + 10}.2%} {row['digits'] / row['all']:11.2%}"
            for name, row in zip(CHOICES, rows, strict=True)
        ]
        print(f"{kind:14} {rows[0]['all']:6} | {' | '.join(shown)}")  # noqa: T201
    scores = [f"{bleu[choice]:{len(choice) + 10}.2f}{'':12}" for choice in CHOICES]
    print(f"{'BLEU':21} | {' | '.join(scores)}".rstrip())  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
