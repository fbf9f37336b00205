"""The objects of IBM MQ queue managers, and the attributes of MQSC that resolution and puts use.

Each field that a script can set is defined once: its keyword, the form of its values, its default.
So ``LocalQueue(name="Q")`` is what ``DEFINE QLOCAL(Q)`` creates on a fresh queue manager. The
reader uses ``ATTRIBUTES``. Attributes that resolution ignores follow at the end.
"""

# ruff: noqa: RUF009  the calls make fields of dataclasses

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import ClassVar, Final, NamedTuple, TypeAlias, TypeVar

from redrive.diagnostics import SourceLocation

MAX_NAME_LENGTH = 48
"""Longest name of a queue, queue manager, cluster, namelist or topic object."""

_NAME = re.compile(r"[A-Za-z0-9./_%]*")
_MOST_DIGITS = 100
_LIST_ITEM = re.compile(r"'((?:[^']|'')*)'|([^\s,']+)")


class ValueProblem(ValueError):
    """A value that its keyword does not accept.

    Attributes:
        code: Code of the finding.
        problem: The error, as the end of a sentence that starts with the value.
        expected: What is accepted.
    """

    def __init__(self, code: str, problem: str, expected: str) -> None:
        super().__init__(problem)
        self.code, self.problem, self.expected = code, problem, expected


Form: TypeAlias = Callable[[str], object]
"""Reads a value from its text; raises ``ValueProblem``."""


def check_name(text: str, longest: int = MAX_NAME_LENGTH) -> str:
    """A name of an object without its padding; empty if blank.

    Raises:
        ValueProblem: It is too long or has an invalid character.
    """
    name = text.rstrip(" ")
    expected = f"up to {longest} of the characters A-Z a-z 0-9 . / _ %"
    if not _NAME.fullmatch(name):
        raise ValueProblem("BAD_NAME", "is not a valid name", expected)
    if len(name) > longest:
        raise ValueProblem("TOO_LONG", f"has {len(name)} characters", expected)
    return name


def text(value: str) -> str:
    """Any text, without its padding."""
    return value.rstrip(" ")


def number(low: int, high: int, none: str = "") -> Form:
    """A whole number within limits; the word ``none``, or blank if that is empty, is None."""

    def read(value: str) -> int | None:
        if none and value.upper() in {"", none}:
            return None
        is_number = value.isascii() and value.isdigit()
        # Python refuses to parse thousands of digits; anything that long is out of range anyway.
        if is_number and len(value) <= _MOST_DIGITS and low <= int(value) <= high:
            return int(value)
        expected = f"a whole number from {low} to {high}"
        if is_number:
            raise ValueProblem("RANGE", "is out of range", expected)
        raise ValueProblem("BAD_VALUE", "is not a whole number", expected)

    return read


def choice(values: Mapping[str, object]) -> Form:
    """One word of several, in any case, each with its value."""

    def read(value: str) -> object:
        try:
            return values[value.upper()]
        except KeyError:
            words = ", ".join(word for word in values if word)
            raise ValueProblem("BAD_VALUE", "is not one of its values", f"one of {words}") from None

    return read


def one_of(values: type[StrEnum] | str) -> Form:
    """The members of an enumeration, or the words of a text."""
    if isinstance(values, str):
        return choice({word: word for word in values.split()})
    return choice({member.value: member for member in values})


def name_list(source: str) -> tuple[str, ...]:
    """Names between parentheses, separated by commas or blanks."""
    items = [
        plain.upper() or quoted.replace("''", "'") for quoted, plain in _LIST_ITEM.findall(source)
    ]
    return tuple(name for name in map(check_name, items) if name)


CLUSTER_TRANSMISSION_QUEUE = "SYSTEM.CLUSTER.TRANSMIT.QUEUE"
SHARED_TRANSMISSION_QUEUE = "SYSTEM.QSG.TRANSMIT.QUEUE"
BUILT_IN = SourceLocation("(created with the queue manager)")
"""Location of the product's own objects."""
NO_SCRIPT = SourceLocation("(not from a script)")
MOST = 999_999_999
"""The largest value of most numbers in MQSC."""
PRIVATE = "QMGR COPY GROUP"
"""QSGDISP of objects that are not shared."""


class DefaultBind(StrEnum):
    """DEFBIND: when to choose an instance of a cluster queue, unless the application says so."""

    OPEN = "OPEN"
    NOTFIXED = "NOTFIXED"
    GROUP = "GROUP"


class UseQueue(StrEnum):
    """CLWLUSEQ: whether a local instance of a cluster queue is preferred."""

    ANY = "ANY"
    LOCAL = "LOCAL"
    QMGR = "QMGR"


class ChannelType(StrEnum):
    """CHLTYPE of a channel."""

    SDR = "SDR"
    SVR = "SVR"
    RCVR = "RCVR"
    RQSTR = "RQSTR"
    CLUSSDR = "CLUSSDR"
    CLUSRCVR = "CLUSRCVR"
    SVRCONN = "SVRCONN"
    CLNTCONN = "CLNTCONN"
    AMQP = "AMQP"
    MQTT = "MQTT"


class Attribute(NamedTuple):
    """One attribute of an object that resolution uses."""

    field: str
    form: Form


_Value = TypeVar("_Value")
_KEYWORD: Final = "keyword"
_DIGIT: Final = number(0, 9)
_LENGTH: Final = number(0, 104_857_600)
_DEFAULT_LENGTH: Final = 4_194_304


def _mqsc(keyword: str, form: Form, default: _Value) -> _Value:
    return field(default=default, metadata={_KEYWORD: keyword, "form": form})


def _switch(keyword: str, words: str, on: str, *, default: bool = False) -> bool:
    """A field that is true for one of several words; a blank at their end allows none."""
    return _mqsc(keyword, choice({word: word == on for word in words.split(" ")}), default)


def _channel_pattern(value: str) -> object:
    check_name(value.replace("*", "."), Channel.longest_name)
    return value.rstrip(" ")


def _name(keyword: str) -> str:
    return _mqsc(keyword, check_name, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """Common fields of all objects."""

    keyword: ClassVar[str] = ""
    longest_name: ClassVar[int] = MAX_NAME_LENGTH

    name: str
    """Name of the object, without padding."""
    location: SourceLocation = field(default=NO_SCRIPT, compare=False)
    """Where it is defined; of a queue manager, where it was last altered."""
    locations: Mapping[str, SourceLocation] = field(default_factory=dict, compare=False)
    """Where ALTER set an attribute, by keyword, the latest last; DEFINE set the others."""
    others: Mapping[str, str] = field(default_factory=dict)
    """Attributes that resolution does not use: keyword to source text with parentheses."""

    def __str__(self) -> str:
        """The object as MQSC names it, such as ``QLOCAL(ORDERS)``."""
        return f"{self.keyword}({self.name})"

    def set_at(self, *keywords: str) -> SourceLocation:
        """The location of the last command that set one of some attributes."""
        altered = (self.locations[word] for word in reversed([*self.locations]) if word in keywords)
        return next(altered, self.location)


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue(Definition):
    """Common fields of queues of all kinds, which share one name space per manager."""

    put_enabled: bool = _switch("PUT", "ENABLED DISABLED", on="ENABLED", default=True)
    default_persistence: bool = _switch("DEFPSIST", "YES NO", on="YES")
    default_priority: int = _mqsc("DEFPRTY", _DIGIT, 0)
    default_bind: DefaultBind = _mqsc("DEFBIND", one_of(DefaultBind), DefaultBind.OPEN)
    cluster: str = _name("CLUSTER")
    cluster_namelist: str = _name("CLUSNL")
    cluster_rank: int = _mqsc("CLWLRANK", _DIGIT, 0)
    cluster_priority: int = _mqsc("CLWLPRTY", _DIGIT, 0)
    cap_expiry: int | None = _mqsc("CAPEXPRY", number(1, MOST, "NOLIMIT"), None)
    """The longest Expiry of messages put by this name, in tenths of a second."""

    @property
    def is_clustered(self) -> bool:
        """Whether the queue has CLUSTER or CLUSNL."""
        return bool(self.cluster or self.cluster_namelist)


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldingQueue(Queue):
    """Common fields of local queues and of models of dynamic ones."""

    get_enabled: bool = _switch("GET", "ENABLED DISABLED", on="ENABLED", default=True)
    max_depth: int = _mqsc("MAXDEPTH", number(0, MOST), 5000)
    max_message_length: int = _mqsc("MAXMSGL", _LENGTH, _DEFAULT_LENGTH)
    """Longest message, in bytes."""
    by_priority: bool = _switch("MSGDLVSQ", "PRIORITY FIFO", on="PRIORITY", default=True)
    """Whether messages are delivered by priority, not in order of arrival."""
    stream_queue: str = _name("STREAMQ")
    """The queue that is to get a copy of each message; empty for none."""
    must_duplicate: bool = _switch("STRMQOS", "BESTEF MUSTDUP", on="MUSTDUP")
    """Whether a put fails without its copy on STREAMQ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalQueue(HoldingQueue):
    """QLOCAL: holds messages; with USAGE(XMITQ) those for other queue managers."""

    keyword: ClassVar[str] = "QLOCAL"

    is_transmission_queue: bool = _switch("USAGE", "NORMAL XMITQ", on="XMITQ")
    cluster_use: UseQueue = _mqsc("CLWLUSEQ", one_of(UseQueue), UseQueue.QMGR)
    cluster_channels: str = _mqsc("CLCHNAME", _channel_pattern, "")
    """Cluster-sender channels that use this transmission queue; may hold ``*``."""
    is_shared: bool = _switch("QSGDISP", f"{PRIVATE} SHARED", on="SHARED")
    is_temporary: bool = False
    """Whether it is a temporary dynamic queue, which accepts no persistent messages."""

    @property
    def serves_clusters(self) -> bool:
        """Whether cluster-sender channels empty it, each the messages for its own manager."""
        is_common = self.name == CLUSTER_TRANSMISSION_QUEUE
        return self.is_transmission_queue and (is_common or bool(self.cluster_channels))


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelQueue(HoldingQueue):
    """QMODEL: a template from which MQOPEN makes a dynamic local queue."""

    keyword: ClassVar[str] = "QMODEL"

    dynamic_type: str = _mqsc("DEFTYPE", one_of("TEMPDYN PERMDYN SHAREDYN"), "TEMPDYN")

    def make(self, name: str) -> LocalQueue:
        """A dynamic queue with the attributes of this model."""
        taken = {field.name: getattr(self, field.name) for field in fields(HoldingQueue)}
        return LocalQueue(
            **{**taken, "name": name},
            is_shared=self.dynamic_type == "SHAREDYN",
            is_temporary=self.dynamic_type == "TEMPDYN",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AliasQueue(Queue):
    """QALIAS: another name for a queue or a topic object."""

    keyword: ClassVar[str] = "QALIAS"

    target: str = _name("TARGET")
    is_for_topic: bool = _switch("TARGTYPE", "QUEUE TOPIC", on="TOPIC")
    get_enabled: bool = _switch("GET", "ENABLED DISABLED", on="ENABLED", default=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteQueue(Queue):
    """QREMOTE: a queue elsewhere, a queue manager alias (no RNAME), or a reply-to alias."""

    keyword: ClassVar[str] = "QREMOTE"

    remote_queue: str = _name("RNAME")
    remote_queue_manager: str = _name("RQMNAME")
    transmission_queue: str = _name("XMITQ")

    @property
    def is_queue_manager_alias(self) -> bool:
        """Whether RNAME is blank."""
        return not self.remote_queue


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic(Definition):
    """TOPIC: a topic object, which an alias may target."""

    keyword: ClassVar[str] = "TOPIC"


@dataclass(frozen=True, slots=True, kw_only=True)
class Namelist(Definition):
    """NAMELIST: a list of names, here of clusters."""

    keyword: ClassVar[str] = "NAMELIST"

    names: tuple[str, ...] = _mqsc("NAMES", name_list, ())


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel(Definition):
    """CHANNEL: connects a transmission queue with another queue manager."""

    keyword: ClassVar[str] = "CHANNEL"
    longest_name: ClassVar[int] = 20

    channel_type: ChannelType = field(metadata={_KEYWORD: "CHLTYPE", "form": one_of(ChannelType)})
    connection: str = _mqsc("CONNAME", text, "")
    transmission_queue: str = _name("XMITQ")
    """The queue that a sender or server serves."""
    cluster: str = _name("CLUSTER")
    cluster_namelist: str = _name("CLUSNL")
    cluster_rank: int = _mqsc("CLWLRANK", _DIGIT, 0)
    cluster_priority: int = _mqsc("CLWLPRTY", _DIGIT, 0)
    cluster_weight: int = _mqsc("CLWLWGHT", number(1, 99), 50)
    network_priority: int = _mqsc("NETPRTY", _DIGIT, 0)
    fast_nonpersistent: bool = _switch("NPMSPEED", "FAST NORMAL", on="FAST", default=True)
    """Whether nonpersistent messages may be lost when the channel stops."""
    use_dead_letter_queue: bool = _switch("USEDLQ", "YES NO", on="YES", default=True)
    message_retries: int = _mqsc("MRRTY", number(0, MOST), 10)
    message_retry_interval: int = _mqsc("MRTMR", number(0, MOST), 1000)
    """Milliseconds between these attempts."""
    short_retries: int = _mqsc("SHORTRTY", number(0, MOST), 10)
    """How often a sender tries to reach its partner, at short intervals first."""
    long_retries: int = _mqsc("LONGRTY", number(0, MOST), MOST)
    """How often it then tries at long intervals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientChannel(Channel):
    """A channel with CHLTYPE(CLNTCONN); these have a name space of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueManagerAttributes(Definition):
    """QMGR: attributes of the queue manager itself."""

    keyword: ClassVar[str] = "QMGR"

    dead_letter_queue: str = _name("DEADQ")
    default_transmission_queue: str = _name("DEFXMITQ")
    has_queue_per_channel: bool = _switch("DEFCLXQ", "SCTQ CHANNEL", on="CHANNEL")
    """Whether each cluster-sender channel has its own transmission queue."""
    max_message_length: int = _mqsc("MAXMSGL", _LENGTH, _DEFAULT_LENGTH)
    """Longest message, in bytes."""
    cluster_use: UseQueue = _mqsc(
        "CLWLUSEQ", choice({"LOCAL": UseQueue.LOCAL, "ANY": UseQueue.ANY}), UseQueue.LOCAL
    )
    cluster_channels_used: int = _mqsc("CLWLMRUC", number(1, MOST), MOST)
    intra_group_queuing: bool = _switch("IGQ", "ENABLED DISABLED", on="ENABLED")
    queue_sharing_group: str = _mqsc("QSGNAME", lambda value: check_name(value, 4), "")
    """The queue-sharing group of which the manager is a member; empty for none."""
    uses_shared_queue_manager_name: bool = _switch("SQQMNAME", "USE IGNORE ", on="USE")
    """Whether a put that names another member of the queue-sharing group goes there."""
    repository_cluster: str = _name("REPOS")
    repository_namelist: str = _name("REPOSNL")


_NOT_ON_MODELS: Final = {"DEFBIND", "CLUSTER", "CLUSNL", "CLWLRANK", "CLWLPRTY"}


ATTRIBUTES: Final[Mapping[type[Definition], Mapping[str, Attribute]]] = {
    kind: {
        keyword: Attribute(field.name, field.metadata["form"])
        for field in fields(kind)
        if (keyword := field.metadata.get(_KEYWORD))
        and not (kind is ModelQueue and keyword in _NOT_ON_MODELS)
    }
    for kind in (
        *(LocalQueue, ModelQueue, AliasQueue, RemoteQueue),
        *(QueueManagerAttributes, ClientChannel, Channel),
        *(Namelist, Topic),
    )
}
"""Attributes that resolution uses: object type to keyword to field and form."""


# Attributes beside those of ATTRIBUTES: docs/resolution.md, "Attributes", says which are honoured,
# recorded or ignored

SYNONYMS: Final[Mapping[str, str]] = {
    "TARGQ": "TARGET",
    **{f"NO{word}": word for word in ("SHARE", "TRIGGER", "HARDENBO", "REPLACE")},
}
"""Keywords that exclude the keyword which they stand for or negate."""

OPTIONS: Final = frozenset(
    ("LIKE", "REPLACE", "NOREPLACE", "CMDSCOPE", "FORCE", "NOFORCE", "IGNSTATE")
)
"""Keywords that are options of a command, not attributes of an object."""

_QUEUES = "QLOCAL QMODEL QALIAS QREMOTE"
_HOLDING, _ALL = "QLOCAL QMODEL", f"{_QUEUES} QMGR CHANNEL"

_KEYWORDS: Final = {
    f"{_ALL} NAMELIST TOPIC": "DESCR",
    _ALL: "ALTDATE ALTTIME CMDSCOPE CRDATE CRTIME CUSTOM FORCE LIKE OTELPCTL OTELTRAC REPLACE",
    _QUEUES: """
        CLUSDATE CLUSQMGR CLUSQT CLUSTERT CLUSTIME DEFPRESP DEFREADA DEFTYPE PROPCTL QMID
        QSGDISP QTYPE SCOPE TYPE
    """,
    "QMODEL QALIAS QREMOTE": "QSGDISP",
    "QLOCAL": "DEFTYPE",
    "QMODEL": "CLCHNAME DEFBIND USAGE",
    _HOLDING: """
        ACCTQ BOQNAME BOTHRESH CFSTRUCT CURDEPTH DEFSOPT DISTL HARDENBO IMGRCOVQ INDXTYPE INITQ
        IPPROCS MAXFSIZE MONQ NPMCLASS OPPROCS PROCESS QDEPTHHI QDEPTHLO QDPHIEV QDPLOEV
        QDPMAXEV QSVCIEV QSVCINT RETINTVL SHARE STATQ STGCLASS TPIPE TRIGDATA TRIGDPTH TRIGGER
        TRIGMPRI TRIGTYPE
    """,
    "QMGR": """
        ACCTCONO ACCTINT ACCTMQI ACCTQ ACTCHL ACTIVREC ACTVCONO ACTVTRC ADOPTCHK ADOPTMCA ADVCAP
        AMQPCAP AUTHOREV BRIDGEEV CCSID CERTLABL CERTQSGL CERTVPOL CFCONLOS CHAD CHADEV CHADEXIT
        CHIADAPS CHIDISPS CHISERVP CHLAUTH CHLEV CLWLDATA CLWLEXIT CLWLLEN CMDEV CMDLEVEL
        COMMANDQ CONFIGEV CONNAUTH CPILEVEL DEFREADA DISTL DNSGROUP DNSWLM EXPRYINT GROUPUR
        IGQAUT IGQUSER IMGINTVL IMGLOGLN IMGRCOVO IMGRCOVQ IMGSCHED INHIBTEV INITKEY IPADDRV
        KEYRPWD LOCALEV LOGGEREV LSTRTMR LU62ARM LU62CHL LUGROUP LUNAME MARKINT MAXCHL MAXHANDS
        MAXPROPL MAXPRTY MAXUMSGS MONACLS MONCHL MONQ MQIACCT MQISTAT MULC OPORTMAX OPORTMIN
        PARENT PERFMEV PLATFORM PSCLUS PSMODE PSNPMSG PSNPRES PSRTYCNT PSSYNCPT QMID QMNAME
        QSGCERT RCVTIME RCVTMIN RCVTTYPE REMOTEEV REVDNS ROUTEREC SCHINIT SCMDSERV SCYCASE
        SPLCAP SSLCRLNL SSLCRYP SSLEV SSLFIPS SSLKEYR SSLRKEYC SSLTASKS STATACLS STATCHL STATINT
        STATMQI STATQ STRSTPEV SUITEB SYNCPT TCPCHL TCPKEEP TCPNAME TCPSTACK TRAXSTR TRAXTBL
        TREELIFE TRIGINT VERSION XRCAP
    """,
    "CHANNEL": """
        AFFINITY AMQPKA AUTOSTART BACKLOG BATCHHB BATCHINT BATCHLIM BATCHSZ CERTLABL CLNTWGHT
        COMPHDR COMPMSG CONVERT DEFCDISP DEFRECON DISCINT HBINT JAASCFG KAINT LOCLADDR LONGTMR
        MAXINST MAXINSTC MAXMSGL MCANAME MCATYPE MCAUSER MODENAME MONCHL MRDATA MREXIT MSGDATA
        MSGEXIT PASSWORD PORT PROPCTL PROTOCOL PUTAUT QMNAME QSGDISP RCVDATA RCVEXIT RESETSEQ
        SCYDATA SCYEXIT SENDDATA SENDEXIT SEQWRAP SHARECNV SHORTTMR SPLPROT SSLCAUTH SSLCIPH
        SSLKEYP SSLKEYR SSLPEER STATCHL TMPMODEL TMPQPRFX TPNAME TPROOT TRPTYPE USECLTID USERID
    """,
}
"""Keywords by the objects that have them."""

TAKING_ANY_KEYWORD: Final = (Namelist, Topic)
"""Kinds of objects of which every attribute is kept as written."""

RECORDED: Final[Mapping[type[Definition], frozenset[str]]] = {
    kind: frozenset(
        keyword
        for objects, keywords in _KEYWORDS.items()
        if kind.keyword in objects.split()
        for keyword in keywords.split()
    )
    for kind in ATTRIBUTES
}
"""Keywords that objects of a kind have besides those of ``ATTRIBUTES``."""

CHANNEL_TYPES: Final[Mapping[str, frozenset[ChannelType]]] = {
    keyword: frozenset(map(ChannelType, types.split()))
    for keywords, types in (
        ("XMITQ", "SDR SVR"),
        ("CONNAME", "SDR SVR RQSTR CLUSSDR CLUSRCVR CLNTCONN"),
        ("CLUSTER CLUSNL CLWLRANK CLWLPRTY CLWLWGHT", "CLUSSDR CLUSRCVR"),
        ("NETPRTY", "CLUSRCVR"),
        ("MRRTY MRTMR", "RCVR RQSTR CLUSRCVR"),
        ("USEDLQ NPMSPEED", "SDR SVR RCVR RQSTR CLUSSDR CLUSRCVR"),
        ("SHORTRTY LONGRTY", "SDR SVR CLUSSDR CLUSRCVR"),
    )
    for keyword in keywords.split()
}
"""Attributes of which resolution uses the value, and the types of channels that have them."""

_NOT_CALLED = "the exit is not called: messages are not changed"
_NO_CELLS = "there is no cell directory: it is known only to this queue manager"
IGNORED: Final[Mapping[str, Mapping[str, tuple[str, str]]]] = {
    **{kind: {"SCOPE": ("QMGR", _NO_CELLS)} for kind in _QUEUES.split()},
    "CHANNEL": {
        "CONVERT": ("NO", "data is not converted: bodies are not changed"),
        "MAXMSGL": ("4194304", "the channel accepts messages of any length"),
        "MREXIT": ("NONE", "the exit is not called: MRRTY and MRTMR apply"),
        "MSGEXIT": ("NONE", _NOT_CALLED),
        "PUTAUT": ("DEF", "the only authority check is Kafka's, for the job's own user"),
        "RCVEXIT": ("NONE", _NOT_CALLED),
        "SENDEXIT": ("NONE", _NOT_CALLED),
    },
    "QMGR": {
        "CLWLEXIT": ("NONE", "the exit is not called: workload management chooses without it"),
    },
}
"""Attributes that affect a message in IBM MQ but not here, by object and keyword: the values
without effect, as blank, and the consequence of others."""


def ignored_attributes(definition: Definition) -> Iterator[tuple[str, str]]:
    """The attributes of a definition that have no effect here, with the consequence of each."""
    for keyword, (harmless, consequence) in IGNORED.get(definition.keyword, {}).items():
        written = definition.others.get(keyword)
        if written is not None:
            value = written.partition("(")[2].removesuffix(")").strip("' ").upper()
            if value not in {"", *harmless.split()}:
                yield written, consequence
    match definition:
        # On a transmission queue it starts a channel, which runs here.
        case LocalQueue(is_transmission_queue=False, others={"TRIGGER": "TRIGGER", **more}):
            if more.get("TRIGTYPE", "").upper() != "TRIGTYPE(NONE)":
                what = "no trigger message is put; programs that read its topic have to run"
                yield "TRIGGER", what
    match definition:
        case LocalQueue(stream_queue=name, must_duplicate=False) if name:
            yield f"STREAMQ({name})", "messages are put without a copy"
    match definition:
        case LocalQueue(get_enabled=False) if not definition.is_transmission_queue:
            yield "GET(DISABLED)", "applications can still read its topic"
        case AliasQueue(get_enabled=False):
            yield "GET(DISABLED)", "applications can still read the topic of its base"
