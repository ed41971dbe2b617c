import io
import re
import shutil
import subprocess
from collections import Counter

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.documents.making import read
from tests.documents.test_translating import upper
from tformer_cli.documents.messages import LanguagePair
from tformer_cli.documents.projection import Link, words_of
from tformer_cli.documents.segments import SegmentBuilder, add_message, rendered
from tformer_cli.documents.translating import Answer, translating

CART = "{count, plural, =0 {It is empty.} one {It has # house.} other {It has # houses.}}"


def message(text):
    builder = SegmentBuilder("a")
    add_message(builder, text, builder.text)
    return builder.build()


def run(segments, languages=("en", ""), answer=upper):
    job = translating(segments, protects=True, languages=LanguagePair(*languages))
    requests, lines = next(job), []
    while True:
        lines += [request.text for request in requests]
        try:
            requests = job.send([answer(request.text) for request in requests])
        except StopIteration as end:
            return end.value, lines


def translate(text, languages=("en", ""), answer=upper):
    """Returns a translated message, the lines that were asked for, and why it stays."""
    result, lines = run([message(text)], languages, answer)
    (segment,) = result.segments
    return None if segment is None else rendered(segment), lines, [*result.summary.kept]


@pytest.mark.parametrize(
    ("text", "expected_lines", "expected"),
    [
        (
            CART,
            ["It is empty.", "It has 1 house.", "It has 2 houses."],
            "{count, plural, =0 {IT IS EMPTY.} one {IT HAS # HOUSE.} other {IT HAS # HOUSES.}}",
        ),
        (
            "{gender, select, male {He} female {She} other {They}} left.",
            ["735 left.", "He", "She", "They"],
            "{gender, select, male {HE} female {SHE} other {THEY}} LEFT.",
        ),
        (
            "{0, selectordinal, one {#st} two {#nd} few {#rd} other {#th}}",
            ["1st", "2nd", "3rd", "4th"],
            "{0, selectordinal, one {#ST} two {#ND} few {#RD} other {#TH}}",
        ),
        # The frame is copied, whatever its blanks; the counted argument is a number, too
        (
            "{ n ,plural , offset:1\n  one{{name} and # other}\n  other{{n} and {n, number}} }",
            ["735 and 1 other", "2 and 2"],
            "{ n ,plural , offset:1\n  one{{name} AND # OTHER}\n  other{{n} AND {n, number}} }",
        ),
        (
            "a {n, plural, other {# in {sex, select, male {his # b} other {{x} c}}}} d",
            ["a 735 d", "2 in 735", "his 2 b", "735 c"],
            "A {n, plural, other {# IN {sex, select, male {HIS # B} other {{x} C}}}} D",
        ),
        (
            "{n, plural, one {{shown} house} other {{shown} houses}}",
            ["1 house", "2 houses"],
            "{n, plural, one {{shown} HOUSE} other {{shown} HOUSES}}",
        ),
        # Quotations, and a number that the text has
        (
            "{n, plural, other {it's '{x}' at '#' 2 don''t}}",
            ["it's {x} at # 2 don't"],
            "{n, plural, other {IT''S '{x}' AT '#' 2 DON''T}}",
        ),
        # Markup goes with its branch, and around all of it
        (
            "<b>{n, plural, one {<i>a</i> b} other {<x/> #}}</b>",
            ["735", "a b"],
            "<b>{n, plural, one {<i>A</i> B} other {<x/> #}}</b>",
        ),
        ("Sold on {when, date, long}.", ["Sold on 735."], "SOLD ON {when, date, long}."),
        (
            "{n, plural, other {{x, foo, a {b}} c}}",
            ["735 c"],
            "{n, plural, other {{x, foo, a {b}} C}}",
        ),
    ],
)
def test_branches_are_translated(text, expected_lines, expected):
    output, lines, _ = translate(text)
    assert output == expected
    assert lines == [line for line in expected_lines if not line.isdigit()]


@pytest.mark.parametrize(
    ("target", "categories"),
    [
        ("fr", "one many other"),
        ("de", "one other"),
        ("ru", "one few many other"),
        ("ar", "one zero two few many other"),
        ("ja", "other"),
        ("xx", "one other"),
    ],
)
def test_a_plural_has_the_categories_of_its_language(target, categories):
    output, lines, _ = translate(CART, ("en", target))
    assert re.findall(r"(?:^|[ }])(=?\w+) \{", output) == ["=0", *categories.split()]
    # "other" where the text has no such category, each with a number of its own
    forms = dict(re.findall(r"(\w+) \{IT HAS # (\w+)", output))
    assert forms == {name: "HOUSE" if name == "one" else "HOUSES" for name in categories.split()}
    if target == "ru":
        assert lines[1:] == [
            f"It has {n}." for n in ("1 house", "2 houses", "5 houses", "1.5 houses")
        ]


def test_a_category_that_the_language_lacks_goes():
    text = "{n, selectordinal, one {the #st} two {the #nd} few {the #rd} other {the #th}}"
    output, lines, _ = translate(text, ("en", "fr"))
    assert output == "{n, selectordinal, one {THE #ST} other {THE #TH}}"
    # The fourth is "other" in both
    assert lines == ["the 1st", "the 4th"]
    # A choice has words of its own, and without "other" nothing is known
    for text in ("{n, select, one {a} two {b}}", "{n, plural, one {a} two {b}}"):
        assert translate(text, ("en", "ja"))[0] == text.replace("{a", "{A").replace("{b", "{B")


@pytest.mark.parametrize(
    "text",
    [
        "{n, plural, one {a} other {b}",
        "{n, plural, one {a} other {b}}}",
        "{n, plural, one a other b}",
        "{n, plural, }",
        "{n, choice, many}",
        "{n, choice, 0#a|1#b",
        "{n, plural, other {a '{b}}",
        "{n, plural, one {<b>a} other {b</b>}}",
        "{n, plural, one {a}<br/> other {b}}",
        "{n, plural, other {" * 30 + "a" + "}}" * 30,
        "{n, plural, other {a {} b}}",
    ],
)
def test_a_message_that_is_not_understood_stays(text):
    segments, summary = run([message(text)])[0].segments, run([message(text)])[0].summary
    assert segments == [None]
    assert [(row["source"], row["reasons"]) for row in summary.doubtful] == [
        (message(text).text, ["syntax of the message"])
    ]
    assert summary.as_json()["left"] == {"syntax of the message": 1}


@pytest.mark.parametrize(
    ("text", "expected_lines", "expected"),
    [
        # Forms of Vue's and Laravel's
        ("a house | {n} houses", ["a house", "735 houses"], "A HOUSE | {n} HOUSES"),
        ("no apples|an apple|:n apples", ["no apples", "an apple", "735 apples"],
         "NO APPLES|AN APPLE|:n APPLES"),
        ("{0} None|[1,9] Some|[10,*] :x", ["None", "Some"], "{0} NONE|[1,9] SOME|[10,*] :x"),
        ("take [a|b] or (c | d)", ["take [a|b] or (c | d)"], "TAKE [A|B] OR (C | D)"),
        ("a || b", ["a || b"], "A || B"),
        ("<b>a | b</b>", ["a | b"], "<b>A | B</b>"),
        ("{{ x | upper }} a", ["735 a"], "{{ x | upper }} A"),
        # Apostrophes that quote nothing
        ("no option '%s' in '<b>$a</b>'", ["no option '735' in '844'"],
         "NO OPTION '%s' IN '<b>$a</b>'"),
        # What says braces, and an ampersand
        ("{'@'}a and {'{'}b{'}'}", ["735a and 844b953"], "{'@'}A AND {'{'}B{'}'}"),
        ("a '{b}' is {c}", ["a 735 is 844"], "A '{b}' IS {c}"),
        ("Fish && Chips", ["Fish & Chips"], "FISH && CHIPS"),
        ("from %s <%s> now", ["from 735 844 now"], "FROM %s <%s> NOW"),
        # Java's
        ("{0,choice,0#no files|1#a file|1<{0} files} left",
         ["735 left", "no files", "a file", "735 files"],
         "{0,choice,0#NO FILES|1#A FILE|1<{0} FILES} LEFT"),
        # i18next's components
        ("Open <0>the <1/> house</0><2>.</2>", ["Open the house."],
         "OPEN <0>THE <1/> HOUSE</0><2>.</2>"),
        ("a <5>the house <6></6></5>", ["a the house"], "A <5>THE HOUSE <6></6></5>"),
        ("<5><6></6> the</5> <b>a</b>", ["the a"], "<5><6></6> THE</5> <b>A</b>"),
        ("<1/> days <2/>", ["days"], "<1/> DAYS <2/>"),
        ("%<city>s <b>is</b> <%= a > b %>", ["735 is 844"], "%<city>s <b>IS</b> <%= a > b %>"),
        ("<b>open <file> now<br> x</b>", ["open <file> now x"], "<b>OPEN <file> NOW<br> X</b>"),
        # Code, and comments
        ("run <code>a <b>b</b></code> now", ["run a b now"],
         "RUN <code>a <b>b</b></code> NOW"),
        ("<!-- a --> b", ["<!-- a --> b"], "<!-- a --> B"),
        # Paragraphs and lines
        ("<ul><li>a b</li><li>c <i>d</i></li></ul>", ["a b", "c d"],
         "<ul><li>A B</li><li>C <i>D</i></li></ul>"),
        ("{x}.<br>c {n, plural, one {<p>a</p><p>b</p>} other {d<br>e}}",
         ["735. c 844", "a b", "d e"],
         "{x}. <br>C {n, plural, one {<p>A</p> <p>B</p>} other {D <br>E}}"),
        ("a<br>b<br /><br>c | d", ["a b c", "d"], "A <br>B <br /><br>C | D"),
        ("<div><b>a<p>b</p></b> c</div>", ["a", "b", "c"], "<div><b>A<p>B</p></b> C</div>"),
        ("<p>{n, plural, one {a} other {b}}</p> <p>{x} c</p>", ["a", "b", "735 c"],
         "<p>{n, plural, one {A} other {B}}</p> <p>{x} C</p>"),
        # Placeholders in tags
        ('Click <a href="%s">here</a>', ["Click here"], 'CLICK <a href="%s">HERE</a>'),
        ("<a href='{{ a > b }}'>a</a> b", ["a b"], "<a href='{{ a > b }}'>A</a> B"),
        ('<a href="<?= $x ?>" class=c>a</a> b', ["a b"], '<a href="<?= $x ?>" class=c>A</a> B'),
        ('<img src=":url" alt="c"/> b', ["b"], '<img src=":url" alt="c"/> B'),
        ("<b>%<city>s</b> is", ["735 is"], "<b>%<city>s</b> IS"),
        # Numbers for placeholders: one for those that only marks divide
        ("%d/%d of {a}{b}", ["735 of 844"], "%d/%d OF {a}{b}"),
        ("735 of {a}, 8{b}", ["735 of 844, 8{b}"], "735 OF {a}, 8{b}"),
        ("{% if a %}yes{% endif %}", ["{% if a %}yes{% endif %}"], "{% if a %}YES{% endif %}"),
        ("it is `%s` and `a' or `b'", ["it is 735 and `a' or `b'"], "IT IS `%s` AND `A' OR `B'"),
        ("[b]no[/b] [name]", ["[b]no[/b] 735"], "[b]NO[/b] [name]"),
        # Signs that are written twice, or by name
        ("%.1f%% of 5%", ["735% of 5%"], "%.1f%% OF 5%"),
        ("a &amp; b don&rsquo;t &lt;x&gt; &nbsp;c", ["a & b don’t <x> &nbsp;c"],
         "A &amp; B DON’T &lt;X&gt; &nbsp;C"),
        # Columns
        ("Open\tCtrl+O\n  all", ["Open", "all"], "OPEN\tCtrl+O\n  ALL"),
        ("Usage: %s\n  -a, --all      show all\n", ["Usage: 735", "show all"],
         "USAGE: %s\n  -a, --all      SHOW ALL"),
        ("-a, --all      show\n  -c, --cut=N  do  <b>so</b>\n a  b   c",
         ["show", "do", "so", "a  b", "c"],
         "-a, --all      SHOW\n  -c, --cut=N  DO  <b>SO</b>\n A  B   C"),
        # Keys of menus
        ("&Open file...", ["Open file..."], "&OPEN FILE..."),
        ("Save _As", ["Save As"], "SAVE _AS"),
        ("E&xit", ["Exit"], "E&XIT"),
        ("~File", ["File"], "~FILE"),
        ("Fo&rmat", ["Format"], "FO&RMAT"),
        ("Terms&Conditions", ["Terms&Conditions"], "TERMS&CONDITIONS"),
        ("Q&A", ["Q&A"], "Q&A"),
        ("R&D, AT&T, a & b", ["R&D, AT&T, a & b"], "R&D, AT&T, A & B"),
        ("a &copy; b?x=1&y=2", ["a © b?x=1&y=2"], "A &copy; B?X=1&Y=2"),
    ],
)  # fmt: skip
def test_messages(text, expected_lines, expected):
    output, lines, _ = translate(text)
    assert (output, lines) == (expected, expected_lines)


@pytest.mark.parametrize(
    ("text", "translation", "expected"),
    [
        ("&Open", "ouvrir", "&ouvrir"),
        ("&Open", "Fichier à ouvrir", "Fichier à &ouvrir"),
        ("&Open", "Zoom", "Z&oom"),
        ("&Open", "Datei", "&Datei"),
        ("_Open {x}", "735", "{x}"),
        ("&Open...", "开...", "开(&O)..."),
        ("Open (&O)", "Ouvrir", "&Ouvrir"),
    ],
)
def test_the_mark_of_a_key_goes_before_its_letter(text, translation, expected):
    assert translate(text, answer=lambda line: Answer(translation, []))[0] == expected


@pytest.mark.parametrize(
    ("text", "translation", "expected"),
    [
        ("of {x}", "d'735", "d’{x}"),
        ("of '%s'", "d'735'", "d'%s'"),
        ("of {x}", "d'eau 735", "d'eau {x}"),
        ("of {0} water", "735 d'eau", "{0} d’eau"),
        ("it''s {0}", "735 l'a", "{0} l''a"),
        ("it's {0}", "735 l'a", "{0} l'a"),
        ("{n, plural, other {of #}}", "d'2", "{n, plural, other {d’#}}"),
        ("{n, plural, other {a}}", "l'", "{n, plural, other {l’}}"),
        ("{n, plural, other {it''s a}}", "l'a", "{n, plural, other {l''a}}"),
    ],
)
def test_an_apostrophe_does_not_quote_syntax(text, translation, expected):
    assert translate(text, answer=lambda line: Answer(translation, []))[0] == expected


@pytest.mark.parametrize(
    ("text", "translation"),
    [
        ("%s has %d", "844 735"),
        ("{a} is", "735 ist 735"),
        ("{a} is", "735 ist {b}"),
        ("{a} is", "735844 ist"),
        ("%s is", "735ist"),
        ("100%% of it", "100% % davon"),
        ("{n, plural, other {# houses}}", "2 Häuser, 2"),
        ("{n, plural, other {a house}}", "ein } Haus"),
        ("{n, plural, other {a house}}", "ein # Haus"),
        ("a | {n} b", "{n"),
    ],
)
def test_a_message_whose_placeholders_do_not_come_back_stays(text, translation):
    result, _ = run([message(text)], answer=lambda line: Answer(translation, []))
    assert result.segments == [None]
    assert result.summary.kept == {"placeholders": 1}
    (doubtful,) = result.summary.doubtful
    assert (doubtful["translation"], doubtful["reasons"]) == (text, ["placeholders"])


def test_all_that_stays_is_counted_by_its_reason():
    texts = ["some.key", "--", "{n, plural, x", "%d", "the house", "a {b} c"]
    answer = lambda line: Answer("x {", []) if "735" in line else upper(line)  # noqa: E731
    result, _ = run([message(text) for text in texts], answer=answer)
    assert result.summary.as_json()["left"] == {
        "a name or a value, no words": 1,
        "no words": 2,
        "syntax of the message": 1,
        "placeholders": 1,
    }
    assert (result.summary.n_translated, result.summary.as_json()["kept"]) == (1, 5)


def test_messages_in_every_format():
    texts = {
        "json": f'{{"a": "{CART}"}}',
        "po": f'msgid "{CART}"\nmsgstr ""\n',
        "xliff": '<xliff version="1.2"><file><body><trans-unit id="1"><source>'
        f"{CART}</source></trans-unit></body></file></xliff>",
        "text": CART,
        "html": f"<p>{CART}</p>",
    }
    for name, text in texts.items():
        document = read(name, text.encode())
        result, _ = run(document.segments, ("en", "ja"))
        written = document.write(result.segments).decode()
        assert "{count, plural, =0 {IT IS EMPTY.} other {IT HAS # HOUSES.}}" in written, name


# --- By other programs ---

WORDS = ("the", "house", "it's", "l'", "{x}", "{x, date}", "{y, foo}", "#", "'{'q'}'", "''", "2")
WORDS += ("100%%", "%s", "<b>very</b>", "<x/>", "&amp;", "|", "{0}", "{ z }", "{0,number,#.#}")
SELECTORS = {"plural": ["=0", "one"], "select": ["male"], "selectordinal": ["one", "two"]}


@st.composite
def icu_messages(draw, depth=0):
    texts = st.lists(st.sampled_from(WORDS), max_size=3).map(" ".join)
    text = draw(texts)
    if depth < 3 and (depth == 0 or draw(st.booleans())):
        kind = draw(st.sampled_from([*SELECTORS]))
        names = [*draw(st.sets(st.sampled_from(SELECTORS[kind]))), "other"]
        blank = draw(st.sampled_from(["", " ", "\n  "]))
        branches = " ".join(f"{n}{blank}{{{draw(icu_messages(depth=depth + 1))}}}" for n in names)
        name = draw(st.sampled_from(["n", "0"]))
        text += f" {{{name}, {kind}, {branches}}} {draw(texts)}"
    return text


def garbled(text, kind, noise):
    words = text.split(" ")
    return {
        "upper": lambda: upper(text),
        "pieces": lambda: upper(text, is_linked=False),
        "reversed": lambda: Answer(" ".join(words[::-1]), []),
        "nothing": lambda: Answer("", []),
        "twice": lambda: Answer(f"{text} {text}", [Link(word, word) for word in words_of(text)]),
        "joined": lambda: Answer("l'" + "".join(words), []),
        "quoted": lambda: Answer("d'" + " '".join(words) + "'", []),
        "noise": lambda: Answer(noise, []),
    }[kind]()


KINDS = ("upper", "pieces", "reversed", "nothing", "twice", "joined", "quoted", "noise")
ANSWERS = st.tuples(st.sampled_from(KINDS), st.text("ab' {}#%s<|&_2$~", max_size=9))


def outline(parsed):
    """Counts the arguments of a message, of branches only those of "other"."""
    counts = Counter()
    for part in parsed if isinstance(parsed, list) else [parsed]:
        if isinstance(part, dict):
            counts[part.get("name"), part.get("type"), part.get("format")] += 1
            counts += outline(part.get("options", {}).get("other", []))
    return counts


@pytest.mark.slow
@given(icu_messages(), st.sampled_from(["fr", "ru", "ja", ""]), st.lists(ANSWERS, min_size=1))
def test_another_parser_reads_what_was_written(text, target, answers):
    parser = pytest.importorskip("pyicumessageformat").Parser({"require_other": False})
    try:
        expected = outline(parser.parse(text))
    except SyntaxError:
        assume(False)
    turns = iter(answers * 1000)
    output, _, _ = translate(text, ("en", target), lambda line: garbled(line, *next(turns)))
    if output is not None:
        assert outline(parser.parse(output)) == expected


FORMATS = {
    "c-format": ["%d", "%1$s of %2$s", "%-10s", "%.1f%%", "%'d", "%*d", "%<PRIu64>", "%dx%d"],
    "python-format": ["%(n)d and %(dir)s (100%% done)", "%s %s", "%.2f %%"],
    "python-brace-format": ["{0}", "{name}", "{1:.2f} {city!r}", "{} {}"],
    "java-format": ["{0}", "{0,number,#.##}"],
    "java-printf-format": ["%1$tY", "%n%d"],
    "csharp-format": ["{0:C2} {1,10}"],
    "objc-format": ["%@", "%1$@ %2$@"],
    "ruby-format": ["%{count}", "%<city>s"],
    "scheme-format": ["~a", "~d ~s ~%"],
    "lisp-format": ["~A ~D"],
    "qt-format": ["%1 %2", "%L1"],
    "qt-plural-format": ["%n"],
    "boost-format": ["%1% %2%", "%|1$+5|"],
    "lua-format": ["%q", "%s %d"],
    "perl-brace-format": ["{name}"],
    "php-format": ["%1$d %2$s", "%s"],
    "sh-format": ["$HOME ${USER}"],
    "gcc-internal-format": ["%<%E%>", "%qs %d", "%qT"],
    "awk-format": ["%s %5.2f"],
    "object-pascal-format": ["%s %d"],
}
HEADER = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\n'


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("msgfmt") is None, reason="needs gettext")
@pytest.mark.parametrize("kind", KINDS)
def test_msgfmt_and_babel_accept_every_translation(kind):
    pofile = pytest.importorskip("babel.messages.pofile")
    texts = [
        (flag, " ".join(words))
        for flag, examples in FORMATS.items()
        for number, example in enumerate(examples)
        for words in [(example, "the green house"), ("the 5", example, f"is {'old' * number}")]
    ]
    entries = "\n".join(
        f'#, {flag}\nmsgctxt "{number}"\nmsgid "{text}"\nmsgstr ""\n'
        for number, (flag, text) in enumerate(texts)
    )
    document = read("po", (HEADER + entries).encode())
    for noise in ("a' {}#%s<", "%d 2 ~a", "$x } {", "&%%_"):
        result, _ = run(
            document.segments, answer=lambda line, noise=noise: garbled(line, kind, noise)
        )
        written = document.write(result.segments).replace(b"#, fuzzy, ", b"#, ")
        check = subprocess.run(
            ["msgfmt", "-c", "-o", "/dev/null", "-"],
            check=False,
            input=written,
            capture_output=True,
        )
        assert check.returncode == 0, check.stderr.decode()
        catalog = pofile.read_po(io.BytesIO(written))
        # Scheme's "~% the" looks like a format of Python's to it
        messages = [entry for entry in catalog if "~%" not in entry.id]
        assert [(entry.string, error) for entry in messages for error in entry.check(catalog)] == []
    if kind == "upper":
        assert result.summary.n_translated == len(texts)
