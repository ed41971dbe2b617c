"""All tables of keys of foreign models' files; `python -m tests.foreign.key_tables` prints them.

Each line: key, what becomes of it, why or which values, in how many tables.
"""

import importlib
import pkgutil
import sys
from collections import defaultdict
from collections.abc import Mapping

from tformer_cli import foreign as converters
from tformer_cli.foreign.keys import Fate, Keys, Parts


def tables():
    """Every `Keys` in a module of converters, once, with those in mappings."""
    by_id = {}
    for info in pkgutil.walk_packages(converters.__path__, f"{converters.__name__}."):
        for value in vars(importlib.import_module(info.name)).values():
            for item in (value, *(value.values() if isinstance(value, Mapping) else ())):
                if isinstance(item, Keys):
                    by_id[id(item)] = item
    return sorted(by_id.values(), key=lambda table: (table.file, table.models))


def fates(rows, within=""):
    """The fate of each key, of inner objects by their dotted names."""
    for key, row in rows.items():
        if isinstance(row, Fate):
            yield f"{within}{key}", row
        elif isinstance(row, Parts):
            yield f"{within}{key}.type", Fate("only", "", tuple(row.kinds))
            for kind, inner in row.kinds.items():
                yield from fates(inner, f"{within}{key}[{kind}].")
        else:
            yield from fates(row, f"{within}{key}.")


def describe_fate(fate):
    """What becomes of a key, in a few words."""
    if fate.kind == "used":
        return "used"
    if fate.kind == "no effect":
        return f"no effect: {fate.why}"
    values = ", ".join("null" if choice is None else str(choice) for choice in fate.values)
    if fate.kind == "noted":
        return f"noted unless {values}: {fate.why}"
    return f"refused unless {values}"


def main():
    """Prints for each file: what becomes of keys, and which, with the families that differ."""
    by_file = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for table in tables():
        for key, fate in fates(table.rows):
            by_file[table.file][describe_fate(fate)][key].append(table.models)
    for file, groups in by_file.items():
        n_tables = len({m for keys in groups.values() for ms in keys.values() for m in ms})
        sys.stdout.write(
            f"\n### {file} ({n_tables} tables)\n\n| what becomes of it | keys |\n|---|---|\n"
        )
        for what, keys in sorted(groups.items()):
            names = ", ".join(
                key if len(models) == n_tables else f"{key} ({'; '.join(sorted(set(models)))})"
                for key, models in sorted(keys.items())
            )
            sys.stdout.write(f"| {what} | {names} |\n")


if __name__ == "__main__":
    main()
