"""What 400 command lines write: status, streams and files, by their fingerprints.

TFORMER_WRITE_GOLDEN=1 accepts what the selected cases write now (run it with -n0).
"""

import base64
import json
import os

import numpy as np
import pytest

from tests.golden.harness import FOLDER, Stage, fingerprint, is_same, read_cases

pytest.importorskip("transformers")
pytest.importorskip("ctranslate2")
EXPECTED = FOLDER / "expected.json"
CASES = read_cases()
EXTRAS = {"heads-png": "png"}
pytestmark = [pytest.mark.golden, pytest.mark.filterwarnings("default")]


@pytest.fixture(scope="session")
def stage(tmp_path_factory):
    return Stage(tmp_path_factory.mktemp("golden"))


@pytest.fixture(scope="session")
def expected():
    return json.loads(EXPECTED.read_text()) if EXPECTED.exists() else {}


def is_one_of(key, actual, wanted):
    return any(
        is_same(key, actual, value) for value in ([wanted] if isinstance(wanted, str) else wanted)
    )


def merge_fingerprints(key, fingerprint, before):
    """Adds a fingerprint to those of other processors, if it is another."""
    if before is None:
        return fingerprint
    if is_one_of(key, fingerprint, before):
        return before
    return sorted([fingerprint, *([before] if isinstance(before, str) else before)])


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.needs(EXTRAS[name])) if name in EXTRAS else name
        for name in CASES
    ],
)
def test_outputs_are_the_expected_ones(stage, expected, name):
    outputs = stage.run(name, CASES[name])
    found = {key: fingerprint(key, content) for key, content in outputs.items()}
    if mode := os.environ.get("TFORMER_WRITE_GOLDEN"):
        # "also": right on this processor, where another one rounds a digit of a text otherwise
        before = expected.get(name, {}) if mode == "also" else {}
        expected[name] = {
            key: merge_fingerprints(key, value, before.get(key)) for key, value in found.items()
        }
        text = json.dumps(expected, indent=0, sort_keys=True)
        EXPECTED.write_text(f"{text}\n")
        return
    wanted = expected.get(name, {})
    differ = [
        key
        for key in sorted({*found, *wanted})
        if key not in found or key not in wanted or not is_one_of(key, found[key], wanted[key])
    ]
    if differ:
        shown = outputs.get("stderr", b"").decode()[-600:]
        pytest.fail(
            f"tformer {CASES[name]}\nnot as expected: {', '.join(differ)}\nstderr now:\n{shown}\n"
            f"to see the difference, in this checkout and in one of before:\n"
            f"  python -m tests.golden.write DIR {name}    and then    diff -r DIR OTHER",
            pytrace=False,
        )


def test_nothing_is_expected_of_cases_that_went(expected):
    assert set(expected) == set(CASES)


def test_a_last_bit_of_a_page_may_differ_but_not_a_cell():
    def page(shades):
        packed = base64.b64encode(np.asarray(shades, "<u2").tobytes()).decode()
        return fingerprint("a.html", f'{{"bits":16,"weights":"{packed}"}}'.encode())

    shades = np.random.default_rng(0).integers(0, 60_000, 2000)
    last_bits = shades + (np.arange(2000) % 100 == 0)
    cell = shades + 5000 * (np.arange(2000) == 7)
    assert is_same("a.html", page(last_bits), page(shades))
    assert not is_same("a.html", page(cell), page(shades))
