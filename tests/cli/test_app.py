import errno
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import get_args

import pytest
import torch
import typer
from typer.testing import CliRunner

from tformer_cli import __version__
from tformer_cli.artifacts.config_file import Verb
from tformer_cli.cli import streams
from tformer_cli.cli.app import app
from tformer_cli.cli.command import CheckedCommand
from tformer_cli.cli.help import HelpfulGroup
from tformer_cli.cli.known_commands import COMMANDS as ROWS
from tformer_cli.cli.options import path_roles
from tformer_cli.errors import ModelMemoryError
from tformer_cli.inspect.views import VIEWS
from tformer_cli.metrics.choices import MetricName
from tformer_cli.search.config import Engine, PrecisionChoice

HELP = Path(__file__).parent / "help"


def every_command():
    """The words that call the program, its groups and its commands, by the names of their help."""
    found = {"tformer": []}
    for name, command in typer.main.get_command(app).commands.items():
        for inner in ("", *getattr(command, "commands", {})):
            words = [name, *filter(None, [inner])]
            found["-".join(words)] = words
    return found


COMMANDS = every_command()
HELP_WRITTEN_BY = "0.29.2"


NO_PATHS = {
    *("TEXT", "NAME", "PROMPT", "TOKEN", "HEAD", "HEAD:TOKEN", "HEADS", "CODE"),
    *("TOPIC", "COMMAND", "DEVICE", "TIME", "SIZE", "I/N", "W,W,…", "KEY=VALUE"),
    *("MIN:MAX", "HOST", "HOST:PORT", "URL", "SECONDS", "CODE-CODE", "COLUMN", "FIELD"),
    *("SPLIT", "CONFIG", "CHECK", "METHOD", "LANG-LANG", "FORMAT|lines", "KEY", "N,N"),
    *("ADDRESS", "PREFIX", "METRIC=VALUE"),
    *("|".join(words) for words in (MetricName, get_args(Engine), get_args(PrecisionChoice))),
}
"""What texts are called that name neither a file nor a directory."""


def run(*args, **options):
    return subprocess.run(
        [sys.executable, "-m", "tformer_cli", *map(str, args)],
        capture_output=True,
        check=False,
        **options,
    )


def run_here(*args, **options):
    return CliRunner().invoke(app, [*map(str, args)], prog_name="tformer", **options)


def only_line(stderr: str) -> str:
    lines = stderr.splitlines()
    assert len(lines) == 1, lines
    assert lines[0].startswith("error: ")
    return lines[0]


@pytest.mark.skipif(typer.__version__ != HELP_WRITTEN_BY, reason="help looks as Typer draws it")
@pytest.mark.parametrize("name", COMMANDS)
def test_help_is_as_written(name):
    env = {"COLUMNS": "90", "NO_COLOR": "1", "TERM": "dumb"}
    result = CliRunner().invoke(app, [*COMMANDS[name], "--help"], env=env, prog_name="tformer")
    assert result.exit_code == 0
    shown = "\n".join(line.rstrip() for line in result.stdout.splitlines()).strip() + "\n"
    file = HELP / f"{name}.txt"
    if os.environ.get("TFORMER_WRITE_HELP"):
        file.write_text(shown, encoding="utf-8")
    assert shown == file.read_text(encoding="utf-8")


def test_every_written_help_is_of_a_command():
    assert {file.stem for file in HELP.glob("*.txt")} == set(COMMANDS)


def test_version_is_on_stdout():
    result = run_here("--version")
    assert result.stdout == f"tformer {__version__}\n"
    assert result.exit_code == 0


def every_parameter():
    """The parameters of every command, each with the words that call the command."""
    found = []

    def walk(command, words):
        for name, part in getattr(command, "commands", {}).items():
            walk(part, [*words, name])
        if words and not hasattr(command, "commands"):
            found.extend((words, command, parameter) for parameter in command.params)

    walk(typer.main.get_command(app), [])
    return found


def test_every_parameter_that_names_a_path_declares_its_role():
    for words, command, parameter in every_parameter():
        assert isinstance(command, CheckedCommand), words
        is_text = parameter.type_descriptor.annotation in (str, list[str], Path, list[Path])
        has_role = parameter.name in path_roles(command.callback)
        is_other = parameter.metavar in NO_PATHS or "--format" in parameter.opts
        assert has_role or not is_text or is_other, (words, parameter.name)
        assert not has_role or not is_other, (words, parameter.name)


def test_every_output_option_refuses_an_empty_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    places = [
        (words, path_roles(command.callback)[p.name], p)
        for words, command, p in every_parameter()
        if "--output" in p.opts
    ]
    assert len(places) > 12
    for words, role, _ in places:
        for output in (["-o", ""], ["--output="]):
            result = CliRunner().invoke(app, [*words, *output])
            assert result.exit_code == 2
            assert result.stderr == f"error: --output: is empty; name a {role.names}\n"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("signals", "status", "message"), [([], 1, "error: RuntimeError: why;"), ([15], 143, "")]
)
def test_an_error_of_a_library_after_a_signal_is_not_reported_as_a_fault(
    monkeypatch, tmp_path, signals, status, message
):
    def fail(*_, **__):
        raise RuntimeError("why")

    monkeypatch.setattr("tformer_cli.cli.app._signals", signals)
    monkeypatch.setattr("tformer_cli.plugins.built_in.make_corpus.make_corpus", fail)
    result = CliRunner().invoke(app, ["make-corpus", str(tmp_path / "corpus")])
    assert result.exit_code == status
    assert result.stderr.startswith(message)
    assert bool(result.stderr) == bool(message)


@pytest.mark.parametrize(
    ("error", "limits", "message"),
    [
        (MemoryError(), {}, "there is not enough memory; use smaller batches, a smaller beam"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), {}, "there is not enough memory; use"),
        (ModelMemoryError("m: too large"), {}, "m: too large; end other programs, or use `tformer"),
        (torch.OutOfMemoryError(), {}, "there is not enough memory; use smaller batches"),
        (
            MemoryError(),
            {"RLIMIT_AS": 600 << 20},
            "there is not enough memory; raise `ulimit -v`, which is 614400",
        ),
        (
            OSError(errno.EMFILE, "Too many", "a.py"),
            {"RLIMIT_NOFILE": 12},
            "too many; raise `ulimit -n`, which is 12",
        ),
    ],
)
def test_a_limit_of_the_system_is_one_line(tmp_path, monkeypatch, error, limits, message):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr("tformer_cli.plugins.built_in.make_corpus.make_corpus", fail)
    monkeypatch.setattr("tformer_cli.cli.app.soft_limit", limits.get)
    result = CliRunner().invoke(app, ["make-corpus", str(tmp_path / "corpus")])
    assert result.exit_code == 1
    assert result.stderr.startswith(f"error: {message}")
    assert result.stderr.count("\n") == 1


def test_a_limit_below_what_libraries_take_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr("tformer_cli.cli.app.soft_limit", lambda name: 200_000 << 10)
    result = CliRunner().invoke(app, ["make-corpus", str(tmp_path / "corpus")])
    assert (result.exit_code, result.stdout) == (1, "")
    line = "error: there is not enough memory; raise `ulimit -v`, which is 200000"
    assert result.stderr.splitlines() == [line]
    assert list(tmp_path.iterdir()) == []


def test_a_panic_of_a_library_is_one_line(tmp_path, monkeypatch):
    class PanicException(BaseException):
        """As pyo3 has it: no Exception."""

    def fail(*_, **__):
        raise PanicException("no thread\nmore")

    monkeypatch.setattr("tformer_cli.plugins.built_in.make_corpus.make_corpus", fail)
    result = CliRunner().invoke(app, ["make-corpus", str(tmp_path / "corpus")])
    assert result.exit_code == 1
    line = "error: PanicException: no thread; run `tformer --debug …` for a traceback"
    assert result.stderr.splitlines() == [line]


def test_the_error_of_a_thread_is_one_line(tmp_path):
    code = (
        "import sys, threading; import tformer_cli.cli.app as app\n"
        "def fail(): raise RuntimeError('why')\n"
        "def run():\n"
        "    thread = threading.Thread(target=fail); thread.start(); thread.join()\n"
        "app.make_app = lambda: run\n"
        "app.main()\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert b"Traceback" not in result.stderr
    assert result.stderr.startswith(b"error: RuntimeError: why; run ")


HOSTILE = "\x1b[31m\x07\u202e\u2066\x9b" + "binary\x00 " * 10_000


@pytest.mark.parametrize("say", [streams.error_line, streams.warn, streams.note])
def test_what_messages_quote_is_cut_and_escaped(capsys, say):
    streams.stderr_console.cache_clear()
    say(f"model.bin: has no {HOSTILE}; download it again")
    streams.stderr_console.cache_clear()
    message = capsys.readouterr().err
    assert message.endswith("; download it again\n")
    assert "model.bin: has no <0x1B>[31m<0x07><0xE2><0x80><0xAE><0xE2><0x81><0xA6>" in message
    assert not set("\x1b\x07\u202e\u2066\x9b") & set(message)
    assert len(message) < 2200
    assert message.count("\n") == 1


def test_tracebacks_come_only_with_debug():
    assert isinstance(run_here("translate", "missing-model").exception, SystemExit)
    debug = run("--debug", "translate", "missing-model")
    assert b"Traceback" in debug.stderr
    assert debug.returncode != 0


def test_no_arguments_show_the_help():
    result = run_here()
    assert "COMMAND" in result.output


def test_no_escapes_are_written_into_a_pipe():
    result = run("translate", "missing-model", env={**os.environ, "FORCE_COLOR": ""})
    assert not re.search(rb"\x1b\[", result.stderr)


def test_a_terminated_command_leaves_nothing_half_written(tmp_path):
    output = tmp_path / "corpus"
    command = [sys.executable, "-m", "tformer_cli", "make-corpus", output, "--pairs", "1000000"]
    with subprocess.Popen(list(map(str, command))) as child:
        while not list(output.glob(".*")):
            assert child.poll() is None
            time.sleep(0.01)
        child.terminate()
    assert child.returncode == 143
    assert list(output.iterdir()) == []


SIGNALS = [("SIGTERM", 143), ("SIGINT", 130), ("SIGHUP", 129)]


def stopped_by(name):
    """What stderr holds at the end; who presses Ctrl-C knows."""
    return b"" if name == "SIGINT" else f"stopped by {name}\n".encode()


@pytest.mark.parametrize(("signal_name", "status"), SIGNALS)
def test_a_signal_while_the_commands_are_loaded_ends_the_program_in_one_line(signal_name, status):
    code = (
        "import os, signal, sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'tformer_cli.cli.commands.translate':\n"
        f"            os.kill(os.getpid(), signal.{signal_name})\n"
        "sys.meta_path.insert(0, Finder())\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a background job ignores it
        "import tformer_cli.__main__\n"
        "sys.argv[1:] = ['translate']\n"
        "tformer_cli.__main__.main()\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert (result.returncode, result.stdout) == (status, b"")
    assert result.stderr == stopped_by(signal_name)


def test_commands_are_listed_with_the_first_sentence_of_their_help():
    """The table spares `--help` and the shell the import of every command."""
    root = typer.main.get_command(app)
    context = typer.Context(root, info_name="tformer", **root.context_settings)
    assert {*get_args(Verb)} < {*ROWS}
    assert {f"inspect-{view.name}" for view in VIEWS.values() if view.help} < {*ROWS}
    # as a group tells that imports its commands
    assert list(HelpfulGroup.summaries(root, context)) == list(root.summaries(context))


# The beginning of a library in C++, which no exception may leave: it ends the process
STRICT = """
import os, signal, time
try:
    os.kill(os.getpid(), signal.NAME)
    time.sleep(0.01)
except BaseException:
    os.abort()
print("loaded", flush=True)
"""


@pytest.mark.parametrize(("name", "status"), SIGNALS)
def test_a_signal_while_a_library_is_loaded_waits_until_it_is(name, status, tmp_path):
    (tmp_path / "strict.py").write_text(STRICT.replace("NAME", name))
    program = f"""
import signal, sys, time
from tformer_cli.cli import app
sys.path.insert(0, {str(tmp_path)!r})
for number in (signal.SIGINT, signal.SIGHUP):  # a background job ignores them
    signal.signal(number, signal.default_int_handler)
def run():
    try:
        import strict
        time.sleep(60)
    except KeyboardInterrupt:  # Typer's own way
        sys.exit(130)
    finally:
        print("cleaned")
app.make_app = lambda: run
app.main()
"""
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True)
    assert (done.returncode, done.stderr) == (status, stopped_by(name))
    assert done.stdout == b"loaded\ncleaned\n"


@pytest.mark.slow
@pytest.mark.parametrize(("name", "status"), SIGNALS)
def test_signals_at_all_moments_end_the_program_by_their_status(name, status, model, tmp_path):
    words = ["export", str(model), "--format", "huggingface", "-o", "out", "-q"]
    program = "import signal, sys; sys.argv[1:] = {!r}\nfrom tformer_cli.__main__ import main\n{}"
    ready = "signal.signal(signal.SIGINT, signal.default_int_handler)\nmain()"
    for tenths in range(5, 35, 5):
        child = subprocess.Popen(
            [sys.executable, "-c", program.format(words, ready)], stderr=subprocess.PIPE,
            cwd=tmp_path, env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        with suppress(subprocess.TimeoutExpired):
            child.wait(tenths / 10)
        child.send_signal(getattr(signal, name))
        _, errors = child.communicate()
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
        # Before the program's first line Python itself ends by the signal
        assert child.returncode in (0, status, 128 - status), errors
        assert errors == (stopped_by(name) if child.returncode == status else b"")
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("name", "status"), SIGNALS)
def test_a_signal_while_an_object_is_destroyed_ends_the_program(name, status):
    program = f"""
import os, signal, sys, time
from tformer_cli.cli import app
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores it
class Destroyed:
    def __del__(self):
        os.kill(os.getpid(), signal.{name})
        time.sleep(0.01)
def run():
    Destroyed()
    try:
        time.sleep(60)
    except KeyboardInterrupt:  # Typer's own way
        sys.exit(130)
app.make_app = lambda: run
app.main()
"""
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True)
    assert (done.returncode, done.stderr) == (status, stopped_by(name))
