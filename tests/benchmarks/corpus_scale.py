"""Memory and speed of corpora from small to far larger than memory.

    python tests/benchmarks/corpus_scale.py [--pairs 100000 1000000 10000000] [--directory DIR]

Generates the built-in corpus as files, trains a tokenizer on it, encodes it, opens it again and
reads batches from the start and from the middle of an epoch. Every phase is a process of its own,
so that its peak memory is its own: anonymous memory (what the program holds) and all resident
memory (with the pages of mapped files, which the system takes back when it needs room). Linux only.
With a directory the data stay there, and phases that it has the figures of are not run again.
At most a million pairs are different (`--distinct`); more are the same again and again, which asks
as much of memory.
"""

import argparse
import json
import resource
import threading
import time
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from harness import output_by, work_directory, write

PHASES = ("generate", "tokenizer", "encode", "open", "start", "middle")
N_BATCHES = 500
TOKENS_PER_BATCH = 4096
SAMPLE_SECONDS = 0.02


def main():
    arguments = _arguments()
    if arguments.phase:
        distinct = min(arguments.distinct, arguments.pairs[0])
        figures = run_phase(arguments.phase, arguments.pairs[0], distinct, arguments.directory)
        write(json.dumps(figures))
        return
    with work_directory(arguments.directory) as directory:
        columns = f"{'seconds':>9}{'pairs/s':>10}{'anonymous':>11}{'all':>9}"
        write(f"{'pairs':>10}  {'phase':<28}{columns}")
        for n_pairs in arguments.pairs:
            for phase in PHASES:
                _show(n_pairs, phase, _figures(phase, n_pairs, arguments.distinct, directory))


def _arguments():
    parser = argparse.ArgumentParser(description="Memory and speed of large corpora.")
    parser.add_argument("--pairs", type=int, nargs="+", default=[100_000, 1_000_000, 10_000_000])
    parser.add_argument("--distinct", type=int, default=1_000_000, help="different pairs at most")
    parser.add_argument("--directory", type=Path, help="keep data and figures here")
    parser.add_argument("--phase", choices=PHASES, help=argparse.SUPPRESS)
    return parser.parse_args()


def _figures(phase, n_pairs, distinct, directory):
    """Runs a phase in a process of its own, unless its figures are there."""
    place = directory / str(n_pairs)
    place.mkdir(parents=True, exist_ok=True)
    file = place / f"{phase}-figures.json"
    if not file.exists():
        command = (__file__, "--pairs", n_pairs, "--distinct", distinct, "--directory", place)
        file.write_text(output_by(*command, "--phase", phase), encoding="utf-8")
    return json.loads(file.read_text(encoding="utf-8"))


def _show(n_pairs, phase, figures):
    memory = f"{figures['anonymous']:>7,.0f} MiB{figures['all']:>5,.0f} MiB"
    rows = [(phase, figures["seconds"], figures.get("pairs", 0))]
    if "first" in figures:
        rows = [
            (f"{phase}: first batch", figures["first"], 0),
            (f"{phase}: {N_BATCHES} batches more", figures["seconds"], figures["pairs"]),
        ]
    for name, seconds, pairs in rows:
        rate = f"{pairs / seconds:,.0f}" if pairs else ""
        write(f"{n_pairs:>10,}  {name:<28}{seconds:>9.2f}{rate:>10}{memory}")


def run_phase(phase, n_pairs, distinct, directory):
    """Does one phase in this process."""
    work = {
        "generate": lambda: _generate(n_pairs, distinct, directory),
        "tokenizer": lambda: _tokenizer(directory),
        "encode": lambda: _corpus(directory, from_cache=False),
        "open": lambda: _corpus(directory, from_cache=True),
        "start": lambda: _batches(directory, 0.0),
        "middle": lambda: _batches(directory, 0.5),
    }
    with _anonymous_peak() as peak:
        begun = time.perf_counter()
        found = work[phase]()
        figures = found if isinstance(found, dict) else {"pairs": n_pairs}
        figures.setdefault("seconds", time.perf_counter() - begun)
    whole = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {**figures, "anonymous": max(peak), "all": whole}


@contextmanager
def _anonymous_peak():
    """Looks at the process's anonymous memory, in MiB, again and again."""
    peak = [0.0]
    is_over = threading.Event()

    def look():
        while not is_over.wait(SAMPLE_SECONDS):
            status = Path("/proc/self/status").read_text(encoding="ascii")
            kilobytes = int(status.split("RssAnon:")[1].split()[0])
            peak[0] = max(peak[0], kilobytes / 1024)

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    try:
        yield peak
    finally:
        is_over.set()
        watcher.join()


def _generate(n_pairs, distinct, directory):
    from tformer_cli.corpora.make_corpus import make_corpus

    made = directory / "corpus"
    n_made = make_corpus(made, distinct)["train"]
    for code in ("en", "fr"):
        file = made / f"train.{code}"
        lines = file.read_bytes()
        with file.open("ab") as more:
            for _ in range(n_pairs // n_made - 1):
                more.write(lines)


def _tokenizer(directory):
    from tformer_cli.text.config import TokenizerConfig
    from tformer_cli.text.corpora import read_corpus
    from tformer_cli.text.train_tokenizer import train_tokenizer

    lines = (side for pair in read_corpus(_data(directory).train[0]) for side in pair)
    tokenizer = train_tokenizer(lines, TokenizerConfig())
    (directory / "tokenizer.json").write_text(tokenizer.to_json(), encoding="utf-8")


def _batches(directory, share):
    """Reads batches from a place in the first epoch, as a resumed run does."""
    from tformer_cli.text.loading.loader import LoaderPosition, TrainingLoader

    corpus, tokenizer = _corpus(directory), _trained(directory)
    with_all = TrainingLoader([corpus], [1.0], tokenizer, TOKENS_PER_BATCH, seed=1)
    position = LoaderPosition(0, int(with_all.n_batches(0) * share))
    begun = time.perf_counter()
    loader = TrainingLoader([corpus], [1.0], tokenizer, TOKENS_PER_BATCH, seed=1, position=position)
    loader.n_batches(0)  # training shows it
    stream = iter(loader)
    next(stream)
    first = time.perf_counter() - begun
    n_pairs = sum(batch.n_sentences for batch, _ in islice(stream, N_BATCHES))
    loader.close()
    return {"first": first, "seconds": time.perf_counter() - begun - first, "pairs": n_pairs}


def _corpus(directory, from_cache=None):
    from tformer_cli.text.loading.encoded import encode_corpus

    data = _data(directory)
    corpus = encode_corpus(data.train[0], data, _trained(directory))
    if from_cache not in (None, corpus.from_cache):
        raise SystemExit(f"{directory}: must come from the cache: {from_cache}")
    return corpus


def _trained(directory):
    from tformer_cli.text.tokenizer import read_tokenizer

    return read_tokenizer(directory / "tokenizer.json")


def _data(directory):
    from tformer_cli.text.config import CorpusConfig, DataConfig

    files = {side: str(directory / "corpus" / f"train.{code}")
             for side, code in (("source", "en"), ("target", "fr"))}  # fmt: skip
    return DataConfig(train=(CorpusConfig(**files),), cache_directory=str(directory / "cache"))


if __name__ == "__main__":
    main()
