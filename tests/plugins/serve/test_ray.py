"""The class of the guide under Ray Serve, on loopback."""

import json
import os
import re
import subprocess

import pytest

from tformer_cli import load
from tformer_cli.guide import find_guide

RAY = os.environ.get("TFORMER_RAY", "")
TEXTS = ["The old house.", "A man and a dog.", "", "It is cold."]
AROUND = """
import json, sys, urllib.request, ray
from concurrent.futures import ThreadPoolExecutor

ray.init(num_cpus=4, include_dashboard=False, logging_level="ERROR")
serve.start(http_options={"host": "127.0.0.1", "port": 0})
serve.run(app)

def ask(text):
    body = json.dumps({"q": text}).encode()
    with urllib.request.urlopen(ADDRESS, body, timeout=60) as answer:
        return json.loads(answer.read())["translatedText"]

with ThreadPoolExecutor(8) as pool:
    print("FOUND", json.dumps(list(pool.map(ask, json.loads(sys.argv[1])))), flush=True)
serve.shutdown()
"""


@pytest.mark.long
@pytest.mark.skipif(not RAY, reason="TFORMER_RAY names no Python with Ray")
def test_the_class_of_the_guide_translates(zoo, tmp_path):
    guide = find_guide("serving").text
    code = re.search(r"```python\n(import asyncio\n.*?)```", guide, re.DOTALL)[1]
    program = code.replace('"runs/quickstart"', repr(str(zoo["translate"]))) + AROUND
    port = 18_000 + os.getpid() % 10_000
    program = program.replace('"port": 0', f'"port": {port}').replace(
        "ADDRESS", f'"http://127.0.0.1:{port}/"'
    )
    file = tmp_path / "served.py"
    file.write_text(program)
    done = subprocess.run(
        [RAY, file, json.dumps(TEXTS * 4)],
        capture_output=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "RAY_USAGE_STATS_ENABLED": "0"},
    )
    assert done.returncode == 0, done.stderr.decode()
    expected = [translation.text for translation in load(zoo["translate"]).translate(TEXTS)]
    # Ray writes to stdout, too
    (translations,) = re.findall(r"^FOUND (.*)$", done.stdout.decode(), re.MULTILINE)
    assert json.loads(translations) == expected * 4
