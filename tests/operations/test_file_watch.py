"""A change of files is one request to restart, once it is complete."""

from redrive.errors import EnvironmentFault
from redrive.operations.restart import FileWatch


class Files:
    """Files whose content a test chooses, and the restarts that were asked for with it."""

    def __init__(self) -> None:
        self.content = b"old"
        self.asked: list[bytes] = []
        self.watch = FileWatch(lambda: self.content, taken=b"old", restart=self.restart)

    def restart(self) -> None:
        self.asked.append(self.content)
        raise EnvironmentFault("the job has not answered within 60 s")

    def become(self, *contents: bytes) -> None:
        for self.content in contents:
            self.watch.look()


def test_a_change_is_asked_for_once() -> None:
    files = Files()
    files.become(b"old", b"new", b"new", b"new", b"new")
    assert files.asked == [b"new"]


def test_files_that_still_change_are_waited_for() -> None:
    files = Files()
    files.become(b"a", b"b", b"old", b"old", b"c", b"d", b"d")
    assert files.asked == [b"d"]


def test_going_back_is_a_change_too() -> None:
    files = Files()
    files.become(b"broken", b"broken", b"old", b"old")
    assert files.asked == [b"broken", b"old"]
