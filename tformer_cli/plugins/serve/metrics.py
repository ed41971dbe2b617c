"""Counts and durations of a service in the Prometheus text format.

Labels never contain data from clients: an endpoint is the path of a route, a model one of the
names on the command line.
"""

from __future__ import annotations

import os
import re
import resource
import time
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tformer_cli.plugins.serve.stats import Histogram

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tformer_cli.plugins.serve.models import ModelInfo

STALE_SECONDS = 3600.0
"""Seconds without a write after which a worker counts as ended."""
ENDED = "ended"
"""File with the counts of ended workers."""
LARGEST = ("tformer_model_", "process_start_time_seconds")
"""Prefixes of numbers that workers share, as they share the weights."""
MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """Counts of HTTP requests; engines keep their own."""

    def __init__(self) -> None:
        self.started = time.time()
        self.requests: defaultdict[tuple[str, int], int] = defaultdict(int)
        """Number of requests by route path and status."""
        self.seconds: defaultdict[str, Histogram] = defaultdict(Histogram)
        self.gone: int = 0
        """Number of requests whose client left before the answer."""

    def add(self, endpoint: str, status: int, seconds: float) -> None:
        self.requests[endpoint, status] += 1
        self.seconds[endpoint].add(seconds)

    def text(self, models: Iterable[ModelInfo], stats: object) -> str:
        """Writes all metrics, including those of the engines."""
        lines = [
            *counter(
                "tformer_requests_total",
                "Requests by endpoint and status.",
                {(("endpoint", e), ("status", str(s))): n for (e, s), n in self.requests.items()},
            ),
            *histogram(
                "tformer_request_seconds",
                "Seconds from a request to the end of its answer.",
                {(("endpoint", name),): durations for name, durations in self.seconds.items()},
            ),
            *counter(
                "tformer_disconnected_total",
                "Requests whose client left before the answer.",
                {(): self.gone},
            ),
            *_model_lines(models),
            *_engine_lines(stats),
            *_process_lines(self.started),
        ]
        return "\n".join(lines) + "\n"


class Board:
    """Metrics of all workers: each writes its own every second, and reads the others.

    The parent keeps the counts of ended workers in a file, so that counters never decrease.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self._folder = folder
        self._ended = ""
        self.owner = os.getpid()
        """Process id of the parent, which makes the board before forking the workers."""

    def write(self, text: str) -> None:
        self._put(str(os.getpid()), text)

    def _put(self, name: str, text: str) -> None:
        self._folder.mkdir(exist_ok=True)  # someone may have removed it
        aside = self._folder / f".{os.getpid()}"
        aside.write_text(text, encoding="utf-8")
        aside.replace(self._folder / name)

    def retire(self, worker: int) -> None:
        """Saves the counts of an ended worker; only the parent calls it."""
        file = self._folder / str(worker)
        with suppress(OSError):
            self._ended = sum_metrics([self._ended, counters_of(file.read_text("utf-8"))])
            # Concurrent readers skip the file that the first line names
            self._put(ENDED, f"# {worker}\n{self._ended}")
            file.unlink()
            self._put(ENDED, self._ended)

    def read_others(self) -> list[str]:
        """Reads the metrics of the other workers, and the counts of ended ones."""
        newest = time.time() - STALE_SECONDS
        ended, again = self._read_ended(), None
        while ended != again:
            mark, _, _ = ended.partition("\n")
            texts = []
            for file in self._folder.glob("[0-9]*"):
                with suppress(OSError):
                    is_left_out = file.name in (str(os.getpid()), mark.removeprefix("# "))
                    if not is_left_out and file.stat().st_mtime > newest:
                        texts.append(file.read_text("utf-8"))
            ended, again = self._read_ended(), ended
        return [*texts, re.sub(r"\A# \d+\n", "", ended)] if ended else texts

    def _read_ended(self) -> str:
        with suppress(OSError):
            return (self._folder / ENDED).read_text("utf-8")
        return ""


def counters_of(text: str) -> str:
    """Keeps only counters and histograms; gauges, such as memory, end with the process."""
    families = re.split(r"^(?=# HELP )", text, flags=re.MULTILINE)
    is_counted = re.compile(r"^# TYPE \S+ (counter|histogram)$", re.MULTILINE)
    return "".join(family for family in families if is_counted.search(family))


def sum_metrics(texts: Sequence[str]) -> str:
    """Adds up the metrics of several processes; shared ones take the maximum."""
    numbers: dict[str, float] = {}
    # Group the lines by family; not every process has all of them
    families: defaultdict[str, dict[str, None]] = defaultdict(dict)
    family = ""
    for line in "".join(texts).splitlines():
        name, _, value = line.rpartition(" ")
        if line.startswith("#"):
            family = line.split(" ", 3)[2]
            families[family].setdefault(line)
            continue
        families[family].setdefault(name)
        before = numbers.get(name, 0.0)
        is_largest = name.startswith(LARGEST)
        numbers[name] = max(before, float(value)) if is_largest else before + float(value)
    return "".join(
        f"{line}\n" if line.startswith("#") else f"{line} {numbers[line]:.17g}\n"
        for lines in families.values()
        for line in lines
    )


Labels = tuple[tuple[str, str], ...]


def counter(
    name: str, text: str, values: Mapping[Labels, float], kind: str = "counter"
) -> Iterator[str]:
    """Yields the lines of a family of numbers."""
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} {kind}"
    for labels, value in values.items():
        yield f"{name}{_labels(labels)} {value:.17g}"


def histogram(name: str, text: str, values: Mapping[Labels, Histogram]) -> Iterator[str]:
    """Yields the lines of a family of histograms; buckets are cumulative."""
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} histogram"
    for labels, series in values.items():
        n = 0
        for bound, count in zip((*series.bounds, float("inf")), series.counts, strict=True):
            n += count
            shown = "+Inf" if bound == float("inf") else f"{bound:g}"
            yield f"{name}_bucket{_labels((*labels, ('le', shown)))} {n}"
        yield f"{name}_sum{_labels(labels)} {series.total:.17g}"
        yield f"{name}_count{_labels(labels)} {n}"


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escape_label(value)}"' for name, value in labels) + "}"


def _escape_label(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _model_lines(models: Iterable[ModelInfo]) -> Iterator[str]:
    infos = list(models)
    loaded: dict[Labels, float] = {(("model", m.name),): m.state == "loaded" for m in infos}
    sizes: dict[Labels, float] = {(("model", m.name),): m.bytes for m in infos}
    yield from counter("tformer_model_loaded", "1 if a model is in memory.", loaded, "gauge")
    yield from counter("tformer_model_bytes", "Private memory of a model.", sizes, "gauge")


def _engine_lines(stats: object) -> Iterator[str]:
    """Yields the lines of the engines: numbers, some by class, and histograms."""
    for name, value in sorted(vars(stats).items()) if stats is not None else ():
        bounds, counts = getattr(value, "bounds", None), getattr(value, "counts", None)
        text = f"{name.replace('_', ' ').capitalize()} of the engine."
        if bounds is not None and counts is not None:
            yield from histogram(f"tformer_{name}", text, {(): value})
        elif isinstance(value, dict):
            by_class: dict[Labels, float] = {(("class", key),): n for key, n in value.items()}
            yield from counter(f"tformer_{name}", text, by_class, "gauge")
        elif isinstance(value, int | float):
            kind = "counter" if name.endswith("_total") else "gauge"
            yield from counter(f"tformer_{name}", text, {(): value}, kind)


def _process_lines(started: float) -> Iterator[str]:
    used = resource.getrusage(resource.RUSAGE_SELF)
    numbers = {
        "process_cpu_seconds_total": ("Processor time.", used.ru_utime + used.ru_stime),
        "process_start_time_seconds": ("Start, in seconds since 1970.", started),
    }
    with suppress(OSError, ValueError, IndexError):  # only Linux has these files
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
        numbers["process_resident_memory_bytes"] = (
            "Resident memory.",
            float(pages * os.sysconf("SC_PAGE_SIZE")),
        )
        n_open = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - only counted
        numbers["process_open_fds"] = ("Open files and sockets.", float(n_open))
    for name, (text, value) in numbers.items():
        kind = "counter" if name.endswith("_total") else "gauge"
        yield from counter(name, text, {(): value}, kind)
