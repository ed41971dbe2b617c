import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from tests.documents.test_translating import upper
from tformer_cli.documents.formats import markdown
from tformer_cli.documents.known_formats import format_named
from tformer_cli.documents.segments import ReadSettings
from tformer_cli.documents.translating import translating


def read(text):
    return format_named("markdown").read(text.encode(), ReadSettings())


def translated(text, answer=upper):
    document = read(text)
    job = translating(document.segments, protects=False)
    requests = next(job)
    while True:
        try:
            requests = job.send([answer(one.text) for one in requests])
        except StopIteration as end:
            return document.write(end.value.segments).decode()


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
        ("the [**old** page](x.md 'a (b)') now\n", "THE [**OLD** PAGE](x.md 'a (b)') NOW\n"),
        ("[a][b] and [c] d\n\n[b]: x 'y'\n[c]: z\n", "[A][b] AND [C] D\n\n[b]: x 'y'\n[c]: z\n"),
        ("a ![b [c]](d.png) e\n", "A ![b [c]](d.png) E\n"),
        ("a `b*` ``c`d`` e\n", "A `b*` ``c`d`` E\n"),
        ("a <https://b.c> d\n", "A <HTTPS://B.C> D\n"),
        ("a <b>c</b> <br> d\n", "A <b>C</b> <br> D\n"),
        ("a \\* b &amp; c_d _e_ \\_f\n", "A \\* B & C_D _E_ \\_F\n"),
        ("a  \nb\\\nc\n", "A   \nB \\\nC\n"),
        ("> a  \n> b\n", "> A   \n> B\n"),
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
    assert translated(source) == target
    document = read(source)
    assert document.write([None] * len(document.segments)) == source.encode()


def test_what_a_translation_has_is_no_markup():
    made = translated("hello\n", lambda text: upper("a*b_ _c [d] <e> `f` g_h &lt; x|y \\"))
    assert made == "A\\*B\\_ \\_C \\[D\\] \\<E> \\`F\\` G_H \\&LT; X\\|Y \\\\\n"


@given(st.text("ab *_[]()<>!`#->|\\&;\n1.", max_size=50))
def test_markdown_that_nobody_translates_is_as_it_was(text):
    document = read(text)
    assert document.write(document.segments) == text.encode()


class Sliced(str):
    """Text that counts the characters which are copied from it."""

    copied = 0

    def __getitem__(self, key):
        made = super().__getitem__(key)
        self.copied += len(made)
        return made


def test_lines_of_a_long_paragraph_are_read_once():
    text = Sliced("a *b*  \n" * 2000 + "c")
    parser = MarkdownIt("commonmark").disable("text_join")
    (token,) = parser.parseInline(str(text))
    assert not markdown._Walk(text, ["\n"] * 2000, "p").built(token.children).depth
    # each line end copied all that follows it
    assert text.copied <= len(text)
