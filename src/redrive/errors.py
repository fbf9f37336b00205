"""The errors of the whole project.

    RedriveError
    ├── ConfigurationError    settings, rules tables or definitions that must not start a job
    ├── UsageError            a command line that cannot be carried out as it stands
    ├── NotFoundError         what was asked for by its name is not there
    ├── EnvironmentFault      what the machine or the network lacks: Java, jars, disk, a broker
    │   └── UnreachableFault  no broker answers
    ├── AlreadyRunningError   another instance works on the same share of the partitions
    ├── RestartRequired       this process cannot go on, and a new one can: Java is gone
    └── ProtocolError         the exactly-once protocol cannot go on
        ├── TransientFault    the same step may succeed when it is tried again
        ├── OutcomeUnknown    a request was sent and its answer was lost
        ├── FencedFault       a newer producer with the same transactional id was opened
        └── FatalFault        this process has to stop: it was refused for good
            └── SupersededFault   a newer run of the same share took over

This module, like ``redrive.diagnostics``, stands below every package and imports none of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Final

if TYPE_CHECKING:
    from redrive.diagnostics import Diagnostic

EXIT_STALLED: Final = 75
"""Exit code of a process that is to be started again (EX_TEMPFAIL): it stalled, or Java is gone."""


class RedriveError(Exception):
    """What was wrong and where; ``hint`` says what to do next.

    Attributes:
        message: One sentence for the user, without a trailing full stop.
        hint: What the user can do about it, or an empty string.
        exit_code: How a command ends that raises it.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class ConfigurationError(RedriveError):
    """Configuration that must not start a job.

    Attributes:
        diagnostics: Every finding, errors and warnings, in the order of the source.
    """

    def __init__(
        self, message: str, *, hint: str = "", diagnostics: Sequence[Diagnostic] = ()
    ) -> None:
        super().__init__(message, hint=hint)
        self.diagnostics = tuple(diagnostics)


class UsageError(RedriveError):
    """A command line that cannot be carried out as it stands."""

    exit_code = 2


class NotFoundError(RedriveError):
    """What was asked for by its name is not there."""


class EnvironmentFault(RedriveError):
    """What the machine or the network lacks: Java, jars, disk space, a broker."""


class UnreachableFault(EnvironmentFault):
    """No broker answers; one that does may refuse, which is another fault."""


class AlreadyRunningError(RedriveError):
    """Another instance works on the same share of the source partitions."""


class RestartRequired(RedriveError):
    """This process cannot go on, and a new one can: it ends with ``EXIT_STALLED``."""

    exit_code = EXIT_STALLED


class ProtocolError(RedriveError):
    """The exactly-once protocol cannot take its next step."""


class TransientFault(ProtocolError):
    """The same step may succeed when it is tried again."""


class OutcomeUnknown(ProtocolError):
    """A request was sent and its answer was lost: the effect may or may not have happened."""


class FencedFault(ProtocolError):
    """A newer producer with the same transactional id was opened, or a transaction took too long.

    By itself it says nothing about who may emit: the entry of the share in the control topic does.
    """


class FatalFault(ProtocolError):
    """This process has to stop: what it needs is refused for good."""


class SupersededFault(FatalFault):
    """A newer run of the same share took over; what this one had not committed, that one does."""
