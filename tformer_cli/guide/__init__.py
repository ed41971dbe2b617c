"""The guides that ship with the package, as Markdown."""

import re
from dataclasses import dataclass
from pathlib import Path

from tformer_cli.errors import UsageError
from tformer_cli.wording import did_you_mean, suggestions

FOLDER = Path(__file__).parent.parent / "guide"
ORDER = (
    *("translating", "comparing", "formats", "training", "distilling"),
    *("classifying", "encoders", "images", "language-models"),
    *("inspecting", "teaching", "performance", "python", "glossary"),
)
"""Topics in the order to read them; others follow."""
SAMPLE = "sample-report"
"""Topic besides the guides: a page."""
_COMMENT = re.compile(r"^<!--.*?-->\n", re.DOTALL | re.MULTILINE)
_MARKUP = re.compile(r"\[([^\]]*)\]\([^)]*\)|[`*]")


@dataclass(frozen=True, kw_only=True)
class Guide:
    """A guide about one topic."""

    topic: str
    """Its name, as `tformer guide` takes it."""
    title: str
    """Its first heading."""
    summary: str
    """Its first sentence, without markup."""
    text: str
    """Its Markdown, without the comments, which are for tests of the examples."""


def guides() -> list[Guide]:
    """Reads all guides, in the order to read them."""
    found = {file.stem: file for file in sorted(FOLDER.glob("*.md"))}
    names = [*(name for name in ORDER if name in found), *(n for n in found if n not in ORDER)]
    return [_read(found[name]) for name in names]


def find_guide(topic: str) -> Guide:
    """Finds the guide about a topic."""
    found = {guide.topic: guide for guide in guides()}
    if topic.lower() in found:
        return found[topic.lower()]
    meant = did_you_mean(suggestions(topic, [*found, SAMPLE])) or f"there are {', '.join(found)}"
    raise UsageError(f"TOPIC: there is no guide {topic}; {meant}")


def sample_report() -> str:
    """Makes a report page of a model that ships with the package, as HTML."""
    from tformer_cli.inspect.pages import sample_page

    return sample_page()


def _read(file: Path) -> Guide:
    text = _COMMENT.sub("", file.read_text(encoding="utf-8"))
    blocks = [block.strip() for block in text.split("\n\n") if block.strip()]
    title = next((b.lstrip("# ") for b in blocks if b.startswith("#")), file.stem)
    prose = next((b for b in blocks if b[0].isalpha() or b[0] in "`*["), "")
    sentence = re.split(r"(?<=[.!?])\s", " ".join(prose.split()), maxsplit=1)[0]
    return Guide(
        topic=file.stem, title=title, summary=_MARKUP.sub(r"\1", sentence).rstrip(":"), text=text
    )
