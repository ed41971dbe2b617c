"""Makes the wheel of `tformer-runtime` from that of `tformer`: the same files without PyTorch.

    pip wheel . --no-deps -w dist          # TFORMER_BUILD_LEVELS=all: for every x86-64 or Arm
    python .ci/runtime_wheel.py dist/tformer-*.whl

It runs models on a CPU. Its extra `train` installs what the rest of the commands need.
"""

import base64
import hashlib
import sys
import zipfile
from pathlib import Path

NAME = "tformer-runtime"
HEAVY = ("datasets", "pyarrow", "torch")
"""Packages that only training, inspection and datasets need."""


def main() -> None:
    """Writes a wheel beside each that is named, and prints its path."""
    for name in sys.argv[1:] or sys.exit(__doc__):
        sys.stdout.write(f"{runtime_wheel(Path(name))}\n")


def runtime_wheel(wheel: Path) -> Path:
    """Writes the wheel of the runtime beside the one of the package."""
    project, version, *tags = wheel.name.split("-")
    made = wheel.with_name("-".join((NAME.replace("-", "_"), version, *tags)))
    before, after = (f"{one}-{version}.dist-info" for one in (project, NAME.replace("-", "_")))
    records = []
    with (
        zipfile.ZipFile(wheel) as source,
        zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as target,
    ):
        for item in source.infolist():
            folder, _, rest = item.filename.partition("/")
            if rest == "RECORD":
                listing = item  # the last entry, with the time of the others
                continue
            data = source.read(item)
            if folder == before:
                item.filename = f"{after}/{rest}"
            if item.filename == f"{after}/METADATA":
                data = _metadata(data.decode()).encode()
            target.writestr(item, data, zipfile.ZIP_DEFLATED)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            records.append(f"{item.filename},sha256={digest},{len(data)}\n")
        # Last, as the format asks for
        listing.filename = f"{after}/RECORD"
        records.append(f"{listing.filename},,\n")
        target.writestr(listing, "".join(records), zipfile.ZIP_DEFLATED)
    return made


def _metadata(text: str) -> str:
    """Renames the project, and leaves to an extra what is heavy."""
    head, end, description = text.partition("\n\n")
    lines, extra = [], ["Provides-Extra: train"]
    for line in head.split("\n"):
        field, _, value = line.partition(": ")
        if field == "Name":
            lines.append(f"Name: {NAME}")
        elif field == "Requires-Dist" and value.startswith(HEAVY) and ";" not in value:
            extra.append(f"{line}; extra == 'train'")
        else:
            lines.append(line)
    if len(extra) != 1 + len(HEAVY):
        sys.exit(f"error: METADATA: expected {', '.join(HEAVY)} among the requirements")
    return "\n".join((*lines, *extra)) + end + description


if __name__ == "__main__":
    main()
