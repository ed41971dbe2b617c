"""Hatchling's hooks: `pip install` compiles the kernels where there is a compiler.

Only a build runs it, never the program: so it lies outside of `fast/`, whose folder may be deleted.
See `fast/native/build.py` for the environment variables that it knows.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface


class KernelsHook(BuildHookInterface[Any]):
    """Adds a library for each level to a wheel, or to the checkout where it is editable.

    A wheel also gets the package `tformer`, which is another name of `tformer_cli`.
    """

    _aside: tempfile.TemporaryDirectory[str] | None = None

    def dependencies(self) -> list[str]:
        """Names what pip has to install for the build."""
        return ["ziglang"] if os.environ.get("TFORMER_BUILD_COMPILER") == "zig" else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compiles; what a user asked for must be had, and else a wheel goes without."""
        if self.target_name == "wheel" and version != "editable":
            # An editable install finds it in the checkout: a copy would not follow its changes
            alias = Path(self.root) / "tformer_cli/api/alias/tformer"
            build_data["force_include"][str(alias)] = "tformer"
        has_kernels = (Path(self.root) / "tformer_cli/fast").is_dir()
        if self.target_name != "wheel" or not has_kernels:
            return
        sys.path.insert(0, self.root)  # the package is not installed yet
        from tformer_cli.fast.native import build, library

        setting = os.environ.get("TFORMER_BUILD_LEVELS", "")
        self._aside = tempfile.TemporaryDirectory()
        folder = library.LIBRARIES if version == "editable" else Path(self._aside.name)
        try:
            compiler = build.require_compiler()
            chosen = build.levels_asked_for(compiler, setting)
            libraries = build.build(chosen, folder, compiler=compiler)
        except build.BuildError as error:
            if setting not in ("", "none") or "TFORMER_BUILD_COMPILER" in os.environ:
                self.app.abort(f"error: the kernels that were asked for: {error}")
            self.app.display_warning(f"without compiled kernels, which is slower: {error}")
            return
        if version == "editable" or not libraries:
            return
        target = library.LIBRARIES.relative_to(self.root)
        build_data["force_include"].update(
            {str(path): str(target / path.name) for path in libraries}
        )
        build_data["pure_python"] = False  # libraries are of one platform
        build_data["tag"] = f"py3-none-{build.wheel_platform(libraries, compiler)}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        """Removes what the wheel has by now."""
        if self._aside is not None:
            self._aside.cleanup()


class ReadmeHook(MetadataHookInterface):
    """Describes the package by README.md, as a package index can show it."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Removes pictures and links of the checkout, which an index does not have."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        text = re.sub(r"(?m)^!\[.*\]\(.*\)\n\n", "", text)
        text = re.sub(r"\[([^\]]*)\]\((?!#|https?:)[^)]*\)", r"\1", text)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
