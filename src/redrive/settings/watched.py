"""A digest of the content of all files of a job's settings.

A folder that Kubernetes mounts from a ConfigMap changes when a symbolic link is swapped, while
names and times of its files do not, so the content is compared.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from redrive.errors import RedriveError
from redrive.settings.document import Document, Option
from redrive.settings.environment import with_environment
from redrive.settings.findings import Section
from redrive.settings_file import FORM
from redrive.topology.files import named_sources

_MISSING = b"missing"


@dataclass(frozen=True, slots=True)
class WatchedFiles:
    """The settings file and the files it names: rules tables, definitions and patches."""

    path: Path | None
    """The settings file; None if there are only options."""
    options: Sequence[Option]
    environ: Mapping[str, str]

    @classmethod
    def of(cls, path: Path | None, options: Sequence[Option]) -> WatchedFiles:
        """The files of a job with this environment."""
        return cls(path, options, os.environ)

    def digest(self) -> bytes:
        """A digest of the content of all files."""
        digest = hashlib.blake2b(digest_size=16)
        for path in self._files():
            try:
                content = hashlib.blake2b(path.read_bytes()).digest()
            except OSError:
                content = _MISSING
            digest.update(b"%b %b;" % (os.fsencode(path), content))
        return digest.digest()

    def _files(self) -> Iterator[Path]:
        document = Document.empty()
        if self.path is not None:
            yield self.path
            # A broken file names nothing, and is the one that has to change.
            with suppress(RedriveError):
                document = Document.from_file(self.path)
        document = with_environment(document, self.environ)
        yield from _named(document.with_options("redrive run", self.options), self.environ)


def _named(document: Document, environ: Mapping[str, str]) -> Iterator[Path]:
    root = Section.whole(document, environ, FORM)
    named = [handler.file("rules") for handler in root.inners(root.value.handlers, "handlers")]
    for name, table in root.value.transforms.items():
        named.append(root.inner(table, "transforms", name).file("json_patch"))
    yield from filter(None, named)
    for index, written in enumerate(root.value.topology.files):
        path_of = partial(document.path_of, ("topology", "files", index))
        yield from (source.path for source in named_sources(written, path_of).sources)
