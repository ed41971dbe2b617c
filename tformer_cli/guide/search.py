"""Finds a word in the glossary, in the guides and among the commands."""

import re
from collections.abc import Iterable, Sequence

from tformer_cli.guide import MARKUP, guides
from tformer_cli.wording import did_you_mean

GLOSSARY = "glossary"
# Lines shown for a guide; characters of its name and a line; commands in a hint.
LINES, WIDTH, HINTS = 2, 80, 3
# Letters from which on a word also stands for longer ones: norm for normalize, not top for topic.
STEM = 4
_ENTRY = re.compile(r"^\*\*(.+?)\.\*\* (.+)$", re.MULTILINE)
_COMMAND = re.compile(r"`tformer ([\w-]+)")


def word_pattern(word: str) -> re.Pattern[str]:
    """Writes a pattern for a word in any case and number; a space also stands for a hyphen."""
    word = word.strip().lower()
    stem, ending = word, "(?:e?s)?"
    if word.endswith(("y", "ies")):
        stem, ending = word.removesuffix("y").removesuffix("ies"), "(?:y|ies)"
    elif len(word) > STEM and word.endswith("s") and not word.endswith("ss"):
        stem = word[:-1]
    body = r"[-–\s]+".join(map(re.escape, re.split(r"[-–\s]+", stem)))
    rest = "" if len(stem) >= STEM else rf"{ending}\b"
    return re.compile(rf"(?<!\w){body}{rest}", re.IGNORECASE)


def write_search_page(word: str, summaries: Iterable[tuple[str, str]]) -> str:
    """Writes where a word stands, as Markdown; empty if it stands nowhere.

    Args:
        word: One word or several.
        summaries: The name and the summary of each command.
    """
    if not re.search(r"\w", word):
        return ""
    pattern, known = word_pattern(word), dict(summaries)
    parts = [entry[0] for entry in _entries() if pattern.search(entry[1])]
    commands = [f"- `tformer {name}`: {known[name]}" for name in find_commands(word, known.items())]
    if commands:
        parts.append("\n".join(("## Commands\n", *commands)))
    mentions = find_mentions(word)
    if mentions:
        lines = [f"{topic}: {line}" for topic, lines in mentions for line in lines]
        parts.append("\n".join(("## Guides\n", "```", *lines, "```")))
    return "\n\n".join(parts)


def find_mentions(word: str) -> list[tuple[str, list[str]]]:
    """Finds the guides that hold a word, each with its headings, then lines, that hold it.

    Guides with the word in a heading come first, then those with more lines.
    """
    pattern = word_pattern(word)
    ranked = []
    for guide in guides():
        lines = [line for line in guide.text.splitlines() if pattern.search(line)]
        headings = [line for line in lines if line.startswith("#")]
        others = [line for line in lines if not line.startswith("#")]
        if lines and guide.topic != GLOSSARY:
            width = WIDTH - len(f"{guide.topic}: …  …")
            shown = [_excerpt(line, pattern, width) for line in [*headings, *others][:LINES]]
            ranked.append((-len(headings), -len(lines), guide.topic, shown))
    return [(topic, shown) for *_, topic, shown in sorted(ranked, key=lambda row: row[:2])]


def find_commands(word: str, summaries: Iterable[tuple[str, str]]) -> list[str]:
    """Finds commands for a word of the field.

    Those with the word in their name come first, then those that the glossary names for it, then
    those with the word in their summary.

    Args:
        word: What a reader looks for, such as "attention".
        summaries: The name and the summary of each command.
    """
    pattern = word_pattern(word)
    known = dict(summaries)
    named = [name for name in known if pattern.search(name)]
    meant = [
        command[1]
        for entry in _entries()
        if pattern.search(entry[1]) and (command := _COMMAND.search(entry[2]))
    ]
    summed = [name for name, summary in known.items() if pattern.search(summary)]
    return [name for name in dict.fromkeys([*named, *meant, *summed]) if name in known]


def suggest_commands(word: str, summaries: Iterable[tuple[str, str]]) -> str:
    """Writes what a word that is no command may have been meant for; empty if no command has it."""
    if not re.fullmatch(r"\w[\w-]{1,30}", word):
        return ""
    question = did_you_mean(find_commands(word, summaries)[:HINTS])
    return question and f"{question} `tformer guide {word}` explains the word"


def _entries() -> Sequence[re.Match[str]]:
    texts = (guide.text for guide in guides() if guide.topic == GLOSSARY)
    return [entry for text in texts for entry in _ENTRY.finditer(text)]


def _excerpt(line: str, pattern: re.Pattern[str], width: int) -> str:
    """Cuts a line of Markdown around the first match, between words."""
    text = MARKUP.sub(r"\1", line).strip("#| ").replace(" | ", " · ")
    match = pattern.search(text)
    start = match.start() - width // 3 if match else 0  # none: in the address of a link
    start = max(0, min(start, len(text) - width))
    cut = text[start : start + width]
    if start:
        cut = f"… {cut.partition(' ')[2]}"
    return cut if start + width >= len(text) else f"{cut.rpartition(' ')[0]} …"
