"""How the rules of a table interact: rules that never apply, overlaps, gaps, with examples."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from redrive.diagnostics import Severity
from redrive.printable import counted
from redrive.rules.analysis.search import Search, Undecided, bits_of
from redrive.rules.canonical import write_message
from redrive.rules.diagnosis import EntryDiagnostic, without_allowed
from redrive.rules.keywords import GROWING
from redrive.rules.rule import Action, Control, Rule, bare
from redrive.rules.selection import Message, harsher_puts, rules_of, sooner
from redrive.rules.source import physical_lines
from redrive.rules.table import RulesTable

_NOTES: Final = {"NOTHING_AFTER_RETRY", "OVERLAP"}
_PAIR_LIMIT: Final = 20_000
"""Maximum pairs of rules to compare."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One finding about the rules of a table together."""

    code: str
    rule: int
    """Index of the rule that the finding is about."""
    others: tuple[int, ...] = ()
    message: str
    """One sentence without a full stop."""
    hint: str = ""
    witness: Message
    """An example, as match fields by keyword; all others may have any value."""


def analyse(table: RulesTable, text: str, *, name: str = "<input>") -> tuple[EntryDiagnostic, ...]:
    """Find how the rules of a table interact: warnings and notes in the order of the table.

    Each has a witness; a note counts the undecided questions. The table has no errors and was read
    from the text.
    """
    lines = physical_lines(text)
    analysis = Analysis(table.rules, table.control)
    diagnostics = []
    for finding in sorted(analysis.findings(), key=lambda finding: finding.rule):
        line = table.rules[finding.rule].line
        diagnostic = EntryDiagnostic(
            name,
            line,
            source_line=lines[line - 1],
            severity=Severity.NOTE if finding.code in _NOTES else Severity.WARNING,
            code=finding.code,
            message=finding.message,
            hint=finding.hint,
            subject="ACTION",
            witness=write_message(finding.witness),
            entry_line=line,
        )
        diagnostics.append(diagnostic)
    if questions := analysis.undecided:
        undecided = EntryDiagnostic(
            name,
            severity=Severity.NOTE,
            code="NOT_DECIDED",
            message=f"{counted(questions, 'question')} about the rules together could "
            "not be decided because of regular expressions or too many patterns",
            hint="the reported findings are proved; others may be missing",
        )
        diagnostics.append(undecided)
    return tuple(without_allowed(diagnostics, lines))


class Analysis:
    """The questions about the rules of one table."""

    def __init__(self, rules: Sequence[Rule], control: Control | None = None) -> None:
        """Prepare the search; without control data, rules of a dialect have no findings."""
        self._rules = rules
        self._control = control
        self._aged = [index for index, rule in enumerate(rules) if GROWING & rule.patterns.keys()]
        """Rules that may begin or cease to match while a message waits."""
        ageless = (
            replace(
                rules[index],
                patterns={
                    name: pattern
                    for name, pattern in rules[index].patterns.items()
                    if name not in GROWING
                },
            )
            for index in self._aged
        )
        self._search = Search([*rules, *ageless])
        self.undecided = 0
        self._all = (1 << len(rules)) - 1
        self._keepers = bits_of(i for i, rule in enumerate(rules) if not rule.action.can_fail)
        """Rules that cannot fail: messages that they match never reach a later rule."""

    def findings(self) -> Iterator[Finding]:
        """All findings, by kind."""
        reached = []
        for rule in range(len(self._rules)):
            if unreachable := self._ask(self._unreachable, rule):
                yield unreachable
            else:
                reached.append(rule)
        for rule in reached:
            if last := self._ask(self._nothing_after_retry, rule):
                yield last
            if harsher := self._ask(self._harsher_retry, rule):
                yield harsher
        yield from self._overlaps(reached)
        if gap := self._ask(self._no_catch_all, len(self._rules) - 1):
            yield gap

    def _ask(self, question: Callable[[int], Finding | None], rule: int) -> Finding | None:
        try:
            return question(rule)
        except Undecided:
            self.undecided += 1
        return None

    def _keepers_before(self, rule: int) -> int:
        return self._keepers & ((1 << rule) - 1)

    def _unreachable(self, rule: int) -> Finding | None:
        """A rule all of whose messages are taken by earlier rules that cannot fail."""
        earlier = self._keepers_before(rule)
        if not earlier or self._search.find(1 << rule, earlier) is not None:
            return None
        witness = self._search.find(1 << rule)
        if witness is None:
            return None  # it matches nothing at all, so there is no witness
        takers = self._minimal_takers(rule, earlier)
        *lines, last = (str(self._rules[taker].line) for taker in takers)
        first = self._rules[takers[0]]
        return Finding(
            code="UNREACHABLE",
            rule=rule,
            others=takers,
            message="the rule never applies: "
            + (
                f"the rules at lines {', '.join(lines)} and {last} together take"
                if lines
                else f"the rule at line {last}, ACTION({first.action}), takes"
            )
            + " all its messages",
            hint=f"remove it, or move it before line {first.line}",
            witness=witness,
        )

    def _minimal_takers(self, rule: int, earlier: int) -> tuple[int, ...]:
        """A minimal set of rules that together take all messages of a rule."""
        earlier &= self._search.possible_overlaps(rule)
        for taker in rules_of(earlier):
            if not self._find(1 << rule, 1 << taker):
                return (taker,)
        for taker in rules_of(earlier):
            if not self._find(1 << rule, earlier & ~(1 << taker)):
                earlier &= ~(1 << taker)
        return tuple(rules_of(earlier))

    def _find(self, matching: int, avoiding: int) -> bool:
        return self._search.find(matching, avoiding) is not None

    def _nothing_after_retry(self, rule: int) -> Finding | None:
        """Messages of a RETRY rule that no later rule takes when all attempts have failed."""
        if self._rules[rule].action is not Action.RETRY:
            return None
        later = self._all & ~((2 << rule) - 1)
        avoided = self._keepers_before(rule) | later
        if rule in self._aged:  # the message may become too old for it meanwhile
            avoided |= (1 << rule) - 1
        for place, aged in enumerate(self._aged, start=len(self._rules)):
            # It may begin to match as the message ages, so none of its messages is a witness.
            avoided |= 1 << place if aged != rule else 0
        witness = self._search.find(1 << rule, avoided)
        if witness is None:
            return None
        tries = self._rules[rule].retry
        return Finding(
            code="NOTHING_AFTER_RETRY",
            rule=rule,
            message="when "
            + (f"all {tries} attempts have" if tries > 1 else "the only attempt has")
            + " failed, no later rule takes the message, and it remains",
            hint="add a rule after it with the same pattern, such as ACTION(FWD)",
            witness=witness,
        )

    def _harsher_retry(self, spent: int) -> Finding | None:
        """A RETRY that gets the messages of another one once all its attempts have failed."""
        if self._control is None or spent in self._aged:
            return None
        between = 0
        for later in range(spent + 1, len(self._rules)):
            is_aged = later in self._aged
            pair = self._rules[spent], self._rules[later]
            puts = harsher_puts(*pair, self._control)
            witness = None
            if puts and not is_aged:
                avoided = self._keepers_before(spent) | between
                witness = self._search.find(bits_of((spent, later)), avoided)
            if witness is not None and puts == [sooner(*pair, self._control)]:
                # Delays differ often, so a rare message of both rules is not worth a warning.
                takes_all = not self._find(1 << spent, self._keepers_before(spent) | 1 << later)
                witness = witness if takes_all else None
            if witness is not None:
                line = self._rules[spent].line
                return Finding(
                    code="SPENT_RETRY",
                    rule=later,
                    others=(spent,),
                    message=f"messages of the rule at line {line} come here once its attempts have"
                    f" failed, and are put {' and '.join(puts)}",
                    hint=f"end their way before this line: write the pattern of line {line} with"
                    " ACTION(QUARANTINE), IGNORE or FWD behind it",
                    witness=witness,
                )
            # It may begin to match as the message ages.
            between |= 1 << (len(self._rules) + self._aged.index(later) if is_aged else later)
        return None

    def _no_catch_all(self, last: int) -> Finding | None:
        witness = self._search.find(avoiding=self._all)
        if witness is None:
            return None
        return Finding(
            code="NO_CATCH_ALL",
            rule=last,
            message="messages that no rule matches stay on the queue",
            hint="end the table with a rule for everything else, such as "
            "ACTION(FWD) FWDQ(REALLY.DEAD.QUEUE) HEADER(YES)",
            witness=witness,
        )

    def _overlaps(self, reached: Sequence[int]) -> Iterator[Finding]:
        """For each rule the first earlier one that takes part of its messages."""
        behind: set[int] = set()
        ignoring: set[int] = set()
        asked = 0
        rules = bits_of(reached)
        for later in reached:
            before = rules & self._search.possible_overlaps(later) & ((1 << later) - 1)
            for earlier in rules_of(before):
                if earlier in ignoring or later in behind:
                    continue
                asked += 1
                if asked > _PAIR_LIMIT:
                    self.undecided += 1
                    return
                if finding := self._ask(partial(self._overlap, earlier), later):
                    (behind if finding.rule == later else ignoring).add(finding.rule)
                    yield finding

    def _overlap(self, earlier: int, later: int) -> Finding | None:
        """Two rules with different actions, neither of which is a special case of the other.

        A special case before a general one is usual, and one after it is either never reached or
        meant for failed attempts.
        """
        first, second = self._rules[earlier], self._rules[later]
        if bare(first) == bare(second):
            return None
        witness = self._search.find(bits_of((earlier, later)), self._keepers_before(earlier))
        if witness is None:
            return None
        if not self._find(1 << earlier, 1 << later) or not self._find(1 << later, 1 << earlier):
            return None
        if first.action is Action.IGNORE:
            return Finding(
                code="IGNORE_BEFORE_RULES",
                rule=earlier,
                others=(later,),
                message="the rule leaves messages that the rule at line "
                f"{second.line}, ACTION({second.action}), also matches and never gets",
                hint="if that is intended, write * redrive: allow IGNORE_BEFORE_RULES above it",
                witness=witness,
            )
        return Finding(
            code="OVERLAP",
            rule=later,
            others=(earlier,),
            message=f"the rule at line {first.line}, ACTION({first.action}), comes first for "
            "messages that match both",
            witness=witness,
        )
