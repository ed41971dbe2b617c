"""Base of all commands: options' old names, and checks of files and directories at the start.

A parameter declares its role as a path; see `tformer_cli.cli.path_roles`.
"""

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from functools import partial
from pathlib import Path
from typing import Any

from typer.core import TyperCommand

from tformer_cli.artifacts.overwriting import (
    NamedPath,
    Output,
    Writes,
    check_outputs,
    standard_stream,
)
from tformer_cli.artifacts.resumable import parts_of
from tformer_cli.cli.console import note
from tformer_cli.cli.help_screen import ReadableHelp
from tformer_cli.cli.path_roles import PathRole, named_path, path_roles
from tformer_cli.cli.text_io import STANDARD_STREAM, STDIN, STDOUT, open_stream
from tformer_cli.errors import UsageError

OLD_NAMES = {
    "--heads": ("--head",),
    "--input": ("--source",),
    "--n-best-file": ("--nbest",),
    "--rank": ("--hypothesis",),
    "--source": ("--input",),
    "--symmetrize": ("--symmetrise",),
    "--target-file": ("--target",),
    "--top-k": ("--top", "--topk"),
}
"""Earlier names of options, and names in other commands.

The old name works wherever a command has the option and none of that name; no help shows it.
"""


TAKE_INTEGERS = frozenset(
    {"translate", "translate-corpus", "evaluate", "score", "benchmark", "info"}
)
"""Commands that can use int8 weights: for others a foreign model is imported as float32."""


class CheckedCommand(ReadableHelp, TyperCommand):
    """A command that refuses empty names, and outputs that would destroy an input.

    A script's unset variable gives an empty name. As a path it would be the current directory, and
    other files would be read or written than were meant.
    """

    def make_parser(self, ctx: Any) -> Any:  # noqa: ANN401 - click's
        """Makes the parser, which knows options by their old names, too."""
        parser = super().make_parser(ctx)
        for parameter, names in old_names(self):
            hidden = copy(parameter)
            hidden.opts, hidden.secondary_opts = names, []
            hidden.add_to_parser(parser, ctx)
        return parser

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - click's
        """Parses the arguments; see `typer.core.TyperCommand`.

        Raises:
            UsageError: if a name is empty, or an option that takes one file is given two.
        """
        if not ctx.resilient_parsing:
            given, _, order = self.make_parser(ctx).parse_args(args=list(args))
            _check_given_once(order, [parameter.name for parameter, _ in self._paths()])
            for parameter, role in self._paths():
                if _holds_empty(given.get(str(parameter.name))):
                    raise UsageError(f"{name_of(parameter)}: is empty; name a {role.names}")
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 - click's
        """Runs the command; see `typer.core.TyperCommand`.

        Raises:
            UsageError: if an output would destroy an input, or a file of a model; before anything
                is opened.
        """
        self._check_outputs(ctx.params)
        self._import_models(ctx.params)
        return super().invoke(ctx)

    def _import_models(self, values: dict[str, Any]) -> None:
        """Puts model directories in the place of the foreign models that were named."""
        from tformer_cli.workflows.import_model import (
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

        def resolved(one: str) -> Path:
            path = resolve_model(Path(one), say, weights)
            return float_twin(path, say) if is_view else path

        for parameter, role in self._paths():
            value = values.get(str(parameter.name))
            if value is None:
                continue
            if role is PathRole.reads_adapter:
                _say_if_unverified(Path(value), say)
            elif role is PathRole.reads_tokenizer:
                values[parameter.name] = resolve_tokenizer(Path(value), say)
            elif role is not PathRole.reads_model:
                continue
            elif isinstance(value, (list, tuple)):
                values[parameter.name] = [resolved(one) for one in value]
            else:
                values[parameter.name] = resolved(value)

    def _check_outputs(self, values: dict[str, Any]) -> None:
        inputs: list[NamedPath] = [*standard_stream("stdin", STDIN)]
        outputs = [*standard_stream("stdout", STDOUT)]
        for parameter, role in self._paths():
            for value in _paths_of(values.get(str(parameter.name))):
                is_named = role is PathRole.reads_system
                name, path = name_of(parameter), Path(named_path(value)[1] if is_named else value)
                if isinstance(role.value, Writes):
                    if value == STANDARD_STREAM and role is not PathRole.writes_file:
                        raise UsageError(f"{name}: a directory cannot go to stdout; name one")
                    descriptor = open_stream(value)
                    if descriptor is None:
                        outputs.append(Output(name=name, path=path, writes=role.value))
                        if values.get("resume"):  # written under these names first
                            outputs += [Output(name="--resume", path=p) for p in parts_of(path)]
                    elif descriptor != STDOUT:
                        outputs += standard_stream(name, descriptor)
                # A directory may have the name of a recipe that is shipped
                elif value != STANDARD_STREAM and not (
                    role is PathRole.reads_file and path.is_dir()
                ):
                    inputs.append(NamedPath(name=name, path=path))
        check_outputs(outputs, inputs)

    def _paths(self) -> Iterator[tuple[Any, PathRole]]:
        """The parameters that name files or directories."""
        roles = {} if self.callback is None else path_roles(self.callback)
        return ((p, roles[p.name]) for p in self.params if p.name in roles)


def old_names(command: Any) -> Iterator[tuple[Any, list[str]]]:  # noqa: ANN401 - Typer's
    """Yields the options of a command that had other names, each with these."""
    taken = {name for parameter in command.params for name in parameter.opts}
    for parameter in command.params:
        names = [old for name in parameter.opts for old in OLD_NAMES.get(name, ())]
        free = [name for name in names if name not in taken]
        if free:
            yield parameter, free


def _check_given_once(given: Sequence[Any], paths: Sequence[str]) -> None:
    """Refuses an option of which only the last file would be read or written.

    Of other options the last value counts, so that a script can override what another has set.

    Args:
        given: parameters, as often as they were given; an old name is a parameter of its own.
        paths: names of those that name files or directories.

    Raises:
        UsageError: naming the option.
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
