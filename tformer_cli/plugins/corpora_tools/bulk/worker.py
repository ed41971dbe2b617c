"""A process that translates shards, one after another: `python -m` this, started by `processes`.

Each line of its stdin is a JSON object, the first the model, every other a shard; each line of its
stdout an answer. It ends with its parent: once stdin does.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from queue import SimpleQueue
from typing import Any

from tformer_cli.runtime import without_garbage_collection

STDOUT, STDERR = 1, 2


def main() -> None:
    """Answers what comes on stdin until it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of the terminal: the parent stops its workers
    # Whatever a library prints must not come between the answers
    answers = os.fdopen(os.dup(STDOUT), "w", encoding="utf-8", newline="\n")
    os.dup2(STDERR, STDOUT)
    requests: SimpleQueue[dict[str, Any]] = SimpleQueue()
    threading.Thread(target=_listen, args=(requests,), daemon=True).start()

    def answer(record: dict[str, Any]) -> None:
        try:
            answers.write(json.dumps(record) + "\n")
            answers.flush()
        except BrokenPipeError:
            os._exit(0)

    opening = requests.get()["opening"]
    with without_garbage_collection():  # imports take seconds; the parent may have died before
        from tformer_cli.plugins.corpora_tools.bulk.translate_shard import describe, translate_shard

        ready = describe(opening)
    answer({"ready": ready})
    while True:
        task = requests.get()["task"]
        answer({"done": translate_shard(opening, task, answer)})


def _listen(requests: SimpleQueue[dict[str, Any]]) -> None:
    """Passes on what is asked, and ends the process at once when no more can come."""
    for line in sys.stdin.buffer:
        requests.put(json.loads(line))
    os._exit(0)


if __name__ == "__main__":
    main()
