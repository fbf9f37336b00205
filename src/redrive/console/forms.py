"""What pages and scripts send: the parameters of lists, and the forms of actions."""

import re
from inspect import signature
from typing import Annotated, Any, Final

from pydantic import BaseModel, Field

from redrive.command.edits import patch_of, read_edit
from redrive.command.selection import parse_selection
from redrive.errors import UsageError
from redrive.operations.replay.plan import Order, parse_rate, parse_target
from redrive.outcomes.inventory import Selection, State

_LINE: Final = re.compile("[0-9]{1,9}")


class Chosen(BaseModel):
    """The options of ``redrive ls`` as parameters of a page."""

    status: str = State.OPEN.value
    reason: str = ""
    destq: str = ""
    rule: str = ""
    handler: str = ""
    key: str = ""
    since: str = ""
    older_than: str = ""
    where: str = ""
    limit: Annotated[int, Field(ge=1, le=1000)] = 50

    def selection(self) -> Selection:
        """The selection; raises ``UsageError``."""
        if self.status not in {*State}:
            raise UsageError(f"{self.status!r} is not a state", hint=f"give {', '.join(State)}")
        if self.rule and not _LINE.fullmatch(self.rule):
            raise UsageError(
                f"{self.rule!r} is not a line number", hint="give the line number of a rule"
            )
        names = signature(parse_selection).parameters
        options: dict[str, Any] = {name: getattr(self, name) or None for name in names}
        options |= {"rule": int(self.rule) if self.rule else None, "where": self.where}
        return parse_selection(**options)

    def parameters(self) -> dict[str, Any]:
        """Options that differ from the defaults, for links of a list."""
        return self.model_dump(exclude_defaults=True, exclude={"page"})


class ListedPage(Chosen):
    """One page of a list."""

    page: Annotated[int, Field(ge=1, le=1_000_000)] = 1


class Planned(Chosen):
    """The form of a new plan."""

    message: str = ""
    """The identity of one message; the other options are then ignored."""
    to: str = "original"
    queue: str = ""
    rate: str = ""
    keeps_header: bool = False
    set_headers: str = ""
    """``NAME=VALUE``, one a line."""
    drop_headers: str = ""
    """Names, one a line."""
    json_patch: str = ""
    edited: str = ""
    """The edited text of one message."""

    def selection(self) -> Selection:
        """The selection; raises ``UsageError``."""
        return Selection(message=self.message) if self.message else super().selection()

    def order(self) -> Order:
        """What to do with the messages; raises ``UsageError``."""
        to, target = parse_target(self.queue if self.to == "queue" else self.to)
        rate = parse_rate(self.rate) if self.rate else None
        lines = (text.splitlines() for text in (self.set_headers, self.drop_headers))
        headers, dropped = ([one.strip() for one in it if one.strip()] for it in lines)
        patch = self.json_patch.strip()
        read = patch_of(patch.encode(), "the JSON Patch", "it") if patch else None
        edit = read_edit(headers, dropped, read)
        if edit and self.edited:
            raise UsageError("the message is already edited", hint="change headers there too")
        return Order(to=to, target=target, keeps_header=self.keeps_header, rate=rate, edit=edit)


class OneMessage(Planned):
    """The form of one message to edit."""

    message: Annotated[str, Field(min_length=1)]


class Because(BaseModel):
    """The form of an action with a reason."""

    because: str = ""


class Acknowledged(Chosen):
    """The form of an acknowledgement."""

    until: str
    note: str


class Named(BaseModel):
    """The form of a channel or a queue of a queue manager."""

    queue_manager: str
    name: str = ""
    """Empty for all channels."""


class TableText(BaseModel):
    """The form of a rules table."""

    text: str


class TriedTable(TableText):
    """The form of a rules table that goes live."""

    confirm: str = ""
    """From the trial of the text."""
    because: Annotated[str, Field(max_length=500)] = ""


def unix(text: str) -> str:
    """A text with Unix line ends; forms send CR LF."""
    return text.replace("\r\n", "\n")
