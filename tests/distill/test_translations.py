import json
import random
import shutil
from itertools import count

import pytest

from tests.distill.conftest import write_lines
from tests.models import LINES
from tformer_cli.artifacts.resumable import ResumableFiles
from tformer_cli.distill import translations
from tformer_cli.distill.stages import Manifest, State
from tformer_cli.distill.translations import read_translations, translation_stages
from tformer_cli.kinds.lines.translate import translate_lines


class Stopped(BaseException):
    """As a kill would: nothing of ours handles it."""


def translated(setup):
    """Brings the translations up to date; returns the states that the stages were in."""
    setup.directory.mkdir(exist_ok=True)
    manifest, told = Manifest.read(setup.directory), []
    for stage in translation_stages(setup):
        manifest.bring_up_to_date(stage, lambda one, state: told.append(state))
    return told


def test_they_are_those_of_translate(make, texts, model):
    write_lines(texts / "mono.en", ["A dog.", "", "the street"])
    setup = make('distillation.monolingual=["mono.en"]')
    assert translated(setup) == [State.new, State.new]
    found = list(read_translations(setup.directory / "translations/train-0.jsonl"))
    expected = list(translate_lines(model, LINES * 4, beam_size=3, n_best=3, threads=1))
    assert [source for source, _ in found] == LINES * 4
    assert [texts for _, texts in found] == [[h.text for h in t.hypotheses] for t in expected]
    mono = list(read_translations(setup.directory / "translations/monolingual-0.jsonl"))
    (first, second, third) = mono
    assert second == ("", [""])
    assert len(first[1]) == len(third[1]) == 1


def test_an_ensemble_translates_as_translate_does(make, model):
    setup = make(f'distillation.teachers=["{model}", "{model}"]')
    translated(setup)
    (first, *_) = read_translations(setup.directory / "translations/train-0.jsonl")
    expected = next(iter(translate_lines(model, LINES, beam_size=3, n_best=3, ensemble=[model])))
    assert first[1] == [one.text for one in expected.hypotheses]


def test_stopped_at_any_moment_they_end_with_the_same_bytes(make, monkeypatch):
    whole = make()
    translated(whole)
    expected = (whole.directory / "translations/train-0.jsonl").read_bytes()
    # small buffers: the corpus has sixteen lines
    in_threes = translations.translated_text
    monkeypatch.setattr(
        translations, "translated_text", lambda *a, **k: in_threes(*a, buffer_lines=3, **k)
    )
    original = ResumableFiles.mark
    draw = random.Random(4)
    for attempt in range(6):
        setup = make()
        object.__setattr__(setup, "directory", whole.directory.parent / f"again-{attempt}")
        is_before, calls = draw.random() < 0.5, count()

        def mark(self, done, *, is_before=is_before, calls=calls):
            if not is_before:
                original(self, done)
            if next(calls) in {0, 2, 3}:
                self.stream.flush()
                raise Stopped
            if is_before:
                original(self, done)

        monkeypatch.setattr(ResumableFiles, "mark", mark)
        n_stops, states = 0, []
        while not states:
            try:
                states = translated(setup)
            except Stopped:
                n_stops += 1
        assert n_stops == 3
        assert states == [State.begun]
        made = setup.directory / "translations/train-0.jsonl"
        assert made.read_bytes() == expected
        assert list(made.parent.iterdir()) == [made]


def test_a_begun_translation_of_another_text_is_not_continued(make, texts, monkeypatch):
    def stop(self, done):
        raise Stopped

    setup = make()
    with monkeypatch.context() as patch:
        patch.setattr(ResumableFiles, "mark", stop)
        with pytest.raises(Stopped):
            translated(setup)
    write_lines(texts / "train.en", ["A man sleeps."] * 16)
    assert translated(make()) == [State.changed]
    lines = (setup.directory / "translations/train-0.jsonl").read_text().splitlines()
    assert {json.loads(line)["source"] for line in lines} == {"A man sleeps."}
    assert (setup.directory / "earlier/train-0-1/train-0.jsonl.part").exists()


@pytest.mark.parametrize(
    ("change", "is_again"),
    [
        ("distillation.teacher_beam_size=4", True),
        ("distillation.teacher_n_best=2", True),
        ('distillation.teacher_precision="int8"', True),
        ('distillation.choice="first"', False),
        ("training.max_steps=5", False),
        ("distillation.distilled_weight=2", False),
    ],
)
def test_only_what_decides_them_makes_them_again(make, change, is_again):
    translated(make())
    assert translated(make(change)) == [State.changed if is_again else State.unchanged]


def test_a_teacher_with_other_weights_translates_again(make, model, tmp_path):
    copy = shutil.copytree(model, tmp_path / "copy")
    change = f'distillation.teachers=["{copy}"]'
    translated(make(change))
    assert translated(make()) == [State.unchanged]  # it is another name of the same model
    (copy / "shortlist.safetensors").write_bytes(b"other")
    stages = translation_stages(make(change))
    assert Manifest.read(make().directory).state(stages[0], stages[0].inputs()) is State.changed
