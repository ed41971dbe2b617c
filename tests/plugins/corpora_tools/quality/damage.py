"""A clean corpus with damage of known kinds at known lines, and how well checks find it.

Each kind changes pairs as they are found damaged in crawled corpora (Khayrallah and Koehn 2018;
Caswell et al. 2022). Of every check two shares are measured: recall, of the lines damaged in its
way those that it finds; precision, of the lines that it finds those that were damaged at all.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tformer_cli.plugins.corpora_tools.quality.checks import CHECKS, DROPPING
from tformer_cli.plugins.corpora_tools.quality.examine import Corpora, judge, survey
from tformer_cli.plugins.corpora_tools.quality.facts import Detector
from tformer_cli.plugins.corpora_tools.quality.minhash import HeldOut
from tformer_cli.text.config import CorpusConfig

Pair = tuple[str, str]
CYRILLIC = "Двое детей играют в парке возле старого дома"
FOREIGN = (
    "el hombre que está en la calle no es el padre de los niños",
    "una mujer con un vestido y el perro de la casa",
    "los niños no son de la ciudad pero su madre es de una isla",
    "para el hombre es una noche en la que no se va con los otros",
)
"""Spanish, for pairs of languages without it."""


@dataclass
class Clean:
    """What damage is made from."""

    pairs: Sequence[Pair]
    held_out: Sequence[Pair]
    foreign: Sequence[str] = FOREIGN
    random: Random = field(default_factory=lambda: Random(1))

    def another(self) -> Pair:
        return self.random.choice(self.pairs)


def not_utf8(pair: Pair, clean: Clean) -> Pair | None:
    """A letter beyond ASCII as its byte in Latin-1; a surrogate stands for that byte."""
    place = next((n for n, c in enumerate(pair[1]) if 0xC0 <= ord(c) < 0x100), None)
    if place is None:
        return None
    byte = chr(0xDC00 + ord(pair[1][place]))
    return pair[0], pair[1][:place] + byte + pair[1][place + 1 :]


def question_marks(pair: Pair, clean: Clean) -> Pair | None:
    lost = "".join(c if ord(c) < 128 else "?" for c in pair[1])
    inside = any(a.isalpha() and c > "\x7f" and b.islower()
                 for a, c, b in zip(pair[1], pair[1][1:], pair[1][2:], strict=False))  # fmt: skip
    return (pair[0], lost) if inside else None


def mojibake(pair: Pair, clean: Clean) -> Pair | None:
    letters = [c for c in pair[1] if 0xC0 <= ord(c) < 0x180]
    if not letters:
        return None
    wrong = "".join(
        bytes([byte]).decode("cp1252", "ignore") or chr(byte) for byte in pair[1].encode()
    )
    return pair[0], wrong


def control_characters(pair: Pair, clean: Clean) -> Pair:
    place = clean.random.randrange(len(pair[0]) + 1)
    mark = clean.random.choice("\x00\x07\x1b\u202e\ufeff\ue123")
    return pair[0][:place] + mark + pair[0][place:], pair[1]


def tags(pair: Pair, clean: Clean) -> Pair:
    return f'<font color="red">{pair[0]}</font>', pair[1]


def entities(pair: Pair, clean: Clean) -> Pair:
    return pair[0], pair[1].replace(" ", clean.random.choice(["&nbsp;", " &amp; ", "&#160;"]), 1)


def blank_source(pair: Pair, clean: Clean) -> Pair:
    return clean.random.choice(["", " ", "\u3000"]), pair[1]


def blank_target(pair: Pair, clean: Clean) -> Pair:
    return pair[0], ""


def leave_untranslated(pair: Pair, clean: Clean) -> Pair:
    return pair[0], pair[0].upper() if clean.random.random() < 0.5 else pair[0]


def nearly_copied(pair: Pair, clean: Clean) -> Pair | None:
    words = pair[0].split()
    if len(words) < 6:
        return None
    words[clean.random.randrange(len(words))] = pair[1].split()[0]
    return pair[0], " ".join(words)


def cut_off(pair: Pair, clean: Clean) -> Pair | None:
    return (pair[0], pair[1][: len(pair[1]) // 4]) if len(pair[1]) > 60 else None


def join_targets(pair: Pair, clean: Clean) -> Pair:
    return pair[0], f"{pair[1]} {clean.another()[1]} {clean.another()[1]}"


def very_long(pair: Pair, clean: Clean) -> Pair:
    others = [clean.another() for _ in range(60)]
    return tuple(" ".join(sides) for sides in zip(pair, *others, strict=True))  # type: ignore[return-value]


def no_spaces(pair: Pair, clean: Clean) -> Pair | None:
    return (pair[0], pair[1].replace(" ", "")) if len(pair[1]) > 70 else None


def other_script(pair: Pair, clean: Clean) -> Pair:
    words = CYRILLIC.split()
    clean.random.shuffle(words)
    return pair[0], " ".join(words)


def other_language(pair: Pair, clean: Clean) -> Pair:
    return pair[0], f"{clean.random.choice(clean.foreign)} {clean.random.randrange(10)}"


def swap_sides(pair: Pair, clean: Clean) -> Pair:
    return pair[1], pair[0]


def other_number(pair: Pair, clean: Clean) -> Pair:
    number = clean.random.randrange(101, 9999)
    return f"{pair[0]} {number}", f"{pair[1]} {number + clean.random.randrange(1, 99)}"


def address_on_one_side(pair: Pair, clean: Clean) -> Pair:
    address = clean.random.choice(["www.example.org/a", "https://example.com", "me@example.org"])
    return f"{pair[0]} {address}", pair[1]


def repeated_letters(pair: Pair, clean: Clean) -> Pair:
    return pair[0], pair[1].replace(" ", " " + clean.random.choice("aeimn") * 12 + " ", 1)


def repeated_words(pair: Pair, clean: Clean) -> Pair:
    words = pair[1].split()
    return pair[0], " ".join([*words[:3], *(words[3:5] or words[-1:]) * 5])


def symbols(pair: Pair, clean: Clean) -> Pair:
    return pair[0], "".join(clean.random.choice("#@~|%^*=<>_ x1") for _ in pair[1])


def space_letters(pair: Pair, clean: Clean) -> Pair:
    return " ".join(pair[0].replace(" ", "")), pair[1]


def duplicate(pair: Pair, clean: Clean) -> Pair:
    return clean.another()


def duplicate_but_case(pair: Pair, clean: Clean) -> Pair:
    source, target = clean.another()
    return source.upper(), f"« {target.rstrip('.')} »"


def duplicate_but_a_word(pair: Pair, clean: Clean) -> Pair:
    source, target = max((clean.another() for _ in range(5)), key=lambda p: len(p[1]))
    words = target.split()
    words[clean.random.randrange(len(words))] = "xyz"
    return source, " ".join(words)


def held_out(pair: Pair, clean: Clean) -> Pair:
    return clean.random.choice(clean.held_out)


KINDS: dict[str, tuple[Callable[[Pair, Clean], Pair | None], str]] = {
    "byte of Latin-1": (not_utf8, "encoding"),
    "question marks for letters": (question_marks, "encoding"),
    "UTF-8 read as Windows-1252": (mojibake, "mojibake"),
    "control characters": (control_characters, "invisible"),
    "tags": (tags, "markup"),
    "entities": (entities, "markup"),
    "blank source": (blank_source, "empty"),
    "blank target": (blank_target, "empty"),
    "not translated": (leave_untranslated, "identical"),
    "copied but for a word": (nearly_copied, "copied"),
    "cut off": (cut_off, "length-ratio"),
    "joined with others": (join_targets, "length-ratio"),
    "very long": (very_long, "too-long"),
    "without spaces": (no_spaces, "long-word"),
    "another script": (other_script, "script"),
    "another language": (other_language, "language"),
    "sides swapped": (swap_sides, "swapped"),
    "another number": (other_number, "numbers"),
    "address on one side": (address_on_one_side, "addresses"),
    "repeated letters": (repeated_letters, "repetition"),
    "repeated words": (repeated_words, "repetition"),
    "symbols": (symbols, "symbols"),
    "spaces between letters": (space_letters, "spaced-letters"),
    "the same pair": (duplicate, "duplicate"),
    "the same but case and marks": (duplicate_but_case, "duplicate"),
    "the same but a word": (duplicate_but_a_word, "near-duplicate"),
    "held-out pair": (held_out, "held-out"),
}
"""What is done to a pair, and the check that should find it."""


@dataclass(frozen=True)
class Damaged:
    """A corpus with damage."""

    files: tuple[Path, Path]
    kinds: Sequence[str]
    """Kind of each line's damage; empty: none."""
    held_out: Sequence[Pair]
    languages: tuple[str, str]


def write_damaged(
    pairs: Sequence[Pair],
    held_out_pairs: Sequence[Pair],
    directory: Path,
    languages: tuple[str, str],
    n_of_kind: int,
    foreign: Sequence[str] = FOREIGN,
) -> Damaged:
    """Writes a corpus whose first half is clean and whose second has damage at drawn lines."""
    half = len(pairs) // 2
    clean = Clean(pairs[:half], held_out_pairs, foreign)
    lines = list(pairs)
    kinds = [""] * len(lines)
    free = list(range(half, len(lines)))
    clean.random.shuffle(free)
    for kind, (change, _) in KINDS.items():
        n_left = n_of_kind
        while n_left:
            place = free.pop()
            changed = change(lines[place], clean)
            if changed is not None:
                lines[place], kinds[place] = changed, kind
                n_left -= 1
    files = directory / f"noisy.{languages[0]}", directory / f"noisy.{languages[1]}"
    for side, file in enumerate(files):
        text = "".join(line[side] + "\n" for line in lines)
        file.write_bytes(text.encode("utf-8", "surrogateescape"))
    return Damaged(files, kinds, held_out_pairs, languages)


@dataclass(frozen=True)
class Figures:
    """How well checks find damage."""

    recall: dict[str, float]
    """Of each kind."""
    precision: dict[str, float]
    """Of each check."""
    false_alarms: float
    """Share of the undamaged lines that would be dropped."""


def measure(
    damaged: Damaged,
    wanted: frozenset[str] = frozenset(CHECKS),
    detector: Detector | None = None,
) -> Figures:
    """Runs checks on a damaged corpus."""
    source, target = map(str, damaged.files)
    config = CorpusConfig(source=source, target=target)
    corpora = Corpora(
        configs=[config],
        languages=damaged.languages,
        held_out=HeldOut(side for pair in damaged.held_out for side in pair),
        detector=detector,
    )
    n_damaged, n_found, flagged, right = Counter(), Counter(), Counter(), Counter()
    n_false = 0
    with survey(corpora, wanted) as surveyed:
        for example in judge(corpora, surveyed, wanted, DROPPING):
            kind = damaged.kinds[example.record.number - 1]
            flagged.update(example.reasons.keys())
            if kind:
                n_damaged[kind] += 1
                n_found[kind] += KINDS[kind][1] in example.reasons
                right.update(example.reasons.keys())
            else:
                n_false += not DROPPING.isdisjoint(example.reasons)
    return Figures(
        recall={kind: n_found[kind] / n_damaged[kind] for kind in KINDS},
        precision={name: right[name] / flagged[name] for name in CHECKS if flagged[name]},
        false_alarms=n_false / damaged.kinds.count(""),
    )
