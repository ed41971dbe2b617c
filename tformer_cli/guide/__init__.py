"""Files that ship with the package: guides as Markdown, notebooks, and recipes to copy.

Guides and `notebooks` lie next to this file; the recipes in `recipes`, which `tformer_cli.recipe`
finds.
"""

import json
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

from tformer_cli.errors import UsageError
from tformer_cli.files.atomic import write_text
from tformer_cli.recipe import find_recipe, recipe_names, study_names
from tformer_cli.wording import did_you_mean, suggestions

FOLDER = Path(__file__).parent
# Topics in the order to read them; others follow.
ORDER = (
    *("how-a-transformer-works", "translating", "documents", "comparing", "citing", "serving"),
    *("ci", "formats"),
    *("training", "distilling"),
    *("classifying", "encoders", "images", "language-models"),
    *("inspecting", "interpretability", "teaching", "performance", "python"),
    *("architecture", "extending", "glossary", "changes"),
)
# Topic besides the guides: a page.
SAMPLE = "sample-report"
_COMMENT = re.compile(r"^<!--.*?-->\n", re.DOTALL | re.MULTILINE)
MARKUP = re.compile(r"\[([^\]]*)\]\([^)]*\)|[`*]")


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
    files = {file.stem: file for file in sorted(FOLDER.glob("*.md"))}
    names = [*(name for name in ORDER if name in files), *(n for n in files if n not in ORDER)]
    return [_read(files[name]) for name in names]


def has_guide(topic: str) -> bool:
    return any(guide.topic == topic.lower() for guide in guides())


def find_guide(topic: str) -> Guide:
    by_topic = {guide.topic: guide for guide in guides()}
    if topic.lower() in by_topic:
        return by_topic[topic.lower()]
    known = [*by_topic, *notebooks(), SAMPLE]
    meant = did_you_mean(suggestions(topic, known)) or f"there are the guides {', '.join(by_topic)}"
    if not re.search(r"\w", topic):
        raise UsageError(f"TOPIC: has no word to look for; {meant}")
    raise UsageError(f"TOPIC: {topic} is in no guide, no command and not in the glossary; {meant}")


def notebooks() -> dict[str, str]:
    """Finds the notebooks: the title of each by the name of its file."""
    titles = {}
    for file in sorted((FOLDER / "notebooks").glob("*.ipynb")):
        first = json.loads(notebook_text(file.name))["cells"][0]["source"][0]
        titles[file.name] = first.lstrip("# ").strip()
    return titles


def notebook_text(name: str) -> str:
    return (FOLDER / "notebooks" / name).read_text(encoding="utf-8")


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
        topic=file.stem, title=title, summary=MARKUP.sub(r"\1", sentence).rstrip(":"), text=text
    )


@dataclass(frozen=True, kw_only=True)
class RecipeSummary:
    """Entry of a recipe in the list."""

    name: str
    summary: str
    """The first sentence of its first comment."""
    origin: str
    """Origin of its data; empty if unknown."""


def shipped_recipes() -> list[RecipeSummary]:
    return [_summary(name, recipe_text(name)) for name in (*recipe_names(), *study_names())]


def recipe_text(name: str) -> str:
    """Reads a recipe with its comments."""
    return find_recipe(name).read_text(encoding="utf-8")


def copy_recipe(name: str, output: Path | None = None) -> Path:
    """Copies a recipe to a new file, NAME.toml in the working directory by default."""
    text = recipe_text(name)
    path = output or Path(f"{Path(name).stem}.toml")
    if path.exists() or path.is_symlink():
        raise UsageError(f"--output: {path} exists already; name another file")
    write_text(path, text)
    return path


def _summary(name: str, text: str) -> RecipeSummary:
    comment = re.match(r"(?:# .*\n)+", text)
    prose = " ".join(re.sub(r"^# ", "", comment[0], flags=re.MULTILINE).split()) if comment else ""
    sentence = re.split(r"(?<=[.!?])\s+(?=[A-Z])", prose, maxsplit=1)[0]
    origin = tomllib.loads(text).get("data", {}).get("origin", "")
    return RecipeSummary(name=name, summary=sentence, origin=str(origin))
