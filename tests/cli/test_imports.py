"""What commands do not import: packages that take seconds and are needed by others only."""

import json
import subprocess
import sys
from pathlib import Path

import tformer_cli

HEAVY = ["torch", "datasets", "tokenizers", "safetensors", "sentencepiece", "sacrebleu", "numpy"]
NEEDLESS = ["torch._dynamo", "sympy", "datasets", "sacrebleu", "ctranslate2", "pydantic"]
NEEDLESS += ["rich.console"]
# A cold line would wait for each
NEEDLESS += ["tformer_cli.cli.encoder_job", "tformer_cli.search.constrained_search"]
OTHERS = [
    f"tformer_cli.cli.commands.{path.stem}"
    for path in Path(tformer_cli.__file__).parent.glob("cli/commands/*.py")
    if path.stem not in ("__init__", "score")
]
COMMANDS = [*OTHERS, "tformer_cli.cli.commands.score", "tformer_cli.cli.command"]
COMMANDS += ["tformer_cli.cli.inspect.inspect_heads", "tformer_cli.inspect.views"]
ROWS = {
    "": [*HEAVY, "tformer_cli.fast.native", "tformer_cli.fast.native_search"],
    "--version": [*HEAVY, *COMMANDS, "rich.console", "ctypes"],
    "--help": [*HEAVY, *COMMANDS],
    "score --help": [*HEAVY, *OTHERS],
    "help score": HEAVY,
    "guide softmax": HEAVY,
    "inspect --help": [*HEAVY, *COMMANDS],
    "inspect flow --help": [*HEAVY, *OTHERS],
    "info MODEL": ["torch"],
    "data check in/text.en in/text.fr -q": ["torch", "datasets", "tokenizers"],
    "translate MODEL -q dog": [*NEEDLESS, "numpy", "safetensors"],
    # a line that is completed by a shell
    "? tformer inspect-": [*HEAVY, *COMMANDS],
    "? tformer train q": HEAVY,
    "? tformer train q --set m": HEAVY,
    "? tformer guide t": HEAVY,
}
"""Command lines, and modules that are not loaded at their end."""
PROGRAM = """
import json, os, sys
given = json.load(sys.stdin)
for words, banned in given:
    child = os.fork()
    if child:
        if os.waitpid(child, 0)[1]:
            sys.exit(1)
        continue
    from tformer_cli.cli.app import main
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.argv = ["tformer", *words]
    if words[:1] == ["?"]:
        words = words[1:]
        sys.argv = ["tformer"]
        os.environ |= {
            "_TFORMER_COMPLETE": "complete_bash", "COMP_WORDS": " ".join(words),
            "COMP_CWORD": str(len(words) - 1),
        }
    status = 0
    try:
        if words:
            main()
    except SystemExit as end:
        status = end.code
    loaded = sorted(set(banned) & set(sys.modules))
    print(words, status, loaded, file=sys.stderr)
    os._exit(bool(status or loaded))
"""


def test_commands_import_nothing_that_they_do_not_need(zoo):
    """Each in a fork of one process, which has imported nothing."""
    model = str(zoo["translate"])
    rows = [
        ([model if word == "MODEL" else word for word in line.split()], banned)
        for line, banned in ROWS.items()
    ]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], input=json.dumps(rows), capture_output=True, text=True,
        check=False, cwd=zoo.inputs.parent,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
