import os
import pty
import re
import subprocess
import sys

import pytest

from tests.commands import under
from tformer_cli import guide as workflow
from tformer_cli.cli.known_commands import find_command
from tformer_cli.guide import FOLDER, ORDER, guides, notebooks, sample_report
from tformer_cli.guide.search import word_pattern

TOPICS = sorted(file.stem for file in FOLDER.glob("*.md"))
LONG = f"tformer translate {' '.join(map(str, range(60)))}"
TEXT = f"""# How to count

Counting is *easy*, see [the table](formats.md) and `seq`: it has steps. More follows.

| a | b |
|---|---|
| 1 | 2 |

```sh
{LONG}
```
"""


refused, run = under("guide", "refused", "run")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for name in ("zebra", "formats", "counting"):
        (tmp_path / f"{name}.md").write_text(TEXT, encoding="utf-8")
    monkeypatch.setattr(workflow, "FOLDER", tmp_path)
    return tmp_path


def test_topics_are_listed_in_reading_order_each_with_a_sentence(folder):
    lines = run().stdout.splitlines()
    assert [line.split()[0] for line in lines] == [
        *("formats", "counting", "zebra"),
        "sample-report",
    ]
    assert (
        lines[1].split(" ", 1)[1].strip()
        == "Counting is easy, see the table and seq: it has steps."
    )
    assert guides()[0].title == "How to count"


def test_in_a_pipe_a_guide_is_its_markdown(folder):
    for topic in ("counting", "COUNTING"):
        result = run(topic)
        assert (result.exit_code, result.stdout) == (0, TEXT)


def test_an_unknown_topic_names_the_nearest(folder):
    result = run("formast")
    assert result.exit_code == 2
    assert result.stderr == (
        "error: TOPIC: formast is in no guide, no command and not in the glossary; "
        "did you mean formats?\n"
    )
    assert "there are the guides formats, counting, zebra" in run("xyzzy").stderr
    assert "did you mean sample-report?" in run("sample").stderr


def test_a_word_is_found_in_glossary_commands_and_guides(folder):
    glossary = "# Glossary\n\nTerms.\n\n**Steps, stages.** Parts: `tformer inspect-step`.\n"
    (folder / "glossary.md").write_text(glossary, encoding="utf-8")
    (folder / "formats.md").write_text(f"# Formats\n\nNo word.\n\n{'a ' * 60}STEP {'b ' * 60}\n")
    result = run("step")
    assert (result.exit_code, result.stderr) == (0, "")
    start, commands, found = result.stdout.split("\n## ")
    assert start == "**Steps, stages.** Parts: `tformer inspect-step`.\n"
    assert "- `tformer inspect-step`: Work through one attention head" in commands
    formats, counting, zebra = found.splitlines()[3:6]
    # Without markup, in reading order, cut between words on both sides
    assert counting == "counting: … is easy, see the table and seq: it has steps. More follows."
    assert zebra.startswith("zebra: Counting")
    assert len(formats) <= 80
    assert re.fullmatch(r"formats: … [a ]+STEP [b ]+ …", formats)
    assert "How to count" in run("how", "to", "count").stdout
    assert "TOPIC: steppes is in no guide, no command and not in the" in run("steppes").stderr
    for nothing in ("", "-"):
        assert "TOPIC: has no word to look for; there are the guides" in run("--", nothing).stderr


@pytest.mark.parametrize(
    ("word", "text", "matches"),
    [
        ("queries", "The query asks", True), ("query", "many queries", True),
        ("heads", "Head by head", True), ("head", "two heads", True),
        ("feed forward", "a feed-forward layer", True), ("FFN", "an ffn", True),
        ("decoder", "the encoder–decoder attention", True), ("norm", "normalized", True),
        ("top", "the topic", False), ("mask", "unmasked", False), ("loss", "glosses", False),
    ],
)  # fmt: skip
def test_a_word_stands_for_its_forms(word, text, matches):
    assert bool(word_pattern(word).search(text)) == matches


def test_every_entry_of_the_glossary_names_a_command_that_exists():
    text = (FOLDER / "glossary.md").read_text(encoding="utf-8")
    entries = re.findall(r"^\*\*(.+)\.\*\* (.+)$", text, re.MULTILINE)
    assert len(entries) == text.count("\n**")
    names = [name.lower() for name, _ in entries]
    assert names == sorted(names)
    for name, sentence in entries:
        commands = re.findall(r"`tformer ([\w-]+)", sentence)
        assert commands, name
        assert all(map(find_command, commands)), name


def test_every_word_that_the_guide_to_the_figure_explains_is_in_the_glossary():
    text = (FOLDER / "how-a-transformer-works.md").read_text(encoding="utf-8")
    glossary = (FOLDER / "glossary.md").read_text(encoding="utf-8")
    names = "\n".join(re.findall(r"^\*\*(.+)\.\*\*", glossary, re.MULTILINE))
    words = re.findall(r"\*\*([^*]+)\*\*", text)
    assert len(words) > 25
    assert [word for word in words if not word_pattern(word).search(names)] == []


def test_next_to_a_quickstart_the_sample_report_names_its_living_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run("sample-report", "-o", "a.html").stderr == ""
    (tmp_path / "runs/quickstart").mkdir(parents=True)
    (tmp_path / "runs/quickstart/page.html").touch()
    shown = run("sample-report", "-o", "b.html").stderr
    assert shown == "runs/quickstart/page.html also computes what you type; open it, too\n"
    assert run("sample-report", "-o", "c.html", "-q").stderr == ""


def test_a_guide_and_the_sample_report_are_written_to_files(folder, tmp_path):
    report = sample_report().rstrip("\n") + "\n"
    for name, ending, text in (("counting", "txt", TEXT), ("sample-report", "html", report)):
        file = tmp_path / f"{name}.{ending}"
        result = run(name, "-o", str(file))
        assert (result.exit_code, result.stdout) == (0, "")
        assert file.read_text(encoding="utf-8") == text
        assert run(name).stdout == text
    assert "<html" in text
    for words in (["-o", "x"], ["sample-report", "-o", "x.png"], ["counting", "-o", "x.html"]):
        refused(*words, says="error: --output: ")


@pytest.mark.parametrize("topic", TOPICS)
def test_every_shipped_guide_is_listed_and_printed(topic):
    result = run(topic)
    assert result.exit_code == 0
    lines = (FOLDER / f"{topic}.md").read_text(encoding="utf-8").splitlines()
    assert result.stdout.splitlines() == [line for line in lines if not line.startswith("<!--")]
    (entry,) = [guide for guide in guides() if guide.topic == topic]
    assert topic in ORDER
    assert entry.title
    assert entry.summary
    assert not set("`*[]") & set(entry.summary)


def on_terminal(folder, *arguments, **environment):
    """What a terminal of 80 columns shows."""
    master, terminal = pty.openpty()
    code = (
        "import sys, pathlib; from tformer_cli import guide as shipped\n"
        f"shipped.FOLDER = pathlib.Path({str(folder)!r})\n"
        f"from tformer_cli.cli.app import app; app(['guide', 'counting', *{arguments!r}])"
    )
    env = {**os.environ, "TERM": "dumb", "COLUMNS": "80", **environment}
    subprocess.run([sys.executable, "-c", code], stdout=terminal, env=env, check=True)
    os.close(terminal)
    shown = os.read(master, 1 << 16).decode()
    os.close(master)
    return shown


def test_on_a_terminal_a_guide_is_formatted_but_its_code_is_whole(folder):
    shown = on_terminal(folder)
    assert "How to count" in shown
    assert "# How" not in shown
    assert "|---|" not in shown
    # the terminal wraps it, and copies it as one line
    assert LONG in shown


@pytest.mark.parametrize(
    ("arguments", "environment", "is_paged"),
    [
        ((), {"TERM": "xterm"}, True),
        (("--quiet",), {"TERM": "xterm"}, False),
        ((), {"TERM": "dumb"}, False),
        ((), {"TERM": "xterm", "PAGER": ""}, False),
        ((), {"TERM": "xterm", "PAGER": "no-such-pager"}, False),
    ],
)
def test_a_terminal_shows_a_guide_by_the_pager(folder, arguments, environment, is_paged):
    pager = {"PAGER": "sed 's/^/paged /'"}
    shown = on_terminal(folder, *arguments, **{**pager, **environment})
    assert ("paged " in shown) == is_paged
    assert "How to count" in shown


def test_in_a_pipe_no_row_of_the_list_is_wrapped():
    lines = run().stdout.splitlines()
    assert [line.split()[0] for line in lines] == [*ORDER, *notebooks(), "sample-report"]
    assert max(map(len, lines)) > 80
