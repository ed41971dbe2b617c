import pytest
from hypothesis import given
from hypothesis import strategies as st

from tformer_cli.errors import UsageError
from tformer_cli.inspection.heads import HeadLayout
from tformer_cli.inspection.selectors import select_heads

LAYOUT = HeadLayout(enc=(2,) * 6, dec=(2,) * 3, cross=(2, 4, 2))


def selected(*selections):
    return [str(head) for head in select_heads(selections, LAYOUT)]


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        ("enc.0.1", ["enc.0.1"]),
        ("enc-self.0.1", ["enc.0.1"]),
        ("dec-self.2.*", ["dec.2.0", "dec.2.1"]),
        ("cross.1.0-2", ["cross.1.0", "cross.1.1", "cross.1.2"]),
        ("cross.1.2-", ["cross.1.2", "cross.1.3"]),
        ("cross.last", ["cross.2.0", "cross.2.1"]),
        ("cross.^2.last", ["cross.1.3"]),
        ("cross.{0,2}.0", ["cross.0.0", "cross.2.0"]),
        ("cross.{0,1-2}.^1", ["cross.0.1", "cross.1.3", "cross.2.1"]),
        ("self.2.0", ["enc.2.0", "dec.2.0"]),
        ("*.5.0", ["enc.5.0"]),
        ("*.last.0", ["enc.5.0", "dec.2.0", "cross.2.0"]),
        ("cross.*.3", ["cross.1.3"]),
        ("dec.0.1, enc.0.0 ,dec.0.1", ["enc.0.0", "dec.0.1"]),
        ("cross.1,!cross.1.0-2", ["cross.1.3"]),
        ("cross.0,!cross.0.0,cross.0.0", ["cross.0.0", "cross.0.1"]),
    ],
)
def test_a_selection_names_these_heads(selection, expected):
    assert selected(selection) == expected


def test_without_a_selection_every_head_is_meant():
    assert selected() == [str(head) for head in LAYOUT]
    assert len(selected("*")) == 12 + 6 + 8


def test_a_selection_that_begins_with_a_negation_begins_with_every_head():
    assert selected("!enc.0", "!self.1-2") == [
        h for h in selected() if not h.startswith(("enc.0", "enc.1", "enc.2", "dec.1", "dec.2"))
    ]


def test_repeated_options_read_as_one_list():
    assert selected("cross.0", "!cross.0.1") == ["cross.0.0"]


@pytest.mark.parametrize(
    ("selection", "reason"),
    [
        ("enc.6", "names no head"),
        ("cross.0.2", "names no head"),
        ("enc.2-9", "names no head"),
        ("enc.^7", "names no head"),
        ("enc.^0", "names no head"),
        ("!dec.3", "names no head"),
        ("enc.3-1", "counts backwards"),
        ("enc.x", 'with "x"'),
        ("enc.0.0.0", "is not KIND"),
        ("encoder", "is not KIND"),
        ("", "is not KIND"),
        ("enc.0,", "is not KIND"),
        ("enc.{0", 'with "{0"'),
        ("enc.0.0,!enc", "selects no head"),
    ],
)
def test_a_wrong_selection_is_refused_and_the_ranges_named(selection, reason):
    with pytest.raises(UsageError) as caught:
        selected(selection)
    assert reason in str(caught.value)
    assert "enc.0-5.0-1, dec.0-2.0-1, cross.0-2.0-3" in str(caught.value)


@given(st.text(alphabet="encdros.*!^{}-,0123last ", max_size=20))
def test_any_text_is_a_selection_or_a_usage_error(text):
    try:
        heads = select_heads([text], LAYOUT)
    except UsageError:
        return
    assert heads
    assert set(heads) <= set(LAYOUT)
