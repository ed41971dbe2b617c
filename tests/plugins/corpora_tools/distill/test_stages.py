import json
import shutil

import pytest

from tformer_cli.errors import ArtifactError, DataError
from tformer_cli.plugins.corpora_tools.distill.stages import (
    MANIFEST,
    Manifest,
    Stage,
    State,
    states,
)


class Kitchen:
    """Two stages: one copies a file, the other one counts its letters; all calls are kept."""

    def __init__(self, directory):
        self.directory = directory
        self.given, self.runs, self.told = "abc", [], []

    def copy(self):
        self.runs.append("copy")
        (self.directory / "copies").mkdir()
        (self.directory / "copies/a").write_text(self.given)

    def count(self):
        self.runs.append("count")
        n_letters = len((self.directory / "copies/a").read_text())
        (self.directory / "count").write_text(str(n_letters))

    def stages(self):
        copies = Stage(
            name="copy", what="", place="copies", files=("copies/a",), run=self.copy,
            inputs=lambda: {"given": self.given},
        )  # fmt: skip
        count = Stage(
            name="count", what="", place="count", files=("count",), run=self.count,
            inputs=lambda: {"copy": (self.directory / "copies/a").read_text()},
            needs=("copy",), keeps_earlier=False,
        )  # fmt: skip
        return [copies, count]

    def cook(self):
        self.runs, self.told = [], []
        manifest = Manifest.read(self.directory)
        for stage in self.stages():
            manifest.bring_up_to_date(stage, lambda _, state: self.told.append(state))
        return self.runs

    def plan(self):
        return [state for _, state in states(Manifest.read(self.directory), self.stages())]


@pytest.fixture
def kitchen(tmp_path):
    return Kitchen(tmp_path)


def test_a_stage_is_done_once_for_the_same_inputs(kitchen):
    assert kitchen.plan() == [State.new, State.later]
    assert kitchen.cook() == ["copy", "count"]
    assert kitchen.told == [State.new, State.new]
    assert kitchen.plan() == [State.unchanged, State.unchanged]
    assert kitchen.cook() == []
    assert kitchen.told == [State.unchanged, State.unchanged]


def test_other_inputs_make_it_anew_and_what_was_made_is_kept_or_removed(kitchen):
    kitchen.cook()
    kitchen.given = "abcd"
    assert kitchen.plan() == [State.changed, State.later]
    assert kitchen.cook() == ["copy", "count"]
    assert (kitchen.directory / "earlier/copies-1/copies/a").read_text() == "abc"
    assert (kitchen.directory / "count").read_text() == "4"
    kitchen.given = "x"
    kitchen.cook()
    assert (kitchen.directory / "earlier/copies-2/copies/a").read_text() == "abcd"
    assert sorted(path.name for path in (kitchen.directory / "earlier").iterdir()) == [
        *("copies-1", "copies-2")
    ]


def test_what_was_made_before_is_taken_back(kitchen):
    kitchen.cook()
    for given in ("abcd", "x"):
        kitchen.given = given
        kitchen.cook()
    kitchen.given = "abc"
    assert kitchen.plan() == [State.kept, State.later]
    assert kitchen.cook() == ["count"]
    assert kitchen.told == [State.kept, State.changed]
    assert (kitchen.directory / "copies/a").read_text() == "abc"
    assert sorted(path.name for path in (kitchen.directory / "earlier").iterdir()) == [
        *("copies-2", "copies-3")
    ]
    assert kitchen.cook() == []
    shutil.rmtree(kitchen.directory / "earlier")
    kitchen.given = "x"
    assert kitchen.cook() == ["copy", "count"]


def test_the_beginning_of_a_file_is_kept_and_resumed(tmp_path):
    given = "one"

    def write():
        beginning = (tmp_path / "text.part").read_text()
        (tmp_path / "text").write_text(f"{beginning} end")
        (tmp_path / "text.part").unlink()

    def stages():
        return Stage(name="write", what="", place="text", files=("text",), run=write,
                     inputs=lambda: {"given": given})  # fmt: skip

    with pytest.raises(FileNotFoundError):
        Manifest.read(tmp_path).bring_up_to_date(stages(), lambda *_: None)
    (tmp_path / "text.part").write_text("half")
    given = "two"
    with pytest.raises(FileNotFoundError):
        Manifest.read(tmp_path).bring_up_to_date(stages(), lambda *_: None)
    given, seen = "one", []
    Manifest.read(tmp_path).bring_up_to_date(stages(), lambda _, state: seen.append(state))
    assert seen == [State.kept]
    assert (tmp_path / "text").read_text() == "half end"


@pytest.mark.parametrize("n_writes", [1, 2, 3])
def test_a_stop_while_outputs_are_moved_mixes_nothing_up(kitchen, monkeypatch, n_writes):
    """Stops at each write of the record, before or after it."""
    for is_before in (True, False):
        kitchen.given = "abc"
        kitchen.cook()
        kitchen.given = "abcd"
        original, calls = Manifest.write, []

        def write(self, original=original, calls=calls, is_before=is_before):
            calls.append(1)
            if len(calls) == n_writes and is_before:
                raise KeyboardInterrupt
            original(self)
            if len(calls) == n_writes:
                raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(Manifest, "write", write)
            with pytest.raises(KeyboardInterrupt):
                kitchen.cook()
        kitchen.cook()
        assert (kitchen.directory / "copies/a").read_text() == "abcd"
        assert (kitchen.directory / "count").read_text() == "4"
        assert kitchen.cook() == []


def test_a_stage_whose_inputs_come_out_the_same_is_skipped(kitchen):
    kitchen.cook()
    (kitchen.directory / "copies/a").unlink()
    assert kitchen.plan() == [State.changed, State.later]
    assert kitchen.cook() == ["copy"]


def test_damaged_outputs_are_made_again(kitchen):
    kitchen.cook()
    (kitchen.directory / "count").write_text("7")
    assert kitchen.cook() == ["count"]
    assert (kitchen.directory / "count").read_text() == "3"


def test_an_interrupted_stage_is_resumed(kitchen, monkeypatch):
    def fail_to_copy():
        raise DataError("no more letters")

    monkeypatch.setattr(kitchen, "copy", fail_to_copy)
    with pytest.raises(DataError):
        kitchen.cook()
    assert kitchen.plan() == [State.begun, State.later]
    monkeypatch.undo()
    assert kitchen.cook() == ["copy", "count"]
    assert kitchen.told == [State.begun, State.new]


def test_a_kill_between_the_rename_and_the_record_costs_nothing(kitchen):
    kitchen.cook()
    path = kitchen.directory / MANIFEST
    record = json.loads(path.read_text())
    record["stages"]["copy"]["outputs"] = None
    path.write_text(json.dumps(record))
    assert kitchen.cook() == []
    assert kitchen.told == [State.begun, State.unchanged]


@pytest.mark.parametrize(
    "text",
    [
        *("", "{}", "[1]", '{"schema": 1}'),
        '{"schema": "tformer.distill/2", "stages": {}, "earlier": {}}',
        '{"schema": "tformer.distill/1", "stages": {"copy": 3}, "earlier": {}}',
    ],
)
def test_a_damaged_record_is_refused(kitchen, text):
    (kitchen.directory / MANIFEST).write_text(text)
    with pytest.raises(ArtifactError, match="is damaged; start over with --fresh"):
        kitchen.cook()


def test_a_stage_that_leaves_nothing_is_an_error(kitchen, monkeypatch):
    monkeypatch.setattr(kitchen, "copy", lambda: None)
    with pytest.raises(ArtifactError, match="copies: is missing"):
        kitchen.cook()
