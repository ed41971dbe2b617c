"""Base of all commands: checks of words, files and directories before any work begins."""

import inspect
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial, wraps
from importlib.util import find_spec
from pathlib import Path, PurePath
from stat import S_ISDIR
from typing import Any, Literal

import typer
from typer.core import TyperCommand

from tformer_cli.artifacts.config_file import may_be_ours, read_config
from tformer_cli.artifacts.overwriting import (
    NamedPath,
    Output,
    Writes,
    check_links,
    check_outputs,
    standard_stream,
)
from tformer_cli.cli.help import HELP, HelpfulGroup, ReadableHelp, value_of
from tformer_cli.cli.options import (
    Command,
    Holds,
    PathRole,
    for_typer,
    held_formats,
    named_path,
    option_field,
    path_roles,
    takes_groups,
    with_parameters,
)
from tformer_cli.cli.streams import (
    COMPRESSORS,
    STANDARD_STREAM,
    STDIN,
    STDOUT,
    note,
    open_stream,
    write_line,
)
from tformer_cli.errors import ArtifactError, UsageError
from tformer_cli.files import remote
from tformer_cli.files.atomic import guard_outputs, replaceable_directory
from tformer_cli.wording import installing

# Other commands compute in float32: for them a foreign model's integers are widened on import.
TAKE_INTEGERS = ("translate", "translate-corpus", "evaluate", "score", "benchmark", "info")
# What `content_of` finds in a file of each format; in others it finds text.
CONTENTS = {
    "json": "JSON",
    "jsonl": "JSON",
    **{name: "HTML" for name in ("html", "htm")},
    "svg": "SVG",
    "png": "PNG",
    "pdf": "PDF",
    **{name: name for name in ("npz", "npy", "safetensors")},
}
# Directories that may be another tool's.
MODELS = (
    *(PathRole.reads_model, PathRole.reads_tokenizer),
    *(PathRole.reads_adapter, PathRole.reads_system),
)
FORCE, CITE = "force", "--cite"
HEADS = {"heads": "--heads", "head": "--head", "prune": "--prune"}
# Tells scripts that still use them what to write; Typer would only list today's choices.
EARLIER_ENGINES = {
    "continuous": "--engine torch",
    "ctranslate2": "--engine tformer, which needs no export",
}


class CheckedCommand(ReadableHelp, TyperCommand):
    """A command that refuses empty names, and outputs that would destroy an input."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - click's
        # While the shell completes a line, it is unfinished, which is not an error
        if not ctx.resilient_parsing:
            if CITE in args[: args.index("--") if "--" in args else len(args)]:
                args.remove(CITE)
                ctx.find_root().params["cite"] = True
            # A copy: the parser empties the list that it reads
            arguments, _, order = self.make_parser(ctx).parse_args(args=list(args))
            check_earlier_values(arguments)
            _check_given_once(order, [parameter.name for parameter, _ in self._paths()])
            for parameter, role in self._paths():
                # A script's unset variable gives an empty name. As a path it would be the current
                # directory, and other files would be read or written than were meant.
                named = _paths_of(arguments.get(parameter.name))
                if role is PathRole.reads_system:
                    named = [named_path(name)[1] for name in named]
                if "" in named:
                    raise UsageError(f"{name_of(parameter)}: is empty; name a {role.names}")
                if role.name.startswith("reads"):  # `Path` would make another URL of some
                    list(map(remote.remote_url, named))
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 - click's
        if ctx.find_root().params.get("cite"):
            from tformer_cli.cli.citations import command_facts, write_citations

            write_line(write_citations(command_facts(ctx, self._paths())).rstrip("\n"))
            return None
        is_forced = bool(ctx.params.pop(FORCE, False))
        check_words(ctx.params, is_chosen=is_given(ctx, "export_format"))
        outputs = self._check_outputs(ctx.params, is_forced=is_forced)
        remote.say = partial(note, quiet=bool(ctx.params.get("quiet")))
        imported = self._import_models(ctx.params)
        self._check_texts(ctx)
        # An output that is not there yet can be no file of a model
        if imported and any(file.status() is not None for file in outputs):
            from tformer_cli.foreign.import_model import sources_of

            # Which files belong to a foreign model is known only after an import
            check_outputs(outputs, [source for model in imported for source in sources_of(*model)])
        for parameter, role in self._paths():
            if role is PathRole.reads_model and (paths := _paths_of(ctx.params[parameter.name])):
                check_heads(ctx.params, Path(paths[0]))
        # Guarded until the end: a file may become an input's while the command runs
        with guard_outputs(
            {file.path: file.name for file in outputs if file.writes is Writes.FILE}
        ):
            return super().invoke(ctx)

    def _check_texts(self, ctx: Any) -> None:  # noqa: ANN401 - click's
        """Refuses names of files in the place of texts, and tables in the place of lines."""
        values, is_translated = ctx.params, self.name == "translate"
        models = [p.name for p, role in self._paths() if role is PathRole.reads_model]
        # With --document a name means what it says there
        if not models or values.get("document") is not None:
            return
        texts = [
            text
            for parameter in self.params
            if _takes_text(parameter)
            for text in _paths_of(values[str(parameter.name)])
        ]
        named = [(text, "-i") for text in texts if texts != [STANDARD_STREAM]]
        if "target_file" in values and values.get("target") is not None:
            named.append((values["target"], "--target-file"))
        # Where it is given, a file is meant by a word that ends as one
        output = str(values["output"]) if is_given(ctx, "output") else None
        is_alone = is_translated and len(texts) == 1
        reads_records = is_given(ctx, "input_format")
        problems = [
            None
            if is_alone
            and _is_document(text, is_written=output is not None, reads_records=reads_records)
            else _name_problem(text, option, output, is_translated=is_translated)
            for text, option in named
        ]
        if not reads_records:
            files = [
                values[str(parameter.name)] for parameter in self.params if "-i" in parameter.opts
            ]
            problems += [_rows_problem(file, is_translated=is_translated) for file in files if file]
        if problem := next(filter(None, problems), None):
            from tformer_cli.kinds import reads_names

            model = next(iter(_paths_of(values[models[0]])), None)
            # Names of images are the texts of a model of images
            if model is None or not reads_names(read_config(Path(model)).model):
                raise UsageError(problem)

    def _import_models(self, values: dict[str, Any]) -> list[tuple[str, Path, Path]]:
        """Puts model directories in the place of the foreign models that were named."""
        takes_integers = (
            self.name in TAKE_INTEGERS
            and values.get("precision") != "float32"
            and values.get("adapter") is None
        )
        weights: Literal["float32"] | None = None if takes_integers else "float32"
        # What is to be saved is saved where it was named
        is_view = str(self.name).startswith("inspect-") and not values.get("save")
        say = partial(note, quiet=bool(values.get("quiet")))
        imported: list[tuple[str, Path, Path]] = []

        def resolve_path(model: Path) -> Path:
            # Which needs none of the modules that import
            if may_be_ours(model) and not (is_view and read_config(model).weight_type == "int8"):
                return model
            from tformer_cli.foreign.import_model import float_twin, resolve_model

            path = resolve_model(model, say, weights)
            return float_twin(path, say) if is_view else path

        for parameter, role in self._paths():
            value = values.get(str(parameter.name))
            if value is None:
                continue
            if role is PathRole.reads_adapter:
                from tformer_cli.artifacts.adapter_directory import read_adapter

                if doubt := read_adapter(Path(value)).unverified:  # its base has no known hash
                    say(doubt)
            elif role is PathRole.reads_tokenizer:
                from tformer_cli.foreign.import_model import resolve_tokenizer

                path = values[parameter.name] = resolve_tokenizer(Path(value), say)
                if path != Path(value):
                    imported.append((name_of(parameter), Path(value), path))
            elif role is PathRole.reads_model:
                named = [Path(name) for name in _paths_of(value)]
                paths = [resolve_path(model) for model in named]
                values[parameter.name] = paths if isinstance(value, (list, tuple)) else paths[0]
                imported += [
                    (name_of(parameter), model, directory)
                    for model, directory in zip(named, paths, strict=True)
                    if model != directory
                ]
        return imported

    def _check_outputs(self, values: dict[str, Any], *, is_forced: bool) -> list[Output]:
        """Checks the outputs against what the arguments name, and against each other."""
        # With `< FILE` that file is an input, though no option names it
        inputs: list[NamedPath] = [*standard_stream("stdin", STDIN)]
        inputs += [
            NamedPath(name=name_of(parameter), path=path)
            for parameter in self.params
            if _takes_text(parameter)
            for path in map(Path, _paths_of(values.get(str(parameter.name))))
        ]
        # With `> FILE` that file is an output, though no option names it
        outputs, parts = standard_stream("stdout", STDOUT), list[Output]()
        for parameter, role in self._paths():
            for value in _paths_of(values.get(str(parameter.name))):
                is_named = role is PathRole.reads_system
                name, path = name_of(parameter), Path(named_path(value)[1] if is_named else value)
                if isinstance(role.value, Writes):
                    is_file = role.names == "file"
                    if value == STANDARD_STREAM and not is_file:
                        if values.get("export_format") == "page":
                            raise UsageError(f"{name}: a page is one file, not for stdout; name it")
                        raise UsageError(f"{name}: a directory cannot go to stdout; name one")
                    descriptor = open_stream(value)
                    if descriptor is None:
                        looks = role is PathRole.writes_file and not is_forced
                        holds = self._contents(parameter.name, path) if looks else None
                        output = Output(name=name, path=path, writes=role.value, holds=holds)
                        if holds and parameter.name == "output":
                            output = _without_marks(output, values)
                        outputs.append(output)
                        if values.get("resume"):  # written under these names first
                            from tformer_cli.artifacts.resumable import parts_of

                            parts += [Output(name="--resume", path=p) for p in parts_of(path)]
                    # stdout is among the outputs already
                    elif descriptor != STDOUT:
                        outputs += standard_stream(name, descriptor)
                # A directory may have the name of a recipe that is shipped
                elif value != STANDARD_STREAM and not (
                    role is PathRole.reads_file and path.is_dir()
                ):
                    inputs.append(NamedPath(name=name, path=path, is_model=role in MODELS))
        for place in (*outputs, *inputs):
            check_links(place)
        check_outputs([*outputs, *parts], inputs)
        for output in outputs:
            if output.writes is Writes.RUN:
                replaceable_directory(output.path)
            if output.holds is not None and output.is_file():
                _check_place(output)
        return [output for output in outputs if output.descriptor is None]

    def _contents(self, name: str, path: Path) -> frozenset[str]:
        """Formats that an earlier file of this command may hold; no other file is replaced."""
        declared = {} if self.callback is None else held_formats(self.callback)
        if name in declared:
            return declared[name]
        formats = [parameter for parameter in self.params if "--format" in parameter.opts]
        named = [name for parameter in formats for name in value_of(parameter).split("|")]
        contents = frozenset(CONTENTS.get(name, "text") for name in named) or Holds({"text"})
        # A command refuses to write text into such a name, so text that is there is not its own
        kind = CONTENTS.get(path.suffix.removeprefix(".").lower(), "JSON")
        return contents & {kind} if kind != "JSON" and kind in contents else contents

    def _paths(self) -> Iterator[tuple[Any, PathRole]]:
        roles = {} if self.callback is None else path_roles(self.callback)
        return ((p, roles[p.name]) for p in self.params if p.name in roles)


def _check_place(output: Output) -> None:
    """Refuses to replace a text or the like that belongs to a model that was not named."""
    from tformer_cli.foreign.import_model import foreign_model_around

    if directory := foreign_model_around(output.path):
        raise UsageError(
            f"{output.name}: {output.path} is inside {directory}, another tool's model; name "
            "another file, or add --force to replace it"
        )


class CommandGroup(typer.Typer):
    """A group of commands, or the program: each has declared options, and is checked."""

    def __init__(self, name: str, **details: Any) -> None:  # noqa: ANN401
        super().__init__(name=name, context_settings=HELP, **{"cls": HelpfulGroup, **details})

    def add(
        self,
        name: str,
        cls: type[CheckedCommand] = CheckedCommand,
        **details: Any,  # noqa: ANN401
    ) -> Callable[[Command], Command]:
        """Adds the command that it decorates."""
        # Its own -h too: a command keeps the option that it has first made, in whatever context
        register = self.command(name, cls=cls, context_settings=HELP, **details)
        return lambda command: register(_with_force(takes_groups(command)))


def _with_force(command: Command) -> Command:
    """Adds --force to a command that writes a file: `CheckedCommand` reads it, not the command."""
    parameters = list(inspect.signature(command).parameters.values())
    if PathRole.writes_file not in path_roles(command).values():
        return command
    sentence = (
        "Also overwrite files that this command cannot have written: a recipe, code, JSON of "
        "another kind. Text replaces text without --force; input files are never overwritten."
    )
    named: Any = inspect.Parameter.KEYWORD_ONLY
    force = inspect.Parameter(FORCE, named, default=option_field(False, sentence), annotation=bool)

    @wraps(command)
    def call_command(*args: Any, **values: Any) -> None:  # noqa: ANN401
        values.pop(FORCE, None)  # Typer hands on what the signature names
        command(*args, **values)

    return with_parameters(call_command, [*parameters, for_typer(force)])  # type: ignore[no-any-return]


def _check_given_once(parameters: Sequence[Any], paths: Sequence[str]) -> None:
    """Refuses a repeated option whose earlier files would be ignored."""
    # For other options the last value counts, so that a script can override another's.
    seen = set()
    for parameter in parameters:
        takes_all = parameter.param_type_name == "argument" or parameter.multiple
        if takes_all or parameter.name not in paths:
            continue
        if parameter.name in seen:
            raise UsageError(f"{name_of(parameter)}: is given twice, but takes one file; omit one")
        seen.add(parameter.name)


def _takes_text(parameter: Any) -> bool:  # noqa: ANN401 - Typer's
    is_text = str(parameter.metavar) in ("TEXT", "PROMPT")
    return is_text and parameter.param_type_name == "argument"


def _is_document(text: str, *, is_written: bool = True, reads_records: bool = False) -> bool:
    """Returns whether a name is that of a document.

    Plain text counts if a file is written, a table if its lines have no named format.
    """
    if not NamedPath(name="TEXT", path=Path(text)).is_file():
        return False
    from tformer_cli.documents.known_formats import TABLES, ending_of, format_of

    if reads_records and ending_of(text) in TABLES:
        return False
    document_format = format_of(text)
    return document_format is not None and (is_written or document_format.name != "text")


def _without_marks(output: Output, values: Mapping[str, Any]) -> Output:
    """Lets a translated document, which carries no mark of ours, be replaced."""
    named, file, texts = values.get("document"), values.get("input_file"), values.get("text") or []
    is_file = file is not None or (len(texts) == 1 and "document" in values)
    if named == "lines" or (named is None and not (is_file and _is_document(file or texts[0]))):
        return output
    from tformer_cli.documents.known_formats import format_named, format_of

    chosen = format_of(file or texts[0]) if named is None else format_named(named)
    if chosen is None or (named is None and file is not None and chosen.name == "text"):
        return output  # lines
    is_named = output.path.suffix.lower() in chosen.extensions
    holds = frozenset({chosen.content, "text"}) | (output.holds or frozenset())
    return replace(output, holds=holds, is_document=True, is_named=is_named)


def _name_problem(text: str, option: str, output: str | None, *, is_translated: bool) -> str | None:
    """Returns how to read the file that a text names; None: it is words.

    Without a file of that name, only a word that ends as files do, or as the output, names one, and
    only if a file is written: a document was meant. The name of a .docx, say, is
    never a word.
    """
    place = NamedPath(name="TEXT", path=Path(text)).status()
    is_there = place is not None and not S_ISDIR(place.st_mode)
    is_word = "." in text and len(text.split()) == 1
    if not is_there and not (is_word and (is_translated or output is not None)):
        return None
    from tformer_cli.documents.known_formats import NAMED, NO_TEXT, ending_of

    if is_there:
        other = ", or add --document FORMAT" if is_translated and ending_of(text) else ""
        return _rows_problem(text, is_translated=is_translated) or (
            f"{text}: is a file, but this argument is text; write {option} {shlex.quote(text)} "
            f"instead{other}"
        )
    ending = ending_of(text)
    is_named = ending in (NO_TEXT if output is None and place is None else NAMED)
    is_named = is_named or (output is not None and ending == ending_of(output))
    is_named = is_named or (output is not None and "/" in text and "://" not in text)
    if not ending or not is_named:
        return None
    kind = "no such file" if place is None else "is a directory"
    return f"{text}: {kind}; name an existing file, or send the text through stdin"


def _rows_problem(file: str, *, is_translated: bool) -> str | None:
    """Returns how to read a file whose lines are not text, such as a table; None: they are text."""
    from tformer_cli.documents.known_formats import (
        BY_EXTENSION,
        REFUSED,
        REFUSED_TEXTS,
        TABLES,
        ending_of,
        format_with,
    )

    ending = ending_of(file)
    is_refused = ending in REFUSED or ending in REFUSED_TEXTS
    if is_translated and is_refused and format_with(ending):
        return None  # another package reads it
    if ending in REFUSED:
        return f"{file}: {REFUSED[ending]}"
    if is_translated and ending in REFUSED_TEXTS:
        return f"{file}: {REFUSED_TEXTS[ending]}; --document lines translates its lines"
    if ending not in TABLES or file == STANDARD_STREAM:
        return None
    program = COMPRESSORS.get(PurePath(file).suffix.casefold())
    if is_translated and ending in BY_EXTENSION and program is None:
        return None  # its reader says which columns there are
    advice = "write its text column to a file, one text per line"
    if is_translated and ending in (".jsonl", ".ndjson"):
        advice = "add --input-format jsonl"
    elif is_translated and program:
        advice = f"unpack it ({program} -dk {shlex.quote(file)}) and add --column NAME"
    elif is_translated:
        advice = (
            f"`tformer translate-corpus MODEL {shlex.quote(file)} --source-field COLUMN -o DIR` "
            "translates a column"
        )
    return f"{file}: is a table, not lines of text; {advice}"


def _paths_of(value: object) -> list[str]:
    if value is None:
        return []
    return [str(path) for path in value] if isinstance(value, (list, tuple)) else [str(value)]


def name_of(parameter: Any) -> str:  # noqa: ANN401 - Typer's
    """The long name of an option, or the name of an argument in the help."""
    options = [name for name in parameter.opts if name.startswith("--")]
    return str(options[0] if options else parameter.metavar)


def check_earlier_values(arguments: Mapping[str, Any]) -> None:
    """Refuses values of earlier versions before the parser, which would say less."""
    for engine in _paths_of(arguments.get("engine")):
        if engine in EARLIER_ENGINES:
            raise UsageError(f"--engine {engine}: was removed; write {EARLIER_ENGINES[engine]}")


def is_given(ctx: Any, name: str) -> bool:  # noqa: ANN401 - click's
    """True if a user typed an option, whatever its value."""
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def check_words(values: Mapping[str, Any], *, is_chosen: bool) -> None:
    """Checks the name of a device, and that the package of the format to export to is installed."""
    from tformer_cli.runtime import check_device_name

    if isinstance(device := values.get("device"), str):
        try:
            check_device_name(device)
        except ValueError as error:
            raise UsageError(f"--device: {error}") from None
    if values.get("export_format") == "onnx" and None in map(find_spec, ("onnx", "onnxscript")):
        raise UsageError(f"--format onnx: the packages are not installed; {installing('onnx')}")
    if values.get("export_format") == "ctranslate2" and find_spec("ctranslate2") is None:
        from tformer_cli.artifacts.config_file import TRANSLATORS, check_task, read_config

        config: Any = None
        with suppress(ArtifactError):  # another tool's, which is not imported yet
            config = read_config(Path(values["model"])).model
        if config is not None:  # to install the package would not help other kinds
            check_task(Path(values["model"]), config, TRANSLATORS)
        default = "" if is_chosen else ", the default"
        raise UsageError(
            f"--format ctranslate2{default}: the package is not installed; "
            f"{installing('ctranslate2')}, or choose another"
        )


def check_heads(values: Mapping[str, Any], model: Path) -> None:
    """Checks selections of heads against the settings of a model."""
    selections_of = {option: values[name] for name, option in HEADS.items() if values.get(name)}
    if not selections_of:
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
    for option, selections in selections_of.items():
        texts: Sequence[str] = [selections] if isinstance(selections, str) else selections
        try:
            HeadSelection(texts, HeadLayout(*heads))
        except UsageError as error:
            raise UsageError(f"{option}{str(error).removeprefix('--heads')}") from None
