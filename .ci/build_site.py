"""Builds the documents as a site: `pip install -e . --group site && python .ci/build_site.py DIR`.

README.md is its front page. Guides and recipes stay the Markdown that they are; the help of the
commands and the Python API come from the code. One page computes a model in the browser: that of
`--model RUN`, such as runs/quickstart, or a small one, which is trained in half a minute. No page
loads anything from the network. A warning is an error, and so is a link that leads nowhere.
"""

import argparse
import json
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path
from urllib.parse import unquote, urlsplit

import torch
import typer
from docutils import nodes
from sphinx.application import Sphinx

from tformer_cli.api.functions import train
from tformer_cli.artifacts.model_directory import load_model_directory
from tformer_cli.cli.app import app
from tformer_cli.cli.help import commands_by_panel, parameters_by_panel, parts_of
from tformer_cli.guide import guides, notebook_text, notebooks, sample_report
from tformer_cli.plugins.page.export import TEXT_TASKS, export_page
from tformer_cli.search.opening import PANELS

ROOT = Path(__file__).parents[1]
# Documents with other names on the site, where guides have those that `tformer guide` lists
PAGES = {
    "README.md": "index.md", "recipes/README.md": "recipes.md",
    "tests/README.md": "tests.md", "tests/benchmarks/README.md": "benchmarks.md",
}  # fmt: skip
SETTINGS = {
    "extensions": ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"],
    "myst_enable_extensions": ["deflist"], "myst_heading_anchors": 4,  # as on GitHub
    "project": "tformer", "html_title": "tformer", "html_theme": "furo",
    "html_static_path": ["static"], "html_css_files": ["site.css"], "html_extra_path": ["extra"],
    "html_show_copyright": False, "html_copy_source": False, "html_use_index": False,
    "html_domain_indices": False, "highlight_language": "text",
    "smartquotes": False,  # they would make one dash of the two of an option
    # What a console block shows besides is not what one types
    "copybutton_prompt_text": "$ ", "copybutton_line_continuation_character": "\\",
    "autodoc_member_order": "bysource", "autodoc_typehints_format": "short",
    "autodoc_default_options": {"members": True, "inherited-members": "BaseException, Sequence"},
    "add_module_names": False, "python_maximum_signature_line_length": 80,
    "default_role": "code",  # docstrings have backticks as in Markdown
    # The groups of the settings of `load`
    "napoleon_custom_sections": [(panel, "params_style") for panel in PANELS],
}  # fmt: skip
# Paper does not scroll, fingers do not hover, and a phone is narrower than the figure
CSS = """
iframe { width: 100%; height: 80vh; border: 1px solid var(--color-background-border); }
@media print { pre { white-space: pre-wrap !important; } iframe { display: none; } }
.figure { overflow-x: auto; } .figure svg { min-width: 36rem; }
@media (hover: none) { button.copybtn { opacity: 1; } }
"""
CLASSES = (
    "LoadedModel", "search.translator.Translation", "kinds.tag.TaggedText", "api.results.Results",
    "kinds.lines.score.ScoredPair", "kinds.lines.classify.LabeledText", "api.results.AlignedPair",
    "kinds.lines.embed.EmbeddedText", "search.generator.Generation", "kinds.lines.fill.FilledText",
    "api.results.TokenizedText", "evaluate.evaluate.Evaluation", "train.train.TrainingResult",
)  # fmt: skip
API = "\n".join((
    "# Python API\n\n`tformer guide python` shows how it is used.\n",
    "```{eval-rst}", ".. automodule:: tformer_cli.api.functions",
    *(f".. autoclass:: tformer_cli.{name}" for name in CLASSES),
    ".. automodule:: tformer_cli.errors", "```",
))  # fmt: skip
SAMPLE = """# The sample report\n
This page is made by `tformer inspect-report`; <a href="report.html">it also opens by itself</a>.
It shows sentences that were computed before; [a model in a page](live-model.md) computes yours.\n
<iframe src="report.html" title="The sample report"></iframe>"""
LIVE = """# A model in this page\n
The page below holds a model and computes it in your browser; nothing is sent anywhere. Type
another sentence, point at a map, or switch heads off. <a href="{address}">It also opens by
itself</a>, and can be saved as one file.\n
{origin} `tformer export RUN --format page -o model.html` makes such a page of your own model.\n
<iframe src="{address}" title="A model that computes what you type"></iframe>"""
SMALL = {"training.max_steps": 300}
"""Of the recipe reverse, without --model: in 20 seconds the model learns to turn strings around."""


def main() -> None:
    """Builds the site into the folder that is named."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", metavar="DIR", type=Path)
    parser.add_argument("--model", metavar="RUN", type=Path)
    arguments = parser.parse_args()
    output = arguments.folder.resolve()
    if output.exists() and any(output.iterdir()) and not (output / "searchindex.js").is_file():
        sys.exit(f"error: {output}: holds other files than a site; name a new folder")
    # A page that no longer exists would stay, and hide links that lead to it
    shutil.rmtree(output, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        places = (source := Path(folder, "source"), None, output, Path(folder, "doctrees"))
        write_sources(source)
        write_model(source, arguments.model)
        site = Sphinx(*places, "html", SETTINGS, status=None, warningiserror=True)
        site.connect("doctree-resolved", link_commands)
        site.build()
    problems = problems_of(output)
    sys.stderr.writelines(f"error: {problem}\n" for problem in problems)
    sys.exit(bool(problems or site.statuscode))


def write_sources(folder: Path) -> None:
    """Writes the Markdown of every page, and what lies beside it."""
    topics = [guide.topic for guide in guides()]
    names = PAGES | {f"tformer_cli/guide/{topic}.md": f"{topic}.md" for topic in topics}
    pages = {name: with_links(ROOT / file, names) for file, name in names.items()}
    pages |= {"api.md": API, "sample-report.md": SAMPLE, **command_pages()}
    for name in notebooks():
        pages |= {name: notebook_text(name), f"{name}.md": notebook_page(name)}
    # The contents stand at the side of every page
    pages["index.md"] += contents(":caption: Guides", topics)
    pages["index.md"] += contents(":caption: To try", ["live-model", "sample-report", *notebooks()])
    others = ["commands/index", "recipes", "api", "tests", "benchmarks"]
    pages["index.md"] += contents(":caption: Reference", others)
    pages["commands/index.md"] += contents(":glob:", ["*"])
    pages |= {"static/site.css": CSS, "extra/report.html": sample_report()}
    shutil.copytree(ROOT / ".pictures", folder / ".pictures")
    for name, text in pages.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


def write_model(folder: Path, run: Path | None) -> None:
    """Writes the page that computes a model, and the document that shows it and says which it is.

    Args:
        folder: The sources of the site.
        run: The model; None trains a small one.
    """
    if run is None:
        sys.stderr.write("training a small model: tformer train reverse\n")
        # More threads would only wait for each other, on a busy machine for minutes
        torch.set_num_threads(1)
        step = train("reverse", folder / "reverse", changes=SMALL).state.step
        address = "model.html#t=h+a+b+e+d"
        origin = (
            f"It is a small one, which `tformer train reverse` made in {step:,} steps while this "
            "site was built: it turns strings of the letters a to h around."
        )
    else:
        info = load_model_directory(run, tasks=TEXT_TASKS).info
        languages = " to ".join(filter(None, (info.source_language, info.target_language)))
        facts = ", ".join(filter(None, (languages, f"step {info.step:,}")))
        address, origin = "model.html", f"It is `{run.resolve().name}` ({facts})."
    export_page(run or folder / "reverse", folder / "extra/model.html")
    shutil.rmtree(folder / "reverse", ignore_errors=True)
    (folder / "live-model.md").write_text(
        LIVE.format(address=address, origin=origin), encoding="utf-8"
    )


def contents(option: str, pages: list[str]) -> str:
    """Writes a part of the contents."""
    return "\n".join(("", "```{toctree}", ":hidden:", option, *pages, "```", ""))


def with_links(file: Path, names: dict[str, str]) -> str:
    """Reads a document; its links to other documents have their names on the site."""

    def moved(link: re.Match[str]) -> str:
        target = os.path.relpath(file.parent / link[1], ROOT)
        return f"]({names.get(target, target)}{link[2]})"

    def drawn(picture: re.Match[str]) -> str:
        svg = (file.parent / picture[1]).read_text(encoding="utf-8")
        return f'```{{raw}} html\n<div class="figure">\n{svg}</div>\n```'

    # A picture next to its document is drawn in the page, so that its boxes are links
    text = re.sub(r"^!\[.*\]\((\w+\.svg)\)$", drawn, file.read_text("utf-8"), flags=re.MULTILINE)
    links = re.compile(r"\]\(([\w./-]+\.(?:md|png|svg))(#[^)]*|)\)")
    return links.sub(moved, text)


def notebook_page(name: str) -> str:
    """Writes the cells of a notebook as Markdown."""
    parts = [f"{{download}}`The notebook to download <{name}>`"]
    for cell in json.loads(notebook_text(name))["cells"]:
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
    # Behind the title, which is in the first cell
    return "\n\n".join((parts[1], parts[0], *parts[2:]))


def command_pages() -> dict[str, str]:
    """Writes the help of every command, in the words of `--help`."""
    pages, commands = {}, [(typer.main.get_command(app), None, "tformer")]
    for command, parent, name in commands:
        context = typer.Context(command, info_name=name, parent=parent, **command.context_settings)
        path = context.command_path
        said, examples = parts_of(command)
        usage = f"{path} {' '.join(command.collect_usage_pieces(context))}"
        parts = [f"# {path if parent else 'Commands'}", escaped(said), f"```text\n{usage}\n```"]
        parts.append("\n".join(("```sh", *examples, "```")))
        for title, rows in commands_by_panel(context):
            parts += [f"## {title}", *(f"`{path} {one}`\n: {escaped(text)}" for one, text in rows)]
            # The loop gets to them, too
            commands += [(command.commands[one], context, one) for one, _ in rows]
        for title, rows in parameters_by_panel(context):
            parts += [f"## {title}", *(f"`{one.strip()}`\n: {escaped(text)}" for one, text in rows)]
        pages[f"commands/{'-'.join(path.split()[1:]) or 'index'}.md"] = "\n\n".join(parts)
    return pages


def escaped(sentence: str) -> str:
    """Writes plain text as Markdown, its options as code."""
    options = re.compile(r"(`[^`]*`)|(?<![\w-])(--?[a-z][\w-]*)")
    text = options.sub(lambda one: one[1] or f"`{one[2]}`", sentence)
    return re.sub(r"(`[^`]*`)|([\\*_<>\[\]|])", lambda one: one[1] or f"\\{one[2]}", text)


def link_commands(site: Sphinx, tree: nodes.document, page: str) -> None:
    """Makes links of `tformer COMMAND`, in README's tables COMMAND, and of names of documents."""
    for code in list(tree.findall(nodes.literal)):
        words = code.astext().split() or [""]
        if page == site.config.root_doc and len(words) == 1:
            words = ["tformer", *words]
        names = [PAGES.get(words[-1], "").removesuffix(".md")]
        if words[0] == "tformer":
            names += words[2:3] if words[1:2] == ["guide"] else []
            names += [f"commands/{'-'.join(words[1:end])}" for end in (3, 2)]
        found = next((name for name in names if name in site.env.found_docs), page)
        if found != page and not isinstance(code.parent, nodes.reference):
            address = site.builder.get_relative_uri(page, found)
            code.replace_self(nodes.reference("", "", code.deepcopy(), refuri=address))


def problems_of(site: Path) -> list[str]:
    """Lists links that lead nowhere, and what a page would load from elsewhere."""
    files = sorted((*site.rglob("*.html"), *site.rglob("*.css")))
    texts = {file: file.read_text(encoding="utf-8") for file in files}
    anchors = {file: {"", *re.findall(r'\sid="([^"]+)"', text)} for file, text in texts.items()}
    problems = []
    for file, text in texts.items():
        found = re.findall(r'<(\w+)\s[^>]*?(?:href|src)="([^"]*)"', text)
        found += re.findall(r"(url\(|@import)\s*[\"']?((?:https?:)?//[^\"')]*)", text)
        for tag, address in sorted(set(found)):
            parts = urlsplit(address)
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            if parts.scheme or parts.netloc:
                is_right = tag == "a" or parts.scheme == "data"
            else:
                names = anchors.get(target, {""})  # a fragment with "=" is what a page begins with
                is_named = "=" in parts.fragment or unquote(parts.fragment) in names
                is_right = target.is_file() and is_named
            problems += [] if is_right else [f"{file.relative_to(site)}: {address}"]
    return problems


if __name__ == "__main__":
    main()
