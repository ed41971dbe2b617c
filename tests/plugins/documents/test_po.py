import contextlib
import gettext
import re
import shutil
import subprocess
import time
from collections import defaultdict

import pytest

from tests.documents.making import list_texts, read, translate
from tformer_cli.errors import DataError
from tformer_cli.plugins.documents.plural_forms import PLURAL_FORMS

HEADER = r"""# Comment
msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\n"
"Plural-Forms: nplurals=3; plural=(n%10==1 && n%100!=11 ? 0 : n != 0 ? 1 : 2);\n"
"""
PO = (
    HEADER
    + r"""
#. For translators
#: a.c:3
#, c-format
msgctxt "menu"
msgid "Open \"%s\"\n"
msgstr ""

msgid "Done"
msgstr "Fertig"

#| msgid "old"
msgid ""
"This is a long message whose lines\n"
"were wrapped. And\n"
"\tanother line."
msgstr ""

#, fuzzy
msgid "Doubtful"
msgstr "Falsch"

msgid "%d file"
msgid_plural "%d files"
msgstr[0] ""
msgstr[1] ""
msgstr[2] "keine"

#~ msgid "Gone"
#~ msgstr ""
"""
)


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_empty_messages_are_filled(line_end):
    data = PO.replace("\n", line_end).encode()
    document = read("po", data)
    assert list_texts(document.segments) == [
        'Open "%s"',
        ("This is a long message whose lines were wrapped. And\n\tanother line.", (35, 35, "void")),
        "%d file",
        "%d files",
    ]
    assert document.write([None] * 4) == data
    words = {'Open "%s"': 'Öffne\t"%s"', "%d file": "%d Datei", "%d files": "%d Dateien"}
    expected = (
        PO.replace("#, c-format", "#, fuzzy, c-format")
        .replace(
            '"Open \\"%s\\"\\n"\nmsgstr ""', '"Open \\"%s\\"\\n"\nmsgstr "Öffne\\t\\"%s\\"\\n"'
        )
        .replace('msgid "%d', '#, fuzzy\nmsgid "%d')
        .replace('msgstr[0] ""\nmsgstr[1] ""', 'msgstr[0] "%d Datei"\nmsgstr[1] "%d Dateien"')
    )
    assert translate(document, words).decode() == expected.replace("\n", line_end)


def test_a_copy_of_the_source_is_a_translation():
    document = read("po", PO.encode())
    output = document.write(document.segments).decode()
    message = (
        '"This is a long message whose lines\\n"\n"were wrapped. And\\n"\n"\\tanother line."\n'
    )
    assert f'#, fuzzy\n#| msgid "old"\nmsgid ""\n{message}msgstr ""\n{message}' in output
    assert not read("po", output.encode()).segments
    if shutil.which("msgfmt"):
        check = ["msgfmt", "-c", "-f", "-o", "/dev/null", "-"]
        subprocess.run(check, input=output, check=True, text=True)


def test_fuzzy_messages_are_translated_on_request():
    document = read("po", PO.encode(), fills_fuzzy=True)
    output = translate(document, {"Doubtful": "Zweifelhaft"}).decode()
    assert output == PO.replace("Falsch", "Zweifelhaft")


@pytest.mark.parametrize(
    ("rule", "targets", "forms"),
    [
        ("nplurals=2; plural=(n > 1);", 2, ["one", "many"]),
        ("nplurals=1; plural=0;", 1, ["many"]),
        ("nplurals=3; plural=n==1 ? 2 : n==2 ? 1 : 0;", 3, ["many", "many", "one"]),
        ("nplurals=2; plural=__import__('os');", 2, ["one", "many"]),
        ("nplurals=2; plural=n%0;", 2, ["one", "many"]),
        ("", 2, ["one", "many"]),
    ],
)
def test_plurals_follow_the_rule_of_the_file(rule, targets, forms):
    empty = "".join(f'msgstr[{number}] ""\n' for number in range(targets))
    header = f'msgid ""\nmsgstr "Plural-Forms: {rule}\\n"\n\n' if rule else ""
    text = f'{header}msgid "one"\nmsgid_plural "many"\n{empty}'
    document = read("po", text.encode())
    output = document.write(document.segments).decode()
    written = "".join(f'msgstr[{number}] "{form}"\n' for number, form in enumerate(forms))
    assert output == text.replace('msgid "one"', '#, fuzzy\nmsgid "one"').replace(empty, written)


def test_other_encodings():
    text = PO.replace("UTF-8", "ISO-8859-1").replace("Fertig", "Größe")
    document = read("po", text.encode("latin-1"))
    assert document.write([None] * 4) == text.encode("latin-1")
    assert "Öffne" in translate(document, {'Open "%s"': "Öffne"}).decode("latin-1")
    with pytest.raises(
        DataError, match=r"^a.po: its encoding ISO-8859-1 cannot write 'Ω' of a transla"
    ):
        translate(document, {'Open "%s"': "Ω"})


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'msgid "a"\nmsgtsr ""\n', "a.po:2: is not a line of a .po file; check it with msgfmt -c"),
        (b'msgid "\xe9"\nmsgstr ""\n', "a.po:1: is not text in UTF-8; convert it: iconv"),
        (b'"charset=klingon"', "a.po: is not in klingon, which it declares; convert it: msgconv"),
    ],
)
def test_errors(data, message):
    with pytest.raises(DataError) as caught:
        read("po", data)
    assert str(caught.value).startswith(message)


def test_a_message_that_does_not_end_is_read_once():
    text = 'msgid "a"\n' * 20_000 + 'msgstr ""\n'
    begin = time.process_time()
    assert list_texts(read("po", text.encode()).segments) == ["a"]
    # took minutes while each line searched all lines before it
    assert time.process_time() - begin < 10


def test_tags_of_messages_are_markup():
    data = HEADER + '\nmsgid "Open <b>the</b> <a href=\\"x\\">file</a>."\nmsgstr ""\n'
    document = read("po", data.encode())
    (segment,) = document.segments
    assert segment.text == "Open the file."
    output = translate(document, {segment.text: "Open the File."}).decode()
    assert 'msgstr "Open <b>the</b> <a href=\\"x\\">File</a>."' in output


MESSAGE = 'msgid "{0}"\nmsgstr ""\n'
OBSOLETE = {
    "a flag": '#, fuzzy\n#~ msgid "x"\n#~ msgstr "y"\n',
    "comments": '# by\n#. by\n#: a.c:1\n#, fuzzy, c-format\n#~ msgid "x"\n#~ msgstr "y"\n',
    "what it was before": '#, fuzzy\n#~| msgid "w"\n#~ msgid "x"\n#~ msgstr "y"\n',
    "several": '#, fuzzy\n#~ msgid "x"\n#~ msgstr "y"\n#, fuzzy\n#~ msgid "z"\n#~ msgstr "y"\n',
    "a context": '#, fuzzy\n#~ msgctxt "c"\n#~ msgid "x"\n#~ msgstr "y"\n',
    "plurals": '#, fuzzy\n#~ msgid "x"\n#~ msgid_plural "y"\n#~ msgstr[0] "y"\n#~ msgstr[1] "z"\n',
    "long strings": '#, fuzzy\n#~ msgid ""\n#~ "x "\n#~ "y"\n#~ msgstr ""\n#~ "y "\n#~ "z"\n',
    "no translation": '#, fuzzy\n#~ msgid "x"\n#~ msgstr ""\n',
    "no blank": '#, fuzzy\n#~msgid "x"\n#~msgstr "y"\n',
    "a header": '#, fuzzy\n#~ msgctxt "x"\n#~ msgid ""\n#~ msgstr "Language: xx\\n"\n',
}


@pytest.mark.parametrize("end", ["\n", ""])
@pytest.mark.parametrize("name", OBSOLETE)
def test_what_stands_before_an_obsolete_message_is_its_own(name, end):
    first, second, third = (
        re.sub('"([xz])', rf'"\g<1>{place}', OBSOLETE[name]) + end for place in "123"
    )
    text = HEADER + "\n" + first + MESSAGE.format("a") + end + second + MESSAGE.format("b") + third
    document = read("po", text.encode(), target_language="lv")
    assert list_texts(document.segments) == ["a", "b"]
    output = translate(document, {"a": "c"}).decode()
    flagged = output.replace('"Language: lv\\n"\n', "")
    assert flagged == text.replace('msgid "a"\nmsgstr ""', '#, fuzzy\nmsgid "a"\nmsgstr "c"')
    check(output)


def check(output):
    """Runs gettext and returns its messages."""
    if not shutil.which("msgfmt"):
        return ""
    command = ["msgfmt", "-c", "-f", "-o", "/dev/null", "-"]
    process = subprocess.run(command, check=False, input=output.encode(), capture_output=True)
    assert process.returncode == 0, process.stderr.decode()
    return process.stderr.decode()


@pytest.mark.parametrize(
    ("text", "expected", "written"),
    [
        # a comment after a message belongs to the next one
        ('msgid "a"\nmsgstr "b"\n#, fuzzy\n\n\nmsgid "c"\nmsgstr "d"\n', [], ""),
        # a flag that only contains the word
        ('#, no-fuzzy-format\nmsgid "a"\nmsgstr ""\n', ["a"], "#, fuzzy, no-fuzzy-format\n"),
        # a message that is fuzzy and empty has no translation
        ('#, fuzzy\nmsgid "a"\nmsgstr ""\n', ["a"], '#, fuzzy\nmsgid "a"\nmsgstr "a"'),
        ('#, fuzzy\nmsgid "a"\nmsgstr "b"\n', [], ""),
        # several strings and keywords on a line
        ('msgid "a" "b" msgstr "" msgid "c" msgstr "d"\n', ["ab"], '"ab"\n msgid "c" msgstr "d"'),
        ('msgid\n"a"\nmsgstr\n""\n', ["a"], 'msgstr "a"'),
        ('  msgid "a"\n\tmsgstr ""\n', ["a"], 'msgstr "a"'),
        ('msgid "a"\n\nmsgstr ""\n\n\nmsgid "c"\nmsgstr ""\n', ["a", "c"], 'msgstr "c"'),
        ('msgid "a"\nmsgstr ""\nmsgid "c"\nmsgstr ""', ["a", "c"], 'msgid "c"\nmsgstr "c"'),
        ('  # indented\nmsgid "a"\nmsgstr ""\n', ["a"], "  # indented\n#, fuzzy\n"),
        ('msgid "a \\\nb"\nmsgstr ""\n', ["a b"], 'msgstr "a b"'),
        ('msgid "a \\x \\q"\nmsgstr ""\n', ["a x q"], 'msgstr "a x q"'),
        ('domain "x"\nmsgid "a"\nmsgstr ""\n', ["a"], 'domain "x"\n#, fuzzy\n'),
        ('#| msgid "b"\n#| "c"\nmsgid "a"\nmsgstr ""\n', ["a"], '#, fuzzy\n#| msgid "b"'),
        ('#~ no keyword\nmsgid "a"\nmsgstr ""\n', ["a"], "#~ no keyword\n#, fuzzy\n"),
    ],
)
def test_messages_are_read_as_gettext_reads_them(text, expected, written):
    for whole in (text, text.replace("\n", "\r\n")):
        document = read("po", whole.encode())
        assert list_texts(document.segments) == expected
        output = document.write(document.segments).decode()
        assert written in output.replace("\r\n", "\n")
        assert document.write([None] * len(expected)) == whole.encode()
    if not any(odd in text for odd in ("#~", "domain", "\\x", "\\\n")):
        check(HEADER + "\n" + output)


TEMPLATE = r"""# Some program.
#, fuzzy
msgid ""
msgstr ""
"Project-Id-Version: PACKAGE VERSION\n"
"Report-Msgid-Bugs-To: \n"
"POT-Creation-Date: 2024-05-06 07:08+0000\n"
"PO-Revision-Date: YEAR-MO-DA HO:MI+ZONE\n"
"Last-Translator: FULL NAME <EMAIL@ADDRESS>\n"
"Language-Team: LANGUAGE <LL@li.org>\n"
"Language: \n"
"MIME-Version: 1.0\n"
"Content-Type: text/plain; charset=CHARSET\n"
"Content-Transfer-Encoding: 8bit\n"
"Plural-Forms: nplurals=INTEGER; plural=EXPRESSION;\n"

msgid "House"
msgstr ""

#, c-format
msgid "One house"
msgid_plural "%d houses"
msgstr[0] ""
msgstr[1] ""
"""
WORDS = {"House": "Größe", "One house": "Ein Haus", "%d houses": "%d Häuser"}


@pytest.mark.parametrize(
    ("language", "code", "forms"),
    [
        ("de", "de", ["Ein Haus", "%d Häuser"]),
        ("pt-BR", "pt_BR", ["Ein Haus", "%d Häuser"]),
        ("ja", "ja", ["%d Häuser"]),
        ("zh-Hans", "zh_CN", ["%d Häuser"]),
        # form 0 also serves 21, so it must show the number
        ("ru", "ru", ["%d Häuser"] * 3),
        ("pl", "pl", ["Ein Haus", "%d Häuser", "%d Häuser"]),
        ("cy", "cy", ["%d Häuser", "Ein Haus", *["%d Häuser"] * 3]),
        ("ar", "ar", ["%d Häuser", "Ein Haus", *["%d Häuser"] * 4]),
    ],
)
def test_a_template_becomes_a_file_of_its_language(monkeypatch, language, code, forms):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    document = read("po", TEMPLATE.encode(), name="app.pot", target_language=language)
    assert document.write([None] * len(document.segments)) == TEMPLATE.encode()
    output = translate(document, WORDS).decode()
    assert '#, fuzzy\nmsgid ""' not in output
    assert f'"Language: {code}\\n"\n' in output
    assert '"Project-Id-Version: app\\n"\n' in output
    assert '"PO-Revision-Date: 1970-01-02 00:00+0000\\n"\n' in output
    assert "charset=UTF-8" in output
    assert f"nplurals={len(forms)};" in output
    assert output.endswith(
        "".join(f'msgstr[{number}] "{form}"\n' for number, form in enumerate(forms))
    )
    assert not document.skipped
    assert not check(output)
    assert not read("po", output.encode(), target_language=language).segments


def test_a_template_without_a_language_is_told(monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    document = read("po", TEMPLATE.encode())
    assert list(document.skipped) == ["plural rule of an unknown language (--target-language)"]
    output = translate(document, WORDS).decode()
    assert 'msgstr[1] "%d Häuser"\n' in output
    check(output)
    other = TEMPLATE[TEMPLATE.index('msgid "House"') :].encode()
    assert read("po", other).skipped
    assert not read("po", other, target_language="pl").skipped
    # an unneeded rule is left out
    single = TEMPLATE[: TEMPLATE.index("#, c-format")]
    document = read("po", single.encode())
    assert not document.skipped
    output = translate(document, WORDS).decode()
    assert "Plural-Forms" not in output
    check(output)


@pytest.mark.parametrize(
    ("header", "added"),
    [
        ("Language: \\n", "Language: pl"),
        ("Content-Type: text/plain; charset=UTF-8\\n", "Language: pl"),
        ("Content-Type: text/plain; charset=ASCII\\n", "Content-Type: text/plain; charset=UTF-8"),
        ("Language: pl_PL\\n", "Plural-Forms: nplurals=3;"),
        ("Language: pl\\nX-Own: \\\\n\\n", "X-Own: \\\\n\\n"),
        (None, "Content-Type: text/plain; charset=UTF-8"),
    ],
)
def test_a_header_gets_what_it_lacks(header, added):
    text = TEMPLATE[TEMPLATE.index('msgid "House"') :]
    if header is not None:
        text = f'msgid ""\nmsgstr "{header}"\n\n' + text
    document = read("po", text.encode(), target_language="pl")
    output = translate(document, WORDS).decode()
    assert f'"{added}' in output
    assert 'msgstr[2] "%d Häuser"\n' in output
    check(output)


def test_forms_follow_the_header():
    header = 'msgid ""\nmsgstr "Plural-Forms: nplurals={}; plural=0;\\n"\n\n'
    message = 'msgid "a"\nmsgid_plural "b"\nmsgstr[0] "{}"\nmsgstr[1] ""\n'
    document = read("po", (header.format(1) + message.format("")).encode())
    output = document.write(document.segments).decode()
    assert output.endswith('msgid_plural "b"\nmsgstr[0] "b"\n')
    document = read("po", (header.format(3) + message.format("c")).encode())
    output = document.write(document.segments).decode()
    assert output.endswith('msgstr[0] "c"\nmsgstr[1] "b"\nmsgstr[2] "b"\n')


def test_escaped_bytes_are_characters():
    data = rb'msgid "caf\303\251 \xE9\101 \8"' + b'\nmsgstr ""\n'
    assert list_texts(read("po", data).segments) == ["caf\u00e9 \u00e9A 8"]


def test_a_file_of_another_language_is_refused():
    data = b'msgid ""\nmsgstr "Language: pt_BR\\n"\n\nmsgid "a"\nmsgstr ""\n'
    for same in ("", "pt", "pt-PT", "pt-BR"):
        assert read("po", data, target_language=same).segments
    with pytest.raises(DataError, match=r"^a.po: is for pt_BR \(Language\), but the target"):
        read("po", data, target_language="fr")


def test_a_file_of_the_source_language_without_translations_is_a_template():
    header = (
        '"Language: en\\n"\n"Plural-Forms: nplurals=2; plural=(n != 1);\\n"\n'
        '"Content-Type: text/plain; charset=UTF-8\\n"\n'
    )
    message = 'msgid "a"\nmsgid_plural "b"\nmsgstr[0] ""\nmsgstr[1] ""\n'
    data = f'msgid ""\nmsgstr ""\n{header}\n{message}'.encode()
    languages = {"source_language": "en", "target_language": "pl"}
    document = read("po", data, **languages)
    assert document.write([None] * len(document.segments)) == data
    output = document.write(document.segments).decode()
    assert '"Language: pl\\n"' in output
    assert '"Plural-Forms: nplurals=3;' in output
    assert "msgstr[2]" in output
    with pytest.raises(DataError, match="is for en"):
        read("po", data.replace(b'msgstr[0] ""', b'msgstr[0] "a"'), **languages)


def test_rules_of_plural_forms_are_those_of_others():
    """Compares each rule, as a function, with those of gettext or other programs."""
    known = defaultdict(list)
    # from GNU gettext
    known["lv"].append("n%10==1 && n%100!=11 ? 0 : n != 0 ? 1 : 2")
    known["ga"].append("n==1 ? 0 : n==2 ? 1 : 2")
    # only Babel has older rules for some languages
    data = pytest.importorskip("translate.lang.data")
    for code, row in data.languages.items():
        known[code].append(row[2])
    with contextlib.suppress(ImportError):
        from babel.messages.plurals import PLURALS

        for code, (_, rule) in PLURALS.items():
            known[code].append(rule)
    different = []
    for code, own in PLURAL_FORMS.items():
        count, rule = own.removeprefix("nplurals=").removesuffix(";").split("; plural=")
        values, *other_values = (
            [function(n) for n in range(300)]
            for function in map(gettext.c2py, [rule, *known[code.replace("pt_br", "pt_BR")]])
        )
        assert max(values) == int(count) - 1
        if other_values and values not in other_values:
            different.append(code)
    assert not different
