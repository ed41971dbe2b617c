"""Markdown syntax: CommonMark with the dialects of GitHub and documentation sites.

markdown-it parses it. This module adds the character range of each token, and the constructs in
the tables below, which markdown-it would read as prose.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Literal, NamedTuple

from markdown_it import MarkdownIt
from markdown_it.common.utils import normalizeReference
from markdown_it.parser_block import ParserBlock
from markdown_it.parser_inline import ParserInline
from markdown_it.rules_block import StateBlock, html_block
from markdown_it.rules_inline import StateInline
from mdit_py_plugins.deflist import deflist_plugin
from mdit_py_plugins.dollarmath import dollarmath_plugin
from mdit_py_plugins.footnote import footnote_plugin

if TYPE_CHECKING:
    from collections.abc import Sequence

    from markdown_it.parser_block import RuleFuncBlockType
    from markdown_it.parser_inline import RuleFuncInlineType
    from markdown_it.ruler import RuleOptionsType
    from markdown_it.rules_core import StateCore
    from markdown_it.token import Token
    from markdown_it.utils import EnvType

DEEPEST = 50
"""Maximum nesting of blocks and marks; deeper ones are not read."""
_BRACES = r"\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\}"
_ATTRIBUTE = rf"""\s+(?:[\w.:-]+(?:\s*=\s*(?:"[^"]*"|'[^']*'|{_BRACES}))?|{_BRACES})"""
_ELEMENT = rf"<(?:/?[A-Za-z][\w.:-]*(?:{_ATTRIBUTE})*+\s*/?|/)?>"
_COMPONENT = rf"<(?:/?[A-Z]\w*[a-z][\w.]*(?:{_ATTRIBUTE})*+\s*/?|/)?>"
_NO_END = r"(?!\\[\[\]()])"
_FORMULA = rf"(?=(?:{_NO_END}.)*?{_NO_END}[\\^_=<>+])(?:{_NO_END}.)*+"
"""Characters that tell a formula from words in backslash brackets."""
_TAGS = r"(?:\{%(?:(?!%\}).){0,999}%\}|\{\{(?:(?!\}\}).){0,999}\}\}|\{#(?:(?!#\}).){0,999}#\})"
_KEY = (
    "alt|backslash|backspace|cmd|comma|command|control|ctrl|del|delete|dot|end|enter|equal|esc"
    "|escape|home|ins|insert|meta|minus|option|page-up|page-down|period|plus|return|shift|slash"
    r"|space|super|tab|win|windows|(?:arrow-)?(?:up|down|left|right)|f\d\d?|\w"
)
_NAME = r"(?:\{[^{}\n]*\}|[\w-]+)"
_FROM = r"""(?:[\w*$][^'"\n]*\s+from\s+|\{[^{}'"]*\}\s+from\s+)"""
_ATTRIBUTES = r"\{[ \t]*(?:[:#]|\.[\w-])[^{}\n]*\}"
_BLANK_LINE = "blank"
_VERBATIM = r"(highlight|raw|comment|mermaid|math|katex|code|verbatim)\b"


class Block(NamedTuple):
    """A block construct that a dialect adds to CommonMark."""

    dialect: str
    example: str
    start: str
    """Pattern of its first line or of all its lines; group `text` is translated."""
    end: str = ""
    """Pattern of its last line, or a name for a blank line."""
    indents: bool = False
    """True if its content is indented by four columns."""
    options: str = ""
    """Pattern of lines that may follow the first."""
    skipped: str = ""
    """Name of the construct, if its text is not read."""
    is_late: bool = False
    """True if all other constructs are tried before."""


BLOCKS = (
    Block("GitHub, Obsidian", "> [!NOTE]", r"\[![\w-]+\][+-]?(?!\()[ \t]*(?P<text>.*)"),
    Block("Pandoc, VitePress, Starlight", ':::tip{title="A"}',
          rf":{{3,}}[ \t]*(?:{_NAME}(?:[ \t]*\{{[^{{}}\n]*\}})?)?[ \t]*:*[ \t]*",
          options=r":[\w-]+:(?:[ \t].*)?"),
    Block("Docusaurus", ":::tip[The title]",
          r":{2,}[ \t]*[\w-]+\[(?P<text>.*)\](?:\{[^{}\n]*\})?[ \t]*"),
    Block("directives", "::name{id=x}", r"::[\w-]+(?:\{[^{}\n]*\})?[ \t]*"),
    Block("VitePress, MyST", "::: tip The title",
          rf":{{3,}}[ \t]*{_NAME}[ \t]+(?P<text>[^{{\n]*?)(?:[ \t]*\{{[^{{}}\n]*\}})?[ \t]*",
          options=r":[\w-]+:(?:[ \t].*)?"),
    Block("MkDocs", '!!! note "The title"',
          r'(?:!!!|\?\?\?\+?)[ \t]*\w[\w \t-]*(?:"(?P<text>.*)")?[ \t]*', indents=True),
    Block("MkDocs", '=== "The tab"', r'===[!+]*[ \t]+"(?P<text>.*)"[ \t]*', indents=True),
    Block("MkDocs", "/// note | The title", r"///[ \t]*[\w-]*(?:[ \t]*\|[ \t]*(?P<text>.*))?"),
    Block("GitHub", "$$ x $$", r"\$\$(?!.*\$\$.*\S)",
          end=r"\$\$[ \t]*(?:\([^()\s]*\)|\{[^{}]*\})?[ \t]*$"),
    Block("TeX", r"\[ x = 1 \]", rf"\\{{1,2}}\[{_FORMULA}\\{{1,2}}\][ \t]*"),
    Block("TeX", "\\[\nx\n\\]", r"\\{1,2}\[[ \t]*$", end=r"\\{1,2}\][ \t]*$"),
    Block("TeX", r"\begin{align}x\end{align}", r"\\begin\{(\w+\*?)\}", end=r"\\end\{\1\}"),
    Block("Pandoc", r"\newpage", r"\\[a-z]{2,}(?:\{[^{}\n]*\}|\[[^\[\]\n]*\])*[ \t]*"),
    Block("kramdown, MkDocs", "{: .class}", rf"{_ATTRIBUTES}[ \t]*"),
    Block("MyST", "(target-a)=", r"\([\w:.-]+\)=[ \t]*"),
    Block("PHP Markdown", "[TOC]", r"\[\[?_?(?:TOC|toc)_?\]?\][ \t]*"),
    Block("PHP Markdown", "*[HTML]: The language", r"\*\[[^\]\n]+\]:[ \t]*(?P<text>.+)"),
    Block("Liquid", "{% raw %}\nx\n{% endraw %}",
          rf"\{{%-?[ \t]*{_VERBATIM}(?!.*\bend\1[^%]*%\}}.*\S)",
          end=r"\{%-?[ \t]*end\1\b"),
    Block("Hugo", "{{< math >}}\nx\n{{< /math >}}",
          rf"\{{\{{[<%][ \t]*{_VERBATIM}(?!.*/[>%]\}}\}})(?!.*/[ \t]*\1[^<>%]*[>%]\}}\}}.*\S)",
          end=r"\{\{[<%][ \t]*/[ \t]*\1\b"),
    Block("Liquid, Hugo", "{{< figure >}}", rf"(?:{_TAGS}[ \t]*)+"),
    Block("Liquid", "{% include\n a %}", r"\{%(?!.*%\})", end=r"%\}[ \t]*$"),
    Block("Hugo", "{{< figure\n a >}}", r"\{\{[<%](?!.*\}\})", end=r"[%>]\}\}[ \t]*$"),
    Block("MDX", "import A from 'a'",
          rf"""import\s+{_FROM}?(['"])[^'"\n]+\1;?[ \t]*"""),
    Block("MDX", "export const a = 1",
          r"export\s+(?:(?:const|let|var)\s+[\w${\[].*=|default\b.*[(){};]|(?:async\s+)?function\b"
          r"|class\s+\w|[{*])", end=_BLANK_LINE),
    Block("MDX", "{/* a */}", r"\{/\*", end=r"\*/\}[ \t]*$"),
    Block("MDX", "<Tabs>", rf"(?P<tags>(?:{_COMPONENT}[ \t]*)+)"),
    Block("MkDocs", '<div markdown="1">',
          r"<[a-z]\w*\b[^<>]*\smarkdown(?:=[^\s<>]*)?(?:\s[^<>]*)?>[ \t]*"),
    Block("MkDocs, VitePress", "--8<-- 'a.md'",
          r"-+8<-+[ \t]*\S.*|<<<[ \t]*[@./]\S.*|\{!.*!\}[ \t]*"),
    Block("Obsidian", "%%\nx\n%%", r"%%", end=r"%%[ \t]*$"),
    Block("Pandoc", "+---+\n| x |\n+---+", r"\+(?:[-=:]+\+)+[ \t]*", end=_BLANK_LINE,
          skipped="grid table"),
    Block("Pandoc", "| A line", r"\|[ \t]+(?P<text>.*)", is_late=True),
    Block("PHP Markdown", ": A definition",
          r":[ \t]+(?P<text>\S.*(?:\n[ \t]+(?![-+*`~>#|:<]|\d+[.)])\S.*)*)", indents=True,
          is_late=True),
    Block("PHP Markdown", "A term\nAnother term\n: A definition",
          r"(?P<text>\S.*)(?=(?:\n[ \t]*[^\s:].*){1,4}\n(?:[ \t]*\n)?[ \t]*:[ \t]+\S)",
          is_late=True),
)  # fmt: skip


class Inline(NamedTuple):
    """An inline construct that a dialect adds to CommonMark."""

    dialect: str
    example: str
    starts: str
    """Possible first characters."""
    pattern: str
    """Group `text` is translated in its sentence, group `note` separately."""
    kind: Literal["void", "protected"] = "protected"
    """How to copy it if it has no text."""
    repeats: bool = False
    """True if its marks may be split around several runs of words."""


INLINES = (
    Inline("GitHub", "- [ ] a", "[", r"\A\[[ xX]\](?=[ \t])", "void"),
    Inline("footnotes", "a[^1]", "[", r"\[\^[^\]\s]{1,99}\]", "void"),
    Inline("footnotes", "a^[b]", "^", r"\^\[(?P<note>(?:[^\[\]]|\[[^\[\]]*\])+)\](?![(\[])",
           "void"),
    Inline("wiki links", "[[a|b]]", "![", r"!?\[\[[^\[\]|\n]*\|(?P<text>[^\[\]|\n]+)\]\](?![(\[])"),
    Inline("wiki links", "[[a]]", "![", r"!?\[\[(?P<label>[^\[\]\n]+)\]\](?![(\[])"),
    Inline("PHP Markdown", "[a] [b]", "[",
           r"\[(?P<text>[^\[\]]+)\](?:[ \t]|[ \t]*\n[ \t]*)\[(?P<target>[^\[\]\n]+)\](?!\()"),
    Inline("Pandoc", "[a]{.b}", "[", rf"\[(?P<text>[^\[\]]+)\]{_ATTRIBUTES}"),
    Inline("Pandoc", "[@a, 2]", "[", r"\[-?@[A-Za-z][^\[\]\n]*\](?![(\[])"),
    Inline("VuePress", "@[code](a)", "@", r"@\[\w+\](?:\{[^{}\n]*\})?\([^()\s]*\)"),
    Inline("GitHub, Pandoc", "@a-b", "@", r"(?<!\w)@[A-Za-z](?:[\w:./-]*\w)?"),
    Inline("TeX", r"\(x\)", "\\", rf"\\{{1,2}}\((?:[^\\]{{1,3}}|{_FORMULA})\\{{1,2}}\)"),
    Inline("TeX", r"a \[x^2\] b", "\\", rf"\\{{1,2}}\[{_FORMULA}\\{{1,2}}\](?!\()"),
    Inline("Liquid, Hugo", "{{ a }}", "{", _TAGS),
    Inline("MDX", "{/* a */}", "{", r"\{/\*(?:(?!\*/).){0,999}\*/\}", "void"),
    Inline("kramdown, Pandoc", "a{: .b}", "{",
           rf"{_ATTRIBUTES}|" r"\{(?:[\w-]+=(?:\"[^\"\n]*\"|[^\s{}\"]+)[^{}\n]*)\}", "void"),
    Inline("MyST", "{ref}`a`", "{:",
           r"(?:\{[\w:+.-]+\}|(?<!\w):[a-z][\w:+.-]*:)(`+)(?!`).{1,999}?(?<!`)\1(?!`)"),
    Inline("MDX", "<A b={c}>", "<", _ELEMENT, "void"),
    Inline("marks", "==a==", "=", r"(?<![\w=])==(?=[^\s=])(?P<text>[^\n]{0,999}?[^\s=])==(?!=)",
           repeats=True),
    Inline("MkDocs", "++ctrl+a++", "+",
           rf"\+\+(?:[\w-]+(?:\+(?:[\w-]+|\"[^\"\n]+\"))+|{_KEY})\+\+"),
    Inline("marks", "++ab++", "+",
           r"(?<![\w+])\+\+(?=[^\s+])(?P<text>[^\n]{0,999}?[^\s+])\+\+(?!\+)",
           repeats=True),
    Inline("marks", "a^b^", "^", r"\^(?P<text>[^\s^\[\]]+)\^", repeats=True),
    Inline("marks", "a~b~", "~", r"(?<!~)~(?P<text>[^\s~](?:[^~\n]*[^\s~])?)~(?!~)", repeats=True),
    Inline("Obsidian", "%%a%%", "%", r"(?<!\d)%%(?:(?!%%).){1,999}%%", "void"),
    Inline("Obsidian", "a ^b", "^", r"(?<=\s)\^[\w-]+\Z", "void"),
)  # fmt: skip
_MDX = (
    Block("MDX", "{a.map(b)}", rf"{_BRACES}[ \t]*"),
    Block("MDX", "<div>", rf"(?P<tags>(?:{_ELEMENT}[ \t]*)+)"),
)
"""In MDX, HTML elements are components that contain Markdown."""
_EXPRESSION = Inline("MDX", "{a.b}", "{", _BRACES)
_IN_ADDRESS = r"[^\s<>\[\]`()|\"]"
_WHOLE = re.compile(
    rf"(?<!\w)(?:(?:(?:https?|ftps?)://|www\.(?=\w))(?:{_IN_ADDRESS}|\({_IN_ADDRESS}*\))*"
    rf"(?:(?![*_~.,:;!?'\\]){_IN_ADDRESS}|\({_IN_ADDRESS}*\))"
    r"|\w+(?:\^[^\s^\[\]]+\^|~[^\s~]+~(?!~))\w*)"
)
"""Bare URLs, and words with superscripts or subscripts."""
_MAY_BE_WHOLE = re.compile(r"(?<!\w)(?:(?:https?|ftps?):|www\.|\w+[~^](?=[^\s~^]))")
DEFINITIONS = re.compile(r"^(?:[ \t]*\[[^\]\n]+\]:[ \t]+\S.*(?:\n|\Z))+", re.MULTILINE)
"""Link definitions in an HTML block."""
_BLOCK_STARTS = frozenset("[(:!?=/$\\{*<-+%|ie")


class _InlineState(StateInline):
    """Inline state whose tokens record their character ranges."""

    text_start: int | None = None

    def pushPending(self) -> Token:  # noqa: N802
        token = super().pushPending()
        start = self.text_start or 0
        token.meta["at"] = (start, start + len(token.content))
        self.text_start = None
        return token


class _InlineParser(ParserInline):
    """Parses texts; `meta["at"]` of a token is its character range."""

    def tokenize(self, state: StateInline) -> None:
        if not isinstance(state, _InlineState):
            raise TypeError(state)
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

    def parse(self, src: str, md: MarkdownIt, env: EnvType, tokens: list[Token]) -> list[Token]:
        state = _InlineState(src, md, env, tokens)
        self.tokenize(state)
        for rule in self.ruler2.getRules(""):
            rule(state)
        return state.tokens


def _locate(tokens: Sequence[Token], start: int, end: int) -> None:
    """Records the ranges of the tokens that a rule has added."""
    new = [token for token in tokens if "at" not in token.meta]
    if len(new) == 1:
        new[0].meta["at"] = (start, end)
    elif new and new[0].nesting == 1 and new[-1].nesting == -1:
        inner = [token.meta["at"] for token in tokens[tokens.index(new[0]) :] if "at" in token.meta]
        is_address = new[0].markup == "autolink"
        first = end if is_address else new[0].meta.get("inner", start + 1)
        last = new[-1].meta.get("inner", inner[-1][1] if inner else first)
        new[0].meta["at"], new[-1].meta["at"] = (start, first), (end if is_address else last, end)
        for token in new[1:-1]:
            token.meta["at"] = (end, end)
    else:
        for token in new:
            token.meta["at"] = (start, start + len(token.content))
            start += len(token.content)


def _read_text(state: StateInline, silent: bool) -> bool:
    """Reads text up to possible markup; copies constructs without inner markup."""
    start, src, end = state.pos, state.src, state.posMax
    match = state.md.inline.terminator_re.search(src, start)
    stop = min(match.start(), end) if match is not None else end
    begins = _MAY_BE_WHOLE.search(src, start, min(stop + 4, end)) if stop > start else None
    whole = None
    if begins is not None and begins.start() < stop:
        whole = _WHOLE.match(src, begins.start(), end)
    if whole is not None and whole.start() > start:
        stop, whole = whole.start(), None
    if whole is not None:
        stop = whole.end()
        # After an opening underscore, this one closes
        if src[stop : stop + 1] == "_" and not any(
            delimiter.open and delimiter.marker == ord("_") for delimiter in state.delimiters
        ):
            stop += 1
        if not silent:
            shown = src[start:stop]
            is_address = "/" in shown or shown.startswith("www.")
            token = state.push("copied", "", 0)
            token.meta["shown"] = shown if is_address else re.sub("[~^]", "", shown)
    elif stop == start:
        return False
    elif not silent:
        state.append_pending(src[start:stop])
    state.pos = stop
    return True


def _make_inline_rule(rows: Sequence[Inline]) -> RuleFuncInlineType:
    table: dict[str, list[tuple[Inline, re.Pattern[str]]]] = {}
    for row in rows:
        for character in row.starts:
            table.setdefault(character, []).append((row, re.compile(row.pattern)))

    def rule(state: StateInline, silent: bool) -> bool:
        for row, pattern in table.get(state.src[state.pos], ()):
            match = pattern.match(state.src, state.pos, state.posMax)
            if match is None or _is_other_link(state, match):
                continue
            if not silent:
                _push(state, row, match)
            state.pos = match.end()
            return True
        return False

    return rule


def _is_other_link(state: StateInline, match: re.Match[str]) -> bool:
    """True if the labels make this a CommonMark link, or no link in any dialect."""

    def is_known(group: str) -> bool:
        label = normalizeReference(match.groupdict().get(group) or "")
        return label in state.env.get("references", ())

    is_apart = "target" in match.re.groupindex
    return is_known("label") or (is_apart and (is_known("text") or not is_known("target")))


def _push(state: StateInline, row: Inline, match: re.Match[str]) -> None:
    if not match.groupdict().get("text"):
        is_tag = match[0].startswith("<")
        token = state.push("html_inline" if is_tag else "copied", "", 0)
        token.content, token.info = match[0], row.kind
        if (note := match.groupdict().get("note")) is not None:
            token.type, token.content, token.children = "note", note, []
            state.md.inline.parse(note, state.md, state.env, token.children)
        return
    end = state.posMax
    token = state.push("marked_open", "", 1)
    token.info, token.meta["inner"] = "repeat" if row.repeats else "once", match.start("text")
    state.pos, state.posMax = match.span("text")
    state.md.inline.tokenize(state)
    token = state.push("marked_close", "", -1)
    token.meta["inner"] = match.end("text")
    state.posMax = end


class _BlockState(StateBlock):
    """Parses blocks; tokens record where their lines start, after the marks of containers."""

    _parent: Token

    def push(self, ttype: str, tag: str, nesting: Literal[-1, 0, 1]) -> Token:
        token = super().push(ttype, tag, nesting)
        if nesting == 1 and tag not in ("th", "td"):
            self._parent = token
        if ttype == "inline":
            parent = self._parent
            first, last = parent.map or (0, 0)
            lines = range(first, max(last, first + 1))
            token.meta["lines"] = [
                (self.bMarks[n] + self.tShift[n], self.eMarks[n])
                for n in lines
                if n < len(self.eMarks)
            ]
            token.meta["parent"] = parent
        return token


class _BlockParser(ParserBlock):
    def parse(
        self, src: str, md: MarkdownIt, env: EnvType, tokens: list[Token]
    ) -> list[Token] | None:
        if not src:
            return None
        state = _BlockState(src, md, env, tokens)
        self.tokenize(state, state.line, state.lineMax)
        return state.tokens


def _make_block_rule(rows: Sequence[Block]) -> RuleFuncBlockType:
    table = [
        (row, re.compile(rf"(?:{row.start}){'' if row.end else '$'}", re.MULTILINE)) for row in rows
    ]
    starts = None if rows[0].is_late else _BLOCK_STARTS

    def rule(state: StateBlock, start: int, end: int, silent: bool) -> bool:
        place = state.bMarks[start] + state.tShift[start]
        is_start = starts is None or state.src[place : place + 1] in starts
        if not is_start or state.is_code_block(start):
            return False
        for row, pattern in table:
            match = pattern.match(state.src, place, state.eMarks[end - 1])
            last = match and _find_end(state, row, match, start, end)
            if match is None or not last:
                continue
            if not silent:
                _push_block(state, row, match, start, last)
            return True
        return False

    return rule


def _find_end(
    state: StateBlock, row: Block, match: re.Match[str], start: int, end: int
) -> int | None:
    """Finds the line after a construct; None if it has no end and is therefore not one."""
    if not row.end:
        line = start + match[0].count("\n") + 1
        options = re.compile(rf"{row.options}$", re.MULTILINE)
        while row.options and "{" in match[0] and line < end:
            if not options.match(state.src, state.bMarks[line] + state.tShift[line]):
                break
            line += 1
        return line
    if row.end == _BLANK_LINE:
        return next((line for line in range(start, end) if state.isEmpty(line)), end)
    # Remember missing ends: otherwise each of many starts would search the rest
    wanted = row.end.replace("\\1", re.escape(match[1])) if match.re.groups else row.end
    missing = state.env.setdefault("missing", set())
    if (wanted, end) in missing:
        return None
    pattern = re.compile(wanted)
    for line in range(start, end):
        place = state.bMarks[line] + state.tShift[line] if line > start else match.end()
        if state.sCount[line] < state.blkIndent and not state.isEmpty(line):
            break
        if pattern.search(state.src[place : state.eMarks[line]]):
            return line + 1
    missing.add((wanted, end))
    return None


def _push_block(state: StateBlock, row: Block, match: re.Match[str], start: int, end: int) -> None:
    groups = match.groupdict()
    state.line = end
    token = state.push("line_open", "title", 1)
    token.map, token.info = [start, end], row.skipped
    # Attribute values may be translated
    token.markup = "" if groups.get("text") else re.sub(r"\"[^\"]*\"|'[^']*'", "", match[0])
    token.meta["tags"] = match.span("tags") if groups.get("tags") else None
    if groups.get("text"):
        inline = state.push("inline", "", 0)
        inline.map, inline.children = [start, start + 1], []
        inline.content = groups["text"]
        place = match.start("text")
        parts = re.finditer(r"[^ \t\n].*", groups["text"])
        inline.meta["lines"] = [(place + part.start(), place + part.end()) for part in parts]
        inline.meta["frame"] = (
            match[0][: match.start("text") - match.start()],
            match[0][match.end("text") - match.start() :],
        )
    state.push("line_close", "title", -1)
    if row.indents:
        _read_content(state, end, state.blkIndent + 4)


def _read_content(state: StateBlock, start: int, indent: int) -> None:
    """Parses the following lines with this indentation."""
    end = start
    while end < state.lineMax and (state.isEmpty(end) or state.sCount[end] >= indent):
        end += 1
    before = state.parentType, state.lineMax, state.blkIndent
    state.parentType, state.lineMax, state.blkIndent = "root", end, indent
    state.push("content_open", "div", 1)
    state.md.block.tokenize(state, start, end)
    state.push("content_close", "div", -1)
    state.parentType, state.lineMax, state.blkIndent = before
    state.line = end


def _read_indented(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Reads indented text that is not code: MDX components indent their content."""
    if silent or start >= end or not state.is_code_block(start):
        return False
    _read_content(state, start, state.sCount[start])
    return True


def _read_comment(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Reads an HTML comment."""
    place = state.bMarks[start] + state.tShift[start]
    return state.src.startswith("<!--", place) and html_block(state, start, end, silent)


def _place_texts(state: StateCore) -> None:
    """Restores the original texts of tokens and records the positions of their characters."""
    references = state.env.setdefault("references", {})
    for token in state.tokens:
        # Some parsers also read link definitions there
        for match in DEFINITIONS.finditer(token.content if token.type == "html_block" else ""):
            for label, target in re.findall(r"\[([^\]\n]+)\]:[ \t]+(\S+)", match[0]):
                known = {"href": target, "title": "", "map": token.map}
                references.setdefault(normalizeReference(label), known)
        if token.type != "inline":
            continue
        lines, parent = token.meta["lines"], token.meta.get("parent")
        if parent is not None and parent.type == "tr_open":
            _place_cell(state.src, token, parent)
            continue
        if parent is not None and parent.markup.startswith("#"):
            start, end = lines[0]
            start = state.src.find(token.content, start + len(parent.markup), end)
            lines = [(start, start + len(token.content))]
        # A heading has one more line than its text
        lines = lines[: token.content.count("\n") + 1]
        content, places = "", []
        for start, end in lines:
            content += "\n" if content else ""
            places.append((len(content), start))
            content += state.src[start:end]
        token.content = content.rstrip(" \t")
        token.meta["places"] = places


def _place_cell(src: str, token: Token, row: Token) -> None:
    """Finds a cell in its row; bars in it have a backslash only in the document."""
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
    """Builds the parser: for the common dialects together, or for MDX."""
    markdown = MarkdownIt("commonmark", {"maxNesting": DEEPEST, "inline_definitions": True})
    markdown.inline, markdown.block = _InlineParser(), _BlockParser()
    markdown.use(deflist_plugin)
    markdown.use(footnote_plugin, inline=False, move_to_end=False)
    markdown.use(dollarmath_plugin, allow_space=False, allow_digits=False, double_inline=True)
    markdown.disable(["footnote_ref", "math_block", "text_join", "fragments_join"])
    markdown.inline.ruler.disable("linkify")
    markdown.inline.ruler.at("text", _read_text)
    rows = (*INLINES, _EXPRESSION) if is_mdx else INLINES
    markdown.inline.ruler.after("text", "dialects", _make_inline_rule(rows))
    if is_mdx:
        markdown.block.ruler.at("code", _read_indented)
        chains = ["paragraph", "reference", "blockquote"]
        markdown.block.ruler.at("html_block", _read_comment, {"alt": chains})
    around: RuleOptionsType = {"alt": ["paragraph", "reference", "blockquote", "list"]}
    early = [row for row in BLOCKS if not row.is_late]
    if is_mdx:
        early += _MDX
    markdown.block.ruler.before("table", "dialects", _make_block_rule(early), around)
    late = [row for row in BLOCKS if row.is_late]
    markdown.block.ruler.before(
        "paragraph", "late_dialects", _make_block_rule(late), {"alt": ["paragraph", "reference"]}
    )
    markdown.core.ruler.before("inline", "places", _place_texts)
    return markdown
