"""What the console shows: one function for each document, which pages and scripts share."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

from redrive.command.explain import explanation_document
from redrive.command.failures import shows_mq
from redrive.command.ls import Groups, Letters
from redrive.command.message_file import WrittenRecord, message_fields
from redrive.command.opening import ask_inventory, open_cluster, schemes_of
from redrive.command.replay_work import results_of_replays, status_with_results
from redrive.command.show import find_message, message_document
from redrive.command.status import StatusView
from redrive.errors import RedriveError
from redrive.kafka.records import StoredRecord
from redrive.operations.replay.progress import statuses
from redrive.outcomes.bodies import Lost
from redrive.outcomes.history import History
from redrive.outcomes.inventory import Inventory, Selection
from redrive.rules import explain as explain_message
from redrive.rules import parse
from redrive.rules.analysis import hidden_field
from redrive.settings import Settings, read_settings

_BARS: Final = 48
"""Points of a curve."""
_DAY: Final = timedelta(days=1)
_HOUR: Final = timedelta(hours=1)


class Documents:
    """The documents of one job.

    Args:
        path: The file of its settings, which is read anew for each document.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def settings(self) -> Settings:
        """The settings as they are now; raises ``ConfigurationError``."""
        return read_settings(self.path)

    def status(self) -> dict[str, Any]:
        """What ``redrive status --json`` prints, and the outcomes of the last day by the hour."""
        settings = self.settings()
        view = StatusView.of(settings)

        def ask(inventory: Inventory) -> dict[str, Any]:
            return {
                "hour": _curves(inventory, view.now.time, _HOUR),
                "day": _curves(inventory, view.now.time, _DAY),
            }

        rates = ask_inventory(settings, Selection(), ask).found
        return {
            **view.as_json(),
            "description": view.description,
            "alarms": [*view.alarms()],
            "mq": shows_mq(settings.job, mq=False),
            "rates": rates,
        }

    def groups(self, selection: Selection, limit: int) -> dict[str, Any]:
        """What ``redrive groups --json`` prints, and when the dead letters of each came."""
        settings = self.settings()
        found = Groups.of(settings, selection, limit=limit, bars=_BARS // 2)
        document = found.document()
        for one, condition, trend in zip(
            document["groups"], found.conditions, found.trends, strict=True
        ):
            one |= {"condition": condition, "trend": trend}
        return {
            **document,
            "mq": shows_mq(settings.job, mq=False),
            "handlers": [one.identity.name for one in settings.job.handlers],
        }

    def messages(self, selection: Selection, limit: int) -> dict[str, Any]:
        """What ``redrive ls --json`` prints."""
        settings = self.settings()
        found = Letters.of(settings, selection, limit=limit)
        return {
            **found.document(),
            "mq": shows_mq(settings.job, mq=False),
            "handlers": [one.identity.name for one in settings.job.handlers],
        }

    def message(self, identity: str) -> dict[str, Any]:
        """What ``redrive show --json`` prints, and what ``redrive explain`` says of the rules."""
        settings = self.settings()
        answer, found = find_message(settings, identity)
        return {
            "message": identity,
            **message_document(settings, answer, found),
            "mq": shows_mq(settings.job, mq=False),
            "why": _why(settings, answer, found),
        }

    def body(self, identity: str) -> bytes:
        """The body of a message without secrets; raises ``RedriveError`` if it is gone."""
        settings = self.settings()
        _, found = find_message(settings, identity)
        if isinstance(found, Lost):
            raise RedriveError(f"the body is gone: {found.reason}")
        return settings.mask.data(found.value or b"")

    def replays(self) -> dict[str, Any]:
        """What ``redrive replay list --json`` prints."""
        job = self.settings().job
        with open_cluster(job.connection) as cluster:
            found = statuses(job, cluster, results=results_of_replays(job))
        return {"replays": [one.document() for one in found]}

    def replay(self, plan: str) -> dict[str, Any]:
        """What ``redrive replay status --json`` prints."""
        job = self.settings().job
        with open_cluster(job.connection) as cluster:
            return status_with_results(job, cluster, plan).document()


def _curves(inventory: Inventory, now: datetime, span: timedelta) -> dict[str, Any]:
    """Outcomes of a span by result, and dead letters that came, in ``_BARS`` equal parts."""
    seconds = span.total_seconds() / _BARS
    start = now - span
    results: dict[str, list[int]] = {}
    came = [0] * _BARS
    for row in inventory.rates(start, seconds):
        place = min(_BARS - 1, max(0, int(row["part"])))
        results.setdefault(row["result"], [0] * _BARS)[place] += row["n"]
        came[place] += row["came"]
    return {"seconds": seconds, "since": start, "came": came, "results": results}


def _why(
    settings: Settings, answer: History | None, found: StoredRecord | Lost
) -> dict[str, Any] | None:
    """What the handler's table says of a message, rule by rule; None if nothing can be asked."""
    if isinstance(found, Lost):
        return None
    names = [one.identity.name for one in settings.job.handlers]
    topics = [one.identity.topic for one in settings.job.handlers]
    name = answer.last["handler"] if answer else ""
    if name in names:
        handler = settings.job.handlers[names.index(name)]
    elif found.lane.topic in topics:
        handler = settings.job.handlers[topics.index(found.lane.topic)]
    else:
        return None
    rules = parse(handler.rules, name=handler.rules_name).required()
    record = WrittenRecord(found.key, found.value, found.headers, found.timestamp)
    fields, problem = message_fields(record, schemes_of(settings), rules)
    if problem:
        return {"problem": problem, "rules": [], "turns": []}
    shown = {key: hidden_field(settings.mask, key, it) for key, it in fields.items()}
    explanation = explain_message(rules, fields)
    document = explanation_document(
        rules, shown, explanation, settings.mask, settings.job.group_topic
    )
    return {"problem": "", "handler": handler.identity.name, **document}
