"""Checks the types of the page's JavaScript: `python .ci/page/check.py TSC`.

What is checked is what a browser gets, with its comments: the parts of the static page joined to
one script, and the modules of the live page with those of each client, which import of it. So a
module that forgets an import is found, and a part that takes a name of another. Lines are told by
the files they came from.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tformer_cli.inspect.frame import PARTS, SCRIPTS, exports_of

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
STATIC, LIVE = ROOT / "tformer_cli/inspect/page", ROOT / "tformer_cli/inspect/live_page"
CLIENTS = ROOT / "tformer_cli/plugins/serve/page", ROOT / "tformer_cli/plugins/page"
AT = re.compile(r"([\w/]+\.js)\((\d+),")


def main() -> int:
    (tsc,) = sys.argv[1:]
    # A list: each client is checked, whatever became of the one before
    return max([check_client(tsc, client) for client in CLIENTS])


def check_client(tsc: str, client: Path) -> int:
    paths = {
        str(path.relative_to(folder)): path
        for folder in (LIVE, client)
        for path in sorted(folder.rglob("*.js"))
    }
    modules = {name: path.read_text("utf-8") for name, path in paths.items()}
    parts = [(name, (STATIC / name).read_text("utf-8")) for name in SCRIPTS]
    places = [
        f"{STATIC.relative_to(ROOT) / name}({n},"
        for name, text in parts
        for n in range(1, text.count("\n") + 1)
    ]
    # Only the frame of the static page calls it
    export = exports_of(modules.values(), "begin")
    modules[PARTS] = "".join(text for _, text in parts) + export
    with TemporaryDirectory() as folder:
        for name, text in modules.items():
            Path(folder, name).parent.mkdir(exist_ok=True)
            Path(folder, name).write_text(text, encoding="utf-8")
        for path in (*STATIC.glob("*.d.ts"), HERE / "tsconfig.json"):
            shutil.copy(path, folder)
        found = subprocess.run(  # noqa: S603 - our own compiler
            [Path(tsc).resolve(), "-p", "."],
            cwd=folder,
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
    for line in found.stdout.splitlines():
        at = AT.match(line)
        if at and at[1] == PARTS:
            line = places[int(at[2]) - 1] + line[at.end() :]
        elif at:
            line = f"{paths[at[1]].relative_to(ROOT)}{line[len(at[1]) :]}"
        sys.stdout.write(f"{line}\n")
    return found.returncode


if __name__ == "__main__":
    sys.exit(main())
