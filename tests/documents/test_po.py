import shutil
import subprocess
import time

import pytest

from tests.documents.making import read, shown, translated
from tformer_cli.errors import DataError

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
    assert shown(document.segments) == [
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
    assert translated(document, words).decode() == expected.replace("\n", line_end)


def test_a_copy_of_the_source_is_a_translation():
    document = read("po", PO.encode())
    made = document.write(document.segments).decode()
    message = (
        '"This is a long message whose lines\\n"\n"were wrapped. And\\n"\n"\\tanother line."\n'
    )
    assert f'#, fuzzy\n#| msgid "old"\nmsgid ""\n{message}msgstr ""\n{message}' in made
    assert not read("po", made.encode()).segments
    if shutil.which("msgfmt"):
        check = ["msgfmt", "-c", "-f", "-o", "/dev/null", "-"]
        subprocess.run(check, input=made, check=True, text=True)


def test_fuzzy_messages_are_translated_on_request():
    document = read("po", PO.encode(), fills_fuzzy=True)
    made = translated(document, {"Doubtful": "Zweifelhaft"}).decode()
    assert made == PO.replace("Falsch", "Zweifelhaft")


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
    made = document.write(document.segments).decode()
    written = "".join(f'msgstr[{number}] "{form}"\n' for number, form in enumerate(forms))
    assert made == text.replace('msgid "one"', '#, fuzzy\nmsgid "one"').replace(empty, written)


def test_other_encodings():
    text = PO.replace("UTF-8", "ISO-8859-1").replace("Fertig", "Größe")
    document = read("po", text.encode("latin-1"))
    assert document.write([None] * 4) == text.encode("latin-1")
    assert "Öffne" in translated(document, {'Open "%s"': "Öffne"}).decode("latin-1")
    with pytest.raises(DataError, match=r"^a.po: its encoding ISO-8859-1 lacks 'Ω' of a transla"):
        translated(document, {'Open "%s"': "Ω"})


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
    assert shown(read("po", text.encode()).segments) == ["a"]
    # minutes if each line asks all before it for a translation
    assert time.process_time() - begin < 10


def test_tags_of_messages_are_markup():
    data = HEADER + '\nmsgid "Open <b>the</b> <a href=\\"x\\">file</a>."\nmsgstr ""\n'
    document = read("po", data.encode())
    (segment,) = document.segments
    assert segment.text == "Open the file."
    made = translated(document, {segment.text: "Open the File."}).decode()
    assert 'msgstr "Open <b>the</b> <a href=\\"x\\">File</a>."' in made
