"""Measures the heads of a model while it is trained: `heads.jsonl` in the run directory.

A line for each head at step 0 and every `training.inspect_every` steps. The inspected pairs
are the first of the validation pairs, which a run cannot exchange; `heads-probe.jsonl` names
them. A checkpoint is written after the lines of its step, so a resumed run cuts off what came after
the checkpoint and writes it again: nothing is there twice and nothing is missing.

Maps and metrics are those of `inspect-heads`, means over the rows of all pairs; the roles follow
from the means. Nothing random is drawn, and the model is left unchanged, so inspection does not
change a run.
"""

import json
import math
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tformer_cli.artifacts.config_file import PROBE
from tformer_cli.files.atomic import not_writable, write_text
from tformer_cli.files.regular_file import LARGEST_LOG
from tformer_cli.heads.names import KINDS, HeadId, Inspected, head_layout
from tformer_cli.heads.roles import TokenFrequencies, rare_positions, role_of
from tformer_cli.inspect.capture.forced import capture_batches
from tformer_cli.inspect.capture.maps import IdPair, longest_side
from tformer_cli.inspect.data import jsonable
from tformer_cli.inspect.heads.metrics import HeadStatistics
from tformer_cli.inspect.jobs.reader import is_written
from tformer_cli.inspect.views.timeline import HEADS_LOG, SCHEMA
from tformer_cli.model.config import ModelConfig
from tformer_cli.text.blocks import TextStream
from tformer_cli.text.corpora import SentencePair
from tformer_cli.text.tokenizer import Tokenizer, TokenizerSide
from tformer_cli.trainer.events import RolledBack, TrainingEvent
from tformer_cli.trainer.run_logs import read_log


def head_at_step(
    step: int, head: HeadId, n_sentences: int, metrics: dict[str, float]
) -> dict[str, object]:
    """Makes a line of the log; metrics are means over rows, undefined ones are omitted."""
    return {
        "schema": SCHEMA,
        "step": step,
        **head.data,
        "role": role_of(metrics),
        "n_sentences": n_sentences,
        "metrics": jsonable(metrics),
    }


def measure_heads(
    model: Inspected,
    pairs: Sequence[IdPair],
    step: int,
    frequencies: TokenFrequencies | None = None,
) -> list[dict[str, object]]:
    """Measures every head of a model that is being trained; its mode is left as it was."""
    statistics = HeadStatistics(head_layout(model), KINDS, resamples=0)
    was_training = model.training
    model.eval()
    try:
        for indices, batch in capture_batches(model, pairs):
            rare = [rare_positions(frequencies, ids) for ids in batch.sources]
            statistics.add_batch(indices, batch, rare)
    finally:
        model.train(was_training)
    means = statistics.means()
    if not all(math.isfinite(value) for metrics in means.values() for value in metrics.values()):
        return []
    return [head_at_step(step, head, len(pairs), metrics) for head, metrics in means.items()]


PROBE_SCHEMA = "tformer.headprobe/1"
N_PAIRS = 32  # Some hundreds of rows for each head, in a fraction of a second
BLOCK = 64  # Tokens of a block of a stream, at most


def probe_pairs(
    pairs: Sequence[SentencePair], tokenizer: Tokenizer, config: ModelConfig
) -> list[tuple[int, SentencePair, IdPair]]:
    """Chooses the pairs to look at: the first `N_PAIRS` with text on both sides that fit the model.

    A classifier reads only the text, and language models, masked or not, only the target; where
    a language model's texts are a stream, it reads the first blocks of all of them.
    """
    probes: list[tuple[int, SentencePair, IdPair]] = []
    longest = longest_side(config)
    if config.is_decoder_only and not config.target_eos:
        return _blocks(pairs, tokenizer.target, min(longest, BLOCK))
    for index, pair in enumerate(pairs):
        text = pair.target if config.head == "tokens" else pair.source
        source = [] if config.is_decoder_only else tokenizer.source.encode(text)
        target = [] if config.is_encoder_only else tokenizer.target.encode(pair.target)
        ids = source, target
        if is_written(ids, config) and max(map(len, ids)) <= longest:
            probes.append((index, pair, ids))
        if len(probes) == N_PAIRS:
            break
    return probes


def _blocks(
    pairs: Sequence[SentencePair], side: TokenizerSide, length: int
) -> list[tuple[int, SentencePair, IdPair]]:
    stream, blocks = TextStream(side, length), list[list[int]]()
    for pair in pairs:
        blocks += stream.add([pair.target])
        if len(blocks) >= N_PAIRS:
            break
    else:
        blocks += [rest] if (rest := stream.rest()) else []
    return [
        (index, SentencePair("", side.decode(ids)), ((), ids))
        for index, ids in enumerate(blocks[:N_PAIRS])
    ]


class HeadFollower:
    """Looks at the heads of a model, and keeps the run's file; it observes returns of the run."""

    def __init__(
        self,
        run: Path,
        model: Inspected,
        tokenizer: Tokenizer,
        pairs: Sequence[SentencePair],
        step: int,
        frequencies: TokenFrequencies | None = None,
    ) -> None:
        """Takes up the file of a run that stands at a step, without what came after it."""
        self._path = run / HEADS_LOG
        self._model = model
        self._frequencies = frequencies
        chosen = probe_pairs(pairs, tokenizer, model.config)
        self._pairs = [ids for _, _, ids in chosen]
        self.seconds = 0.0
        """Time that recording has taken in this process."""
        self.n_records = 0
        """Steps it has recorded."""
        lines = [_probe_line(index, pair) for index, pair, _ in chosen]
        write_text(run / PROBE, "".join(lines))
        # At the start of a run, a file can only come from a killed attempt.
        self._keep(lambda logged_step: logged_step <= step if step else False)

    def record(self, step: int) -> None:
        """Measures every head and appends its line; on the disk before a checkpoint can be."""
        start = time.monotonic()
        if self._pairs:
            lines = measure_heads(self._model, self._pairs, step, self._frequencies)
            text = "".join(json.dumps(head, allow_nan=False) + "\n" for head in lines)
            try:
                with self._path.open("a", encoding="utf-8", newline="") as file:
                    file.write(text)
                    file.flush()
                    os.fsync(file.fileno())
            except OSError as error:
                raise not_writable(self._path, error) from None
        self.n_records += 1
        self.seconds += time.monotonic() - start

    def notify(self, event: TrainingEvent) -> None:
        """Cuts off what a return to an earlier checkpoint takes back."""
        if isinstance(event, RolledBack):
            self._keep(lambda step: step <= event.step)

    def _keep(self, is_kept: Callable[[int], bool]) -> None:
        """Keeps the whole lines of some steps."""
        text = read_log(self._path, LARGEST_LOG)
        kept = b"".join(
            line + b"\n"
            for line in text.split(b"\n")
            if (step := _step_of(line)) is not None and is_kept(step)
        )
        if kept != text:
            write_text(self._path, kept.decode("utf-8"))


def _probe_line(index: int, pair: SentencePair) -> str:
    data = {
        "schema": PROBE_SCHEMA,
        "index": index,
        "source": pair.source,
        "target": pair.target,
        "chosen": f"the first {N_PAIRS} validation examples that fit the model and are not blank",
    }
    return json.dumps(data, ensure_ascii=False) + "\n"


def _step_of(line: bytes) -> int | None:
    """The step of a line; None if it is torn or foreign."""
    try:
        return int(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
