import os
import re
import shutil
import subprocess
from types import SimpleNamespace

import pytest

from tests.plugins.serve.fake import Client, model
from tformer_cli.plugins.serve.metrics import Board, Metrics, counter, histogram, sum_metrics
from tformer_cli.plugins.serve.stats import Histogram

LINE = re.compile(
    r'[a-z_]+(?:\{[a-z]+="(?:[^"\\\n]|\\.)*"(?:,[a-z]+="(?:[^"\\\n]|\\.)*")*\})? [-+0-9.e]+'
)


def test_every_line_is_of_the_format():
    client = Client()
    client.post("/translate", json_={"q": "a", "source": "en", "target": "fr"})
    client.get("/nosuch")
    answer = client.get("/metrics")
    assert answer.named["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    kinds = {}
    for line in answer.text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in kinds
            kinds[name] = kind
        elif not line.startswith("# HELP "):
            assert LINE.fullmatch(line), line
            family = re.match("[a-z_]+", line)[0]
            assert {family, re.sub("_(bucket|sum|count)$", "", family)} & kinds.keys()
    assert answer.text.endswith("\n")
    assert {"tformer_requests_total", "tformer_request_seconds", "tformer_model_loaded"} <= set(
        kinds
    )
    assert 'tformer_requests_total{endpoint="/translate",status="200"} 1\n' in answer.text
    assert 'tformer_model_loaded{model="en-fr"} 1\n' in answer.text
    assert "tformer_tokens_total 3\n" in answer.text
    assert "tformer_queue_units 0\n" in answer.text
    assert re.search(r"process_resident_memory_bytes \d+", answer.text)


def test_no_label_comes_from_a_client():
    client = Client()
    for word in ("/secretpath", "/download_file/secretname", "/v1/models/secretmodel"):
        client.get(word, headers={"authorization": "Bearer secretkey", "user-agent": "secret"})
    client.post("/translate", json_={"q": "secret", "source": "secret", "target": "secret"})
    text = client.get("/metrics").text
    assert "secret" not in text
    assert 'endpoint="other",status="404"' in text
    assert 'endpoint="/v1/models/{name}",status="404"' in text


def test_a_histogram_counts_up():
    durations = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 9.0):
        durations.add(value)
    assert list(histogram("h", "Text.", {(("a", "b"),): durations})) == [
        "# HELP h Text.",
        "# TYPE h histogram",
        'h_bucket{a="b",le="1"} 2',
        'h_bucket{a="b",le="2"} 3',
        'h_bucket{a="b",le="+Inf"} 4',
        'h_sum{a="b"} 12',
        'h_count{a="b"} 4',
    ]


def test_workers_are_counted_together(tmp_path):
    board = Board(tmp_path / "board")
    board.write("mine 1\n")
    assert board.read_others() == []
    other, ended = tmp_path / "board" / "1", tmp_path / "board" / "2"
    for file in (other, ended):
        file.write_text('# TYPE a counter\na 2\ntformer_model_bytes{model="m"} 7\nb 1\n')
    os.utime(ended, (0, 0))
    (other_text,) = board.read_others()
    mine = '# TYPE a counter\na 3\ntformer_model_bytes{model="m"} 5\n'
    assert sum_metrics([mine, other_text]) == (
        '# TYPE a counter\na 5\ntformer_model_bytes{model="m"} 7\nb 1\n'
    )


def test_what_workers_counted_that_ended_is_kept(tmp_path):
    board = Board(tmp_path / "board")
    text = (
        "# HELP a A.\n# TYPE a counter\na 2\n"
        "# HELP b B.\n# TYPE b gauge\nb 7\n"
        '# HELP c C.\n# TYPE c histogram\nc_bucket{le="+Inf"} 3\nc_sum 1\nc_count 3\n'
    )
    kept = text.replace("# HELP b B.\n# TYPE b gauge\nb 7\n", "")
    for _ in range(2):  # a process id may be reused
        (tmp_path / "board" / "1").write_text(text)
        before = sum_metrics(board.read_others())
        board.retire(1)
    assert "a 4\n" in before
    assert "b 7\n" in before
    assert board.read_others() == [sum_metrics([kept, kept])]
    board.retire(5)  # has written nothing
    assert board.read_others() == [sum_metrics([kept, kept])]


def test_a_worker_that_is_just_being_retired_counts_once(tmp_path, monkeypatch):
    board, texts = Board(tmp_path / "board"), []
    (tmp_path / "board" / "1").write_text("# HELP a A.\n# TYPE a counter\na 2\n")
    put = board._put

    def looking(name, text):
        put(name, text)
        texts.append(sum_metrics(board.read_others()))

    monkeypatch.setattr(board, "_put", looking)
    board.retire(1)
    assert texts == ["# HELP a A.\n# TYPE a counter\na 2\n"] * 2


def test_names_of_models_are_escaped():
    lines = list(counter("c", "Text.", {(("model", 'a"b\\c\nd'),): 1}))
    assert lines[2] == r'c{model="a\"b\\c\nd"} 1'


def test_the_engine_is_counted_by_its_own_names():
    stats = SimpleNamespace(
        batch_tokens=Histogram((1.0,)), rejected_total=2, _lock=None, other="x",
        queue_requests={"interactive": 1, "bulk": 4},
    )  # fmt: skip
    text = Metrics().text([model("a")], stats)
    assert "# TYPE tformer_rejected_total counter" in text
    assert "# TYPE tformer_queue_requests gauge" in text
    assert 'tformer_queue_requests{class="bulk"} 4\n' in text
    assert 'tformer_batch_tokens_bucket{le="+Inf"} 0' in text
    assert "other" not in text
    assert "_lock" not in text


def numbers_of_workers():
    """Returns the summed metrics of two processes with different requests."""
    texts = []
    for path in ("/nosuch", "/v1/models/a"):
        client = Client()
        client.service.models = [model('a"b\\c')]
        client.service.stats = SimpleNamespace(batch_tokens=Histogram((1.0, 2.0)), loads_total=2)
        client.service.stats.batch_tokens.add(1.5)
        client.get(path)
        client.get("/health")
        texts.append(client.get("/metrics").text)
    return sum_metrics(texts)


def test_lines_of_a_family_stand_together():
    families = [
        re.sub("_(bucket|sum|count)$", "", re.match("[a-z_]+", line)[0])
        for line in numbers_of_workers().splitlines()
        if not line.startswith("#")
    ]
    groups = [family for n, family in enumerate(families) if n == 0 or families[n - 1] != family]
    assert len(groups) == len(set(groups))


def test_prometheus_reads_every_family():
    parser = pytest.importorskip("prometheus_client.parser")
    families = {
        family.name: family
        for family in parser.text_string_to_metric_families(numbers_of_workers())
    }
    assert all(item.documentation and item.type != "unknown" for item in families.values())
    for item in families.values():
        names = {sample.name for sample in item.samples}
        if item.type == "counter":
            assert names == {f"{item.name}_total"}
        elif item.type == "histogram":
            assert names == {f"{item.name}_{end}" for end in ("bucket", "sum", "count")}
            ends = [sample.value for sample in item.samples if sample.labels.get("le") == "+Inf"]
            assert ends == [
                sample.value for sample in item.samples if sample.name.endswith("_count")
            ]
        else:
            assert (item.type, names) == ("gauge", {item.name})
    (loaded,) = families["tformer_model_loaded"].samples
    assert loaded.labels == {"model": 'a"b\\c'}
    requests = families["tformer_requests"].samples
    assert {(sample.labels["endpoint"], sample.value) for sample in requests} == {
        ("other", 1.0), ("/v1/models/{name}", 1.0), ("/health", 2.0),
    }  # fmt: skip


@pytest.mark.slow
def test_promtool_finds_nothing():
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("promtool is not installed")
    text = numbers_of_workers()
    done = subprocess.run(
        [program, "check", "metrics"], input=text, check=False, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
