import errno
import os
from pathlib import Path

import pytest

from tformer_cli.artifacts import (
    adapter_directory,
    corpus_directory,
    model_directory,
)
from tformer_cli.artifacts.config_file import DOUBT, FREQUENCIES, LENS, PROBE, SHORTLIST
from tformer_cli.artifacts.overwriting import (
    LAYOUT,
    TREES,
    NamedPath,
    Output,
    Writes,
    check_outputs,
    standard_stream,
)
from tformer_cli.errors import UsageError
from tformer_cli.inspect.views.timeline import HEADS_LOG
from tformer_cli.plugins.interchange.ctranslate2.exporting import ORIGIN
from tformer_cli.train import train
from tformer_cli.train.start import IMPORTED
from tformer_cli.trainer import run_logs
from tformer_cli.trainer.resuming import checkpoints


def check(output, *inputs, writes=Writes.FILE):
    given = [NamedPath(name="--input", path=Path(path)) for path in inputs]
    check_outputs([Output(name="--output", path=Path(output), writes=writes)], given)


def test_the_layout_lists_the_files_written():
    assert {
        *(model_directory.CONFIG, model_directory.TOKENIZER, model_directory.WEIGHTS),
        *(checkpoints.MODEL, checkpoints.OPTIMIZER, checkpoints.AVERAGE, checkpoints.STATE),
        *(train.RECIPE, train.METRICS, HEADS_LOG, PROBE, FREQUENCIES, ".lock"),
        *(corpus_directory.MANIFEST, ORIGIN, SHORTLIST, DOUBT, LENS),
        *(IMPORTED, adapter_directory.ADAPTER_CONFIG, adapter_directory.ADAPTER_WEIGHTS),
    } == LAYOUT
    checkpoint_tree = checkpoints.Checkpoints(Path()).directory.name
    assert {run_logs.DIRECTORY, checkpoint_tree, adapter_directory.ADAPTER} == TREES


@pytest.fixture
def run(tmp_path):
    for name in ("recipe.toml", "metrics.jsonl", "checkpoints/step-000100/model.safetensors"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    return tmp_path


@pytest.mark.parametrize(
    "name", ["config.json", "CONFIG.JSON", "checkpoints/notes", "Checkpoints/step-000100/new"]
)
def test_a_run_keeps_its_names_in_any_case_and_all_of_its_checkpoints(run, name):
    with pytest.raises(UsageError, match=f"belongs to the run {run}; name another file"):
        check(run / name)


def test_a_link_out_of_a_model_is_a_file_of_it(run, tmp_path_factory):
    store = tmp_path_factory.mktemp("store")
    (run / "recipe.toml").rename(store / "blob")
    (run / "recipe.toml").symlink_to(store / "blob")
    for output in (store / "blob", run / "recipe.toml"):
        with pytest.raises(UsageError, match="belongs to the input"):
            check(output, run)
    with pytest.raises(UsageError, match="belongs to the run"):
        check(run / "recipe.toml")


def test_one_file_of_a_model_alone_is_not_a_model(tmp_path):
    """A project keeps recipes and tokenizers of its own."""
    (tmp_path / "recipe.toml").write_text("")
    for name in ("heads.jsonl", "tokenizer.json", "recipe.toml", "metrics.jsonl"):
        check(tmp_path / name)


def test_a_directory_that_is_written_whole_holds_no_input(tmp_path):
    (tmp_path / "export" / "data").mkdir(parents=True)
    text = tmp_path / "export" / "data" / "a.en"
    text.write_text("")
    with pytest.raises(UsageError, match=r"export holds the input .*; name another directory"):
        check(tmp_path / "export", text, writes=Writes.DIRECTORY)
    check(tmp_path / "export", text, writes=Writes.RUN)  # which keeps what else is there
    (tmp_path / "export" / "checkpoints").symlink_to(tmp_path / "export" / "data")
    with pytest.raises(UsageError, match=r"a\.en would be replaced: it is the input"):
        check(tmp_path / "export", text, writes=Writes.RUN)


def test_a_directory_that_may_not_be_searched_is_not_a_model(tmp_path, monkeypatch):
    """The shell opened a file of it as another user: `tformer translate … > /root/out.txt`."""

    stat_of = Path.stat

    def stat(path, **options):
        if path.parent == tmp_path:
            raise PermissionError(errno.EACCES, "permission denied", str(path))
        return stat_of(path, **options)

    with (tmp_path / "out.txt").open("wb") as stdout:
        monkeypatch.setattr(Path, "stat", stat)
        check_outputs(standard_stream("stdout", stdout.fileno()), [])


def test_paths_that_cannot_be_destroyed_do_not_conflict(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    check(tmp_path / "pipe", tmp_path / "pipe")
    check("/dev/null", "/dev/null")
    check(tmp_path / "new", tmp_path / "missing")
    (tmp_path / "round").symlink_to(tmp_path / "round")
    check(tmp_path / "new", tmp_path / "round")
    check("x" * 5000, tmp_path / "missing")
