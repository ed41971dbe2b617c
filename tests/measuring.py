"""Processor time of the tests, by which `tests/slow.txt` says what the default suite leaves out.

`python -m tests.measuring [TEST…]` runs the tests, or those named, and writes their lines anew. A
test takes the time of this process and of the programs that it started, and its share of what it
has from a fixture with others. Processor time hardly depends on what else a machine does.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from time import process_time

import pytest

LIST = Path(__file__).with_name("slow.txt")
SLOW = 0.15
"""Seconds above which a test is slow; a third of one on a cloud machine of two cores."""
HEAD = f"# Seconds of processor time above {SLOW}, by `python -m tests.measuring`: see README.md\n"
_RECORDS = "TFORMER_MEASURED"


def read_list(path=LIST):
    """Returns the seconds of each listed test by its name."""
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    return {
        name: float(seconds)
        for seconds, _, name in (line.partition(" ") for line in lines if line[:1] != "#")
    }


def mark_slow(items):
    """Marks the listed tests and the long ones among those collected."""
    listed = read_list()
    for item in items:
        if item.nodeid in listed or item.get_closest_marker("long"):
            item.add_marker(pytest.mark.slow)


def slow_ones(records):
    """Returns the seconds of the slow tests; tests that are left share what they have in common."""
    fast = list(records)
    while True:
        n_users = Counter(fixture for record in fast for fixture in record["shared"])
        shares = [sum(s / n_users[fixture] for fixture, s in r["shared"].items()) for r in fast]
        kept = [r for r, share in zip(fast, shares, strict=True) if r["own"] + share <= SLOW]
        if len(kept) == len(fast):
            break
        fast = kept
    names = {record["test"] for record in fast}
    return {
        record["test"]: record["own"] + sum(record["shared"].values())
        for record in records
        if record["test"] not in names
    }


class Measuring:
    """A plugin that writes what each test of this process took."""

    def __init__(self, folder):
        self._path = Path(folder, f"{os.getpid()}.jsonl")
        self._shared = {}
        self._n_shared = self._in_shared = 0

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef):
        """Takes apart what is made for several tests."""
        if fixturedef.scope == "function":
            return (yield)
        before, others = _processor_time(), self._in_shared
        try:
            return (yield)
        finally:
            took = _processor_time() - before
            self._n_shared += 1
            name = f"{os.getpid()} {self._n_shared}"
            self._shared[fixturedef] = name, took - (self._in_shared - others)
            self._in_shared = others + took

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item):
        """Writes one test, unless it is golden: those are a part of the default suite."""
        before, others = _processor_time(), self._in_shared
        result = yield
        if item.get_closest_marker("golden"):
            return result
        own = _processor_time() - before - (self._in_shared - others)
        fixtures = (key for keys in item._fixtureinfo.name2fixturedefs.values() for key in keys)
        shared = dict(self._shared[fixture] for fixture in fixtures if fixture in self._shared)
        with self._path.open("a") as file:
            file.write(json.dumps({"test": item.nodeid, "own": own, "shared": shared}) + "\n")
        return result


def _processor_time():
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return process_time() + children.ru_utime + children.ru_stime


def pytest_configure(config):
    """Measures in the processes that run tests."""
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):
        config.pluginmanager.register(Measuring(os.environ[_RECORDS]))


def main(names):
    """Runs tests and writes the list."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.measuring"]
        # Those that are marked as long take longer than all others
        command += ["-m", "not gpu" if names else "not gpu and not long", *names]
        subprocess.run(command, env={**os.environ, _RECORDS: folder}, check=False)
        files = sorted(Path(folder).iterdir())
        records = [json.loads(line) for file in files for line in file.open()]
    measured, before = {record["test"] for record in records}, read_list()
    kept = {name: before[name] for name in before if names and name not in measured}
    slow = kept | slow_ones(records)
    lines = [f"{seconds:.1f} {name}\n" for name, seconds in sorted(slow.items())]
    LIST.write_text(HEAD + "".join(lines), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
