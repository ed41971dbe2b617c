"""Texts that programs replace, or read, in the messages that people see: the table of syntaxes.

A row is a syntax, who uses it, and examples; the first row that matches at a place wins. In prose,
where ":name" and "[see]" are ordinary, only the rows that nobody writes by chance count.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import NamedTuple


class Syntax(NamedTuple):
    """Placeholders of some programs."""

    users: str
    pattern: str
    examples: tuple[str, ...]
    is_only_in_messages: bool = False


# A word that goes on is no conversion: "100%sure", "%name"; but "%dx%d", "%dMB"
_UNITS = r"(?:x|px|pt|[kKMGT]i?B|ms|s|h|m|min|th|st|nd|rd|d)"
_ENDS = rf"(?:(?!\w)|(?={_UNITS}(?![^\W\d_])))"
_DIGITS = r"(?:\d+|\*(?:\d+\$)?)?"
_FORMAT = rf"(?<!\d)%(?:\d+\$)?[-+#0'I]*{_DIGITS}(?:\.{_DIGITS})?(?:hh?|ll?|[LjztZ]|I64|I32)?"
# Lengths have limits, or each opening sign would search all of a long line
_INNER = r"(?:[^{}\n]|\{[^{}\n]{0,300}+\}){0,300}+"

SYNTAXES = (
    Syntax(
        "ICU MessageFormat, Vue I18n: quotations",
        r"\{\s?'[^'\n]{1,20}'\s?\}|'[{}]'|'\{[^{}'\n]*\}'",
        ("{'@'}", "{'{'}", "'{'", "'{name}'"),
        is_only_in_messages=True,
    ),
    Syntax(
        "ERB, EJS, Lodash, ASP",
        r"<%(?:[^%\n]|%(?!>)){0,300}+%>",
        ("<%= user.name %>", "<% } %>", "<%- x %>"),
    ),
    Syntax(
        "PHP",
        r"<\?(?:php\b|=)(?:[^?\n]|\?(?!>)){0,300}+\?>",
        ("<?php echo $x ?>", "<?= $x ?>"),
    ),
    Syntax(
        "Handlebars, Mustache, Vue, Angular, i18next, MediaWiki",
        rf"\{{\{{\{{[^{{}}\n]*+\}}\}}\}}|\{{\{{{_INNER}\}}\}}",
        ("{{x}}", "{{ x.y }}", "{{{x}}}", "{{#each x}}", "{{/each}}", "{{ 'x' | translate }}"),
    ),
    Syntax(
        "Jinja, Django, Twig, Liquid",
        r"\{%(?:[^%\n]|%(?!\})){0,300}+%\}|\{#(?:[^#\n]|#(?!\})){0,300}+#\}",
        ("{% if a %}", "{%- endif -%}", "{# a note #}"),
    ),
    Syntax("Svelte", r"\{[#/:@][a-z]+(?:\s[^{}\n]*+)?\}", ("{#if a}", "{/if}", "{@html x}")),
    Syntax(
        "JavaScript, Java, shell", rf"\$\{{{_INNER}\}}", ("${x}", "${ x }", "${a.b()}", "${x:-y}")
    ),
    Syntax("Ruby, Pug, Sass", r"#\{[^{}\n]*+\}", ("#{name}", "#{ a.b }")),
    Syntax("Ruby on Rails, i18n-js", r"%\{[^{}\s]*+\}", ("%{name}",)),
    Syntax("Swift", r"\\\((?:[^()\n]|\([^()\n]*+\))*+\)", (r"\(name)", r"\(name.upper())")),
    Syntax(
        "ICU MessageFormat, Java",
        r"\{\s*[\w.-]+\s*,\s*(?:number|date|time|spellout|ordinal|duration|list|choice)\b"
        rf"{_INNER}\}}",
        ("{when, date, long}", "{0,number,#.##}", "{0,choice,0#no|1#one|1<{0} some}"),
    ),
    Syntax(
        "C#, Rust",
        r"\{\d+(?:,\s?-?\d+)?(?::[^{}\n]*+)?\}",
        ("{0}", "{0:C2}", "{1,10}", "{0,10:N2}", "{0:yyyy-MM-dd HH:mm}"),
    ),
    Syntax(
        "Python",
        r"\{[A-Za-z_]?[\w.]*(?:\[[^\]{}\n]*\])*(?:![rsa])?"
        r"(?::(?:[^{}\s]|\{\w*+\}|(?<=%[a-zA-Z]) )*+)?\}",
        ("{}", "{name}", "{x!r:>10}", "{x:{width}}", "{a[0].b}", "{:.2f}", "{d:%Y-%m-%d %H:%M}"),
    ),
    Syntax(
        "ICU MessageFormat, Vue, Fluent",
        r"\{\s*(?:[$-]?[A-Za-z_][\w.-]*|\d+|[A-Z][A-Z_-]*\([^{}()\n]*+\)|\"[^\"\n]*+\")\s*\}",
        ("{ name }", "{$x}", "{ $name }", "{ -brand }", '{ NUMBER($n, style: "unit") }', '{ "" }'),
    ),
    Syntax("other braces", r"\{[\w.!:#,\[\]-]*\}", ("{a-b}", "{a,b}")),
    Syntax("printf: a percent sign", r"%%", ("%%",)),
    Syntax("Qt, Windows: an ampersand", r"&&", ("&&",), is_only_in_messages=True),
    Syntax(
        "HTML: comments, Mailchimp",
        r"<!--(?:[^-]|-(?!->)){0,999}+-->|\*\|[\w:]+\|\*",
        ("<!-- a -->", "*|FNAME|*"),
        is_only_in_messages=True,
    ),
    Syntax(
        "gettext: addresses of mail",
        r"<(?:%(?:\d+\$)?[s@]|%\d|\{[\w.]*\}|\$\w+)>",
        ("<%s>", "<%1>", "<{mail}>"),
        is_only_in_messages=True,
    ),
    Syntax("Apple's stringsdict", r"%(?:\d+\$)?#@\w+@", ("%#@files@", "%1$#@files@")),
    Syntax("Windows", r"%\d+![^!\s]+!", ("%1!s!", "%2!08x!")),
    Syntax(
        "Python", r"%\([^()\s]*\)[-+#0]*\d*(?:\.\d+)?[a-zA-Z]", ("%(name)s", "%(n)d", "%(x).2f")
    ),
    Syntax("Ruby", r"%<\w+>[-+#0]*\d*(?:\.\d+)?[a-zA-Z]", ("%<a>.2f", "%<city>s")),
    Syntax(
        "C",
        r"%(?:\d+\$)?[-+#0']*\d*(?:<PRI[a-zA-Z]+\d*>|PRI[diouxX](?:\d+|MAX|PTR)\b)",
        ("%<PRIu64>", "%PRIu64"),
    ),
    Syntax("GCC", r"%<(?:[^%\n]|%(?!>)){0,300}+%>", ("%<inline%>", "%<%E%>")),
    Syntax("Boost", r"%\|[^|\s]+\||(?<!\d)%\d{1,2}%(?![\w%])", ("%|1$+5|", "%1%")),
    Syntax(
        "Symfony, Windows",
        r"(?<!\d)%[A-Za-z_][\w.]+(?:\(x86\))?%(?![\w%])",
        ("%USERPROFILE%", "%count%", "%ProgramFiles(x86)%"),
    ),
    Syntax(
        "printf: C, Python, PHP, Perl, Objective-C, Java, Go",
        rf"{_FORMAT}[diouxXeEfFgGaAcCsSpnr@]{_ENDS}",
        ("%d", "%s", "%1$s", "%-10s", "%.1f", "%'d", "%*d", "%zu", "%lld", "%@", "%1$@", "%E"),
    ),
    Syntax("Qt", r"(?<!\d)%L?\d{1,2}(?![\w$])", ("%1", "%L1")),
    Syntax(
        "GCC, Go, Lua, Java, Tcl",
        # Behind a digit, too, as in "Episode 0%d"
        rf"{_FORMAT}[qt]?[a-zA-Z]{_ENDS}|(?<=\d)%(?:\d+\$)?0?\d*(?:\.\d+)?l?[dfiusxX@](?![\w'’])",
        ("%qs", "%qT", "%v", "%q", "%tY", "%1$tB"),
        is_only_in_messages=True,
    ),
    Syntax(
        "Drupal",
        r"(?<!\d)(?<!\d[ \u00a0\u202f])%[A-Za-z_]\w{2,}",
        ("%name",),
        is_only_in_messages=True,
    ),
    Syntax("i18next", r"\$t\((?:[^()\n]|\([^()\n]*+\))*+\)", ("$t(key)", '$t(a.b, {"count": 2})')),
    Syntax("browser extensions", r"\$[A-Za-z_]\w*\$", ("$USER$",)),
    Syntax("shell, PHP, Perl, Python", r"\$[A-Za-z_]\w*", ("$name", "$HOME")),
    Syntax(
        "shell, MediaWiki", r"\$\d{1,2}(?![\w.,]*\d)", ("$1", "$2"), is_only_in_messages=True
    ),
    Syntax(
        "Vue I18n",
        r"@(?:\.\w+)?:(?:\([^()\s]+\)|\{'[^'\n]*'\}|[A-Za-z_](?:[\w.-]*\w)?)",
        ("@:house.name", "@:{'a b'}", "@.lower:color", "@:(a.b)", "@.upper:(a)"),
    ),
    Syntax(
        "Slack, GitHub: names of emoji",
        r"(?<![\w:]):(?:[a-z][a-z0-9_+-]*|[+-]1|\d{2,4}):(?![\w:])",
        (":tada:", ":+1:", ":100:"),
    ),
    Syntax(
        "Laravel, SQL", r"(?<![\w:/.]):[A-Za-z_]\w*(?![\w:])", (":name", ":Count"),
        is_only_in_messages=True,
    ),
    Syntax(
        "Lisp, Erlang",
        r"~(?:\d+|,|'.|[:@])*[aAsSdDfFeEgGpPwWcCxXbBoOrR%~&$](?!\w)",
        ("~a", "~d", "~s", "~%", "~2d", "~,2f", "~:d"),
        is_only_in_messages=True,
    ),
    Syntax("Drupal", r"(?<![\w!])![a-z_]\w*", ("!name",), is_only_in_messages=True),
    Syntax(
        "Discourse, WordPress, BBCode, Laravel",
        # "[Optional]" is a word
        r"\[\[[^\[\]\n]+\]\]|\[(?![A-Z][a-z]+\])/?[A-Za-z_][\w.-]*(?:=[^\[\]\s]*)?"
        r"(?:\s[\w-]+=(?:\"[^\"\[\]]*\"|'[^'\[\]]*'|[^\s\[\]\"']+))*(?:\s?/)?\]|\[\d+,(?:\d+|\*)\]",
        ("[[name]]", "[name]", "[/b]", "[url=a]", '[gallery ids="1,2" size=a /]', "[2,*]"),
        is_only_in_messages=True,
    ),
    Syntax("i18next 1, Meteor", r"(?<!\w)__[A-Za-z]\w*?__(?!\w)", ("__count__",),
           is_only_in_messages=True),
    Syntax(
        "HTML",
        r"&(?:[A-Za-z][A-Za-z0-9]*|#\d+|#[xX][0-9a-fA-F]+);",
        ("&nbsp;", "&#160;", "&#xa0;"),
        is_only_in_messages=True,
    ),
    Syntax(
        "escapes", r"\\(?:[nrtbf\"']|u[0-9a-fA-F]{4})", (r"\n", r"\t", r"\u00a0"),
        is_only_in_messages=True,
    ),
)  # fmt: skip


class Code(NamedTuple):
    """Texts that are no words; as all of a text they are not translated."""

    name: str
    pattern: str
    examples: tuple[str, ...]


_STAMP = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?"
_DURATION = r"P(?:\d+[YMWD])+(?:T(?:\d+(?:\.\d+)?[HMS])+)?|PT(?:\d+(?:\.\d+)?[HMS])+"
_UUID = r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"
_HASH = (
    r"(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{7,128}|(?=[A-F]*\d)(?=\d*[A-F])[0-9A-F]{16,128}|"
    r"0[xX][0-9a-fA-F]+"
)
_ACCOUNT = r"[A-Z]{2}\d{2}[A-Z\d]{11,30}"
_CSS_PREFIX = r"(?:fa[bsrl]?|mdi|bi|glyphicon|btn|col|icon|ui)"
_DATE_LETTERS = (
    r"(?:y{1,4}|Y{1,4}|M{1,5}|d{1,4}|D{1,3}|H{1,2}|h{1,2}|m{1,2}|s{1,2}|S{1,6}|E{1,4}|a|A|z{1,4}|Z|"
    r"Do|LTS?)"
)
# Hyphens around them join words: "mother-in-law", "up-to-date"
_SMALL_WORDS = (
    r"(?:a|an|and|as|at|by|de|du|en|for|from|in|la|le|no|of|on|or|out|per|the|to|up|vs|with|y)"
)

CODES = (
    Code(
        "keys, hosts, names of files",
        r"(?=.*[\w$]{3})[A-Za-z_$][\w$-]*(?:\.[a-z_$][\w$-]*)+",
        ("some.key.name", "user.firstName", "example.org", "README.md"),
    ),
    Code(
        "snake_case",
        r"_*[a-z\d]+(?:_+[a-z\d]+)+_*|_*[A-Z\d]+(?:_+[A-Z\d]+)+_*|[a-z]{2,3}_[A-Z]{2}",
        ("snake_case", "SOME_CONST", "pt_BR"),
    ),
    Code(
        "camelCase",
        r"[a-z]+\d*(?:[A-Z][a-z\d]*)+|(?:[A-Z][a-z\d]+){2,}",
        ("camelCase", "ClassName"),
    ),
    Code(
        "kebab-case, with two hyphens or more",
        rf"(?!(?:\w+-)+{_SMALL_WORDS}-)[a-z][a-z\d]*(?:-+[a-z\d]+){{2,}}|[a-z]\w*(?:--|__)[\w-]+",
        ("btn-primary-large", "card--wide"),
    ),
    Code("CSS selectors", r"(?:[.#][a-z][\w-]*)+", (".btn", "#main.wide")),
    Code(
        "CSS classes",
        rf"(?:{_CSS_PREFIX}(?:-[\w-]+)?\s+)*{_CSS_PREFIX}-[\w-]+",
        ("btn-primary", "btn btn-primary", "fa-solid fa-house", "col-6"),
    ),
    Code(
        "CSS values",
        r"(?:-?\d*\.?\d+(?:px|r?em|v[hwb]|pt|fr|deg|m?s|%)(?:\s+|$))+"
        r"|(?:rgba?|hsla?|var|calc|url)\([^()]*\)",
        ("1.5rem", "10px 2em", "rgba(0, 0, 0, .5)", "var(--wide)"),
    ),
    Code(
        "versions",
        r"[vV^~<>=]*\d+(?:\.\d+)+(?:[-+.][A-Za-z\d]+)*",
        ("v1.2.3-beta.1", "2.0-rc1", "^1.4.0"),
    ),
    Code("regular expressions", r"\^\S*\$", ("^[a-z]+$",)),
    Code("languages", r"[a-z]{2,3}-(?:[A-Z]{2}|[A-Z][a-z]{3})", ("en-US", "zh-Hant")),
    Code(
        "MIME types",
        r"(?:application|audio|font|image|message|model|multipart|text|video)/[\w.+-]+"
        r"(?:;\s*\w+=[^\s;]+)*",
        ("text/html", "application/json; charset=utf-8"),
    ),
    Code(
        "paths",
        r"[\w@.-]+(?:/[\w@.*+-]+)+\.\w{1,8}|(?:\.{1,2}|~)?/[\w@.*+-]+(?:/[\w@.*+-]+)*/?",
        ("src/main.py", "./a/b", "/usr/bin/", "~/x"),
    ),
    Code(
        "time stamps, durations",
        rf"{_STAMP}|{_DURATION}",
        ("2020-01-01T00:00:00Z", "2020-03-15T09:30:00+02:00", "P1DT2H", "PT1.5S"),
    ),
    Code(
        "forms of dates",
        rf"(?=.*(?:yy|YY|MM|DD|dd|HH|hh|mm)){_DATE_LETTERS}(?:[-/:.,'\sT]+{_DATE_LETTERS})+",
        ("yyyy-MM-dd", "DD/MM/YYYY", "HH:mm:ss", "d MMM yyyy", "MMMM Do, h:mm a"),
    ),
    Code(
        "UUIDs, hashes, numbers to the base of 16",
        rf"{_UUID}|{_HASH}",
        ("123e4567-e89b-12d3-a456-426614174000", "a1b2c3d4e5", "0x1F2B"),
    ),
    Code(
        "options of commands",
        r"(?:-\w, ?)*(?:-\w|--[a-z][\w-]*)(?:[ =]?\[?=?<?[A-Z][A-Z_\d]*>?\]?)?",
        ("-a, --all", "--color[=WHEN]", "-n NUM"),
    ),
    Code("GNOME: names of translators", r"translator[-_]credits", ("translator-credits",)),
    Code(
        "keyboard shortcuts", r"(?:(?:Ctrl|Alt|Shift|Cmd|Meta|Super)\+)+\S{1,9}", ("Ctrl+Shift+O",)
    ),
    Code(
        "options of commands",
        r"(?:-{1,2}[A-Za-z\d][\w-]*(?:[ =]?\[?=?(?:<[\w-]+>|[A-Z][A-Z_]+)\]?)?(?:,\s*|\s+|$))+",
        ("-a", "-a, --all", "-o FILE, --output=FILE", "--color[=WHEN]"),
    ),
    Code("colors", r"#[0-9a-fA-F]{3,8}", ("#ff00aa", "#fff")),
    Code(
        "accounts, tokens",
        rf"{_ACCOUNT}|(?=\D*\d)(?=[^a-z]*[a-z])(?=[^A-Z]*[A-Z])[\w+/=.-]{{16,}}",
        ("DE89370400440532013000", "dGhpcyBpcyBhIHRva2VuMQ=="),
    ),
)
_CODE = re.compile("|".join(row.pattern for row in CODES))
_LONGEST_CODE = 256


def is_code(text: str) -> bool:
    """Tests whether a text is a name or a value that programs read, and no words."""
    return len(text) <= _LONGEST_CODE and _CODE.fullmatch(text) is not None


_UNIT = (
    r"(?:[kMGTP]i?B|[kMG]?[Hh]z|[kMm]?[WVA]|[kcmµn]?m|[kmµ]?g|[mcd]?[lL]|ms|px|pt|°[CF]?|"
    # Not the first sign of a placeholder, as in "10 %(name)s"
    r"%(?=$|[\s,;:!?)\]}\"»’”…/]|[.'-](?:\s|$)))"
)
# Not "20th", "1990s", "3 p.m.": their letters are translated, and often the number with them
_NUMBER = (
    r"(?<![\w.,])\d(?:[\d.,:/'’\u00a0\u202f-]*\d)(?:\s?" + _UNIT + r"(?![\w])|(?![\w]))"
    r"(?!\s?[ap]\.?m\b)"
)
_PICTURES = (
    r"[\u2190-\u21ff\u2600-\u27bf\u2b00-\u2bff\U0001f000-\U0001faff]"
    r"[\u200d\u20e3\ufe0f\u2600-\u27bf\U0001f000-\U0001faff\U000e0020-\U000e007f]*"
)
_ADDRESSES = (
    # Not what stands between quotations of GNU's: `a' and `b'
    r"`(?:[^`\n']|(?<=\w)'(?=\w)|(?<![\w}\])>])'[^'`\n]*')+`",
    r"\b(?:https?|ftps?|file)://[^\s<>\"'`]*[^\s<>\"'`.,;:!?)\]}]|\bwww\.[\w-]+\.[^\s<>\"'`]*[\w/]",
    r"\bdata:[\w.+-]+/[\w.+-]+[;,][^\s<>\"'`]*|\b(?:tel|sms):\+?\d[\d-]+",
    r"(?:\bmailto:)?\b[\w.+-]{1,64}@\w[\w-]*(?:\.\w[\w-]*)+",
    r"(?<![\w/])(?:~?/[\w.-]*\w){2,}/?|\b[A-Z]:\\[^\s<>\"'`]+",
)
"""Texts that may have a placeholder in them."""
_OTHERS = (
    r"(?<![\w/.-])[\w.-]+/[\w.-]+#\d+\b",
    r"(?<![\w-])--[a-zA-Z][\w-]*|(?<!\w)(?:@[A-Za-z_]\w*|#[A-Za-z_]\w*(?:/\w+)*)|(?<![\w&#])#\d+\b|(?<![\w&])#(?=\w*\d)[0-9a-fA-F]{3,8}\b",
    rf"\b(?:{_STAMP}|{_DURATION}|{_UUID}|{_HASH}|{_ACCOUNT})\b",
    r"(?<![\w.])v?\d+(?:\.\d+){2,}(?::\d+)?(?![\w])",
    _NUMBER,
    _PICTURES,
)


def _compile_rows(*, in_messages: bool) -> re.Pattern[str]:
    rows = (row.pattern for row in SYNTAXES if in_messages or not row.is_only_in_messages)
    return re.compile("|".join((*_ADDRESSES, f"(?P<placeholder>{'|'.join(rows)})", *_OTHERS)))


COPIED = {is_message: _compile_rows(in_messages=is_message) for is_message in (False, True)}
"""Texts that are copied in prose, and in messages."""
_IN_ORDER = re.compile(r"%(?!\d+\$)[-+#0'\d.*]*[a-zA-Z@]+|\{(?:[:!][^{}]*)?\}|~[\d,:@']*[a-zA-Z]")
"""Placeholders that are filled in the order in which they stand."""
_MARKS = ("{", "}", "%", "~", "$")


def placeholders_differ(source: str, translation: str, *, is_message: bool) -> bool:
    """Tests whether a translation lacks a placeholder, broke it, or has it too often."""
    ours, theirs = (_placeholders(text, is_message=is_message) for text in (source, translation))
    known, new = Counter(ours.placeholders), Counter(theirs.placeholders)
    if not (known or is_message):
        return False
    if any(new[text] != number for text, number in known.items()):
        return True
    marks = [mark for mark in _MARKS if any(mark in text for text in known)]
    marks += "{}" if is_message else ""
    # ":name" and "[x]" may be marks of a translation; braces and conversions are none
    for text in new.keys() - known.keys():
        if text[0] in "{%" or any(mark in text for mark in marks):
            return True
    if any(ours.rest.count(mark) != theirs.rest.count(mark) for mark in marks):
        return True
    return _in_order(ours.placeholders) != _in_order(theirs.placeholders)


def _in_order(placeholders: list[str]) -> list[str]:
    """Lists those that are filled in their order; quotation marks of GCC have some in them."""
    in_order: list[str] = []
    for text in placeholders:
        if text.endswith("%>"):
            in_order += _IN_ORDER.findall(text[2:-2])
        elif _IN_ORDER.fullmatch(text):
            in_order.append(text)
    return in_order


class _Placeholders(NamedTuple):
    placeholders: list[str]
    rest: str
    """The text without them."""


def _placeholders(text: str, *, is_message: bool) -> _Placeholders:
    placeholders: list[str] = []

    def take(match: re.Match[str]) -> str:
        if not match.lastgroup:
            return match[0]
        placeholders.append(match[0])
        return " "

    rest = COPIED[is_message].sub(take, text)
    return _Placeholders(placeholders, rest)
