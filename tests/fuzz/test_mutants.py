"""Damaged models of all kinds: an import is refused in one line, or is whole.

`TFORMER_MUTANTS=3000 TFORMER_MUTANTS_SEED=7 pytest -n 0 -m slow -s tests/fuzz` says how many and
which, and prints what became of them.
"""

import json
import os
import random
import shutil
import subprocess
import sys
from collections import Counter

import pytest

from tests.fuzz.mutants import CUT, damage, write_seeds

pytest.importorskip("transformers")
pytest.importorskip("ctranslate2")

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="mutants are forked"),
]
N_MUTANTS = int(os.environ.get("TFORMER_MUTANTS", "300"))
SEED = int(os.environ.get("TFORMER_MUTANTS_SEED", "1"))
MOST_MEMORY = 1024
"""MiB."""


@pytest.fixture
def importer():
    """Imports a source into a directory; returns status, seconds, memory and what was said."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.fuzz.importer"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"},
    )

    def import_one(source, output, message_file):
        process.stdin.write(json.dumps([str(source), str(output), str(message_file)]) + "\n")
        process.stdin.flush()
        status, seconds, memory = json.loads(process.stdout.readline())
        return status, seconds, memory, message_file.read_text(encoding="utf-8", errors="replace")

    with process:
        yield import_one
        process.stdin.close()


def source_in(path):
    """What an import of a seed is told to read: a directory, or the file in it that is a model."""
    return next(path.glob("*.argosmodel"), path)


def meaning(output):
    """What an import wrote, without the hashes of the files that it was made of."""
    files = {file.name: file.read_bytes() for file in output.iterdir()}
    config = json.loads(files["config.json"])
    del config["origin"]
    return {**files, "config.json": config}


def notes_of(messages, path):
    """What an import told besides its first line."""
    return [line.replace(str(path), "") for line in messages.splitlines()[1:]]


def verdict(status, seconds, memory, messages, output):
    """Says what is wrong with the end of an import; "" if nothing is."""
    lines = messages.splitlines()
    if status not in (0, 2):
        return f"status {status}"
    if seconds > 20 or memory > MOST_MEMORY:
        return f"{seconds:.0f} s, {memory} MiB"
    if "Traceback" in messages or "panicked" in messages:
        return "a traceback"
    if status == 2 and (len(lines) != 1 or not lines[0].startswith("error: ")):
        return f"{len(lines)} lines"
    if status == 2 and output.exists():
        return "an output that was refused"
    if max(map(len, lines), default=0) > 2200 or set(messages) & set("\x1b\x07\u202e"):
        return "a message that is not readable"
    return ""


def test_mutants_are_refused_in_one_line_or_imported_whole(tmp_path, importer):
    rng = random.Random(SEED)
    (tmp_path / "seeds").mkdir()
    seeds = write_seeds(tmp_path / "seeds")
    output, message_file, mutant = tmp_path / "ours", tmp_path / "said", tmp_path / "mutant"
    originals = {}
    for seed in seeds:
        shutil.copytree(seed, mutant)
        status, *_, messages = importer(source_in(mutant), output, message_file)
        assert status == 0, (seed.name, messages)
        originals[seed] = meaning(output), notes_of(messages, mutant)
        shutil.rmtree(mutant)
        shutil.rmtree(output)
    counts, wrong = Counter(), []
    for number in range(N_MUTANTS):
        seed = rng.choice(seeds)
        shutil.copytree(seed, mutant)
        files = sorted(file for file in mutant.rglob("*") if file.is_file())
        file = rng.choice(files)
        kind = damage(rng, file)
        ended = importer(source_in(mutant), output, message_file)
        fault = verdict(*ended, output)
        outcome = "refused" if ended[0] == 2 else "imported"
        if not fault and ended[0] == 0:
            model, notes = originals[seed]
            is_same = meaning(output) == model
            is_told = notes_of(ended[3], mutant) != notes
            outcome = "the same" if is_same else "another, told" if is_told else "another"
            if kind == CUT and outcome == "another":
                fault = "another model after a cut, in silence"
        counts[kind, fault or outcome] += 1
        if fault:
            wrong.append(f"{number} {seed.name}/{file.name} {kind}: {fault}: {ended[3][:300]}")
            if keep := os.environ.get("TFORMER_MUTANTS_KEEP"):
                shutil.copytree(mutant, f"{keep}/{number}-{seed.name}", dirs_exist_ok=True)
        shutil.rmtree(mutant)
        shutil.rmtree(output, ignore_errors=True)
    lines = (f"{count:6} {kind}: {outcome}" for (kind, outcome), count in sorted(counts.items()))
    sys.stdout.write("\n".join(["", *lines, ""]))
    assert not wrong, "\n".join(wrong)
