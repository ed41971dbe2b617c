"""Base of all commands: checks of words, files and directories before any work begins."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from tformer_cli.artifacts.overwriting import (
    NamedPath,
    Output,
    Writes,
    check_outputs,
    standard_stream,
)
from tformer_cli.cli.help import ReadableHelp, value_of
from tformer_cli.cli.options import Holds, PathRole, held_formats, named_path, path_roles
from tformer_cli.cli.streams import STANDARD_STREAM, STDIN, STDOUT, note, open_stream
from tformer_cli.errors import ArtifactError, UsageError
from tformer_cli.files.atomic import guarded, replaceable_directory

TAKE_INTEGERS = frozenset(
    {"translate", "translate-corpus", "evaluate", "score", "benchmark", "info"}
)
"""Commands that can use int8 weights: for others a foreign model is imported as float32."""
CONTENTS = {
    "json": "JSON",
    "jsonl": "JSON",
    "html": "HTML",
    "svg": "SVG",
    "png": "PNG",
    "npz": "npz",
    "npy": "npy",
    "safetensors": "safetensors",
}
"""Content of a file in each format, as `content_of` names it; of others text."""
MODELS = frozenset(
    {
        *(PathRole.reads_model, PathRole.reads_tokenizer),
        *(PathRole.reads_adapter, PathRole.reads_system),
    }
)
"""Roles of directories that may be another tool's."""
FORCE = "force"
"""Option of all commands that write a file."""


class CheckedCommand(ReadableHelp, TyperCommand):
    """A command that refuses empty names, and outputs that would destroy an input.

    A script's unset variable gives an empty name. As a path it would be the current directory, and
    other files would be read or written than were meant.
    """

    def __init__(self, *args: Any, **details: Any) -> None:  # noqa: ANN401 - Typer's
        super().__init__(*args, **details)
        if any(role is PathRole.writes_file for _, role in self._paths()):
            self.params.append(_force_option())

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - click's
        """Parses the arguments; see `typer.core.TyperCommand`."""
        if not ctx.resilient_parsing:
            given, _, order = self.make_parser(ctx).parse_args(args=list(args))
            check_earlier_values(given)
            _check_given_once(order, [parameter.name for parameter, _ in self._paths()])
            for parameter, role in self._paths():
                if _holds_empty(given.get(str(parameter.name))):
                    raise UsageError(f"{name_of(parameter)}: is empty; name a {role.names}")
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 - click's
        """Runs the command; see `typer.core.TyperCommand`."""
        is_forced = bool(ctx.params.pop(FORCE, False))
        check_words(ctx.params)
        outputs = self._check_outputs(ctx.params, is_forced=is_forced)
        imported = self._import_models(ctx.params)
        if imported and any(output.status() is not None for output in outputs):
            from tformer_cli.foreign.import_model import sources_of

            check_outputs(outputs, [one for model in imported for one in sources_of(*model)])
        for parameter, role in self._paths():
            if role is PathRole.reads_model and (paths := _paths_of(ctx.params[parameter.name])):
                check_heads(ctx.params, Path(paths[0]))
        with guarded({one.path: one.name for one in outputs if one.writes is Writes.FILE}):
            return super().invoke(ctx)

    def _import_models(self, values: dict[str, Any]) -> list[tuple[str, Path, Path]]:
        """Puts model directories in the place of the foreign models that were named."""
        from tformer_cli.foreign.import_model import (
            ImportedWeights,
            float_twin,
            resolve_model,
            resolve_tokenizer,
        )

        takes_integers = (
            self.name in TAKE_INTEGERS
            and values.get("precision") != "float32"
            and values.get("adapter") is None
        )
        weights: ImportedWeights | None = None if takes_integers else "float32"
        # What is to be saved is saved where it was named
        is_view = str(self.name).startswith("inspect-") and not values.get("save")
        say = partial(note, quiet=bool(values.get("quiet")))
        imported: list[tuple[str, Path, Path]] = []

        def resolved(one: Path) -> Path:
            path = resolve_model(one, say, weights)
            return float_twin(path, say) if is_view else path

        for parameter, role in self._paths():
            value = values.get(str(parameter.name))
            if value is None:
                continue
            if role is PathRole.reads_adapter:
                _say_if_unverified(Path(value), say)
            elif role is PathRole.reads_tokenizer:
                values[parameter.name] = resolve_tokenizer(Path(value), say)
            elif role is PathRole.reads_model:
                named = [Path(one) for one in _paths_of(value)]
                found = [resolved(one) for one in named]
                values[parameter.name] = found if isinstance(value, (list, tuple)) else found[0]
                imported += [
                    (name_of(parameter), one, directory)
                    for one, directory in zip(named, found, strict=True)
                    if one != directory
                ]
        return imported

    def _check_outputs(self, values: dict[str, Any], *, is_forced: bool) -> list[Output]:
        """Checks the outputs against what the arguments name, and against each other."""
        inputs: list[NamedPath] = [*standard_stream("stdin", STDIN)]
        inputs += [
            NamedPath(name=name_of(parameter), path=path)
            for parameter in self.params
            if parameter.param_type_name == "argument" and "TEXT" in str(parameter.metavar)
            for path in map(Path, _paths_of(values.get(str(parameter.name))))
        ]
        outputs, parts = standard_stream("stdout", STDOUT), list[Output]()
        for parameter, role in self._paths():
            for value in _paths_of(values.get(str(parameter.name))):
                is_named = role is PathRole.reads_system
                name, path = name_of(parameter), Path(named_path(value)[1] if is_named else value)
                if isinstance(role.value, Writes):
                    is_file = role.names == "file"
                    if value == STANDARD_STREAM and not is_file:
                        raise UsageError(f"{name}: a directory cannot go to stdout; name one")
                    descriptor = open_stream(value)
                    if descriptor is None:
                        holds = None if is_forced else self._formats(parameter, role)
                        output = Output(name=name, path=path, writes=role.value, holds=holds)
                        outputs.append(output)
                        if values.get("resume"):  # written under these names first
                            from tformer_cli.artifacts.resumable import parts_of

                            parts += [Output(name="--resume", path=p) for p in parts_of(path)]
                    elif descriptor != STDOUT:
                        outputs += standard_stream(name, descriptor)
                # A directory may have the name of a recipe that is shipped
                elif value != STANDARD_STREAM and not (
                    role is PathRole.reads_file and path.is_dir()
                ):
                    inputs.append(NamedPath(name=name, path=path, is_model=role in MODELS))
        check_outputs([*outputs, *parts], inputs)
        for output in outputs:
            if output.writes is Writes.RUN:
                replaceable_directory(output.path)
            if output.holds is not None and output.is_file():
                _check_place(output)
        return [output for output in outputs if output.descriptor is None]

    def _formats(
        self,
        parameter: Any,  # noqa: ANN401 - Typer's
        role: PathRole,
    ) -> frozenset[str] | None:
        """The formats that a file may be written in; None: not to be looked at."""
        if role is not PathRole.writes_file:
            return None
        declared = {} if self.callback is None else held_formats(self.callback)
        if parameter.name in declared:
            return declared[parameter.name]
        formats = [one for one in self.params if "--format" in one.opts]
        return frozenset(
            CONTENTS.get(name, "text") for one in formats for name in value_of(one).split("|")
        ) or Holds({"text"})

    def _paths(self) -> Iterator[tuple[Any, PathRole]]:
        """The parameters that name files or directories."""
        roles = {} if self.callback is None else path_roles(self.callback)
        return ((p, roles[p.name]) for p in self.params if p.name in roles)


def _check_place(output: Output) -> None:
    """Refuses to replace a text or the like that belongs to a model that was not named."""
    from tformer_cli.foreign.import_model import foreign_model_around

    if directory := foreign_model_around(output.path):
        raise UsageError(
            f"{output.name}: {output.path} lies in {directory}, a model of another tool; name "
            "another file, or add --force to replace it"
        )


@cache
def _force_option() -> Any:  # noqa: ANN401 - Typer's
    """Makes the option; Typer makes one only of a function's parameter."""

    def declared(
        *,
        force: Annotated[
            bool,
            typer.Option(
                f"--{FORCE}",
                help="Replace a file that this command did not write; never one that it reads.",
            ),
        ] = False,
    ) -> None:
        del force

    app = typer.Typer(add_completion=False)
    app.command()(declared)
    return next(one for one in typer.main.get_command(app).params if one.name == FORCE)


def _check_given_once(given: Sequence[Any], paths: Sequence[str]) -> None:
    """Refuses an option of which only the last file would be read or written.

    Of other options the last value counts, so that a script can override what another has set.
    """
    seen = set()
    for parameter in given:
        takes_all = parameter.param_type_name == "argument" or parameter.multiple
        if takes_all or parameter.name not in paths:
            continue
        if parameter.name in seen:
            raise UsageError(f"{name_of(parameter)}: is given twice, and takes one file; omit one")
        seen.add(parameter.name)


def _say_if_unverified(adapter: Path, say: Callable[[str], None]) -> None:
    """Tells the user of an adapter whose base is not known by its hash."""
    from tformer_cli.artifacts.adapter_directory import read_adapter

    if said := read_adapter(adapter).unverified:
        say(said)


def _holds_empty(value: str | Sequence[str] | None) -> bool:
    return value == "" or (isinstance(value, (list, tuple)) and "" in value)


def _paths_of(value: object) -> list[str]:
    """The paths that a parameter was given: none, one or several."""
    if value is None:
        return []
    return [str(path) for path in value] if isinstance(value, (list, tuple)) else [str(value)]


def name_of(parameter: Any) -> str:  # noqa: ANN401 - Typer's
    """The long name of an option, or the name of an argument in the help."""
    options = [name for name in parameter.opts if name.startswith("--")]
    return str(options[0] if options else parameter.metavar)


HEADS = {"heads": "--heads", "head": "--head", "prune": "--prune"}
"""Parameters that select heads, and their options."""

EARLIER_VALUES = {
    "engine": {
        "continuous": "--engine torch",
        "ctranslate2": "--engine tformer, which needs no export",
    }
}
"""Values that a parameter had, and what to write instead."""


def check_earlier_values(given: Mapping[str, Any]) -> None:
    """Refuses values of earlier versions before the parser, which would say less."""
    for parameter, values in EARLIER_VALUES.items():
        value = given.get(parameter)
        for one in value if isinstance(value, list) else [value]:
            if one in values:
                raise UsageError(f"--{parameter} {one}: is gone; write {values[one]}")


def check_words(values: Mapping[str, Any]) -> None:
    """Checks the name of a device, and that the package of the format to export to is installed."""
    from tformer_cli.runtime import check_device_name

    if isinstance(device := values.get("device"), str):
        try:
            check_device_name(device)
        except ValueError as error:
            raise UsageError(f"--device: {error}") from None
    if values.get("export_format") == "ctranslate2" and find_spec("ctranslate2") is None:
        raise UsageError(
            "--format ctranslate2, the default: the package is not installed; pip install "
            "'tformer[ctranslate2]', or choose another"
        )


def check_heads(values: Mapping[str, Any], model: Path) -> None:
    """Checks selections of heads against the settings of a model."""
    given = {option: values[name] for name, option in HEADS.items() if values.get(name)}
    if not given:
        return
    from tformer_cli.artifacts.config_file import read_config
    from tformer_cli.heads.names import HeadLayout
    from tformer_cli.heads.selectors import HeadSelection

    try:
        heads = read_config(model).model.layer_heads
    except ArtifactError:  # a run without a model yet; others are refused when they are opened
        return
    if not all(n_heads for layers in heads for n_heads in layers):
        return  # layers that were pruned whole are still layers of `--weights rollout`
    for option, selections in given.items():
        texts: Sequence[str] = [selections] if isinstance(selections, str) else selections
        try:
            HeadSelection(texts, HeadLayout(*heads))
        except UsageError as error:
            raise UsageError(f"{option}{str(error).removeprefix('--heads')}") from None
