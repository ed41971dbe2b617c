"""Prints the commands of README.md's section Install, one a line, as `.ci/run` runs them."""

import re
import sys
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def install_commands() -> list[str]:
    """Returns the lines of the shell blocks that stand under the heading Install."""
    section = re.search(r"^## Install\n(.*?)(?=^## )", README.read_text(), re.MULTILINE | re.DOTALL)
    blocks = re.findall(
        r"^```sh\n(.*?)^```", section[1] if section else "", re.MULTILINE | re.DOTALL
    )
    return "".join(blocks).splitlines()


if __name__ == "__main__":
    sys.stdout.write("".join(f"{command}\n" for command in install_commands()))
