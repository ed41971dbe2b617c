import json
import shutil
import subprocess

import pytest

from tformer_cli.documents.plurals import (
    _CARDINAL,
    _LONG_CODES,
    _ORDINAL,
    plural_samples,
    sample_number,
)


def languages_of(table):
    return [code for codes in table for code in codes.split()]


@pytest.mark.slow
@pytest.mark.parametrize("is_ordinal", [False, True])
def test_the_categories_are_those_of_cldr(is_ordinal):
    babel = pytest.importorskip("babel")
    codes = languages_of(_ORDINAL if is_ordinal else _CARDINAL)
    assert len(codes) == len(set(codes)) > 80
    for code in codes:
        locale = babel.Locale.parse(code)
        rule = locale.ordinal_form if is_ordinal else locale.plural_form
        samples = plural_samples(code, is_ordinal=is_ordinal)
        assert samples.keys() == {*rule.tags, "other"}, code
        for category, numbers in samples.items():
            whole = [int(number) for number in numbers if number != "1.5"]
            assert {rule(number) for number in whole} <= {category}, code


@pytest.mark.slow
@pytest.mark.parametrize("is_ordinal", [False, True])
def test_browsers_have_the_same_categories(is_ordinal):
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs node")
    codes = languages_of(_ORDINAL if is_ordinal else _CARDINAL)
    program = (
        "const [codes, type] = JSON.parse(process.argv[1]);"
        "console.log(JSON.stringify(codes.map(code => { const r = new Intl.PluralRules(code, "
        "{type}); const o = r.resolvedOptions(); return [o.locale, o.pluralCategories]; })))"
    )
    kind = "ordinal" if is_ordinal else "cardinal"
    process = subprocess.run(
        [node, "-e", program, json.dumps([codes, kind])], check=True, capture_output=True
    )
    for code, (locale, categories) in zip(codes, json.loads(process.stdout), strict=True):
        if locale == code:
            assert {*categories} == plural_samples(code, is_ordinal=is_ordinal).keys(), code


def test_long_codes_are_those_of_languages():
    assert {*_LONG_CODES.values()} <= {*languages_of(_CARDINAL)}


@pytest.mark.parametrize(
    ("language", "categories"),
    [
        ("ru", "one few many other"),
        ("rus_Cyrl", "one few many other"),
        ("pt-BR", "one many other"),
        ("fr_XX", "one many other"),
        ("iw", "one two other"),
        ("ja", "other"),
        ("xx", ""),
        ("", ""),
    ],
)
def test_languages_are_found_by_any_code(language, categories):
    assert " ".join(plural_samples(language, is_ordinal=False)) == categories


@pytest.mark.parametrize(
    ("source", "category", "target", "wanted", "is_ordinal", "number"),
    [
        ("en", "one", "ru", "one", False, "1"),
        ("en", "other", "ru", "few", False, "2"),
        ("en", "other", "ru", "many", False, "5"),
        ("en", "other", "ru", "other", False, "1.5"),
        ("en", "other", "ar", "two", False, "2"),
        # A million is not shown: that of the text has to do
        ("en", "other", "fr", "many", False, "2"),
        # The fourth, not the "2th"
        ("en", "other", "fr", "other", True, "4"),
        ("xx", "one", "", "one", False, "1"),
        ("xx", "rare", "", "rare", False, ""),
    ],
)
def test_a_number_is_of_both_categories(source, category, target, wanted, is_ordinal, number):
    assert sample_number(source, category, target, wanted, is_ordinal=is_ordinal) == number
