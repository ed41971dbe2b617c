"""Models of other tools, made into model directories."""

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Literal, cast

from tformer_cli.artifacts.config_file import (
    CONFIG,
    HUB_NAME,
    RUNS,
    WEIGHTS,
    ImportOrigin,
    WeightType,
    may_be_ours,
    not_a_model,
    read_config,
)
from tformer_cli.errors import ArtifactError, DataError, TformerError, UsageError
from tformer_cli.files.atomic import await_directory, check_free, directory_aside, make_directory
from tformer_cli.files.cache import cache_directory
from tformer_cli.files.download import download
from tformer_cli.files.regular_file import hash_file, open_regular
from tformer_cli.files.remote import local_copy, remote_url
from tformer_cli.foreign.known_models import (
    KnownModel,
    check_pair,
    downloads_of,
    find_known,
    is_whole,
    models_for,
    through_english,
)
from tformer_cli.text.lines import without_surrogates
from tformer_cli.wording import remember_name

if TYPE_CHECKING:
    from tformer_cli.artifacts.overwriting import NamedPath
    from tformer_cli.foreign.foreign_model import ForeignModel
    from tformer_cli.foreign.readers import ConvertAs

ImportedWeights = Literal["float32", "int8"]
_CODE = re.compile(r"[\w.+-]{1,100}")  # code of a language, or several joined by `+`
# endings of files that a model's file may be read with
BESIDE = {".npz", ".bin", ".yml", ".spm", ".json", ".model", ".txt", ".pt", ".codes", ""}
WEIGHT_ENDINGS = {".safetensors", ".npz", ".bin", ".pt"}
# names of directories in a model's: of Argos and of sentence-transformers
INSIDE = re.compile(r"model|\d+_\w+")
# endings of the files of a Hugging Face directory
PARTS = {".json", ".safetensors", ".bin", ".spm"}
HUB_FILES = (
    "*.json",
    "*.spm",
    "*.model",
    "*.safetensors",
    "pytorch_model*.bin",
    "model.bin",
    "*vocabulary.txt",
    "vocab.txt",
    "merges.txt",
)
# bytes of a file's beginning and of its end that tell it from another one of its size
_END = 1 << 16
_VERSION = 5  # of what an import makes of the same files, for the cache


def import_model(
    source: str, output: Path | None, *, weights: ImportedWeights | None = None
) -> "ForeignModel":
    """Converts a foreign model and writes it as a model directory, whole or not at all."""
    if output is not None:
        check_free(output)
    path = _local(source)
    convert = _recognize_model(path)
    if convert is None:
        raise _unknown(path)
    model = _convert_model(convert, weights, path)
    if weights == "int8" and model.weight_type != "int8":
        raise UsageError(
            f"--weights: {source} has no integers; import it, then `tformer export --format int8`"
        )
    if output is not None:
        _write(model, output, source)
    return model


def resolve_model(
    model: Path | str,
    say: Callable[[str], None] | None = None,
    weights: ImportedWeights | None = None,
) -> Path:
    """Returns the model directory for MODEL as a user names it.

    A foreign model is imported into the cache when it is first used. Code that opens models calls
    this, and so does the command line before it checks what an output would destroy.
    """
    model, name = Path(model), str(model)
    if url := remote_url(name):
        model, name = local_copy(url), url
        remember_name(model, url)
    if may_be_ours(model):
        return model
    known = None if _exists(model) else find_known(name)
    if known is not None:
        if say is not None and not known.is_commercial:
            say(f"{name}: {known.name} is licensed for non-commercial use only ({known.license})")
        model = Path(known.hub or known.name)  # one import, whatever its user has called it
    elif not (_exists(model) or _is_hub_name(model)):
        check_pair(name)
        return model
    cached = None
    if not _exists(model) and (downloaded := _find_download(str(model))):
        cached = _find_import(model, downloaded, weights)
    if cached is None:
        if say is not None and known is not None:
            say(_introduce_model(name, known))
        path = _local(name if known is not None else str(model), say)
        convert = _recognize_model(path)
        if convert is None:
            return model
        cached = _find_import(model, path, weights)
        if cached is None:
            cached = _import_into_cache(convert, model, path, weights, say)
    remember_name(cached, name)
    return cached


def _introduce_model(name: str, known: KnownModel) -> str:
    """Describes a model when it is first used, and its alternatives."""
    others = [other.name for other in models_for(name) if other is not known]
    also = f"; others: {', '.join(others[:3])}" if others and known.name != name else ""
    if known.codes and (halves := through_english(name)):
        also += f"; through English: {' and '.join(halves)}"
    what = known.describe() if known.name == name else f"{known.name} ({known.describe()})"
    return f"{name}: {what}{also}"


def float_twin(model: Path, say: Callable[[str], None] | None = None) -> Path:
    """Finds a model in float32 for an import that holds it in int8: its source, imported again."""
    record = read_config(model) if may_be_ours(model) else None
    origin = record.origin if record is not None and record.weight_type == "int8" else None
    if origin is None:
        return model
    source = Path(origin.source)
    for place in dict.fromkeys((source, model.absolute().parent / source)):
        try:
            twin = resolve_model(place, say, "float32")
            if not (may_be_ours(twin) and _has_rounded(model, twin)):
                continue
        except TformerError:
            continue
        if say is not None:
            say(f"{model}: holds int8 weights; {twin} is used, the same model in float32")
        return twin
    return model


def _has_rounded(model: Path, twin: Path) -> bool:
    """Returns whether int8 weights are those of another model, rounded; all else must be equal."""
    from tformer_cli.artifacts.weights_file import SCALE, read_weights
    from tformer_cli.text.tokenizer import FILE_NAME

    configs = [read_config(path) for path in (model, twin)]
    texts = [(path / FILE_NAME).read_bytes() for path in (model, twin)]
    if configs[0].model != configs[1].model or texts[0] != texts[1]:
        return False
    integers, floats = (
        read_weights(path / WEIGHTS, config.model, config.vocab_size, config.weight_type)
        for path, config in zip((model, twin), configs, strict=True)
    )
    for name, array in floats.items():
        scale = integers.get(f"{name}{SCALE}")
        error = abs(array - (integers[name] if scale is None else integers[name] * scale[:, None]))
        # Halfway between two integers, or a little off by the rounding of their product
        if (error > (0 if scale is None else 0.51 * scale[:, None])).any():
            return False
    return True


def _import_into_cache(
    convert: "ConvertAs",
    model: Path,
    path: Path,
    weights: ImportedWeights | None,
    say: Callable[[str], None] | None,
) -> Path:
    """Imports a model, without integers into the place that serves whoever asks."""
    cached = _cache_place(model, path, None)
    try:
        make_directory(cached.parent)
    except ArtifactError as error:
        advice = f"`tformer import {model} -o DIR`, and name DIR instead"
        raise ArtifactError(f"{error}: set XDG_CACHE_HOME, or run {advice}") from None
    with await_directory(
        cached.parent
    ):  # what another process is importing is used when it is whole
        earlier = _find_import(model, path, weights)
        if earlier is not None:
            return earlier
        has_others = may_be_ours(cached)  # other weights than are asked for: integers
        converted = _convert_model(convert, weights if has_others else None, path)
        if weights not in (None, converted.weight_type):
            converted = _convert_model(convert, weights, path)
            has_others = True
        cached = _cache_place(model, path, weights) if has_others else cached
        _write(converted, cached, str(model))
        if say is not None:
            say(f"{model}: imported a model of {converted.kind} into {cached}")
    return cached


def sources_of(name: str, model: Path, imported: Path) -> Iterator["NamedPath"]:
    """The source of a foreign model: a directory, or a file with those next to it."""
    from tformer_cli.artifacts.overwriting import NamedPath
    from tformer_cli.foreign.recognizing import find_adapter

    path = model if _exists(model) else _find_download(str(model))
    if path is None:
        return
    adapter = find_adapter(path)
    places = [path] if adapter is None else [path, Path(adapter.settings.base)]
    yield from (NamedPath(name=name, path=place, is_model=True) for place in places)
    origin = read_config(imported).origin
    if path.is_file() and isinstance(origin, ImportOrigin):
        yield from (NamedPath(name=name, path=path.parent / file) for file in origin.files)


def foreign_model_around(file: Path) -> Path | None:
    """Returns the directory of another tool's model that a file lies in; None: in no such one."""
    directories = []
    for place in dict.fromkeys((file.absolute(), file.resolve())):
        directories.append(place.parent)
        if INSIDE.fullmatch(place.parent.name):
            directories.append(place.parent.parent)
    for directory in directories:
        # importers are loaded only where weights lie
        if any(file.suffix in WEIGHT_ENDINGS for file in directory.iterdir()) and not may_be_ours(
            directory
        ):
            with suppress(ArtifactError):  # such as of several models' weights
                if _recognize_model(directory) is not None:
                    return directory
    return None


def resolve_tokenizer(tokenizer: Path, say: Callable[[str], None] | None = None) -> Path:
    """Returns the file or model directory for a tokenizer as a user names it.

    Files of JSON, and pipes, are read as they are. Other names mean models: a foreign one is
    imported into the cache when it is first used, in the same place as for translation.
    """
    is_pipe = _exists(tokenizer) and not tokenizer.is_dir() and not tokenizer.is_file()
    return tokenizer if is_pipe or tokenizer.suffix == ".json" else resolve_model(tokenizer, say)


def _recognize_model(path: Path) -> "ConvertAs | None":
    from tformer_cli.foreign.recognizing import recognize

    try:
        with _foreign(path):
            return recognize(path, _local)
    except OSError:  # a directory that may not be read
        return None


def _convert_model(
    convert: "ConvertAs", weights: ImportedWeights | None, path: Path
) -> "ForeignModel":
    from tformer_cli.foreign.completeness import check_complete

    with _foreign(path):
        return check_complete(convert(weights))


@contextmanager
def _foreign(path: Path) -> Iterator[None]:
    """Turns all errors in foreign files, unforeseen ones too, into one error."""
    try:
        yield
    except DataError as error:  # of a tokenizer's file
        raise ArtifactError(str(error)) from None
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
        reason = " ".join(str(error).split())[:200]
        raise ArtifactError(
            f"{path}: its files are damaged or not of one model ({kind}{reason}); download the "
            "whole model again"
        ) from error


def _write(model: "ForeignModel", output: Path, source: str) -> None:
    from tformer_cli.artifacts.config_file import SHORTLIST, ModelInfo
    from tformer_cli.artifacts.model_directory import save_model_directory
    from tformer_cli.artifacts.shortlist_file import save_shortlist

    inside = min((file.parent for file in model.files), key=lambda path: len(path.parts))
    names = {
        file: file.relative_to(inside).as_posix() if file.is_relative_to(inside) else file.name
        for file in model.files
    }
    origin = ImportOrigin(
        kind=model.kind,
        source=without_surrogates(source),
        files={without_surrogates(name): hash_file(file) for file, name in names.items()},
        ids=tuple(_runs(model.ids)),
    )
    codes = [code if _CODE.fullmatch(code) else "" for code in model.languages]
    with directory_aside(output) as aside:
        save_model_directory(
            aside,
            model.weights,
            config=model.config,
            tokenizer=model.tokenizer,
            decoding=model.decoding,
            info=ModelInfo(
                source_language=codes[0],
                target_language=codes[1],
                origin=origin,
                labels=model.labels,
                alignment=model.alignment,
            ),
            weight_type=cast("WeightType", model.weight_type),
        )
        if model.shortlist is not None:
            save_shortlist(aside / SHORTLIST, model.shortlist)


def _runs(ids: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Writes ids as runs of ids that follow each other: the first and how many."""
    start, length = ids[0], 1
    for number in ids[1:]:
        if start >= 0 and number == start + length:
            length += 1
        else:
            yield start, length
            start, length = number, 1
    yield start, length


def _exists(path: Path) -> bool:
    """Returns whether there is such a path that can be looked at."""
    try:
        return path.exists()
    except OSError:  # a name too long, a directory that may not be entered
        return False


def _is_hub_name(path: Path) -> bool:
    is_name = HUB_NAME.fullmatch(str(path)) and path.parent.name != RUNS
    return bool(is_name) and not _exists(path.parent)


def _unknown(path: Path) -> ArtifactError:
    if may_be_ours(path):
        return ArtifactError(f"{path}: is a model directory already; name it as MODEL")
    from tformer_cli.foreign.keys import read_json_file

    file = path / CONFIG
    return not_a_model(path, read_json_file(file) if file.is_file() else None)


def _cache_place(model: Path, path: Path, weights: ImportedWeights | None) -> Path:
    """Returns where in the cache the import of a model lies.

    The directory is named as the source is, since views and reports show a directory's name.
    """
    name = path.resolve().name if _exists(model) else model.name  # a file of a directory names it
    return cache_directory() / "models" / _key(path, weights) / name


def _find_import(model: Path, path: Path, weights: ImportedWeights | None) -> Path | None:
    """Returns the import of a model that lies in the cache, if one has the weights asked for."""
    # most models have no integers, so one import serves whatever weights are asked for
    for kind in dict.fromkeys((None, weights)):
        cached = _cache_place(model, path, kind)
        if may_be_ours(cached) and weights in (None, kind, read_config(cached).weight_type):
            return cached
    return None


def _key(path: Path, weights: ImportedWeights | None) -> str:
    """Names an import by the files, as far as is quick to tell, and the type of its weights."""
    from tformer_cli.foreign.recognizing import find_adapter

    # a file is read with others next to it
    directory = path.parent if path.is_file() else path
    # packages of Argos and sentence-transformers have directories inside
    paths = [*directory.iterdir(), *directory.glob("model/*"), *directory.glob("[0-9]_*/*")]
    beside = sorted(p for p in paths if p.is_file())
    files = [p for p in beside if p == path or not path.is_file() or p.suffix in BESIDE]
    facts = [(str(file.resolve()), *_facts(file)) for file in files]
    named = [_VERSION, path.name if path.is_file() else "", facts, weights]
    adapter = find_adapter(path)
    if adapter is not None and _exists(base := Path(adapter.settings.base)):
        named.append(_key(base, weights) if find_adapter(base) is None else "")
    return hashlib.sha256(json.dumps(named).encode()).hexdigest()[:32]


def _facts(file: Path) -> tuple[int, int, int, str]:
    """Size, times and ends of a file: copies that keep the times, and restored ones, differ."""
    about, ends = file.stat(), b""
    with suppress(OSError), open_regular(file) as stream:  # a file that no import needs, perhaps
        ends = stream.read(_END)
        stream.seek(max(about.st_size - _END, 0))
        ends += stream.read(_END)
    times = about.st_mtime_ns, about.st_ctime_ns
    return about.st_size, *times, hashlib.sha256(ends).hexdigest()


def _fetch_files(known: KnownModel, say: Callable[[str], None] | None) -> Path:
    """Returns where a model's files lie, once all of them do."""
    directory = downloads_of(known)
    if is_whole(known):
        return directory
    make_directory(directory)
    try:
        with await_directory(directory):  # what another process downloads is used when it is whole
            download(known.files, directory, say or (lambda _: None))
    except ArtifactError as error:
        names = ", ".join(file.name for file in known.files)
        raise ArtifactError(
            f"{known.name}: {error}; put {names} from there, unpacked, into {directory}, or name "
            "another model: `tformer models`"
        ) from None
    return directory


def _find_download(name: str) -> Path | None:
    """Returns where a model of the hub was downloaded to earlier; None: it was not."""
    known = find_known(name)
    if known is not None and known.files:
        return downloads_of(known) if is_whole(known) else None
    import huggingface_hub

    name = known.hub if known is not None else name
    try:
        return Path(
            huggingface_hub.snapshot_download(
                name, allow_patterns=list(HUB_FILES), local_files_only=True
            )
        )
    except Exception:  # noqa: BLE001 - whatever the library makes of a missing directory
        return None


def _local(source: str, say: Callable[[str], None] | None = None) -> Path:
    """Returns the path of a source, downloaded first if it is remote and not cached."""
    path = Path(source)
    if _exists(path):
        from tformer_cli.foreign.recognizing import find_directory

        is_part = path.suffix in PARTS and path.is_file() and find_directory(path.parent)
        return path.parent if is_part else path
    known = find_known(source)
    if known is not None and known.files:
        return _fetch_files(known, say)
    if known is None and not _is_hub_name(path):
        check_pair(source)
        raise ArtifactError(
            f"{source}: no such file or directory; name a model, or one on the Hugging Face hub "
            "(owner/name)"
        )
    import huggingface_hub

    name = known.hub if known is not None else str(path)  # without a slash at its end
    try:
        return Path(huggingface_hub.snapshot_download(name, allow_patterns=list(HUB_FILES)))
    except Exception as error:  # noqa: BLE001 - whatever the library's network layers raise
        earlier = _find_download(name)
        if earlier is not None:
            return earlier
        reason = shorten(str(error), 120, placeholder="…") or type(error).__name__
        raise ArtifactError(
            f"{source}: no such directory, and the Hugging Face hub is unreachable or has no such "
            f"model ({reason}); on a machine that reaches it, `hf download {name} --local-dir DIR` "
            "downloads its files (config.json, generation_config.json, model.safetensors or "
            "pytorch_model.bin, *.spm, vocab.json, tokenizer_config.json); name that DIR here"
        ) from None
