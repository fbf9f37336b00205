"""Where a ledger is: a folder of this machine, or one in an object store.

All differences between the two are here. In an object store commits are conditional puts, so any
number of machines may write; what only one process needs (a lock, Spark's checkpoint, the table of
open dead letters) is in a local folder in both cases.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, TypeVar

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from redrive.configuration import LedgerFolder, RemoteFolder
from redrive.errors import AlreadyRunningError, EnvironmentFault, UsageError
from redrive.kafka.deadline import GLIMPSE, DeadlineThread

_Answer = TypeVar("_Answer")

_CLIENT: Final = {
    # An outage of half a minute is bridged within one step, with any number of retries.
    "retry_timeout": "30s",
    "max_retries": "1000",
    "connect_timeout": "3s",
}
_READER: Final = {
    # A user waits, and often gets an answer without the ledger. Pauses stay short, as the last one
    # may begin just before the timeout.
    "retry_timeout": "3s",
    "backoff_config.max_backoff": "500ms",
}
_PROBE: Final = {"timeout": "3s"}
"""For a small request that shows whether a store answers."""
_NOWHERE: Final = "_no_table"
"""A folder of the ledger that never has a table."""
_S3: Final = {
    # Of two commits of one version the second is refused (If-None-Match).
    "conditional_put": "etag",
}
_FILES_OF_AWS: Final = ("AWS_PROFILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE")
"""Variables that name files with credentials; the library reads them only on request."""
_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")
_QUERIES: Final = re.compile(r"(https?://[^\s?]*)\?\S*")


def is_remote(folder: LedgerFolder) -> bool:
    """Whether other machines may also write there."""
    return isinstance(folder, RemoteFolder)


def may_exist(folder: LedgerFolder) -> bool:
    """Whether a ledger may exist; an object store is not asked."""
    return isinstance(folder, RemoteFolder) or folder.exists()


def local_path(folder: LedgerFolder) -> Path:
    """The folder, for code that reads only local ledgers.

    Raises:
        UsageError: It is in an object store.
    """
    if isinstance(folder, RemoteFolder):
        raise UsageError(f"Spark does not read the ledger in {folder}", hint="use --no-spark")
    return folder


def arguments(folder: LedgerFolder, *, bridges_outages: bool = True) -> dict[str, Any]:
    """The table for the library: its name, and options without secrets.

    Readers do not bridge outages of the store: their requests fail after some seconds.
    """
    if isinstance(folder, Path):
        return {"table_uri": str(folder)}
    options = {**_CLIENT, **({} if bridges_outages else _READER), **folder.options}
    if folder.is_s3:
        options |= _S3
        if not os.environ.get("AWS_ACCESS_KEY_ID") and any(map(os.environ.get, _FILES_OF_AWS)):
            options["aws_force_credential_load"] = "true"
    return {"table_uri": folder.url, "storage_options": options}


def read_answering(folder: LedgerFolder, read: Callable[[], _Answer]) -> _Answer:
    """The result of reading from a store, for as long as it takes while the store answers.

    A store that takes requests and stays silent would hold a reader for half a minute. The silent
    request is left to its own timeout.

    Raises:
        EnvironmentFault: The store does not answer.
    """
    if not isinstance(folder, RemoteFolder):
        return read()
    thread = DeadlineThread("redrive-ledger-read")
    try:
        reading = thread.submit("reading the ledger", read)
        while not reading.is_made_within(GLIMPSE):
            problem = _silence(folder)
            if problem and not reading.is_made_within(0):
                raise _fault(folder, f"the store does not answer: {problem}")
        return reading.answer(0)
    finally:
        thread.end()


def _silence(folder: RemoteFolder) -> str:
    """Why a store does not answer a small request; empty if it does."""
    named = arguments(folder, bridges_outages=False)
    options = {**named["storage_options"], **_PROBE}
    try:
        # Not is_deltatable, which holds Python's lock while it waits.
        DeltaTable(f"{folder.url.rstrip('/')}/{_NOWHERE}", storage_options=options)
    except TableNotFoundError:
        return ""
    except (DeltaError, OSError) as error:
        return _cause(str(error), whole=True)
    return ""


def lock_file(folder: LedgerFolder) -> Path:
    """The file that a process locks to append to a ledger, to compact or to delete it.

    It is in a local folder for the projection: beside that of the ledger, or in the job's.
    """
    if isinstance(folder, RemoteFolder):
        return folder.beside / "lock"
    return folder.with_name(f"{folder.name}-projection") / "lock"


def open_letters_folder(folder: LedgerFolder) -> Path:
    """The folder of the table of a ledger's open dead letters."""
    return lock_file(folder).with_name("open")


@contextlib.contextmanager
def locked(folder: LedgerFolder) -> Iterator[None]:
    """Hold the lock of a ledger, unless a job of this machine projects into it.

    Raises:
        AlreadyRunningError: A job projects into it.
    """
    file = lock_file(folder)
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as handle:
        try:
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise in_use(folder) from error
        yield


def in_use(folder: LedgerFolder) -> AlreadyRunningError:
    """The error of a change to a ledger that a job projects into."""
    return AlreadyRunningError(
        f"a running job projects into the ledger {folder}",
        hint="the job itself compacts it every 15 minutes; stop the job for anything else",
    )


@contextlib.contextmanager
def explained(folder: LedgerFolder) -> Iterator[None]:
    """Translate errors of the library into faults of the ledger in a folder."""
    try:
        yield
    except (DeltaError, OSError, pa.ArrowException) as error:
        raise _fault(folder, _cause(str(error), whole=is_remote(folder))) from error
    except BaseException as error:
        # A panic of the library in Rust; its class cannot be imported and is no Exception.
        if type(error).__name__ != "PanicException":
            raise
        cause = f"the library failed: {_cause(str(error), whole=True)}"
        raise _fault(folder, cause) from error


def _fault(folder: LedgerFolder, cause: str) -> EnvironmentFault:
    return EnvironmentFault(
        f"the ledger in {folder} cannot be used: {cause}",
        hint="check the store, the credentials in the environment, and [ledger]"
        if is_remote(folder)
        else "check the folder, its disk and its owner; docs/ledger.md says what a new ledger"
        " would lack",
    )


def _cause(text: str, *, whole: bool) -> str:
    """The library's message on one line, without the queries of URLs, which may have signatures."""
    if not whole:
        # The lines after the first are for the library's own developers.
        return text.partition("\n")[0]
    plain = _QUERIES.sub(r"\1", _COLOURS.sub("", text).replace("↳", ""))
    return " ".join(plain.split())
