"""Whatever decides the bytes of a translated corpus: it is continued only with the same."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tformer_cli.artifacts.config_file import CONFIG, TOKENIZER, WEIGHTS
from tformer_cli.artifacts.shortlist_file import SHORTLIST
from tformer_cli.files.regular_file import hash_file, hash_tree
from tformer_cli.foreign.import_model import resolve_model

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tformer_cli.bulk.plan import CorpusPlan, GivenCorpus
    from tformer_cli.search.constraints import Term

WITHOUT_EFFECT = frozenset(
    {"device", "precision", "threads", "batch_tokens", "tell", "before_torch"}
)
"""Options that leave the results as they are, or of which what they came to is recorded."""


def origin_of(
    model: Path,
    given: GivenCorpus,
    plan: CorpusPlan,
    glossary: Sequence[Term],
    options: Mapping[str, Any],
    facts: Mapping[str, Any],
) -> dict[str, str]:
    """Returns the inputs and settings by their names, files by their content."""
    settings = {name: value for name, value in options.items() if name not in WITHOUT_EFFECT}
    origin = {name: json.dumps(value, default=str) for name, value in settings.items() if value}
    for name in ("adapter", "shortlist"):
        path = Path(str(options.get(name) or "none"))
        if path.exists():
            origin[name] = hash_tree(path, "*") if path.is_dir() else hash_file(path)
    if options.get("ensemble"):
        origin["ensemble"] = " ".join(_hash_model(Path(one)) for one in options["ensemble"])
    if given.part is not None:
        origin["shard"] = "{}/{}".format(*given.part)
    terms = [(term.source, term.target, term.is_banned) for term in glossary]
    return {
        **origin,
        "MODEL": _hash_model(model),
        "SOURCE": " ".join(source.content for source in plan.sources),
        "glossary": hashlib.sha256(json.dumps(terms).encode()).hexdigest() if terms else "",
        "source_field": given.fields.source,
        "target_field": given.fields.translation,
        "score_field": given.fields.score,
        "lines_per_shard": str(given.lines_per_shard),
        "precision": str(facts["precision"]),
        "device": str(facts["place"]).partition(":")[0],
    }


def _hash_model(model: Path) -> str:
    """Hashes the files of a model that translations depend on."""
    model = resolve_model(model)
    names = (CONFIG, TOKENIZER, WEIGHTS, SHORTLIST)
    found = [f"{name} {hash_file(model / name)}" for name in names if (model / name).is_file()]
    return hashlib.sha256("\n".join(found).encode()).hexdigest()
