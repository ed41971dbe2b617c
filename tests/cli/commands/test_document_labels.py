"""Labels of languages in documents: from the file, the option or the model, and contradictions."""

import json
import shutil

import pytest

from tests.commands import run
from tests.documents.making import member, read, translate
from tests.models import LINES
from tests.plugins.documents.test_office import docx, p
from tests.plugins.documents.test_office import run as run_of
from tests.plugins.documents.test_po import TEMPLATE, check
from tformer_cli.text.language_codes import is_same_language, label_of

TEXT = LINES[0]
XLIFF_1 = (
    '<xliff version="1.2"><file source-language="en"{}><body><trans-unit id="1"><source>{}</source>'
    "</trans-unit></body></file></xliff>"
)
XLIFF_2 = (
    '<xliff version="2.0" srcLang="en"{}><file id="f"><unit id="1"><segment><source>{}</source>'
    "</segment></unit></file></xliff>"
)
LABELED = {
    "html": ('<html lang="en"><p>{}</p></html>', 'lang="{}"'),
    "xhtml": ('<html xml:lang="en" lang="en"><p>{}</p></html>', 'xml:lang="{0}" lang="{0}"'),
    "htm": (
        '<html><body class="lang" lang=\'en\'><p lang="la">{}</p></body>',
        "class=\"lang\" lang='{}'>",
    ),
    "vtt": ("WEBVTT\nLanguage: en\n\n00:01.000 --> 00:02.000\n{}\n", "Language: {}\n\n"),
    "tmx": (
        '<tmx version="1.4"><body><tu><tuv xml:lang="en"><seg>{}</seg></tuv></tu></body></tmx>',
        '<tuv xml:lang="{}">',
    ),
    "xlf": (XLIFF_1.replace("{}", "", 1), 'target-language="{}"'),
    "xliff": (XLIFF_2.replace("{}", "", 1), 'trgLang="{}"'),
    "po": ('msgid ""\nmsgstr "Language: \\n"\n\nmsgid "{}"\nmsgstr ""\n', '"Language: {}\\n"'),
    "arb": ('{{"a": "{}", "@@locale": "en"}}', '"@@locale": "{}"'),
}


@pytest.fixture(scope="module")
def unnamed(zoo, tmp_path_factory):
    """A model of two languages that does not tell which, as many imported ones."""
    directory = tmp_path_factory.mktemp("unnamed") / "m"
    shutil.copytree(zoo["translate"], directory)
    config = json.loads((directory / "config.json").read_text())
    config |= {"source_language": "", "target_language": ""}
    (directory / "config.json").write_text(json.dumps(config))
    return directory


@pytest.mark.parametrize("ending", LABELED)
def test_the_label_is_that_of_the_option_or_the_model(zoo, unnamed, tmp_path, ending):
    content, label = LABELED[ending]
    file, out = tmp_path / f"a.{ending}", tmp_path / f"b.{ending}"
    file.write_text(content.replace("{{", "{").replace("}}", "}").replace("{}", TEXT))
    for model, options, expected in (
        (unnamed, ["--target-language", "de"], "de"),
        (zoo["translate"], [], "fr"),
        (zoo["translate"], ["--target-language", "fr_CA"], "fr-CA"),
    ):
        done = run("translate", model, file, "-o", out, "--force", *options)
        assert done.exit_code == 0, done.stderr
        code = expected.replace("-", "_") if ending in ("po", "arb") else expected
        assert label.format(code) in out.read_text()


def test_a_template_becomes_a_po_file(unnamed, tmp_path):
    file, out = tmp_path / "a.pot", tmp_path / "b.po"
    file.write_text(TEMPLATE)
    done = run("translate", unnamed, file, "-o", out, "--target-language", "lv")
    assert done.exit_code == 0, done.stderr
    made = out.read_text()
    assert '"Language: lv\\n"' in made
    assert "msgstr[2]" in made
    check(made)


def test_a_language_that_the_model_does_not_write_is_refused(zoo, tmp_path):
    file = tmp_path / "a.tmx"
    file.write_text(LABELED["tmx"][0].replace("{}", TEXT))
    command = ["translate", zoo["translate"], file, "-o", tmp_path / "b.tmx"]
    done = run(*command, "--target-language", "de")
    assert (done.exit_code, done.stdout) == (2, "")
    assert '--target-language: this model writes "fr", not "de"; omit it' in done.stderr
    done = run(*command, "--source-language", "de")
    assert '--source-language: this model reads "en", not "de"; omit it' in done.stderr
    assert not (tmp_path / "b.tmx").exists()


@pytest.mark.parametrize(
    ("name", "content", "error"),
    [
        ("a.po", 'msgid ""\nmsgstr "Language: de\\n"\n\nmsgid "a"\nmsgstr ""\n', "Language"),
        ("a.xlf", XLIFF_1.format(' target-language="de"', TEXT), "target-language"),
        ("a.xlf", XLIFF_2.format(' trgLang="de-AT"', TEXT), "trgLang"),
    ],
)
def test_a_file_for_another_language_is_refused(zoo, tmp_path, name, content, error):
    (tmp_path / name).write_text(content)
    done = run("translate", zoo["translate"], tmp_path / name, "-o", tmp_path / f"b_{name}")
    assert done.exit_code == 2
    assert f"({error}), but the target language is fr; choose another" in done.stderr


def test_the_label_of_a_file_stays(zoo, tmp_path):
    (tmp_path / "a.xlf").write_text(XLIFF_1.format(' target-language="fr-CH"', TEXT))
    done = run("translate", zoo["translate"], tmp_path / "a.xlf", "-o", tmp_path / "b.xlf")
    assert done.exit_code == 0, done.stderr
    assert 'target-language="fr-CH"' in (tmp_path / "b.xlf").read_text()
    # one that repeats the source's tells nothing
    (tmp_path / "a.xlf").write_text(XLIFF_1.format(' target-language="en"', TEXT))
    done = run(
        "translate", zoo["translate"], tmp_path / "a.xlf", "-o", tmp_path / "b.xlf", "--force"
    )
    assert 'target-language="fr"' in (tmp_path / "b.xlf").read_text()


@pytest.mark.parametrize(
    ("code", "label"),
    [
        *(("fr", "fr"), ("pt_BR", "pt-BR"), ("fr_XX", "fr"), ("fra_Latn", "fr"), ("fra", "fr")),
        *(("zho_Hans", "zh-Hans"), ("cmn_Hant", "zh-Hant"), ("zh", "zh"), ("sr-Latn", "sr-Latn")),
        *(("srp_Cyrl", "sr"), ("ace_Arab", "ace-Arab"), ("arb_Arab", "ar"), ("", "")),
    ],
)
def test_codes_of_models_become_labels(code, label):
    assert label_of(code) == label


def test_regions_are_no_other_languages():
    assert is_same_language("fra_Latn", "fr-CA")
    assert is_same_language("iw", "he")
    assert not is_same_language("fr", "frr")


def test_word_tells_its_language_in_its_settings():
    told = '<w:themeFontLang w:val="en-US" w:eastAsia="ja-JP"/>'
    document = read("docx", docx(p(run_of("Text")), settings=told), target_language="pt-BR")
    made = translate(document, {"Text": "Texto"})
    assert member(made, "word/1.xml").count('<w:themeFontLang w:val="pt-BR" w:eastAsia="ja-JP"/>')
