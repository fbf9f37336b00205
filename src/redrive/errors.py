"""The errors of the whole project.

    RedriveError
    ├── ConfigurationError    settings, rules tables or definitions that must not start a job
    ├── UsageError            a command line that cannot be carried out
    ├── NotFoundError         a named thing does not exist
    ├── EnvironmentFault      the machine or the network lacks something: Java, jars, disk, a broker
    │   └── UnreachableFault  no broker answers
    ├── AlreadyRunningError   another instance works on the same share of the partitions
    ├── RestartRequired       this process cannot continue, but a new one can: Java has ended
    └── ProtocolError         the exactly-once protocol cannot continue
        ├── TransientFault    the same step may succeed when retried
        ├── OutcomeUnknown    a request was sent and its answer was lost
        ├── FencedFault       a newer producer with the same transactional id was opened
        ├── RecreatedFault    a topic was deleted or recreated while its records were read
        └── FatalFault        this process has to stop: it was refused permanently
            └── SupersededFault   a newer run of the same share took over

This module, like ``redrive.diagnostics``, imports no package.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Final

if TYPE_CHECKING:
    from redrive.diagnostics import Diagnostic

EXIT_STALLED: Final = 75
"""Exit code of a process to start again (EX_TEMPFAIL): it stalled, or Java has ended."""


class RedriveError(Exception):
    """What is wrong and where; ``hint`` says what to do next.

    Attributes:
        message: One sentence for the user, without a trailing full stop.
        hint: What the user can do about it, or an empty string.
        exit_code: Exit code of a command that raises it.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if hint:
            self.add_note(f"hint: {hint}")


class ConfigurationError(RedriveError):
    """Configuration that must not start a job.

    Attributes:
        diagnostics: Every finding, errors and warnings, in the order of the source.
    """

    def __init__(
        self, message: str, *, hint: str = "", diagnostics: Sequence[Diagnostic] = ()
    ) -> None:
        for finding in diagnostics:
            self.add_note(finding.render())
        super().__init__(message, hint=hint)
        self.diagnostics = tuple(diagnostics)


class UsageError(RedriveError):
    """A command line that cannot be carried out."""

    exit_code = 2


class NotFoundError(RedriveError):
    """A named thing does not exist."""


class EnvironmentFault(RedriveError):
    """The machine or the network lacks something: Java, jars, disk space, a broker."""


class UnreachableFault(EnvironmentFault):
    """No broker answers; a broker that answers and refuses is another fault."""


class AlreadyRunningError(RedriveError):
    """Another instance works on the same share of the source partitions."""


class RestartRequired(RedriveError):
    """This process cannot continue, but a new one can: it ends with ``EXIT_STALLED``."""

    exit_code = EXIT_STALLED


class ProtocolError(RedriveError):
    """The exactly-once protocol cannot take its next step."""


class TransientFault(ProtocolError):
    """The same step may succeed when retried."""


class OutcomeUnknown(ProtocolError):
    """A request was sent and its answer was lost, so its effect is unknown."""


class FencedFault(ProtocolError):
    """A newer producer with the same transactional id was opened, or a transaction took too long.

    It does not say which run may emit: the entry of the share in the control topic does.
    """


class RecreatedFault(ProtocolError):
    """A topic was deleted or recreated while its records were read; a new run starts with it."""


class FatalFault(ProtocolError):
    """This process has to stop: something it needs is refused permanently."""


class SupersededFault(FatalFault):
    """A newer run of the same share took over, and continues with uncommitted work."""
