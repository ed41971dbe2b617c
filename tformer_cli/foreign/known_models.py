"""Models with a short name: the table that ships with tformer, by name and by language pair.

`known_models.toml` says where its rows come from. Nothing here downloads.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from tformer_cli.errors import ArtifactError
from tformer_cli.files.cache import cache_directory
from tformer_cli.files.download import RemoteFile
from tformer_cli.wording import did_you_mean, suggestions

PAIR = re.compile(r"([a-z]{2,3})-([a-z]{2,3})")
TABLE = "`tformer models` lists models by pair"
_NAME = re.compile(r"[\w.+-]+")
_HERE = Path(__file__).parent
_ENGLISH = "en"
_MOST_NAMED = 4
_WEIGHTS = (".safetensors", ".bin")
# Of Firefox's models, in the order of the columns of their table.
_PARTS = ("model.{}.intgemm.alphas.bin", "lex.50.50.{}.s2t.bin", "vocab.{}.spm")


@dataclass(frozen=True, kw_only=True)
class KnownModel:
    """A row of the table."""

    name: str
    family: str
    license: str
    pairs: tuple[str, ...] = ()
    size: int = 0
    """Bytes to download; 0: the table does not know."""
    hub: str = ""
    """Repository on the Hugging Face hub; empty: `files` are downloaded."""
    files: tuple[RemoteFile, ...] = ()
    codes: Mapping[str, str] = field(default_factory=dict)
    """Languages of a model for many, with the codes that its tokenizer has for them."""
    use: str = "translate"
    """Command that it is usually for."""

    @property
    def is_commercial(self) -> bool:
        return "-NC" not in self.license

    def serves(self, pair: str) -> bool:
        source, _, target = pair.partition("-")
        return pair in self.pairs or (
            source in self.codes and target in self.codes and source != target
        )

    def describe(self) -> str:
        """Says family, license and size in a few words."""
        size = f", {self.size / 1e6:,.0f} MB" if self.size else ""
        return f"{self.family}, {self.license}{size}"


@cache
def known_models() -> tuple[KnownModel, ...]:
    """Reads the table: for a pair its first model is the one that is meant."""
    table = tomllib.loads((_HERE / "known_models.toml").read_text(encoding="utf-8"))
    return (
        *_firefox(table["firefox"]),
        *_opus(table["opus-mt"]),
        *_big(table["opus-mt-tc-big"]),
        *_others(table),
    )


def find_known(name: str) -> KnownModel | None:
    """Finds the model that a short name or a pair stands for."""
    if not _NAME.fullmatch(name):  # a path or a hub name, for which no table need be read
        return None
    by_name = next((model for model in known_models() if model.name == name), None)
    return by_name or next(iter(models_for(name)), None)


def models_for(pair: str) -> list[KnownModel]:
    """Returns the models that translate a pair, the one that the pair stands for first."""
    return [model for model in known_models() if model.serves(pair)] if PAIR.fullmatch(pair) else []


def downloads_of(model: KnownModel) -> Path:
    """Returns where the files of a model that is not on the hub are kept."""
    return cache_directory() / "downloads" / model.name


def is_whole(model: KnownModel) -> bool:
    """Returns whether all files of a model that is not on the hub were downloaded."""
    return all(file.lies_in(downloads_of(model)) for file in model.files)


def downloaded_models() -> set[str]:
    """Returns the names of the models that need no network anymore."""
    from huggingface_hub.constants import HF_HUB_CACHE

    # Read once: asking the hub's library for each of the table takes seconds
    hub = Path(HF_HUB_CACHE)
    folders = {folder.name for folder in hub.iterdir()} if hub.is_dir() else set()
    return {
        model.name
        for model in known_models()
        if (
            is_whole(model)
            if model.files
            else _folder(model) in folders and _is_whole_folder(hub / _folder(model))
        )
    }


def _folder(model: KnownModel) -> str:
    return f"models--{model.hub.replace('/', '--')}"


def _is_whole_folder(folder: Path) -> bool:
    """Returns whether the hub's library has fetched the weights and begun no file that it lacks."""
    # It fetches several files at once, into blobs, and links each from a snapshot when it is whole
    if any(folder.glob("blobs/*.incomplete")):
        return False
    return any(file.exists() for end in _WEIGHTS for file in folder.glob(f"snapshots/*/*{end}"))


def languages_of(pair: str) -> tuple[str, str] | None:
    """Returns the languages to set where a pair stands for a model of many; None: nothing to."""
    model = find_known(pair)
    if model is None or model.name == pair or not model.codes:
        return None
    source, _, target = pair.partition("-")
    return model.codes[source], model.codes[target]


def through_english(pair: str) -> tuple[str, str] | None:
    """Returns the pairs of two models of their own that translate a pair through English."""
    source, _, target = pair.partition("-")
    halves = (f"{source}-{_ENGLISH}", f"{_ENGLISH}-{target}")
    if _ENGLISH in (source, target):
        return None
    has_both = all(any(half in model.pairs for model in known_models()) for half in halves)
    return halves if has_both else None


def check_pair(name: str, beginning: str = "no such directory, and ") -> None:
    """Refuses what looks like a pair, or nearly like a short name, with the nearest ones."""
    if not _NAME.fullmatch(name):
        return
    # Before similar names: these look alike for any two languages
    meant = name.lower().replace("_", "-")
    if meant != name and models_for(meant):
        raise ArtifactError(f"{name}: {beginning}pairs are written as {meant}; {TABLE}")
    match = PAIR.fullmatch(name)
    names = {model.name for model in known_models()}
    pairs = {pair for model in known_models() for pair in model.pairs}
    languages = {language for pair in pairs for language in pair.split("-")}
    if match is None or not languages & set(match.groups()):
        near = suggestions(name, sorted(names))
        if near and len(name) > _MOST_NAMED:
            raise ArtifactError(
                f"{name}: {beginning}no model has this short name; {did_you_mean(near)} {TABLE}"
            )
        return
    source, target = match.groups()
    if source == target:
        raise ArtifactError(f"{name}: {beginning}a pair has two languages, such as en-de; {TABLE}")
    beside = sorted(p for p in pairs if p.split("-")[0] == source or p.split("-")[1] == target)
    first = [pair for pair in beside if _ENGLISH in pair.split("-")]
    near = list(dict.fromkeys([*suggestions(name, beside), *first, *beside]))[:_MOST_NAMED]
    halves = through_english(name)
    pivot = f"; through English: {' and '.join(halves)}" if halves else ""
    raise ArtifactError(
        f"{name}: {beginning}no known model translates {source} to {target}; near are "
        f"{', '.join(near)}{pivot}; {TABLE}"
    )


def _firefox(row: Mapping[str, Any]) -> Iterator[KnownModel]:
    text = (_HERE / "firefox_models.tsv").read_text(encoding="utf-8")
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        pair, folder, *facts = line.split("\t")
        letters = pair.replace("-", "")
        files = tuple(
            RemoteFile(
                name=part.format(letters),
                url=f"{row['url']}/{folder}/{letters}/{part.format(letters)}.gz",
                size=int(size),
                sha256=sha256,
            )
            for part, size, sha256 in zip(_PARTS, facts[::2], facts[1::2], strict=True)
        )
        yield KnownModel(
            name=f"firefox-{pair}",
            family=row["family"],
            license=row["license"],
            pairs=(pair,),
            size=sum(file.size for file in files),
            files=files,
        )


def _opus(row: Mapping[str, Any]) -> Iterator[KnownModel]:
    for source, targets in row["targets"].items():
        for target in targets.split():
            name = f"opus-mt-{source}-{target}"
            # The model was named before Japanese's code was agreed on
            pair = f"{source}-{'ja' if target == 'jap' else target}"
            yield _of_owner(row, name, (pair,))


def _big(row: Mapping[str, Any]) -> Iterator[KnownModel]:
    for name, pairs in row["pairs"].items():
        yield _of_owner(row, f"opus-mt-tc-big-{name}", tuple(pairs.split()))


def _of_owner(row: Mapping[str, Any], name: str, pairs: tuple[str, ...]) -> KnownModel:
    return KnownModel(
        name=name,
        family=row["family"],
        license=row["license"],
        pairs=pairs,
        size=row.get("size", 0),
        hub=f"{row['owner']}/{name}",
    )


def _others(table: Mapping[str, Any]) -> Iterator[KnownModel]:
    codes = {
        kind: {code.partition("=")[0]: code.rpartition("=")[2] for code in text.split()}
        for kind, text in table["codes"].items()
    }
    for name, row in table["many"].items():
        yield KnownModel(name=name, **{**row, "codes": codes[row["codes"]]})
    for name, row in table["others"].items():
        yield KnownModel(name=name, family=row["hub"].partition("/")[0], **row)
