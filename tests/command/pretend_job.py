"""``redrive`` with a job that does nothing but obey, so that no test here starts Spark."""

from redrive.__main__ import main
from redrive.command import run
from redrive.configuration import JobConfiguration
from redrive.streaming.lifecycle import JobControl, Restart, Stop


def pretend(configuration: JobConfiguration, control: JobControl, **_: object) -> int:
    """Start, take requests as the real job does, and stop."""
    control.started(configuration)
    while True:
        match control.next_request(timeout=0.05):
            case Stop(reason):
                control.stopped(reason)
                return 0
            case Restart() as restart:
                if (fresh := control.load(restart)) is not None:
                    control.restarted(fresh, is_new_run=True)
            case None:
                pass


if __name__ == "__main__":
    run._job = lambda: pretend
    main()
