import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from tests.documents.test_translating import upper
from tformer_cli.documents.known_formats import format_named
from tformer_cli.documents.projection import Link, words_of
from tformer_cli.documents.segments import ReadSettings
from tformer_cli.documents.translating import Answer, translating
from tformer_cli.plugins.documents.markdown_syntax import BLOCKS, INLINES

SPEC = os.environ.get("TFORMER_COMMONMARK", "")
KEPT = "text whose translation would change the markup"


def read(text, **options):
    return format_named("markdown").read(text.encode(), ReadSettings(**options))


def write_translation(document, answer=upper):
    job = translating(document.segments, protects=False)
    requests = next(job)
    while True:
        try:
            requests = job.send([answer(request.text) for request in requests])
        except StopIteration as end:
            return document.write(end.value.segments).decode()


def translate(text, answer=upper, **options):
    return write_translation(read(text, **options), answer)


def lengthen_words(text):
    """Translates into longer words."""
    translation, place, links = "", 0, []
    for start, end in words_of(text):
        translation += text[place:start]
        word = text[start:end]
        links.append(
            Link((len(translation), len(translation) + len(word) + word.isalpha()), (start, end))
        )
        translation += "x" * word.isalpha() + word
        place = end
    return Answer(translation + text[place:], links)


def structure(text):
    """Lists the CommonMark structure without text: blocks, markup, targets and code."""
    marks = []

    def add(tokens):
        for token in tokens:
            if token.type == "inline":
                add(token.children or [])
            elif token.type not in ("text", "text_special", "softbreak"):
                code = token.content if token.type in ("code_inline", "fence", "code_block") else ""
                targets = [token.attrs.get(name) for name in ("href", "src")]
                marks.append(
                    (token.type, token.tag, token.nesting, token.hidden, code.split(), targets)
                )
                add(token.children or [] if token.type == "image" else [])

    add(MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(text))
    return marks


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("# a b\n\nc\nd\n", "# A B\n\nC D\n"),
        ("a\n===\n\nb\n", "A\n===\n\nB\n"),
        ("## a ##\n", "## A ##\n"),
        ("* a\n* b\n  c\n\n1. d\n", "* A\n* B C\n\n1. D\n"),
        ("> a\n> b\n", "> A B\n"),
        ("- [ ] a\n- [x] b\n", "- [ ] A\n- [x] B\n"),
        ("a *b* __c__ ~~d~~ e\n", "A *B* __C__ ~~D~~ E\n"),
        ("the [**old** page](x.md 'a (b)') now\n", "THE [**OLD** PAGE](x.md 'A (B)') NOW\n"),
        ("[a][b] and [c] d\n\n[b]: x 'y'\n[c]: z\n", "[A][b] AND [C][c] D\n\n[b]: x 'Y'\n[c]: z\n"),
        ("a ![b [c]](d.png) e\n", "A ![B [C]](d.png) E\n"),
        ("a `b*` ``c`d`` e\n", "A `b*` ``c`d`` E\n"),
        ("a <https://b.c> d\n", "A <https://b.c> D\n"),
        ("a <b>c</b> <br> d\n", "A <b>C</b> <br> D\n"),
        ("a \\* b &amp; c_d _e_ \\_f\n", "A \\* B & C_D _E_ \\_F\n"),
        ("a  \nb\\\nc\n", "A  \nB\\\nC\n"),
        ("> a  \n> b\n", "> A  \n> B\n"),
        ("    a = 1\n\n```sh\nb\n```\n", "    a = 1\n\n```sh\nb\n```\n"),
        ("| a | *b* |\n|---|---|\n| c | d |\n", "| A | *B* |\n|---|---|\n| C | D |\n"),
        ("---\ntitle: a\n---\n\nb\n", "---\ntitle: a\n---\n\nB\n"),
        ("<div title='a'>\n<p>b <i>c</i></p>\n</div>\n\nd\n",
         "<div title='A'>\n<p>B <i>C</i></p>\n</div>\n\nD\n"),
        ("a[^1]\n\n[^1]: b\n", "A[^1]\n\n[^1]: B\n"),
        ("a\r\nb\r\n\r\nc", "A B\r\n\r\nC"),
        ("***\n\n12:30\n", "***\n\n12:30\n"),
        ("\ufeff# a\n", "\ufeff# A\n"),
        ("", ""),
    ],
)  # fmt: skip
def test_text_is_translated_and_marks_stay(source, target):
    assert translate(source) == target
    document = read(source)
    assert document.write([None] * len(document.segments)) == source.encode()


def test_what_a_translation_has_is_no_markup():
    output = translate("hello\n", lambda text: upper("a*b_ _c [d] <e> `f` g_h &lt; x|y \\"))
    assert output == "A\\*B\\_ \\_C \\[D\\] \\<E> \\`F\\` G_H \\&LT; X\\|Y \\\\\n"


@given(st.text("ab *_[]()<>!`#->|\\&;\n1.$~^=+:%{}\"'\t\r\xa0\x0c\0", max_size=50))
def test_markdown_that_nobody_translates_is_as_it_was(text):
    document = read(text)
    assert document.write(document.segments) == text.encode()


# Dialects


@pytest.mark.parametrize("row", BLOCKS, ids=lambda row: f"{row.dialect}-{row.example}")
def test_the_lines_of_dialects_stay(row):
    content = "\n\n    inside" if row.indents else ""
    text = f"before\n\n{row.example}{content}\n\nafter\n"
    output = translate(text)
    assert output.casefold() == text.casefold()
    assert output.startswith("BEFORE")
    assert output.endswith("AFTER\n")
    assert ("INSIDE" in output) == row.indents
    has_text = "(?P<text>" in row.start and row.dialect != "GitHub, Obsidian"
    is_kept = row.example in output
    assert is_kept != has_text
    assert read(text).skipped == ({row.skipped: 1} if row.skipped else {})


@pytest.mark.parametrize("row", INLINES, ids=lambda row: f"{row.dialect}-{row.example}")
def test_the_marks_of_dialects_stay(row):
    output = translate(row.example + " then" * (not row.pattern.endswith("\\Z")) + "\n")
    assert len(read(f"{row.example}\n").segments) <= 1 + ("note" in row.pattern)
    if "(?P<" in row.pattern and "label" not in row.pattern:
        meant = row.example if row.starts in "^~" and "text" in row.pattern else row.example.upper()
        assert output == f"{meant} THEN\n".replace("[A|", "[a|").replace(".B}", ".b}")
    else:
        mark = (
            row.example.removeprefix("- ").removeprefix("a ").removesuffix(" b").removesuffix(" a")
        )
        assert mark.removeprefix("a") in output


@pytest.mark.parametrize(
    ("source", "target"),
    [
        # Escapes and starts of blocks
        ("1986\\. a\n", "1986\\. A\n"),
        ("1\\) a\n", "1\\) A\n"),
        ("\\- a\n", "\\- A\n"),
        ("\\+ a\n", "\\+ A\n"),
        ("\\* a\n", "\\* A\n"),
        ("\\> a\n", "\\> A\n"),
        ("\\# a\n", "\\# A\n"),
        ("\\## a\n", "\\## A\n"),
        ("\\~~~ a\n", "\\~~~ A\n"),
        ("\\| a\n", "\\| A\n"),
        ("\\[a]: b\n\n[a] c\n", "\\[A]: B\n\n[A] C\n"),
        ("\\<b> a\n", "\\<B> A\n"),
        ("&lt;b> a &copy;\n", "&lt;B> A &copy;\n"),
        ("a\\![b](c)\n", "A\\![B](c)\n"),
        ("\\$5 a \\$6\n", "\\$5 A \\$6\n"),
        ("a 2 * 3 < 4 b_c ] d\n", "A 2 * 3 < 4 B_C ] D\n"),
        ("&nbsp;a&#32;b\n", "&nbsp;A &#32;B\n"),
        ("\\#12 \\@a \\:tada: # 1\n", "\\#12 \\@A \\:TADA: # 1\n"),
        ("[[1]](b) [[2]][c] [[3]]\n\n[c]: d\n", "[[1]](b) [[2]][c] [[3]]\n\n[c]: d\n"),
        ("> <pre>\n>\n>  a\n> </pre>\n> <p>b\n> c</p>\n",
         "> <pre>\n>\n>  a\n> </pre>\n> <p>B C</p>\n"),
        ("a \\_\\_b\\_\\_ c\n", "A \\_\\_B\\_\\_ C\n"),
        # Continuation lines
        ("> a\nb\n> c\n", "> A B C\n"),
        ("- a\nb\n   c\n", "- A B C\n"),
        ("> a *b\nc* d\n", "> A *B C* D\n"),
        ("> a `b\n> c` d\n", "> A `b c` D\n"),
        ("> - a [b\n>   c](d\n>   'e f') g\n", "> - A [B C](d 'E F') G\n"),
        ("1. a\n\n   > b\n   c\n", "1. A\n\n   > B C\n"),
        # Addresses
        ("<https://a.b/_c/d_> e\n", "<https://a.b/_c/d_> E\n"),
        ("https://a.b/_c/d_ e, www.a.b/_c_.\n", "https://a.b/_c/d_ E, www.a.b/_c_.\n"),
        ("*a https://a.b/c_d* (https://a.b/(c)) d\n", "*A https://a.b/c_d* (https://a.b/(c)) D\n"),
        # Links by label
        ("[a b] c [d][] e\n\n[a b]: x\n[d]: y\n", "[A B][a b] C [D][d] E\n\n[a b]: x\n[d]: y\n"),
        ("![a b] ![c][]\n\n[a b]: x\n[c]: y\n", "![A B][a b] ![C][c]\n\n[a b]: x\n[c]: y\n"),
        ("[12] [`a`] b\n\n[12]: x\n[`a`]: y\n", "[12] [`a`] B\n\n[12]: x\n[`a`]: y\n"),
        ("> [a\n> b] c\n\n[a b]: x\n", "> [A B][a b] C\n\n[a b]: x\n"),
        ("[a `b`]\n[c] [d] [c]\n\n[c]: e\n[d]: f\n",
         "[A `b`] [c] [D][d] [C][c]\n\n[c]: e\n[d]: f\n"),
        ("<div>\na [b]\n</div>\n  [b]: c\n\n[b] d\n",
         "<div>\nA [B]\n</div>\n  [b]: c\n\n[B][b] D\n"),
        # Images, their blanks, and titles
        ("a ![b](c)\n", "A ![B](c)\n"),
        ("![b](c) a\n", "![B](c) A\n"),
        ("[![a](b)](c) d\n", "[![A](b)](c) D\n"),
        ("[![a](b) ![c](d)](e)\n\n![f](g)\n![h](i)\n",
         "[![A](b) ![C](d)](e)\n\n![F](g)\n![H](i)\n"),
        ('![a *b*](c "d \\"e\\"")\n', '![A *B*](c "D \\"E\\"")\n'),
        ("[a](b (c))\n\n[d]: e\n   'f'\n", "[A](b (C))\n\n[d]: e\n   'F'\n"),
        ("a <img src='b' alt='c d'> e\n", "A <img src='b' alt='C D'> E\n"),
        ("a^[b [c](d 'e')] [![f](g 'h')](i 'j')\n", "A^[B [C](d 'E')] [![F](g 'H')](i 'J')\n"),
        ("a<br>b <code>c d</code> <a title='e'><i></i></a>\n",
         "A <br>B <code>c d</code> <a title='E'><i></i></a>\n"),
        # Cells
        ("| a \\| b | c |\n|---|---|\n| `d \\| e` f | |\n| ![g \\| h](i) | **j** [k](l) |\n",
         "| A \\| B | C |\n|---|---|\n| `d \\| e` F | |\n| ![G \\| H](i) | **J** [K](l) |\n"),
        ("> a | b\n> --|--\n> b | a\n", "> A | B\n> --|--\n> B | A\n"),
        # HTML in containers
        ("> <details>\n> <summary>a</summary>\n> b\n> c\n> </details>\n\nd\n",
         "> <details>\n> <summary>A</summary>\n> B C\n> </details>\n\nD\n"),
        ("- <div>\n  a\n  </div>\n- b\n", "- <div>\n  A\n  </div>\n- B\n"),
        ("> <p>a</p>\r\n>\r\n> b\r\n", "> <p>A</p>\r\n>\r\n> B\r\n"),
        ("a <kbd>Ctrl</kbd> b <!-- c --> d\n", "A <kbd>Ctrl</kbd> B <!-- c --> D\n"),
        # Dialects
        ("> [!NOTE]\n> a\n> b\n", "> [!NOTE]\n> A B\n"),
        ("> [!tip]- a\n> b\n", "> [!tip]- A\n> B\n"),
        ("::: tip a *b*\nc\nd\n:::\n", "::: tip A *B*\nC D\n:::\n"),
        ("a\n$$\nx_1\n$$\nb $y_1$ c\n", "A\n$$\nx_1\n$$\nB $y_1$ C\n"),
        ("a costs $5 and $6\n", "A COSTS $5 AND $6\n"),
        ("a\n: b\n\n    c\n", "A\n: B\n\n    C\n"),
        ("a\nb\n: c\n: d\n", "A\nB\n: C\n: D\n"),
        ("<!-- a -->\n\n:   <!-- b -->\n    c\n", "<!-- a -->\n\n:   <!-- b -->\n    C\n"),
        ("<!-- a -->\n\n:   <!-- b --> c\n    d\n\n    e\n\n    - f\n\ng\n",
         "<!-- a -->\n\n:   <!-- b --> C D\n\n    E\n\n    - F\n\nG\n"),
        ("{{< highlight a />}}\nb\n{{< highlight a >}}\nc\n{{< /highlight >}}\n",
         "{{< highlight a />}}\nB\n{{< highlight a >}}\nc\n{{< /highlight >}}\n"),
        ('!!! note "a"\n    b\n\n    c\n\n    ```\n    d\n    ```\ne\n',
         '!!! note "A"\n    B\n\n    C\n\n    ```\n    d\n    ```\nE\n'),
        ("??? tip\n    a\n    - b\n", "??? tip\n    A\n    - B\n"),
        ("a {: .b}\n{: #c }\nd\n", "A {: .b}\n{: #c }\nD\n"),
        ("# a {#b}\n", "# A {#b}\n"),
        ("- a\n{ .b }\n\n[c](d){ .e .f }\n", "- A\n{ .b }\n\n[C](d){ .e .f }\n"),
        ("(a-b)=\n# c\n", "(a-b)=\n# C\n"),
        ("a[^1] b^[c d]\n\n[^1]: e\n    f\n\n    g\n", "A[^1] B^[C D]\n\n[^1]: E F\n\n    G\n"),
        ("<Tabs a={b}>\n<Tab label=\"c\">\n\nd\n\n</Tab>\n</Tabs>\n",
         "<Tabs a={b}>\n<Tab label=\"C\">\n\nD\n\n</Tab>\n</Tabs>\n"),
        ("a <B c={d > 1}>e</B> f\n", "A <B c={d > 1}>E</B> F\n"),
        ("import A from 'b'\nimport {\n  C\n} from 'd'\n\ne\n",
         "import A from 'b'\nimport {\n  C\n} from 'd'\n\nE\n"),
        (':::tab{title="a"}\nb\n:::\n', ':::tab{title="a"}\nB\n:::\n'),
        ("a\nb\n\n: c\n", "A\nB\n\n: C\n"),
        ("{% raw %}{{ a }}{% endraw %} b\n", "{% raw %}{{ a }}{% endraw %} B\n"),
        ("a\n{% include b %}\nc\n", "A\n{% include b %}\nC\n"),
        ("{% highlight a %}\nb\n\nc\n{% endhighlight %}\nd\n",
         "{% highlight a %}\nb\n\nc\n{% endhighlight %}\nD\n"),
    ],
)  # fmt: skip
def test_markdown_as_people_write_it(source, target):
    document = read(source)
    assert write_translation(document) == target
    assert not document.skipped
    assert document.write(document.segments) == source.encode()
    windows = read(source.replace("\n", "\r\n"))
    assert write_translation(windows) == target.replace("\n", "\r\n")
    # The translation has the same constructs
    assert len(read(target).segments) == len(document.segments)


def test_mdx_has_expressions_and_no_indented_code():
    text = "{a.map(b => <c/>)}\n\nd {e.f} g\n\n<Tab>\n    h\n    - i\n    - j\n</Tab>\n"
    output = "{a.map(b => <c/>)}\n\nD {e.f} G\n\n<Tab>\n    H\n    - I\n    - J\n</Tab>\n"
    assert translate(text, name="a.mdx") == output
    text = "<div a={b}>\n- *c*\n  <td>d</td>\n</div>\n\n<!-- e -->\n\n\\<3 and \\{ f\n"
    output = "<div a={b}>\n- *C* <td>D</td>\n</div>\n\n<!-- e -->\n\n\\<3 AND \\{ F\n"
    assert translate(text, name="a.mdx") == output
    assert translate("word\n", lambda _: Answer("<3 {a"), name="a.mdx") == "\\<3 \\{a\n"


@pytest.mark.parametrize(
    "text",
    ["1. a", "1) a", "- a", "+ a", "* a", "# a", "#", "> a", "---", "***", "===", "```a", "~~~",
     "| a | b |", "<div>", "<!-- a", "[a]: b", "[ ] a", "$a$ b", "$$", "[!NOTE]", "::: a", ":::",
     "!!! note", '=== "a"', "{{ a }}", "{% a %}", "{: .a}", "[[a]]", "==a==", "a^b^", "[^1]: a",
     "[^1] b", "import a from 'b'", "export const a = 1", "\\begin{a}", "**a**", "_a_", "`a`",
     "a  ", "![a](b)", "[a](b)", "&amp; &#65;", "https://a_b_/c", "a\\", "a #", "*[a]: b", "[TOC]",
     "%%a%%", "{#a}", ": a", "    a", "<https://a.b>", "<a>b</a>", "~~a~~", "++a++", "--8<-- a"],
)  # fmt: skip
@pytest.mark.parametrize(
    "frame",
    ["{}\n", "# {}\n", "- {}\n", "> {}\n", "{}\n===\n", "| {} |\n|---|\n", "a  \n{}\n", "[{}](c)\n",
     "**{}**\n"],
)  # fmt: skip
def test_text_that_becomes_markup_is_escaped(frame, text):
    source = frame.format("word")
    document = read(source)
    output = write_translation(
        document,
        lambda source_text: Answer(source_text.replace("word", text), [Link((0, 1), (0, 1))]),
    )
    assert structure(output) == structure(source)
    if not document.skipped:
        (segment,) = read(output).segments
        assert segment.text.split() == document.segments[0].text.replace("word", text).split()


@pytest.mark.parametrize("text", ["12:30", "a - b", "2 * 3", "a_b", "a < b", "C# a", "50 % [1]"])
def test_nothing_is_escaped_without_need(text):
    assert translate("word\n", lambda _: Answer(text)) == f"{text}\n"


def test_marks_beside_letters_without_spaces_stay_marks():
    answer = Answer("这是“粗体”文字", [Link((2, 6), (2, 6)), Link((6, 8), (7, 11))])
    output = translate("a **bold** text\n", lambda _: answer)
    assert [token[0] for token in structure(output)].count("strong_open") == 1
    assert "**" in output


def test_marks_that_come_together_stay_two():
    document = read("**a** and `b` or `c` and **d**\n")
    (segment,) = document.segments
    spans = [replace(span, start=n, end=n + 1) for n, span in enumerate(segment.spans)]
    output = document.write([replace(segment, text="abcd", spans=tuple(spans))]).decode()
    assert output == "**a**`b` `c`**d**\n"
    assert not document.skipped


def test_what_cannot_be_written_stays_and_is_counted():
    document = read("<div id='a'\n*b*\n\nc\n")
    assert write_translation(document) == "<div id='a'\n*b*\n\nC\n"
    assert document.skipped == {KEPT: 1}
    assert write_translation(document) == "<div id='a'\n*b*\n\nC\n"
    assert document.skipped == {KEPT: 1}
    assert read("```{note}\na\n```\n").skipped == {"directive in a code fence": 1}
    assert not read("```{r}\na\n```\n").skipped
    assert read("> " * 60 + "a\n").skipped == {"block within too many others": 1}


FRONT = """---
title: The old house  # a comment
description: "It \\"is\\" old"
subtitle: 'It''s'
summary: >-
  My sister
  was tired.

  Today.
tags: [a, b]
date: 2020-01-01
draft: true
excerpt: 2020
---

text
"""


def test_front_matter_is_translated_on_request():
    assert translate(FRONT) == FRONT.replace("\ntext", "\nTEXT")
    output = translate(FRONT, front_matter=True)
    assert output == (
        FRONT.replace("The old house", "THE OLD HOUSE")
        .replace('It \\"is\\" old', 'IT \\"IS\\" OLD')
        .replace("'It''s'", '"IT\'S"')
        .replace("My sister\n  was tired.\n\n  Today.", "MY SISTER WAS TIRED.\n\n  TODAY.")
        .replace("\ntext", "\nTEXT")
    )
    toml = '+++\ntitle = "a b"\ndraft = false\n+++\nc\n'
    assert translate(toml, front_matter=True) == '+++\ntitle = "A B"\ndraft = false\n+++\nC\n'
    document = read(FRONT, front_matter=True)
    assert document.write([None] * len(document.segments)) == FRONT.encode()


@pytest.mark.parametrize("text", ["a: b", "# a", "- a", "yes", "12", "a #b", "{a}", "'a", "@a", ""])
def test_front_matter_quotes_what_yaml_would_read_otherwise(text):
    import yaml

    output = translate("---\ntitle: word\n---\n", lambda _: Answer(text), front_matter=True)
    assert yaml.safe_load(output.split("---")[1]) == {"title": text}


# Structure

PARTS = [
    "text *with* **marks** and `code`", "[a link](b 'title') here", "![alt text](c) image",
    "a <b>bold</b> word<br>", "https://a.b/_c_ address", "note[^1] word", "$x_1$ math", "1\\. one",
    "[ref] label", "a ==mark==", "<https://a.b/_c_> auto", "word", "\\* star", "{{ a }} tag",
    "[[wiki|label]] b", "![ref]", "<A b={c}/> jsx", "H~2~O", "a_b_c d", "text  \nbroken", "a\nline",
]  # fmt: skip
FRAMES = [
    "{}\n", "# {}\n", "> {}\n", "- {}\n", "1. {}\n", "> - {}\n", "{}\n---\n", "> [!NOTE]\n> {}\n",
    "| {} |\n|---|\n| a |\n", "::: tip\n{}\n:::\n", '!!! note "t"\n    {}\n', "$$\nx\n$$\n",
    "<div>\n\n{}\n\n</div>\n", "```\ncode\n```\n", "---\n", "term\n: {}\n", "{{: .a}}\n",
    "> <p>html\n> text</p>\n",
]  # fmt: skip


@st.composite
def documents(draw):
    parts = []
    for frame in draw(st.lists(st.sampled_from(FRAMES), max_size=5)):
        text = " ".join(draw(st.lists(st.sampled_from(PARTS), min_size=1, max_size=3)))
        if frame.startswith(("#", "|")):
            text = text.replace("\n", " ")
        before = re.match(r"[> ]*(?:\[!NOTE\]\n>|!!! note \"t\"\n   )?", frame)[0].split("\n")[-1]
        indent = before if frame.startswith((">", "!")) else "   " * frame.startswith(("-", "1"))
        parts.append(frame.format(text.replace("\n", "\n" + indent)))
    return "\n".join([*parts, "[ref]: d 'title'\n", "[^1]: a note\n"])


def check_structure(text):
    document = read(text)
    assert document.write(document.segments) == text.encode()
    for answer in (
        upper,
        lengthen_words,
        lambda line: Answer(line[::-1]),
        lambda line: Answer(f"- {line}"),
    ):
        output = write_translation(document, answer)
        if answer in (upper, lengthen_words):
            assert structure(output) == structure(text)
            assert not document.skipped
        assert len(read(output).segments) == len(document.segments)


@given(documents())
@settings(max_examples=5)
def test_translations_keep_the_structure_of_documents(text):
    check_structure(text)


@pytest.mark.slow
@given(documents())
@settings(max_examples=300)
def test_translations_keep_the_structure_of_many_documents(text):
    check_structure(text)


@pytest.mark.slow
@pytest.mark.skipif(not SPEC, reason="needs TFORMER_COMMONMARK, spec.txt of commonmark-spec")
def test_examples_of_commonmark_keep_their_structure():
    text = Path(SPEC).read_text(encoding="utf-8").replace("→", "\t")
    examples = re.findall(r"^`{32} example\n(.*?)^\.\n", text, re.DOTALL | re.MULTILINE)
    assert len(examples) >= 652
    for example in examples:
        document = read(example)
        assert document.write(document.segments) == example.encode()
        for answer in (upper, lengthen_words):
            assert structure(write_translation(document, answer)) == structure(example)
