"""Remembers compiled templates in the user's own temporary folder: compiling them takes longer than filling them in."""

from __future__ import annotations

import contextlib

from jinja2.bccache import Bucket, BytecodeCache, FileSystemBytecodeCache

from audit import __version__


class CompiledTemplates(FileSystemBytecodeCache):
    """Jinja's folder of compiled templates, known by their source; a full disk only costs the time saved."""

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Keep a compiled template for the next run, if there is room."""
        with contextlib.suppress(OSError):
            super().dump_bytecode(bucket)


def compiled_templates() -> BytecodeCache | None:
    """The folder, or None where no temporary folder is safe: someone else could write there what we would run."""
    try:
        return CompiledTemplates(pattern=f"gen-audit-{__version__}-%s.cache")
    except (OSError, RuntimeError):
        return None
