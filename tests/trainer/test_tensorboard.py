import errno
import os
import struct
import sys
import threading

import pytest

from tformer_cli.errors import ArtifactError, UsageError
from tformer_cli.trainer.events import RunEnded, StepReport, ValidationReport
from tformer_cli.trainer.run_logs import REPORTED, TensorBoardLog


def report(step):
    others = dict.fromkeys((*REPORTED, "tokens", "seconds", "share_done"), 0.5)
    return StepReport(step=step, **others)


def validation(step, weights):
    return ValidationReport(
        step=step, scores={"bleu": 12.5}, signatures={}, is_best=True, seconds=1.0, weights=weights,
        sample_source="", sample_translation="", sample_reference="",
    )  # fmt: skip


def test_without_the_extra_one_line_names_it(tmp_path, monkeypatch):
    for name in ("tensorboardX", "tensorboardX.event_file_writer"):  # another test may have both
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UsageError, match=r"pip install 'tformer\[tensorboard\]'"):
        TensorBoardLog(tmp_path, 0)
    assert list(tmp_path.iterdir()) == []


def records(path):
    """The contents of a file of TFRecords: a length, its checksum, the content, its checksum."""
    data, place = path.read_bytes(), 0
    while place < len(data):
        (length,) = struct.unpack_from("<Q", data, place)
        yield data[place + 12 : place + 12 + length]
        place += length + 16


def test_every_number_is_an_event_under_its_name_and_step(tmp_path):
    pytest.importorskip("tensorboardX")
    from tensorboardX.proto.event_pb2 import Event, SessionLog

    first = TensorBoardLog(tmp_path, 0)
    for event in (report(5), validation(5, "current")):
        first.notify(event)
    first.close()
    second = TensorBoardLog(tmp_path, 5)
    for event in (report(10), validation(10, "average")):
        second.notify(event)
    second.notify(RunEnded(step=10, reason="", seconds=1.0, averaged_steps=()))

    files = sorted((tmp_path / "tensorboard").iterdir(), key=lambda file: int(file.suffix[1:]))
    begun, resumed = ([*map(Event.FromString, records(file))] for file in files)
    values = [(e.step, v.tag, v.simple_value) for e in begun + resumed for v in e.summary.value]
    assert sorted(values) == sorted(
        [(step, f"training/{name}", 0.5) for step in (5, 10) for name in REPORTED]
        + [(5, "validation/bleu", 12.5), (10, "validation_average/bleu", 12.5)]
    )
    # What tells TensorBoard to forget the steps behind a resumption
    starts = [(e.step, e.session_log.status) for e in resumed if e.HasField("session_log")]
    assert starts == [(6, SessionLog.START)]


def test_a_full_disk_is_an_error_of_one_line_and_nobody_waits_for_a_thread(tmp_path, monkeypatch):
    pytest.importorskip("tensorboardX")
    from tensorboardX.record_writer import RecordWriter

    def full(writer):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    threads = set(threading.enumerate())
    log = TensorBoardLog(tmp_path, 0)
    log.notify(report(5))
    with monkeypatch.context() as patch:
        patch.setattr(RecordWriter, "flush", full)
        for _ in range(3):  # more events than the library's queue takes
            with pytest.raises(
                ArtifactError, match=r"tensorboard: cannot be written \(no space left on device"
            ):
                log.notify(report(10))
    log.notify(report(15))
    log.close()
    log.close()
    assert set(threading.enumerate()) <= threads


def test_events_are_what_tensorboard_reads_and_a_resumption_replaces_later_steps(tmp_path):
    pytest.importorskip("tensorboardX")
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    first = TensorBoardLog(tmp_path, 0)
    for event in (report(5), validation(5, "current"), report(10)):
        first.notify(event)
    first.close()
    second = TensorBoardLog(tmp_path, 5)
    for event in (report(10), report(15), validation(15, "average")):
        second.notify(event)
    second.notify(RunEnded(step=15, reason="", seconds=1.0, averaged_steps=()))
    read = accumulator.EventAccumulator(str(tmp_path / "tensorboard"))
    read.Reload()
    assert {f"training/{name}" for name in REPORTED} < set(read.Tags()["scalars"])
    assert [event.step for event in read.Scalars("training/loss")] == [5, 10, 15]
    assert [(e.step, e.value) for e in read.Scalars("validation/bleu")] == [(5, 12.5)]
    assert [(e.step, e.value) for e in read.Scalars("validation_average/bleu")] == [(15, 12.5)]
