"""One handler's settings for every dead-letter topic whose name matches."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import re2

from redrive.engine.names import HandlerIdentity
from redrive.topology.names import MAX_TOPIC_NAME, is_reserved, unescape

if TYPE_CHECKING:
    from redrive.configuration import HandlerConfiguration


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """A handler for each topic that matches, now or later."""

    expressions: tuple[str, ...]
    """Expressions of RE2, one of which must match the whole name of a topic."""
    exclude: tuple[str, ...] = ()
    """Expressions of excluded topics."""
    max_topics: int
    handler: HandlerConfiguration
    """The common settings of its handlers, with a placeholder identity."""

    @property
    def name(self) -> str:
        """Its name for users: its expressions, as written in settings."""
        return self.handler.identity.name

    def handlers(
        self, application: str, existing: Collection[str]
    ) -> tuple[tuple[HandlerConfiguration, ...], tuple[str, ...]]:
        """Its handlers, and matching topics beyond ``max_topics``.

        A deleted topic keeps its handler while the handler's own topics exist, where messages may
        wait. Topics handled before come first, so that a new topic never displaces them.
        """
        topics = [topic for _, topic in sorted(self._matching(application, existing))]
        handlers = [
            replace(self.handler, identity=HandlerIdentity.of(application, topic))
            for topic in topics[: self.max_topics]
        ]
        return tuple(handlers), tuple(topics[self.max_topics :])

    def _matching(self, application: str, existing: Collection[str]) -> Iterator[tuple[bool, str]]:
        """The name of each matching topic, and whether it is new to the application."""
        prefix = HandlerIdentity.of(application, "").remaining_topic.removesuffix("-remaining")
        handled = {
            unescape(name.removeprefix(prefix).removesuffix("-remaining"))
            for name in existing
            if name.startswith(prefix) and name.endswith("-remaining")
        }
        for topic in {*existing, *filter(None, handled)}:
            if self._matches(topic) and not is_reserved(topic):
                own = HandlerIdentity.of(application, topic).retry_topic
                if len(own) <= MAX_TOPIC_NAME and is_reserved(own):
                    yield topic not in handled, topic

    def _matches(self, topic: str) -> bool:
        return any(
            _compiled(expression).fullmatch(topic) for expression in self.expressions
        ) and not any(_compiled(expression).fullmatch(topic) for expression in self.exclude)


def expression_of(written: str) -> str | None:
    """The expression in ``/expression/``, as in settings; None if the text is a name."""
    is_expression = len(written) > 1 and written.startswith("/") and written.endswith("/")
    return written[1:-1] if is_expression else None


def problem_with(expression: str) -> str:
    """Why an expression cannot be used; empty if it can."""
    try:
        _compiled(expression)
    except re2.error as error:
        problem = error.args[0] if error.args else ""
        return problem.decode("utf-8", "replace") if isinstance(problem, bytes) else str(problem)
    return ""


@lru_cache(maxsize=1_000)
def _compiled(expression: str) -> Any:  # noqa: ANN401 - re2 has no types
    options = re2.Options()
    options.log_errors = False
    return re2.compile(expression, options)
