"""The syntax of MQSC scripts: from a text to commands with parameters, positions and inserts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Self

from redrive.diagnostics import Diagnostic, Severity, SourceLocation, location_in
from redrive.topology.mq.objects import QueueManagerAttributes, ValueProblem, check_name

MAX_LINE_LENGTH = 2048
"""Longest physical line that ``runmqsc`` reads."""

_SEPARATORS = " \t,"
_ENDS = frozenset({"END", "EXIT", "QUIT"})
# Possessive quantifiers: a quote in a quoted text is doubled, so backtracking never helps.
_PIECE = re.compile(r"'(?:[^']|'')*+'|;|[^';]+|'")
_PARAMETER = re.compile(
    r"[\s,]*+(?P<keyword>[A-Za-z][A-Za-z0-9]*+)"
    r"(?:\s*+\(\s*+(?:(?P<plain>[^\s,()']*+)\s*+\)|'(?P<quoted>(?:[^']|'')*+)'\s*+\)"
    r"|(?P<list>(?:[\s,]*+(?:[^\s,()']++|'(?:[^']|'')*+')(?=[\s,)]))*+[\s,]*+)\)))?"
)
_MANAGER_NAME = re.compile(r"^\*\s*Queue manager name\s*:\s*(\S+)", re.IGNORECASE | re.MULTILINE)
_HEADER_LENGTH = 10_000
# Blanks and letters of EBCDIC; in UTF-8 or Latin text these bytes are ``@`` and accents.
_EBCDIC_BYTES = frozenset([0x40, *range(0x81, 0xAA), *range(0xC1, 0xEA)])


class ScriptProblem(Exception):
    """An error in one command; the reader continues with the next.

    ``offset`` and ``length`` are the position in the command's text.
    """

    def __init__(
        self,
        code: str,
        message: str,
        offset: int,
        *,
        length: int = 1,
        expected: str = "",
        hint: str = "",
    ) -> None:
        super().__init__(message)
        self.code, self.message, self.offset, self.length = code, message, offset, length
        self.expected, self.hint = expected, hint

    @classmethod
    def at(cls, code: str, message: str, parameter: Parameter, *, hint: str = "") -> Self:
        """The error about a parameter, underlined from its keyword on."""
        return cls(code, message, parameter.offset, length=len(parameter.keyword), hint=hint)


class CommandFailed(ScriptProblem):
    """A command of valid syntax that cannot be processed; ``runmqsc`` counts these separately."""


class Parameter(NamedTuple):
    """One keyword of a command with its value."""

    keyword: str
    """In upper case."""
    value: str | None
    """The value, folded to upper case unless it was quoted; None without parentheses."""
    source: str
    """The text between the parentheses, as written."""
    found: re.Match[str]

    @property
    def offset(self) -> int:
        """Where the keyword starts in the command's text."""
        return self.found.start("keyword")

    @property
    def value_offset(self) -> int:
        """Where the value starts in the command's text."""
        starts = [self.found.start(group) for group in ("plain", "quoted", "list")]
        return max(*starts, self.offset)


@dataclass(slots=True)
class Command:
    """One command: its joined lines, and their positions."""

    text: str
    lines: Sequence[str]
    first: int
    """Index of the line on which the command's first line starts."""
    end: int
    """Index after its last line."""
    start: int = 0
    """Offset of the command in the joined lines, if there are several."""

    @property
    def line(self) -> int:
        """1-based physical line on which the command starts."""
        return self._pieces("")[0][1].line if self.start else self.first + 1

    def _pieces(self, file: str) -> list[tuple[int, SourceLocation]]:
        """The positions of the command's pieces, computed only for findings."""
        parameters = []
        start = -self.start
        for piece, index, at_first_nonblank in _pieces(self.lines, self.first, self.end):
            line = self.lines[index]
            column = 1 + (len(line) - len(line.lstrip()) if at_first_nonblank else 0)
            if start + len(piece) > 0 or index == self.end - 1:
                cut = max(0, -start)
                location = SourceLocation(file, index + 1, column + cut, len(piece) - cut, line)
                parameters.append((start + cut, location))
            start += len(piece)
        return parameters

    def location(self, file: str, offset: int = 0, length: int = 1) -> SourceLocation:
        """The location of characters of the command; cut at the end of the physical line."""
        return location_in(self._pieces(file), offset, length)

    def parameters(self, offset: int) -> Iterator[Parameter]:
        """Read the parameters from an offset to the end."""
        text, end = self.text, offset
        while match := _PARAMETER.match(text, end):
            keyword, plain, quoted, listed = match.groups()
            if plain is not None:
                value: str | None = plain.upper()
                source = plain
            elif quoted is not None:
                value = quoted.replace("''", "'")
                source = f"'{quoted}'"
            else:
                source = (listed or "").strip()
                value = None if listed is None else source.upper()
            yield Parameter(keyword.upper(), value, source, match)
            end = match.end()
        if text[end:].strip(_SEPARATORS):
            raise self._syntax_problem(end)

    def _syntax_problem(self, offset: int) -> ScriptProblem:
        text = self.text
        while offset < len(text) and text[offset] in _SEPARATORS:
            offset += 1
        if text[offset] == "(":
            return self._value_problem(offset)
        expected = "a keyword, such as DESCR('text')"
        return ScriptProblem("SYNTAX", f"unexpected {text[offset]!r}", offset, expected=expected)

    def _value_problem(self, opening: int) -> ScriptProblem:
        at, quote_at = opening + 1, -1
        while at < len(self.text):
            character = self.text[at]
            if character == "'" and quote_at >= 0 and self.text[at + 1 : at + 2] == "'":
                at += 1  # a doubled quote inside a quoted text
            elif character == "'" and quote_at >= 0:
                if self.text[at + 1 : at + 2].isalnum():
                    message = "a quote inside a quoted value is written twice"
                    return ScriptProblem("SYNTAX", message, at, hint="such as DESCR('it''s')")
                quote_at = -1
            elif character == "'":
                quote_at = at
            elif quote_at < 0 and character == "(":
                message = "a parenthesis inside a value that is not quoted"
                hint = "put the value between single quotes, such as CONNAME('host(1414)')"
                return ScriptProblem("SYNTAX", message, at, hint=hint)
            elif quote_at < 0 and character == ")":
                return ScriptProblem("SYNTAX", "unexpected character after the value", at + 1)
            at += 1
        what, at = ("quote", quote_at) if quote_at >= 0 else ("parenthesis", opening)
        hint = "close it, or continue the line with + or -"
        return ScriptProblem("UNTERMINATED", f"the {what} is never closed", at, hint=hint)


def _pieces(lines: Sequence[str], first: int, end: int) -> Iterator[tuple[str, int, bool]]:
    """The pieces of the command that starts on a line, without comments and blank lines.

    Yields:
        The piece, the index of its line, and whether blanks in front of it were dropped.
    """
    mark = ""
    for index in range(first, end):
        line = lines[index]
        content = line.strip()
        if not content or (mark and content[0] == "*"):
            continue
        at_first_nonblank = mark == "+"
        mark = content[-1] if content[-1] in "+-" else ""
        piece = content if at_first_nonblank else line.rstrip()
        yield piece[:-1] if mark else piece, index, at_first_nonblank
        if not mark:
            return


def _physical_lines(text: str) -> list[str]:
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def manager_name(text: str) -> str:
    """The queue manager that the header comment of ``dmpmqcfg`` names; empty without one."""
    match = _MANAGER_NAME.search(text, 0, _HEADER_LENGTH)
    return match[1] if match else ""


def split_script(text: str) -> Iterator[Command]:
    """Split a script into commands.

    Comments and blank lines are dropped; a line that ends in ``+`` continues at the next line's
    first nonblank character, one that ends in ``-`` at its first column; ``;`` ends a command;
    ``END`` ends the script, as do ``EXIT`` and ``QUIT`` (reference of runmqsc, q083460).
    """
    lines = _physical_lines(text)
    index, end = 0, len(lines)
    while index < end:
        first, line = index, lines[index]
        index += 1
        if not line or line[0] == "*" or line.isspace():
            continue
        joined = line.rstrip()
        if joined[-1] in "+-":
            pieces = list(_pieces(lines, first, end))
            joined = "".join(piece for piece, _, _ in pieces)
            index = pieces[-1][1] + 1
        for start, command in _commands(joined):
            word = command.strip()
            if word.upper() in _ENDS:
                return
            if word:
                yield Command(command, lines, first, index, start)


def _commands(joined: str) -> Iterator[tuple[int, str]]:
    start = 0
    if ";" in joined:
        for match in _PIECE.finditer(joined):
            if match[0] == ";":
                yield start, joined[start : match.start()]
                start = match.end()
    yield start, joined[start:]


def long_lines(text: str) -> Iterator[Command]:
    """The physical lines that are too long for ``runmqsc``."""
    if len(text) <= MAX_LINE_LENGTH:
        return
    lines = _physical_lines(text)
    for index, line in enumerate(lines):
        if len(line) > MAX_LINE_LENGTH and line[0] != "*":
            yield Command(line, lines, index, index + 1)


def decode_script(data: bytes, *, file: str) -> str | Diagnostic:
    """The text of a script without a byte order mark, or why it is not UTF-8."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in data[:4096]:
        return _encoding_finding("it is UTF-16 or binary", file)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        sample = data[:4096]
        likely = sum(byte in _EBCDIC_BYTES for byte in sample)
        if likely * 2 > len(sample) and b" " not in sample:
            return _encoding_finding("it is EBCDIC", file)
        before = data[: problem.start]
        line = before.count(b"\n") + 1
        column = problem.start - (before.rfind(b"\n") + 1) + 1
        what = f"byte {data[problem.start]:#04x} at column {column} is not UTF-8"
        return _encoding_finding(what, file, line=line)


def _encoding_finding(what: str, file: str, *, line: int = 0) -> Diagnostic:
    return SourceLocation(file, line).finding(
        Severity.ERROR,
        "ENCODING",
        f"the script cannot be read: {what}",
        expected="a text in UTF-8",
        hint="convert it, for example with iconv -t UTF-8",
    )


# Inserts: scripts of automatic configuration (``crtmqm -ic``) serve several queue managers.
# ``+QMNAME+`` stands for the manager, ``+AUTOCL+`` for the cluster of the AutoCluster stanza, and
# each attribute of the Variables stanza (``crtmqm -iv``) for its value ("Using automatic cluster
# configuration", q133780).

_INSERT = re.compile(r"\+(\w+)\+")
_STANZA = re.compile(r"\s*(\w+)\s*:\s*$")
_ATTRIBUTE = re.compile(r"\s*(\w+)\s*=\s*(.*?)\s*$")
_CLUSTER, _VARIABLES = "AUTOCLUSTER", "VARIABLES"
_REPOSITORIES = frozenset(
    {"REPOSITORY1NAME", "REPOSITORY2NAME", "REPOSITORYNAME1", "REPOSITORYNAME2"}
)
"""The spelling of samples, and that of the reference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """The clusters and variables of ``qm.ini`` files."""

    cluster: str = ""
    """ClusterName of AutoCluster; empty without the stanza."""
    repositories: tuple[str, ...] = ()
    """Names of the queue managers that hold its full repositories."""
    variables: Mapping[str, str] = field(default_factory=dict)

    def over(self, other: Configuration) -> Configuration:
        """This configuration combined with another one, which it overrides."""
        return Configuration(
            cluster=self.cluster or other.cluster,
            repositories=self.repositories or other.repositories,
            variables={**other.variables, **self.variables},
        )

    def inserts(self, queue_manager: str) -> Mapping[str, str]:
        """The inserts of a queue manager's scripts with their values, names in upper case."""
        cluster = {"AUTOCL": self.cluster} if self.cluster else {}
        return {**self.variables, "QMNAME": queue_manager, **cluster}

    def applied(self, attributes: QueueManagerAttributes) -> QueueManagerAttributes:
        """The attributes of a queue manager; a named one holds a full repository."""
        if attributes.name not in self.repositories:
            return attributes
        return replace(attributes, repository_cluster=self.cluster)


NO_CONFIGURATION = Configuration()


def read_configuration(text: str, file: str) -> tuple[Configuration, list[Diagnostic]]:
    """Read the stanzas of a ``qm.ini`` file that concern MQSC scripts; others are ignored."""
    cluster, repositories, variables = "", [], {}
    findings = []
    for stanza, key, value, location in _attributes(text, file):
        if stanza == _VARIABLES:
            variables[key] = value
        elif stanza == _CLUSTER and key in {"CLUSTERNAME", *_REPOSITORIES}:
            try:
                name = check_name(value)
            except ValueProblem as problem:
                message = f"{value!r} {problem.problem}"
                findings.append(
                    location.finding(
                        Severity.ERROR, problem.code, message, expected=problem.expected
                    )
                )
                continue
            if key == "CLUSTERNAME":
                cluster = name
            else:
                repositories.append(name)
    configuration = Configuration(
        cluster=cluster, repositories=tuple(repositories), variables=variables
    )
    return configuration, findings


def _attributes(text: str, file: str) -> Iterator[tuple[str, str, str, SourceLocation]]:
    """Stanza, attribute and value of every line with an attribute."""
    stanza = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if line.lstrip().startswith(("#", ";")):
            continue
        if match := _STANZA.match(line):
            stanza = match[1].upper()
        elif match := _ATTRIBUTE.match(line):
            where = SourceLocation(file, number, match.start(2) + 1, max(1, len(match[2])), line)
            yield stanza, match[1].upper(), match[2], where


def with_inserts(parameter: Parameter, values: Mapping[str, str]) -> Parameter:
    """A parameter with inserts replaced by their values; unknown ones are kept."""
    if parameter.value is None:
        return parameter
    value = _INSERT.sub(lambda insert: values.get(insert[1].upper(), insert[0]), parameter.value)
    return parameter._replace(value=value)


def hint_for_insert(value: str) -> str:
    """The hint about a value that still has an insert; empty if it has none."""
    match = _INSERT.search(value)
    if match is None:
        return ""
    return f"{match[0]} has no value: name the file of crtmqm -ii too, such as QM=qm.ini"
