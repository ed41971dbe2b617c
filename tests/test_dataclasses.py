"""Dataclasses of settings are as the standard library's dataclasses, whatever is done with them."""

import copy
import dataclasses
import pickle
from dataclasses import FrozenInstanceError, field, replace

import pytest

from tformer_cli import settings


def made_by(dataclass, **options):
    @dataclass(**options)
    class Base:
        a: int
        b: list = field(default_factory=list, compare=False)

    @dataclass(**options)
    class Row(Base):
        c: str = field(default="c", repr=False)

        def __post_init__(self):
            if self.a < 0:
                raise ValueError("a: is below 0")

        @property
        def twice(self):
            return 2 * self.a

    return Row


OPTIONS = ({"frozen": True}, {"frozen": True, "kw_only": True}, {"frozen": True, "slots": True}, {})


def outcome(act, row):
    """What is returned, or raised."""
    try:
        return act(row)
    except (TypeError, ValueError, AttributeError) as error:
        return type(error), str(error).replace("Row.__init__", "__init__")


ACTS = (
    repr,
    lambda row: hash(row) == hash((row.a, row.c)),
    lambda row: (row == replace(row, b=[1]), row == replace(row, a=2), row == (1, "c")),
    lambda row: (row.twice, dataclasses.asdict(row), dataclasses.is_dataclass(row)),
    lambda row: setattr(row, "a", 3) or row.a,
    lambda row: setattr(row, "d", 3),
    lambda row: delattr(row, "c"),
    lambda row: replace(row, a=-1),
    lambda row: type(row)(a=1, z=2),
    lambda row: copy.deepcopy(row) == row,
    lambda row: [(each.name, each.compare) for each in dataclasses.fields(row)],
)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("number", range(len(ACTS)))
def test_they_do_what_those_of_the_library_do(number, options):
    own, expected = (
        outcome(ACTS[number], made_by(maker, **options)(a=1))
        for maker in (settings.dataclass, dataclasses.dataclass)
    )
    assert own == expected


@settings.dataclass(frozen=True)
class Stored:
    a: int


def test_they_are_pickled_and_stay_frozen():
    again = pickle.loads(pickle.dumps(Stored(3)))  # noqa: S301 - our own
    assert again == Stored(3)
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'a'"):
        again.a = 4
    assert Stored(3) != dataclasses.make_dataclass("Stored", ["a"])(3)
