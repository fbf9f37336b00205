"""The process that runs a job: its folder, its pid file and its signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.conftest import PATIENCE

from redrive.checkpoints.instances import Share
from redrive.configuration import Conflict, JobConfiguration
from redrive.errors import AlreadyRunningError, EnvironmentFault
from redrive.operations.process import PidFile, check_directory, free_directory, handling_signals


def test_the_pid_file_names_the_process_as_long_as_it_runs(job: JobConfiguration) -> None:
    file = PidFile(job.directory, job.share)
    assert file.owner() is None
    with PidFile.held(job):
        assert file.owner() == os.getpid()
    assert file.owner() is None
    assert not file.path.exists()


def test_what_a_killed_process_left_is_no_obstacle(job: JobConfiguration) -> None:
    path = PidFile(job.directory, job.share).path
    path.write_text("1\n")
    assert PidFile(job.directory, job.share).owner() is None
    with PidFile.held(job):
        assert path.read_text() == f"{os.getpid()}\n"


ASKING = """
import sys
from pathlib import Path
from redrive.checkpoints.instances import Share
from redrive.operations.process import PidFile
file = PidFile(Path(sys.argv[1]), Share(1, 1))
print("ready", flush=True)
sys.stdin.readline()
print(sum(file.owner() is not None for _ in range(int(sys.argv[2]))))
"""
"""Asks so many times who owns the file, and counts the times that somebody seemed to."""
QUESTIONS = 20_000
"""Times that each of two processes asks."""


def test_askers_never_take_each_other_for_the_owner(job: JobConfiguration) -> None:
    """Two processes ask at once, 40,000 times together, about a file of a live number."""
    PidFile(job.directory, job.share).path.write_text(f"{os.getpid()}\n")
    command = [sys.executable, "-c", ASKING, str(job.directory), str(QUESTIONS)]
    askers = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for asker in askers:
        assert asker.stdout is not None
        assert asker.stdout.readline() == "ready\n"
    for asker in askers:
        assert asker.stdin is not None
        asker.stdin.write("\n")
        asker.stdin.flush()
    assert [asker.communicate()[0] for asker in askers] == ["0\n", "0\n"]


def test_a_number_that_is_gone_owns_nothing(job: JobConfiguration) -> None:
    with PidFile.held(job) as file:
        with subprocess.Popen([sys.executable, "-c", ""]) as process:
            process.wait()
        file.path.write_text(f"{process.pid}\n")
        assert PidFile(job.directory, job.share).owner() is None


def test_a_second_process_is_refused(job: JobConfiguration) -> None:
    with PidFile.held(job) as first:
        with (
            pytest.raises(AlreadyRunningError, match=f"process {os.getpid()} already runs"),
            PidFile.held(job),
        ):
            pass
        assert first.owner() == os.getpid()


def test_another_share_has_its_own_pid_file(tmp_path: Path) -> None:
    first, second = (PidFile(tmp_path, Share(number, 2)) for number in (1, 2))
    assert first.path != second.path
    assert first.path.name == "redrive-1-of-2.pid"


def test_a_job_that_takes_over_gets_the_pid_file(job: JobConfiguration) -> None:
    job = replace(job, on_conflict=Conflict.TAKE_OVER)
    with PidFile.held(job) as newer_later, PidFile.held(job) as newer:
        newer_later._release()
        assert newer.path.exists()
        assert PidFile(job.directory, job.share).owner() == os.getpid()
    assert not newer.path.exists()


def test_each_of_several_instances_has_a_folder_of_its_own(job: JobConfiguration) -> None:
    folder = job.directory
    with free_directory(folder) as first:
        with free_directory(folder) as second, free_directory(folder) as third:
            assert [first, second, third] == [folder, folder / "2", folder / "3"]
        with free_directory(folder) as again:
            assert again == folder / "2"
    with PidFile.held(job), free_directory(folder) as beside:
        assert beside == folder / "2"


def test_a_folder_is_made_or_its_fault_is_told(tmp_path: Path) -> None:
    check_directory(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentFault, match=r"file/b cannot be written: not a directory"):
        check_directory(tmp_path / "file" / "b")


def test_signals_become_requests() -> None:
    """Each by its name; what was there before is there again."""
    before = signal.getsignal(signal.SIGHUP)
    asked: list[str] = []
    with handling_signals(asked.append, lambda: asked.append("restart")):
        signal.raise_signal(signal.SIGHUP)
    assert asked == ["restart"]
    assert signal.getsignal(signal.SIGHUP) is before


def test_without_settings_to_read_again_hangup_stops() -> None:
    before = signal.getsignal(signal.SIGHUP), signal.getsignal(signal.SIGTERM)
    asked: list[str] = []
    try:
        with handling_signals(asked.append, None):
            signal.raise_signal(signal.SIGHUP)
        assert asked == ["SIGHUP"]
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before[0])
        signal.signal(signal.SIGTERM, before[1])
        signal.signal(signal.SIGINT, signal.default_int_handler)


_KEPT_BY_A_CLIENT = """
import ctypes, os
from redrive.operations.process import handling_signals
mutex, lock = ctypes.create_string_buffer(256), ctypes.CDLL(None).pthread_mutex_lock
with handling_signals(lambda name: os._exit(7), None):
    print("kept", flush=True)
    lock(mutex), lock(mutex)
"""


def test_a_signal_is_heard_while_a_client_keeps_the_main_thread() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _KEPT_BY_A_CLIENT], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "kept\n"
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE) == 7
        finally:
            process.kill()
