"""Tokens and prompts that name a language, before a source sentence or a translation."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Literal

from tformer_cli.errors import UsageError

_SHOWN = 6
"""Known codes that a message names."""


@dataclass(frozen=True, kw_only=True)
class Languages:
    """How a model is told which language it reads and which it writes."""

    tokens: Mapping[str, str] = field(default_factory=dict)
    """Piece of each language, by its code."""
    before_source: Literal["none", "source", "target"] = "none"
    """Language whose token every source sentence begins with, if it is set."""
    after_source: bool = False
    """True if the token of the source's language stands behind `</s>` at the end of a source
    sentence instead, as in older prompts of NLLB; its model adds no `</s>`."""
    before_target: bool = False
    """True if every translation begins with the token of its language."""
    in_text: bool = False
    """True if `>>code<<` at the beginning of a source text is such a token."""
    prompts: Mapping[str, str] = field(default_factory=dict)
    """Text that source sentences begin with to be translated, by the code of the language that is
    written: "translate English to German: " of T5, "<2de>" of MADLAD-400. Its models have no
    tokens of languages; what a text begins with by itself stays as it is."""
    source: str | None = None
    """Code of the language that is read; None: not set."""
    target: str | None = None
    """Code of the language that is written; None: not set."""

    def __post_init__(self) -> None:
        for code in (self.source, self.target):
            if code is not None and code not in self.codes:
                raise ValueError(f"has no token for its language {code}")

    @property
    def codes(self) -> Collection[str]:
        """Codes of the languages that can be named."""
        return (self.prompts or self.tokens).keys()

    @property
    def prompt(self) -> str:
        """The text that source sentences begin with; empty if there is none or it is not chosen."""
        return self.prompts.get(self.target or "", "")

    @property
    def source_pieces(self) -> tuple[str, ...]:
        """The piece before a source sentence."""
        if self.before_source == "none" or self.after_source or self.prompts:
            return ()
        return self._piece(self.source if self.before_source == "source" else self.target)

    @property
    def source_end_pieces(self) -> tuple[str, ...]:
        """The pieces behind a source sentence."""
        return ("</s>", *self._piece(self.source)) if self.after_source else ()

    @property
    def target_pieces(self) -> tuple[str, ...]:
        """The piece that a translation begins with."""
        return self._piece(self.target) if self.before_target else ()

    @property
    def has_source(self) -> bool:
        """True if the language that is read can be chosen."""
        return bool(self.tokens) and self.before_source == "source"

    @property
    def has_target(self) -> bool:
        """True if the language that is written can be chosen."""
        has_tokens = bool(self.tokens) and (self.before_target or self.before_source == "target")
        return has_tokens or bool(self.prompts)

    def chosen(self, source: str | None, target: str | None) -> "Languages":
        """The same with other languages; None keeps one."""
        for side, code, can in (
            ("source", source, self.has_source),
            ("target", target, self.has_target),
        ):
            if code is not None and not can:
                raise UsageError(
                    f"--{side}-language: this model has no tokens for the language of its "
                    f"{side}; omit it"
                )
            if code is not None and code not in self.codes:
                raise UsageError(
                    f'--{side}-language: this model does not know "{code}"; {self._known(code)}'
                )
        return replace(self, source=source or self.source, target=target or self.target)

    def check(self) -> None:
        """Makes sure that the languages that must be known are set."""
        for side, code, is_needed in (
            ("source", self.source, self.has_source),
            ("target", self.target, self.before_target),
        ):
            if is_needed and code is None:
                raise UsageError(
                    f"--{side}-language: this model knows {len(self.codes)} languages, and none "
                    f"is chosen; {self._known('')}"
                )

    def _known(self, code: str) -> str:
        near = get_close_matches(code, self.codes, n=_SHOWN, cutoff=0.4)
        named = [*near, *(one for one in sorted(self.codes) if one not in near)][:_SHOWN]
        rest = len(self.codes) - len(named)
        more = f" or one of {rest} others" if rest else ""
        return f"choose {', '.join(named)}{more}"

    def _piece(self, code: str | None) -> tuple[str, ...]:
        return () if code is None else (self.tokens[code],)


NO_LANGUAGES = Languages()
"""Of a model that translates from one language to another."""
