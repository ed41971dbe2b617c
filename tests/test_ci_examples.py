"""The examples of the guide `ci` run: pipelines, a Makefile, a crontab and units of systemd.

So does what the container of the guide `serving` starts.
"""

import configparser
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import tomllib
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from tests.test_documents import GUIDE, blocks_of, desk, shell  # noqa: F401 - fixtures

pytestmark = pytest.mark.slow
BIN, ROOT = Path(sys.executable).parent, Path(__file__).parents[1]
BLOCKS = [block for block in blocks_of(GUIDE / "ci.md") if block.language != "sh"]
GITHUB, GITLAB = (yaml.safe_load(b.text) for b in BLOCKS if b.language == "yaml")
(MAKEFILE,) = (block.text for block in BLOCKS if block.language == "make")
(CRONTAB,) = (block.text for block in BLOCKS if block.language == "")
UNITS = {
    Path(block.text.split("\n", 1)[0].removeprefix("# ")).name: block.text
    for block in BLOCKS
    if block.language == "ini"
}
KEY = "0123456789abcdef"
LIMIT = "bleu=30"
"""The tiny model of the tests is far below it."""


@pytest.fixture(scope="module")
def place(desk, tmp_path_factory):  # noqa: F811
    return shutil.copytree(desk, tmp_path_factory.mktemp("ci") / "news")


def run_alone(command, place, shell="/bin/sh", **environment):  # noqa: F811
    """Runs a command with nothing of the environment but what is given."""
    names = {"HOME": str(place), "LOGNAME": "cron", "SHELL": shell, **environment}
    given = [f"{name}={value}" for name, value in names.items()]
    return subprocess.run(
        [
            "env",
            "-i",
            *given,
            *shlex.split(shell),
            *(["-c"] if shell == "/bin/sh" else []),
            command,
        ],
        cwd=place,
        capture_output=True,
        text=True,
        check=False,
    )


def run_step(command, place):
    # Both runners end a step at the first command that fails
    environment = {"PATH": f"{BIN}:/usr/bin:/bin", "GITHUB_STEP_SUMMARY": "summary.md"}
    return run_alone(command, place, "bash -eo pipefail -c", **environment)


def check_steps(steps, place):
    """Runs the steps with a lower limit, and says what the gate does without it."""
    install, check, gate, *others = steps
    assert install == "pip install wheels/tformer*.whl"
    assert run_step(check, place).stdout == "my-recipe.toml: correct\n"
    assert LIMIT in gate
    failed = run_step(gate, place)
    assert failed.returncode == 1
    assert re.search(r"^error: --fail-under: bleu [\d.]+ < 30$", failed.stderr, re.MULTILINE)
    assert '"schema": "tformer.scores/1"' in (place / "scores.json").read_text()
    for step in (gate.replace(LIMIT, "bleu=0"), *others):
        done = run_step(step, place)
        assert done.returncode == 0, (step, done.stderr)


def test_the_steps_of_github_run(place):
    (job,) = GITHUB["jobs"].values()
    assert {*GITHUB} == {"name", True, "jobs"}  # YAML takes `on` for a truth value
    assert all(("uses" in step) != ("run" in step) for step in job["steps"])
    check_steps([step["run"] for step in job["steps"] if "run" in step], place)
    assert "| BLEU" in (place / "summary.md").read_text()


def test_the_script_of_gitlab_runs(place):
    (job,) = GITLAB.values()
    check_steps(job["script"], place)
    assert all((place / path).is_file() for path in job["artifacts"]["paths"])


def test_make_builds_once_and_its_gate_fails(place):
    assert MAKEFILE.count("chrf=55") == 1
    (place / "Makefile").write_text(MAKEFILE.replace("chrf=55", "chrf=0"))
    environment = {"PATH": f"{BIN}:/usr/bin:/bin"}
    done = run_alone("make scores.json", place, **environment)
    assert done.returncode == 0, done.stderr
    assert (place / "runs/nightly/model.safetensors").is_file()
    again = run_alone("make scores.json", place, **environment)
    assert "is up to date" in again.stdout
    (place / "train.en").touch()  # to the same data: the run is finished, and looked at once
    assert run_alone("make scores.json", place, **environment).returncode == 0
    assert "is up to date" in run_alone("make scores.json", place, **environment).stdout
    (place / "Makefile").write_text(MAKEFILE.replace("chrf=55", "chrf=101"))
    (place / "new.de").touch()
    os.utime(place / "scores.json", (0, 0))
    failed = run_alone("make scores.json", place, **environment)
    assert failed.returncode == 2
    assert "error: --fail-under: chrf " in failed.stderr
    assert (place / "scores.json").stat().st_mtime == 0


def crontab(place):
    """The variables and the commands of the crontab, as cron reads them."""
    text = CRONTAB.replace("/opt/tformer/bin", str(BIN)).replace("/srv/news", str(place))
    names, commands = {}, []
    for line in text.splitlines():
        if match := re.fullmatch(r"(\w+)=(.*)", line):
            names[match[1]] = match[2]
        else:
            *moment, command = line.split(maxsplit=5)
            assert all(re.fullmatch(r"[\d*/,-]+", part) for part in moment)
            assert len(moment) == 5
            commands.append(re.split(r"(?<!\\)%", command)[0].replace(r"\%", "%"))
    return names, commands


def test_the_lines_of_the_crontab_are_silent_and_never_run_twice(place):
    names, (translate, report) = crontab(place)
    command = f"flock .lock-news sleep 5 & sleep 1; {translate}; echo status $?; kill $!"
    held = run_alone(command, place, **names)
    assert (held.stdout, held.stderr) == ("status 0\n", "")
    assert not (place / "translated").exists()
    for line in (translate, translate, report):
        done = run_alone(line, place, LC_ALL="C", **names)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    written = b"".join(p.read_bytes() for p in sorted((place / "translated").glob("part-*")))
    assert written.count(b"\n") == (place / "in.txt").read_bytes().count(b"\n")
    assert '"state": "finished"' in (place / "progress.json").read_text()


def units(place, folder):
    """Writes the units with the paths of this machine; returns their sections."""
    sections = {}
    for name, text in UNITS.items():
        here = text.replace("/opt/tformer/bin", str(BIN)).replace("/srv/news", str(place))
        here = here.replace("/etc/tformer", str(place))
        (folder / name).write_text(here)
        sections[name] = configparser.RawConfigParser(strict=False)
        sections[name].optionxform = str
        sections[name].read_string(here)
    return sections


def test_systemd_takes_the_units(place, tmp_path):
    sections = units(place, tmp_path)
    assert {*sections} == {"tformer-news.service", "tformer-news.timer", "tformer-serve.service"}
    if shutil.which("systemd-analyze") is None:
        return
    files = [str(tmp_path / name) for name in sections]
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *files],
        capture_output=True,
        text=True,
        check=False,
    )
    # What it says of the machine's own units is none of ours
    assert [line for line in done.stderr.splitlines() if "tformer" in line] == []
    assert done.returncode == 0, done.stderr


def test_the_command_of_the_timer_s_unit_runs(place, tmp_path):
    service = units(place, tmp_path)["tformer-news.service"]["Service"]
    shutil.rmtree(place / "translated", ignore_errors=True)
    done = run_alone(service["ExecStart"], Path(service["WorkingDirectory"]))
    assert (done.returncode, done.stdout) == (0, "translated\n"), done.stderr


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_the_unit_of_the_service_becomes_ready_and_stops_as_it_says(place, tmp_path):
    service = units(place, tmp_path)["tformer-serve.service"]["Service"]
    port = free_port()
    keys = tmp_path / "credentials"
    keys.mkdir()
    assert service["LoadCredential"].startswith("keys:")
    (keys / "keys").write_text(f"{KEY}\n")
    start, ready = (
        shlex.split(service[name].replace("5000", port).replace("%d", str(keys)))
        for name in ("ExecStart", "ExecStartPost")
    )
    log = tmp_path / "log"
    with serving(start, ready, log) as process:
        url = f"http://127.0.0.1:{port}/translate"
        body = '{"q": "The cat is old.", "source": "en", "target": "fr"%s}'
        assert "translatedText" not in post(url, body % "")
        assert "translatedText" in post(url, body % f', "api_key": "{KEY}"')
    assert process.returncode == int(service["SuccessExitStatus"]) == 143
    assert '"status": 200' in log.read_text()


@contextmanager
def serving(start, ready, log, **environment):
    """Starts a service, waits until a command says that it is ready, and stops it."""
    with (
        log.open("wb") as file,
        subprocess.Popen(start, env=environment, cwd="/", stdout=file, stderr=file) as process,
    ):
        try:
            for _ in range(60):
                done = subprocess.run(ready, check=False, capture_output=True, text=True)
                if done.returncode == 0 or process.poll() is not None:
                    break
                time.sleep(0.5)
            assert process.poll() is None, log.read_text()
            assert done.returncode == 0, done.stderr
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=60)


def post(url, body):
    words = ["curl", "-sS", url, "-H", "Content-Type: application/json", "-d", body]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def test_the_container_copies_what_is_there_and_starts_what_is_healthy(place, tmp_path):
    (text,) = (b.text for b in blocks_of(GUIDE / "serving.md") if b.language == "dockerfile")
    lines = text.replace("\\\n", "").splitlines()
    steps = [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in lines)]
    last = dict(steps[[word for word, _ in steps].index("FROM", 1) :])
    assert last["USER"] == "nonroot"
    assert next(line for line in lines if "pip" in line).count(" && ") == 2
    scripts = re.findall(r"python (\S+\.py)", text)
    assert [(ROOT / script).is_file() for script in scripts] == [True]
    extras = re.search(r"tformer_runtime-\*\.whl\)\[([\w,-]+)\]", text)[1].split(",")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {*extras} <= project["optional-dependencies"].keys()
    # What it starts, on this machine
    port = free_port()
    (tmp_path / "keys.txt").write_text(f"{KEY}\n")
    words = [*json.loads(last["ENTRYPOINT"]), *json.loads(last["CMD"]), "--port", port]
    paths = {"python3": sys.executable, "/keys/keys.txt": str(tmp_path / "keys.txt"),
             "quickstart=/model": f"quickstart={place / 'runs/mine'}"}  # fmt: skip
    check = last["HEALTHCHECK"].partition("CMD ")[2].replace("5000", port)
    healthy = [paths.get(word, word) for word in json.loads(check)]
    assert subprocess.run(healthy, check=False, capture_output=True).returncode == 1
    start = [paths.get(word, word) for word in words]
    with serving(start, healthy, tmp_path / "log", PYTHONPATH=str(ROOT)) as process:
        pass
    assert process.returncode == 143
