"""Names that depend on the message or the command: where a rule puts, which queue is handled."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from redrive.messages.schemes import consumer_group
from redrive.rules.keywords import NAME_LENGTH, TOPIC_LENGTH, Dialect
from redrive.rules.patterns import FieldValue, StringPattern
from redrive.rules.rule import Action, Control, RetryTo, Rule

_INSERT: Final = re.compile("&([A-Z]+)")

GROUP_TOPIC: Final = "{topic}.{group}.retry"
"""The default form of the name of a group's topic."""
_TOPIC_NAME: Final = re.compile(rf"(?!\.\.?$)[A-Za-z0-9._-]{{1,{TOPIC_LENGTH}}}")


class PutTarget(NamedTuple):
    """The names of a put."""

    queue: str
    queue_manager: str
    """Empty for the local queue manager."""


def original_target(fields: Mapping[str, FieldValue]) -> PutTarget:
    """The original destination of a message, where ``ACTION(RETRY) TO(TOPIC)`` puts it."""
    queue = _substitute("&DESTQ", fields) or str(fields.get("TOPIC", ""))
    return PutTarget(queue, _substitute("&DESTQM", fields))


def resolve_target(
    rule: Rule, fields: Mapping[str, FieldValue], form: str = GROUP_TOPIC
) -> PutTarget:
    """Where a rule puts a message.

    RETRY goes to the original destination, or with TO(GROUP) to the topic of the group, whose name
    has this form (see ``group_topic``) and is blank if the group is unknown. FWD goes to FWDQ on
    FWDQM, independently: a blank FWDQM is the local queue manager even if FWDQ is ``&DESTQ`` or
    ``&REPLYQ``. In DIALECT(KAFKA) it may go to FWDT, into which fields of the message are inserted.

    The queue is blank if the field of the message is, and then the put fails.

    Raises:
        ValueError: The rule puts nothing.
    """
    if rule.to is RetryTo.GROUP:
        topic, group = original_target(fields).queue, group_of(fields)
        return PutTarget(group_topic(form, topic=topic, group=group) if topic and group else "", "")
    if rule.action is Action.RETRY:
        return original_target(fields)
    if rule.forward_topic:
        topic = _INSERT.sub(lambda insert: str(fields.get(insert[1], "")), rule.forward_topic)
        return PutTarget(topic, "")
    if rule.action is Action.FWD:
        return PutTarget(
            _substitute(rule.forward_queue, fields),
            _substitute(rule.forward_queue_manager, fields),
        )
    raise ValueError(f"ACTION({rule.action}) puts nothing")


def known_names(rule: Rule) -> tuple[str | None, str | None]:
    """Queue and queue manager to which a rule puts, each None if it varies among messages."""
    names = rule.forward_queue, rule.forward_queue_manager
    if rule.action is Action.RETRY:
        names = "&DESTQ", "&DESTQM"
    return _known_name(rule, names[0]), _known_name(rule, names[1])


def _known_name(rule: Rule, name: str) -> str | None:
    if not name.startswith("&"):
        return name
    pattern = rule.patterns.get(name[1:])
    if isinstance(pattern, StringPattern) and pattern.is_literal:
        return pattern.normal
    return None


def inserts(rule: Rule) -> Sequence[str]:
    """The fields of a message that a rule inserts into the name of a topic."""
    return _INSERT.findall(rule.forward_topic)


def missing_insert(rule: Rule, fields: Mapping[str, FieldValue]) -> str:
    """An insert of FWDT without a value in the message, so that the put fails; empty if none."""
    return next((f"&{name}" for name in inserts(rule) if not fields.get(name)), "")


def group_of(fields: Mapping[str, FieldValue]) -> str:
    """The consumer group that failed, from the fields of a message; empty if unknown."""
    return consumer_group(str(fields.get("GROUP", "")), str(fields.get("CONNECTOR", "")))


def group_topic(form: str, *, topic: str, group: str) -> str:
    """The topic of a consumer group, to which ``ACTION(RETRY) TO(GROUP)`` puts.

    Args:
        form: The form of names, with ``{topic}`` and ``{group}``.
        topic: The topic that the group failed on. If that already is the group's topic, it is the
            answer.
        group: The consumer group.
    """
    before, after = (part.replace("{group}", group) for part in form.split("{topic}"))
    is_of_group = topic.startswith(before) and topic.endswith(after)
    is_of_group = is_of_group and len(topic) > len(before) + len(after)
    return topic if is_of_group else f"{before}{topic}{after}"


def is_topic_name(name: str) -> bool:
    """Whether Kafka allows a topic of this name."""
    return _TOPIC_NAME.fullmatch(name) is not None


def input_queue(arguments: Sequence[str], control: Control, dead_letter_queue: str) -> str:
    """The queue to handle: argument, else INPUTQ, else the queue manager's dead-letter queue.

    Arguments are those of the command: none, the queue, or the queue and queue manager. A blank one
    stands for the queue manager's queue and overrides INPUTQ.
    """
    named = arguments[0] if arguments else control.input_queue
    longest = NAME_LENGTH if control.dialect is Dialect.IBM else TOPIC_LENGTH
    return _name(named, longest) or dead_letter_queue


def input_queue_manager(arguments: Sequence[str], control: Control, default: str = "") -> str:
    """The queue manager to use: argument, else INPUTQM, else the default one."""
    named = arguments[1] if len(arguments) > 1 else control.input_queue_manager
    return _name(named) or default


def _name(text: str, longest: int = NAME_LENGTH) -> str:
    """A name, which ends at the first blank or NUL and after 48 characters."""
    return re.split(r"[ \0]", text, maxsplit=1)[0][:longest]


def _substitute(name: str, fields: Mapping[str, FieldValue]) -> str:
    return str(fields.get(name[1:], "")) if name.startswith("&") else name
