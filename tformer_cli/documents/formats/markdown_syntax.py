"""The syntax of Markdown: CommonMark with the dialects of GitHub and of sites of documentation.

markdown-it reads it. What its tokens do not tell is added here: the characters of each token, and
the constructs of the tables below, which it would take for prose.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from markdown_it import MarkdownIt
from markdown_it.common.utils import normalizeReference
from markdown_it.parser_block import ParserBlock
from markdown_it.parser_inline import ParserInline
from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline
from mdit_py_plugins.deflist import deflist_plugin
from mdit_py_plugins.dollarmath import dollarmath_plugin
from mdit_py_plugins.footnote import footnote_plugin

if TYPE_CHECKING:
    from markdown_it.rules_core import StateCore
    from markdown_it.token import Token

DEEPEST = 100
"""Blocks and marks in each other; what lies deeper is not read."""
_BRACES = r"\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\}"
_ATTRIBUTE = rf"""\s+(?:[\w.:-]+(?:\s*=\s*(?:"[^"]*"|'[^']*'|{_BRACES}))?|{_BRACES})"""
_ELEMENT = rf"<(?:/?[A-Za-z][\w.:-]*(?:{_ATTRIBUTE})*\s*/?|/)?>"
_COMPONENT = rf"<(?:/?[A-Z]\w*[a-z][\w.]*(?:{_ATTRIBUTE})*\s*/?|/)?>"
_TAGS = r"(?:\{%(?:(?!%\}).)*%\}|\{\{(?:(?!\}\}).)*\}\}|\{#(?:(?!#\}).)*#\})"
_VERBATIM = r"(highlight|raw|comment|mermaid|math|katex|code|verbatim)\b"


class Block(NamedTuple):
    """A construct of lines that a dialect has besides CommonMark."""

    dialect: str
    example: str
    start: str
    """Its first line, or all its lines. Group `text` is translated."""
    end: str = ""
    """Found in its last line; a blank line: "$^"."""
    indents: bool = False
    """Its content is indented by four columns."""
    options: str = ""
    """Lines that may follow the first."""
    skipped: str = ""
    """Name of a construct whose text is not read."""
    is_late: bool = False
    """Read only where nothing else is."""


BLOCKS = (
    Block("GitHub, Obsidian", "> [!NOTE]", r"\[![\w-]+\][+-]?(?!\()[ \t]*(?P<text>.*)"),
    Block("Pandoc, VitePress", "::: tip", r":{3,}[ \t]*(?:\{[^{}\n]*\}|[\w-]+)?[ \t]*:*[ \t]*",
          options=r":[\w-]+:(?:[ \t].*)?"),
    Block("Docusaurus", ":::tip[The title]",
          r":{2,}[ \t]*[\w-]+\[(?P<text>.*)\](?:\{[^{}\n]*\})?[ \t]*"),
    Block("directives", "::name{id=x}", r"::[\w-]+(?:\{[^{}\n]*\})?[ \t]*"),
    Block("VitePress, MyST", "::: tip The title",
          r":{3,}[ \t]*(?:\{[^{}\n]*\}|[\w-]+)[ \t]+(?P<text>[^{\n]*?)(?:[ \t]*\{[^{}\n]*\})?[ \t]*",
          options=r":[\w-]+:(?:[ \t].*)?"),
    Block("MkDocs", '!!! note "The title"',
          r'(?:!!!|\?\?\?\+?)[ \t]*\w[\w \t-]*(?:"(?P<text>.*)")?[ \t]*', indents=True),
    Block("MkDocs", '=== "The tab"', r'===[!+]*[ \t]+"(?P<text>.*)"[ \t]*', indents=True),
    Block("MkDocs", "/// note | The title", r"///[ \t]*[\w-]*(?:[ \t]*\|[ \t]*(?P<text>.*))?"),
    Block("GitHub", "$$ x $$", r"\$\$(?!.*\$\$.*\S)",
          end=r"\$\$[ \t]*(?:\([^()\s]*\)|\{[^{}]*\})?[ \t]*$"),
    Block("TeX", r"\[ x \]", r"\\{1,2}\[.*\\{1,2}\][ \t]*"),
    Block("TeX", "\\[\nx\n\\]", r"\\{1,2}\[[ \t]*$", end=r"\\{1,2}\][ \t]*$"),
    Block("TeX", r"\begin{align}x\end{align}", r"\\begin\{(\w+\*?)\}", end=r"\\end\{\1\}"),
    Block("Pandoc", r"\newpage", r"\\[a-z]{2,}(?:\{[^{}\n]*\}|\[[^\[\]\n]*\])*[ \t]*"),
    Block("kramdown", "{: .class}", r"\{[:#.][^{}\n]*\}[ \t]*"),
    Block("PHP Markdown", "[TOC]", r"\[\[?_?(?:TOC|toc)_?\]?\][ \t]*"),
    Block("PHP Markdown", "*[HTML]: The language", r"\*\[[^\]\n]+\]:[ \t]*(?P<text>.+)"),
    Block("Liquid", "{% raw %}\nx\n{% endraw %}", rf"\{{%-?[ \t]*{_VERBATIM}",
          end=r"\{%-?[ \t]*end\1\b"),
    Block("Hugo", "{{< math >}}\nx\n{{< /math >}}", rf"\{{\{{[<%][ \t]*{_VERBATIM}",
          end=r"\{\{[<%][ \t]*/[ \t]*\1\b"),
    Block("Liquid, Hugo", "{{< figure >}}", rf"(?:{_TAGS}[ \t]*)+"),
    Block("Liquid", "{% include\n a %}", r"\{%(?!.*%\})", end=r"%\}[ \t]*$"),
    Block("Hugo", "{{< figure\n a >}}", r"\{\{[<%](?!.*\}\})", end=r"[%>]\}\}[ \t]*$"),
    Block("MDX", "import A from 'a'",
          r"""import\s+(?:[\w*$][^'"\n]*\s+from\s+|\{[^{}'"]*\}\s+from\s+)?(['"])[^'"\n]+\1;?[ \t]*"""),
    Block("MDX", "export const a = 1",
          r"export\s+(?:(?:const|let|var)\s+[\w${\[].*=|default\b.*[(){};]|(?:async\s+)?function\b"
          r"|class\s+\w|[{*])", end="$^"),
    Block("MDX", "{/* a */}", r"\{/\*", end=r"\*/\}[ \t]*$"),
    Block("MDX", "<Tabs>", rf"(?P<tags>(?:{_COMPONENT}[ \t]*)+)"),
    Block("MkDocs, VitePress", "--8<-- 'a.md'", r"(?:-+8<-+|<<<)[ \t]*\S.*|\{!.*!\}[ \t]*"),
    Block("Obsidian", "%%\nx\n%%", r"%%", end=r"%%[ \t]*$"),
    Block("Pandoc", "+---+\n| x |\n+---+", r"\+(?:[-=:]+\+)+[ \t]*", end="$^",
          skipped="grid table"),
    Block("Pandoc", "| A line", r"\|[ \t]+(?P<text>.*)", is_late=True),
    Block("PHP Markdown", ": A definition", r":[ \t]+(?P<text>.*)", is_late=True),
)  # fmt: skip


class Inline(NamedTuple):
    """A construct within a text that a dialect has besides CommonMark."""

    dialect: str
    example: str
    pattern: str
    """Group `text` is translated, as text of CommonMark."""
    kind: Literal["void", "protected"] = "protected"
    """How it is copied, unless it has text."""
    repeats: bool = False
    """Its marks may stand around several runs of words."""


INLINES = (
    Inline("GitHub", "- [ ] a", r"\A\[[ xX]\](?=[ \t])", "void"),
    Inline("footnotes", "a[^1]", r"\[\^[^\]\s]+\]", "void"),
    Inline("footnotes", "a^[b]", r"\^\[(?P<text>[^\[\]]*)\]"),
    Inline("wiki links", "[[a|b]]", r"!?\[\[[^\[\]|\n]*\|(?P<text>[^\[\]|\n]+)\]\]"),
    Inline("wiki links", "[[a]]", r"!?\[\[(?P<label>[^\[\]\n]+)\]\]"),
    Inline("Pandoc", "[a]{.b}", r"\[(?P<text>[^\[\]]+)\]\{[#.:][^{}\n]*\}"),
    Inline("TeX", r"\(x\)",
           r"\\{1,2}\((?:.{1,3}|[^()\n]*[\\^_=<>+][^\n]*?)(?<!\\)\\{1,2}\)"),
    Inline("TeX", r"\[x\]", r"\\{1,2}\[[^\[\]\n]*[\\^_=<>+][^\n]*?(?<!\\)\\{1,2}\](?!\()"),
    Inline("Liquid, Hugo", "{{ a }}", _TAGS),
    Inline("MDX", "{/* a */}", r"\{/\*(?:(?!\*/).)*\*/\}", "void"),
    Inline("kramdown, Pandoc", "a{: .b}",
           r"\{(?:[:#.][^{}\n]*|[\w-]+=(?:\"[^\"\n]*\"|[^\s{}\"]+)[^{}\n]*)\}", "void"),
    Inline("MyST", "{ref}`a`", r"(?:\{[\w:+.-]+\}|(?<!\w):[a-z][\w:+.-]*:)(`+)(?!`).+?(?<!`)\1(?!`)"),
    Inline("MDX", "<A b={c}>", _ELEMENT, "void"),
    Inline("marks", "==a==", r"==(?=[^\s=])(?P<text>[^\n]*?[^\s=])==(?!=)", repeats=True),
    Inline("marks", "++a++", r"\+\+(?=[^\s+])(?P<text>[^\n]*?[^\s+])\+\+(?!\+)", repeats=True),
    Inline("marks", "a^b^", r"\^(?P<text>[^\s^\[\]]+)\^", repeats=True),
    Inline("marks", "a~b~", r"(?<!~)~(?P<text>[^\s~](?:[^~\n]*[^\s~])?)~(?!~)", repeats=True),
    Inline("Obsidian", "%%a%%", r"%%(?:(?!%%).)+%%", "void"),
    Inline("Obsidian", "a ^b", r"(?<=\s)\^[\w-]+\Z", "void"),
)  # fmt: skip
_EXPRESSION = Inline("MDX", "{a.b}", _BRACES)
_ADDRESS = re.compile(
    r"(?<!\w)(?:(?:https?|ftps?)://|www\.(?=\w))"
    r"(?:[^\s<>\[\]`()|\"]|\((?:[^\s<>\[\]`()|\"])*\))*[^\s<>\[\]`()|\"*_~.,:;!?'\\]"
)
_BLOCK_STARTS = frozenset("[:!?=/$\\{*<-+%|ie")


class _InlineState(StateInline):
    """A text that is read; its tokens know their characters."""

    text_start: int | None = None

    def pushPending(self) -> Token:  # noqa: N802
        token = super().pushPending()
        start = self.text_start or 0
        token.meta["at"] = (start, start + len(token.content))
        self.text_start = None
        return token


class _InlineParser(ParserInline):
    """Reads texts; `at` of a token's `meta` are its characters."""

    def tokenize(self, state: StateInline) -> None:
        assert isinstance(state, _InlineState)
        rules = self.ruler.getRules("")
        end = state.posMax
        while state.pos < end:
            start, n_tokens = state.pos, len(state.tokens)
            is_read = state.level < state.md.options["maxNesting"]
            if not (is_read and any(rule(state, False) for rule in rules)):
                state.append_pending(state.src[state.pos])
                state.pos += 1
            if len(state.tokens) > n_tokens:
                _locate(state.tokens[n_tokens:], start, state.pos)
                state.text_start = None
            elif state.text_start is None:
                state.text_start = start
        if state.pending:
            state.pushPending()

    def parse(self, src: str, md: MarkdownIt, env: Any, tokens: list[Token]) -> list[Token]:
        state = _InlineState(src, md, env, tokens)
        self.tokenize(state)
        for rule in self.ruler2.getRules(""):
            rule(state)
        return state.tokens


def _locate(tokens: Sequence[Token], start: int, end: int) -> None:
    """Tells the tokens that a rule has made where they stand."""
    new = [one for one in tokens if "at" not in one.meta]
    if len(new) == 1:
        new[0].meta["at"] = (start, end)
    elif new and new[0].nesting == 1 and new[-1].nesting == -1:
        inner = [one.meta["at"] for one in tokens[tokens.index(new[0]) :] if "at" in one.meta]
        is_address = new[0].markup == "autolink"
        first = end if is_address else new[0].meta.get("inner", start + 1)
        last = new[-1].meta.get("inner", inner[-1][1] if inner else first)
        new[0].meta["at"], new[-1].meta["at"] = (start, first), (end if is_address else last, end)
        for one in new[1:-1]:
            one.meta["at"] = (end, end)
    else:
        for one in new:
            one.meta["at"] = (start, start + len(one.content))
            start += len(one.content)


def _read_text(state: StateInline, silent: bool) -> bool:  # noqa: FBT001 - as rules are called
    """Reads text up to what may be markup; a bare address is copied."""
    start, src, end = state.pos, state.src, state.posMax
    address = _ADDRESS.match(src, start, end) if src[start] in "hfw" else None
    if address is not None:
        if not silent:
            token = state.push("copied", "", 0)
            token.content = address[0]
        state.pos = address.end()
        return True
    found = state.md.inline.terminator_re.search(src, start)
    stop = min(found.start(), end) if found is not None else end
    if stop > start and (found_word := _ADDRESS_START.search(src, start + 1, stop + 1)):
        stop = found_word.start()
    if stop == start:
        return False
    if not silent:
        state.append_pending(src[start:stop])
    state.pos = stop
    return True


_ADDRESS_START = re.compile(r"(?<!\w)(?:(?:https?|ftps?):|www\.)")


def _inline_rule(rows: Sequence[Inline]) -> Any:
    table = [(row, re.compile(row.pattern)) for row in rows]
    starts = frozenset("[!^{\\=+~<%:")

    def rule(state: StateInline, silent: bool) -> bool:  # noqa: FBT001 - as rules are called
        if state.src[state.pos] not in starts:
            return False
        for row, pattern in table:
            found = pattern.match(state.src, state.pos, state.posMax)
            if found is None or _is_reference(state, found):
                continue
            if not silent:
                _push(state, row, found)
            state.pos = found.end()
            return True
        return False

    return rule


def _is_reference(state: StateInline, found: re.Match[str]) -> bool:
    """Returns whether a link that CommonMark knows stands in what looks like that of a wiki."""
    label = found.groupdict().get("label")
    return bool(label) and normalizeReference(label) in state.env.get("references", ())


def _push(state: StateInline, row: Inline, found: re.Match[str]) -> None:
    if not found.groupdict().get("text"):
        is_tag = found[0].startswith("<")
        token = state.push("html_inline" if is_tag else "copied", "", 0)
        token.content, token.info = found[0], row.kind
        return
    end = state.posMax
    token = state.push("marked_open", "", 1)
    token.info, token.meta["inner"] = "repeat" if row.repeats else "once", found.start("text")
    state.pos, state.posMax = found.span("text")
    state.md.inline.tokenize(state)
    token = state.push("marked_close", "", -1)
    token.meta["inner"] = found.end("text")
    state.posMax = end


class _BlockState(StateBlock):
    """Blocks that are read; a token tells where its lines begin, behind the marks of containers."""

    def push(self, ttype: str, tag: str, nesting: Literal[-1, 0, 1]) -> Token:
        token = super().push(ttype, tag, nesting)
        if ttype == "inline":
            parent = next(one for one in reversed(self.tokens) if one.map and one.nesting)
            first, last = parent.map  # type: ignore[misc]  # it has one
            lines = range(first, max(last, first + 1))
            token.meta["lines"] = [
                (self.bMarks[n] + self.tShift[n], self.eMarks[n])
                for n in lines
                if n < len(self.eMarks)
            ]
            token.meta["parent"] = parent
        return token


class _BlockParser(ParserBlock):
    def parse(self, src: str, md: MarkdownIt, env: Any, tokens: list[Token]) -> list[Token] | None:
        if not src:
            return None
        state = _BlockState(src, md, env, tokens)
        self.tokenize(state, state.line, state.lineMax)
        return state.tokens


def _block_rule(rows: Sequence[Block]) -> Any:
    table = [(row, re.compile(rf"(?:{row.start}){'' if row.end else '$'}", re.M)) for row in rows]

    def rule(state: StateBlock, start: int, end: int, silent: bool) -> bool:  # noqa: FBT001
        place = state.bMarks[start] + state.tShift[start]
        if state.src[place : place + 1] not in _BLOCK_STARTS or state.is_code_block(start):
            return False
        for row, pattern in table:
            found = pattern.match(state.src, place, state.eMarks[end - 1])
            last = found and _last_line(state, row, found, start, end)
            if found is None or not last:
                continue
            if not silent:
                _push_block(state, row, found, start, last)
            return True
        return False

    return rule


def _last_line(
    state: StateBlock, row: Block, found: re.Match[str], start: int, end: int
) -> int | None:
    """Finds the line behind a construct; None: it has no end, and is none."""
    if not row.end:
        line = start + found[0].count("\n") + 1
        options = re.compile(rf"{row.options}$", re.M)
        while row.options and "{" in found[0] and line < end:
            if not options.match(state.src, state.bMarks[line] + state.tShift[line]):
                break
            line += 1
        return line
    # Many beginnings without an end would each search all that follows
    key = (found.expand(row.end) if row.end != "$^" else row.end, end)
    missing = state.env.setdefault("unclosed", set())
    if key in missing:
        return None
    pattern = re.compile(key[0].replace("{end}", ""), re.M)
    place = found.end()
    for line in range(start, end):
        stop = state.eMarks[line]
        if line > start:
            place = state.bMarks[line] + state.tShift[line]
            if row.end == "$^" and state.isEmpty(line):
                return line
            if state.sCount[line] < state.blkIndent and not state.isEmpty(line):
                break
        if row.end != "$^" and pattern.search(state.src[place:stop]):
            return line + 1
    if row.end == "$^":
        return end
    missing.add(key)
    return None


def _push_block(
    state: StateBlock, row: Block, found: re.Match[str], start: int, end: int
) -> None:
    groups = found.groupdict()
    state.line = end
    token = state.push("line_open", "title", 1)
    token.map, token.info = [start, end], row.skipped
    token.markup = found[0] if not groups.get("text") else ""
    token.meta["tags"] = found.span("tags") if groups.get("tags") else None
    if groups.get("text"):
        inline = state.push("inline", "", 0)
        inline.map, inline.children = [start, start + 1], []
        inline.content = groups["text"]
        inline.meta["lines"] = [found.span("text")]
        inline.meta["frame"] = (found[0][: found.start("text") - found.start()],
                                found[0][found.end("text") - found.start() :])
    state.push("line_close", "title", -1)
    if not row.indents:
        return
    line = end
    while line < state.lineMax and (
        state.isEmpty(line) or state.sCount[line] >= state.blkIndent + 4
    ):
        line += 1
    before = state.parentType, state.lineMax
    state.parentType, state.lineMax = "admonition", line
    state.blkIndent += 4
    token = state.push("content_open", "div", 1)
    state.md.block.tokenize(state, end, line)
    state.push("content_close", "div", -1)
    state.blkIndent -= 4
    state.parentType, state.lineMax = before
    state.line = line


def _place_texts(state: StateCore) -> None:
    """Takes the texts as the document has them, and tells where their characters stand."""
    for token in state.tokens:
        if token.type != "inline":
            continue
        lines = token.meta["lines"]
        parent = token.meta.get("parent")
        if parent is not None and parent.type == "tr_open":
            _place_cell(state.src, token, parent)
            continue
        if parent is not None and parent.type == "heading_open" and len(lines) and "#" in parent.markup:
            start, end = lines[0]
            start += len(parent.markup)
            lines = [(state.src.index(token.content, start, end),) * 2] if token.content else []
            lines = [(one, one + len(token.content)) for one, _ in lines]
        content, places = "", []
        kept = [(a + len(t) - len(t.lstrip(" \t")), t.strip(" \t"))
                for a, t in ((a, state.src[a:b]) for a, b in lines)]
        n_lines = token.content.count("\n") + 1
        for number, (start, _) in enumerate(kept[:n_lines]):
            a, b = lines[number]
            text = state.src[start:b]
            if number + 1 == n_lines:
                text = text.rstrip(" \t")
            places.append((len(content), start))
            content += text + ("\n" if number + 1 < n_lines else "")
        token.content = content
        token.meta["places"] = places


def _place_cell(src: str, token: Token, row: Token) -> None:
    """Finds a cell in its row; a bar in it has a backslash in the document only."""
    start, end = token.meta["lines"][0]
    start = row.meta.get("done", start)
    raw = token.content.replace("|", "\\|")
    place = src.find(raw, start, end) if raw else start
    if place < 0:
        token.meta["places"] = None
        return
    row.meta["done"] = place + len(raw)
    places = [(0, place)]
    n_bars = 0
    for number, character in enumerate(token.content):
        if character == "|":
            places += [(number, place + number + n_bars), (number + 1, place + number + n_bars + 2)]
            n_bars += 1
    token.meta["places"] = places


@cache
def parser(*, is_mdx: bool = False) -> MarkdownIt:
    """Makes the parser of a dialect: what is written in all of them, or MDX."""
    made = MarkdownIt("commonmark", {"maxNesting": DEEPEST, "inline_definitions": True})
    made.inline, made.block = _InlineParser(), _BlockParser()
    made.use(deflist_plugin)
    made.use(footnote_plugin, inline=False, move_to_end=False)
    made.use(dollarmath_plugin, allow_space=False, allow_digits=False, double_inline=True)
    made.disable(["footnote_ref", "math_block", "text_join", "fragments_join"])
    made.inline.ruler.disable("linkify")
    made.inline.ruler.at("text", _read_text)
    rows = (*INLINES, _EXPRESSION) if is_mdx else INLINES
    made.inline.ruler.after("text", "dialects", _inline_rule(rows))
    if is_mdx:
        made.disable(["code"])
    around = {"alt": ["paragraph", "reference", "blockquote", "list"]}
    early = [one for one in BLOCKS if not one.is_late]
    if is_mdx:
        early.append(Block("MDX", "{a.map(b)}", rf"{_BRACES}[ \t]*"))
    made.block.ruler.before("table", "dialects", _block_rule(early), around)
    late = [one for one in BLOCKS if one.is_late]
    made.block.ruler.before(
        "paragraph", "late_dialects", _block_rule(late), {"alt": ["paragraph", "reference"]}
    )
    made.core.ruler.before("inline", "places", _place_texts)
    return made
