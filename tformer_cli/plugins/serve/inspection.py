"""The process that inspects models for the live page: reads requests and writes events, as lines.

It imports torch, which the service does not, and can crash without harm to it; `inspector` is the
other end. The views of `inspect` do the work: here requests become records, and records events.
The cheapest events come first, so that the page can show them while the rest is computed.
"""

from __future__ import annotations

import base64
import json
import os
import sys
import traceback
from collections import OrderedDict, deque
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Condition, Thread
from time import perf_counter
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch

from tformer_cli.artifacts.config_file import MODELS, TASKS
from tformer_cli.errors import ArtifactError, DataError, TformerError
from tformer_cli.foreign.import_model import float_twin
from tformer_cli.heads.gates import heads_off
from tformer_cli.heads.names import KINDS, head_layout
from tformer_cli.heads.roles import METRICS
from tformer_cli.heads.selectors import select_heads
from tformer_cli.inspect.alignment import spelled_words
from tformer_cli.inspect.jobs.heads import HeadInspector, subject_of
from tformer_cli.inspect.jobs.reader import inspected_model, open_for_inspection
from tformer_cli.inspect.pages import render_report
from tformer_cli.inspect.view import EVERY_TASK, ModelView, ReportOptions, SentenceView
from tformer_cli.inspect.views import REPORT, VIEWS
from tformer_cli.kinds import kind_of, reads_names
from tformer_cli.plugins.serve.completing import complete_prefix, ends_within_a_word
from tformer_cli.plugins.serve.events import RESULTS, SCHEMA, Event, add_pieces, word_spans
from tformer_cli.plugins.serve.watching import state_of
from tformer_cli.runtime import n_processors
from tformer_cli.search.constraints import LineConstraints
from tformer_cli.search.hypothesis import never_interrupt
from tformer_cli.search.opening import overridden
from tformer_cli.sockets import load_place
from tformer_cli.wording import is_blank

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
    from typing import TextIO

    from tformer_cli.heads.names import HeadId, Kind
    from tformer_cli.inspect.capture.live import SearchTree
    from tformer_cli.inspect.capture.maps import Weights
    from tformer_cli.inspect.pages import Report
    from tformer_cli.inspect.record import HeadsRecord
    from tformer_cli.inspect.view import Subject
    from tformer_cli.kinds.stored_model import Opened

MOST_MODELS = 2
"""Models kept open: enough to compare two side by side."""
MOST_TOKENS = 256
"""Maximum tokens of an inspected text: its maps grow quadratically."""
MOST_DECIDED = 64
"""Maximum tokens of a text for a decision, which recomputes it for every head and position."""
_SEARCH = ("beam_size", "length_penalty")
_ABOUT_EVENTS = ("want", "head", "token")
"""Fields that change nothing in what is captured."""


@dataclass(frozen=True, kw_only=True)
class Inspected:
    """The opened model of a request, and the record of its sentence."""

    opened: Opened
    subject: Subject
    record: HeadsRecord
    sentences: tuple[str, ...]
    """The sentences into which the text is split."""
    number: int
    """Index of the recorded sentence."""


class Cancelled(Exception):  # noqa: N818 - nothing is wrong
    """The client no longer waits for the result."""


class Inspection:
    """Inspects requests one at a time, and keeps the most recently used models open."""

    def __init__(self) -> None:
        self._models: OrderedDict[tuple[Any, ...], Opened] = OrderedDict()
        self._latest: tuple[str, Inspected] | None = None

    def events(
        self,
        model: Path,
        request: Mapping[str, Any],
        before_batch: Callable[[], None] = never_interrupt,
    ) -> Iterator[Event]:
        """Yields the events that a request wants, then `done`; see `READERS` for the names.

        An error from `before_batch` ends a decision, which takes seconds, before its next batch.
        """
        start = perf_counter()
        opened = self._open(model, request)
        text = request["text"]
        want = request.get("want") or ("alignment", "heads")
        _check_text(opened, text)
        off = request.get("heads_off") or ()
        heads = (
            select_heads(list(off), head_layout(inspected_model(opened.directory))) if off else []
        )
        predicts = TASKS[kind_of(opened.config).name].predicts
        others = [*WHOLE, "translation", "off", *(() if predicts else ("next", "lens"))]
        for name, read in WHOLE.items():
            if name in want:
                yield {"event": name, **read(opened, request, before_batch)}
        if set(want) <= set(WHOLE):
            yield _done_event(start)
            return
        with heads_off(inspected_model(opened.directory), heads):
            if heads or "translation" in want:
                yield _answer(opened, request)
            inspected = self._capture(model, opened, request)
            for name in dict.fromkeys((*READERS, *PAGE_VIEWS, *want)):
                if name in want and name not in others:
                    if name == "step" and request.get("head"):
                        event: Event | None = _walk(inspected, request)
                    else:
                        event = READERS.get(name, _view)(inspected, name)
                    if event is not None:
                        yield {"event": name, **event}
        if "off" in want and predicts:
            # Outside `heads_off`: the gate of one head replaces those of its whole layer
            effects = _instrument("heads_off_in_turn")(inspected.subject, inspected.record)
            yield {"event": "off", **cast("Event", effects)}
        yield _done_event(start)

    def _capture(self, model: Path, opened: Opened, request: Mapping[str, Any]) -> Inspected:
        # The page first asks for cheap events, and for the rest once typing pauses
        same = {name: value for name, value in request.items() if name not in _ABOUT_EVENTS}
        key = json.dumps([str(model), state_of(model), same], sort_keys=True)
        if self._latest is None or self._latest[0] != key:
            self._latest = key, _capture_sentence(opened, request)
        return self._latest[1]

    def _open(self, model: Path, request: Mapping[str, Any]) -> Opened:
        """Opens a model with the search settings of a request; for int8, the float32 twin."""
        languages = {
            name: request.get(name)
            for name in ("source_language", "target_language")
            if request.get(name)
        }
        key = (model, state_of(model), *languages.items())
        if key not in self._models:
            # An opened model holds its weights twice: packed for the search, and as torch tensors
            if len(self._models) >= MOST_MODELS:
                self._models.popitem(last=False)
            self._models[key] = open_for_inspection(
                float_twin(model), tasks=EVERY_TASK, device="cpu", **cast("Any", languages)
            )
        self._models.move_to_end(key)
        opened = self._models[key]
        changes = {name: request[name] for name in _SEARCH if request.get(name) is not None}
        if not changes or not _translates(opened):
            return opened
        # A copy with the same engines, which keeps the packed weights
        chosen = overridden(opened.directory.decoding, **changes)
        return replace(opened, search=opened.translator.with_config(chosen))


def _done_event(start: float) -> Event:
    return {"event": "done", "ms": {"inspect": round(1000 * (perf_counter() - start), 1)}}


def _translates(opened: Opened) -> bool:
    verbs = kind_of(opened.config).verbs
    return "translate" in verbs


def _check_text(opened: Opened, text: object, name: str = "text", most: int = MOST_TOKENS) -> None:
    if not isinstance(text, str) or is_blank(text):
        raise DataError(f"{name}: is missing; give a text that is not blank")
    if reads_names(opened.config):
        if not text.startswith("data:"):  # any other name would be a local file
            raise DataError(f"{name}: is not an image; send a data: URL")
        return
    n_tokens = len(opened.directory.tokenizer.source.encode(text))
    if n_tokens > most:
        raise DataError(
            f"{name}: has {n_tokens} tokens, more than {most}; inspect a shorter sentence"
        )


def _constraints(opened: Opened, request: Mapping[str, Any]) -> LineConstraints:
    prefix = str(request.get("prefix") or "")
    if ends_within_a_word(prefix) and _translates(opened):
        prefix = complete_prefix(
            opened.directory.model, opened.directory.tokenizer, request["text"], prefix
        )
    return LineConstraints(
        prefix,
        tuple(map(str, request.get("require") or ())),
        tuple(map(str, request.get("ban") or ())),
    )


def _capture_sentence(opened: Opened, request: Mapping[str, Any]) -> Inspected:
    """Captures the sentence of a request, during the search if there is one."""
    subject = replace(subject_of(opened.directory), translator=opened.translator)
    is_searched = _translates(opened) and not request.get("target")
    inspector = HeadInspector(opened, mode="live" if is_searched else "forced", for_page=True)
    constraints = _constraints(opened, request)
    text, target = request["text"], request.get("target")
    # A prefix belongs to the first sentence
    texts = [text] if target else [sentence for sentence, _ in inspector.pairs([text])]
    number = min(max(int(request.get("sentence") or 0), 0), len(texts) - 1)
    own = constraints if number == 0 else replace(constraints, target_prefix="")
    return Inspected(
        opened=opened,
        subject=subject,
        record=inspector.inspect_line(0, texts[number], target or None, own),
        sentences=tuple(texts),
        number=number,
    )


def _answer(opened: Opened, request: Mapping[str, Any]) -> Event:
    """Computes the result of a text with torch, which applies the gates of heads."""
    verb, text = kind_of(opened.config).verbs[0], request["text"]
    name, record = RESULTS[verb]
    start: Event = {
        "event": name,
        "schema": SCHEMA,
        "model": request.get("model") or opened.directory.path.name,
    }
    if verb == "generate":  # the service streams its text
        return {**start, "prompt": text, "texts": []}
    # As the service does, but with torch: the kernels have no gates
    serving = kind_of(opened.config).serving(opened, verb)
    constraints = [_constraints(opened, request)] if _translates(opened) else None
    (line,) = serving.prepare([text], 0, constraints)
    event = {**start, **record(serving.finish(line, serving.compute(line.units)))}
    if constraints:
        add_pieces(event, opened.directory.tokenizer)
        event["cached"] = False
    return event


def _alignment(inspected: Inspected, _: str) -> Event | None:
    """Words of both sides as character spans, the word of each token, and the links."""
    record, tokenizer = inspected.record, inspected.opened.directory.tokenizer
    if record.maps is None or record.is_image:
        return None
    sides = {
        "source": (tokenizer.source, record.maps.source_tokens, record.source),
        "target": (tokenizer.target, record.maps.target_ids[:-1], record.target),
    }
    words = {name: spelled_words(side, ids) for name, (side, ids, _) in sides.items()}
    return {
        "words": {name: word_spans(words[name].texts, text) for name, (*_, text) in sides.items()},
        "tokens": {name: side_words.of_token for name, side_words in words.items()},
        "links": [] if record.aligned is None else sorted(record.aligned.links),
    }


def _heads(inspected: Inspected, _: str) -> Event | None:
    """The attention maps of each kind as one tensor of bytes, and the metrics of each head."""
    record = inspected.record
    if record.maps is None or not record.heads:
        return None
    layout = head_layout(inspected.subject.model)
    kinds: dict[Kind, Event] = {}
    for kind in KINDS:
        layers = record.maps.layers(kind)
        if any(layout.of(kind)):
            kinds[kind] = _pack_maps(layers, max(layout.of(kind)))
    return {
        "kinds": kinds,
        "roles": {str(head): role for head in record.heads if (role := record.role(head))},
        "first": str(record.first_head()),
        "source_pieces": record.source_pieces,
        "target_pieces": record.target_pieces,
        "input_pieces": record.input_pieces,
        "metrics": {str(head): _metrics(record, head) for head in record.heads},
        "residual": record.captured.residual,
        "mode": record.mode,
        "sentences": inspected.sentences,
        "sentence": inspected.number,
        "summary": vars(inspected.subject.summary),
        "is_recurrent": record.model.n_decoder_layers > 0 and not record.captured.dec,
        "text": record.target if record.probability is None else record.labeled,
        "source": record.source,
        "score": record.score,
        "rare": record.rare.positions,
    }


def _pack_maps(layers: Sequence[Weights], n_heads: int) -> Event:
    """One array (L, H, Q, K) as bytes, which a page reads five times as fast as JSON decimals."""
    shape = [len(layers), n_heads, *layers[0].shape[1:]]
    whole = np.zeros(shape, np.float32)
    for layer, weights in enumerate(layers):  # a pruned layer has fewer heads
        whole[layer, : len(weights)] = weights
    numbers = np.rint(255 * whole).astype(np.uint8).tobytes()
    return {"shape": shape, "data": base64.b64encode(numbers).decode("ascii"), "scale": 1 / 255}


def _metrics(record: HeadsRecord, head: HeadId) -> list[float | None]:
    metrics = record.metrics[head]
    return [float(f"{metrics[name]:.4g}") if name in metrics else None for name in METRICS]


def _tree(inspected: Inspected, _: str) -> Event | None:
    """The search as steps; each node has its text, so that the page can continue from it."""
    record = inspected.record
    tree = None if record.extras is None else record.extras.search
    if tree is None or record.extras is None:
        return None
    side = inspected.opened.directory.tokenizer.target
    prefix_ids = list(record.captured.target_ids[: tree.nodes[0].step])
    texts = side.decode_batch([prefix_ids + ids for ids in _tokens(tree)])
    first = tree.nodes[0].step
    last = max(node.step for node in tree.nodes)
    steps: list[list[Event]] = [[] for _ in range(last - first + 1)]
    for number, (node, text) in enumerate(zip(tree.nodes, texts, strict=True)):
        steps[node.step - first].append(
            {
                "id": number,
                "parent": node.parent,
                "piece": record.extras.search_pieces[node.token],
                "log_probability": round(node.log_probability, 4),
                "score": None if node.score is None else round(node.score, 4),
                "state": node.state,
                "text": text,
            }
        )
    return {
        "steps": steps,
        "path": tree.path,
        "beam_size": tree.beam_size,
        "length_penalty": tree.length_penalty,
    }


def _tokens(tree: SearchTree) -> list[list[int]]:
    """Tokens of each hypothesis after the first node, without the end of sentence."""
    sequences: list[list[int]] = [[]]
    for node in tree.nodes[1:]:
        before = sequences[cast("int", node.parent)]
        sequences.append(before if node.state == "finished" else [*before, node.token])
    return sequences


def _view(inspected: Inspected, name: str) -> Event | None:
    """Returns the data of a view in the form that its tab reads, as in a report where it has one.

    The page asks for some views of every text: it gets none where they have nothing to show.
    """
    view = cast("SentenceView[Any]", VIEWS[PAGE_VIEWS.get(name, name)])
    subject, sentence, record = inspected.subject, inspected.record, None
    if subject.summary.task in view.tasks:
        record = view.report(subject, sentence, ReportOptions())
        if record is None and name not in PAGE_VIEWS:
            record = view.read(subject, sentence, view.Options())
    elif name not in PAGE_VIEWS:
        raise DataError(f"want: {name} shows only {', '.join(MODELS[t] for t in view.tasks)}")
    return None if record is None else {"data": view.tab(record, None, is_alone=False)}


def _walk(inspected: Inspected, request: Mapping[str, Any]) -> Event:
    """The steps of a head for a token, given by its name or its position, with all numbers."""
    if request.get("heads_off"):
        raise DataError("heads_off: the steps are those of the model with all its heads on")
    view, token = cast("SentenceView[Any]", VIEWS["step"]), request.get("token")
    place = {"row": int(token)} if isinstance(token, int | float) else {"token": token or ""}
    options = view.Options(head=request["head"], **place)
    record = view.read(inspected.subject, inspected.record, options)
    return {"data": view.tab(record, options, is_alone=True)}


def _positions(opened: Opened, _: Mapping[str, Any], __: Callable[[], None]) -> Event:
    """The positions of the model."""
    view = cast("ModelView[Any]", VIEWS["positions"])
    record = view.read(subject_of(opened.directory), view.Options())
    return {"data": view.tab(record, None, is_alone=False)}


def _report(opened: Opened, request: Mapping[str, Any], _: Callable[[], None]) -> Event:
    """The static report of what the page shows; a target is used as given."""
    target = request.get("target") if _translates(opened) else None
    mode = "live" if _translates(opened) and not target else "forced"
    options = ReportOptions(mode=cast("Any", mode))
    targets = None if target is None else [target]
    inspect_report: Callable[..., Report] = load_place(REPORT)
    report = inspect_report(opened, [request["text"]], targets=targets, options=options)
    return {"html": render_report(report)}


def _decision(
    opened: Opened, request: Mapping[str, Any], before_batch: Callable[[], None]
) -> Event:
    """Why the model writes one word and not another, as in `tformer inspect-decision`."""
    texts = {name: request[name] for name in ("text", "other") if request.get(name)}
    for name, text in texts.items():
        _check_text(opened, text, name, MOST_DECIDED)
    words = [request.get(name) or None for name in ("target", "foil")]
    return cast("Event", _instrument("decision")(opened, [*texts.values()], *words, before_batch))


def _next(inspected: Inspected, _: str) -> Event | None:
    event = _instrument("next_tokens")(inspected.subject, inspected.record)
    return cast("Event | None", event)


def _instrument(name: str) -> Callable[..., object]:
    """Loads what computes an event; the service has no other part of the instruments."""
    load: Callable[..., object] = load_place(f"tformer_cli.plugins.instruments.live_events:{name}")
    return load


WHOLE: Mapping[str, Callable[[Opened, Mapping[str, Any], Callable[[], None]], Event]] = {
    "report": _report,
    "decision": _decision,
    "positions": _positions,
}
"""Events that need no captured sentence."""

READERS: Mapping[str, Callable[[Inspected, str], Event | None]] = {
    "alignment": _alignment,
    "heads": _heads,
    "tree": _tree,
    "next": _next,
}
"""Functions from a captured sentence to an event, by name, the cheapest first."""

PAGE_VIEWS = {"lens": "logits", "flow": "flow", "image": "image"}
"""Events that the page wants, and the views that they are; each other view is one by its name."""


class Lines:
    """Waiting requests; a thread reads them, so that cancellations are seen at once."""

    def __init__(self, source: TextIO) -> None:
        self._waiting: deque[dict[str, Any]] = deque()
        self._changed = Condition()
        self._cancelled: set[int] = set()
        self._is_open = True
        Thread(target=self._read, args=(source,), daemon=True).start()

    def _read(self, source: TextIO) -> None:
        for line in source:
            order = json.loads(line)
            with self._changed:
                if "cancel" in order:
                    self._cancelled.add(order["cancel"])
                else:
                    self._waiting.append(order)
                self._changed.notify()
        with self._changed:  # the service has ended, or closed the pipe
            self._is_open = False
            self._changed.notify()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or not self._is_open)
                if not self._is_open:
                    return
                order = self._waiting.popleft()
            if not self.is_cancelled(order["id"]):
                yield order
            # Numbers increase, so this also drops cancellations that came after the end
            with self._changed:
                self._cancelled = {number for number in self._cancelled if number > order["id"]}

    def is_cancelled(self, number: int) -> bool:
        return number in self._cancelled or not self._is_open


def serve(source: TextIO, target: TextIO) -> None:
    """Answers requests from a stream until it ends."""
    inspection, lines = Inspection(), Lines(source)
    for order in lines:
        number = order["id"]

        def check(number: int = number) -> None:
            if lines.is_cancelled(number):
                raise Cancelled

        with closing(_guard_events(inspection, order, check)) as events, suppress(Cancelled):
            for event in events:
                check()
                target.write(json.dumps({"id": number, **event}) + "\n")
                target.flush()


def _guard_events(
    inspection: Inspection, order: Mapping[str, Any], before_batch: Callable[[], None]
) -> Generator[Event]:
    """Turns errors into events, so that the process survives and no client sees a traceback."""
    try:
        yield from inspection.events(Path(order["model"]), order["request"], before_batch)
    except Cancelled:
        raise  # no event: the client has left
    except ArtifactError as error:  # its message names local files
        sys.stderr.write(f"error: serve: {error}\n")
        yield {"event": "error", "message": "the model cannot be inspected; see the service's log"}
    except TformerError as error:
        yield {"event": "error", "message": error.in_arguments}
    except Exception:  # noqa: BLE001 - any model, any text
        traceback.print_exc()
        yield {"event": "error", "message": "the inspection failed; see the service's log"}


def main() -> None:
    """Serves stdin and stdout; redirects other output to stderr."""
    # At most half the cores: the service translates meanwhile
    torch.set_num_threads(max(1, n_processors() // 2))
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    print(json.dumps({"ready": True}), file=answers, flush=True)
    serve(sys.stdin, answers)


if __name__ == "__main__":
    main()
