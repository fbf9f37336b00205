"""MQSC keywords: which attributes each object has, what values they take, and how they print.

One table per object type maps a keyword to the field of ``redrive.topology.mq.objects`` and the
form of its value (resolution specification C.2). Keywords of IBM MQ that do not concern
resolution are known too, so that a misspelt one is found; their values are kept as written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from redrive.topology.mq.forms import Choice, Form, Name, NameList, Number, NumberOrNone, Text
from redrive.topology.mq.objects import (
    MAX_CHANNEL_NAME_LENGTH,
    AliasQueue,
    Channel,
    ChannelType,
    DefaultBind,
    DefaultClusterQueue,
    Definition,
    DeliverySequence,
    Disposition,
    DynamicType,
    LocalQueue,
    ModelQueue,
    Namelist,
    QueueManagerAttributes,
    RemoteQueue,
    SharedQueueManagerName,
    StreamQuality,
    TargetType,
    Topic,
    Usage,
    UseQueue,
)


@dataclass(frozen=True, slots=True)
class Attribute:
    """One attribute that resolution uses."""

    field: str
    """Field of the object."""
    form: Form
    """Form of its values."""
    is_list: bool = False
    """Whether the form reads the source text, quotes included."""


def _words(enumeration: type[StrEnum]) -> Choice:
    return Choice({member.value: member for member in enumeration})


def _yes(word: str, other: str) -> Choice:
    return Choice({word: True, other: False})


_MOST = 999_999_999
_ANY_NAME = Name()
_DIGIT = Number(0, 9)
_ENABLED = _yes("ENABLED", "DISABLED")
_DEPTH = Attribute("max_depth", Number(0, _MOST))
_LENGTH = Attribute("max_message_length", Number(0, 104_857_600))
_NOT_SHARED = [kind for kind in Disposition if kind is not Disposition.SHARED]
_DISPOSITION = Attribute("disposition", Choice({kind.value: kind for kind in _NOT_SHARED}))
_GET = Attribute("get_enabled", _ENABLED)
_SEQUENCE = {"MSGDLVSQ": Attribute("delivery_sequence", _words(DeliverySequence))}
_STREAM = {
    "STREAMQ": Attribute("stream_queue", _ANY_NAME),
    "STRMQOS": Attribute("stream_quality", _words(StreamQuality)),
}

_ANY_QUEUE = {
    "PUT": Attribute("put_enabled", _ENABLED),
    "DEFPSIST": Attribute("default_persistence", _yes("YES", "NO")),
    "DEFPRTY": Attribute("default_priority", _DIGIT),
    "DEFBIND": Attribute("default_bind", _words(DefaultBind)),
    "CLUSTER": Attribute("cluster", _ANY_NAME),
    "CLUSNL": Attribute("cluster_namelist", _ANY_NAME),
    "CLWLRANK": Attribute("cluster_rank", _DIGIT),
    "CLWLPRTY": Attribute("cluster_priority", _DIGIT),
    "CAPEXPRY": Attribute("cap_expiry", NumberOrNone(Number(1, _MOST), "NOLIMIT")),
}
_NOT_ON_MODELS = {"DEFBIND", "CLUSTER", "CLUSNL", "CLWLRANK", "CLWLPRTY"}

ATTRIBUTES: Mapping[type[Definition], Mapping[str, Attribute]] = {
    LocalQueue: _ANY_QUEUE
    | {
        "USAGE": Attribute("usage", _words(Usage)),
        "GET": _GET,
        "MAXDEPTH": _DEPTH,
        "MAXMSGL": _LENGTH,
        "CLWLUSEQ": Attribute("cluster_use", _words(UseQueue)),
        "CLCHNAME": Attribute("cluster_channels", Text()),
        "QSGDISP": Attribute("disposition", _words(Disposition)),
        **_SEQUENCE,
        **_STREAM,
    },
    ModelQueue: {key: val for key, val in _ANY_QUEUE.items() if key not in _NOT_ON_MODELS}
    | {
        "DEFTYPE": Attribute("dynamic_type", _words(DynamicType)),
        "GET": _GET,
        "MAXDEPTH": _DEPTH,
        "MAXMSGL": _LENGTH,
        "QSGDISP": _DISPOSITION,
        **_SEQUENCE,
        **_STREAM,
    },
    AliasQueue: _ANY_QUEUE
    | {
        "TARGET": Attribute("target", _ANY_NAME),
        "TARGTYPE": Attribute("target_type", _words(TargetType)),
        "GET": _GET,
        "QSGDISP": _DISPOSITION,
    },
    RemoteQueue: _ANY_QUEUE
    | {
        "RNAME": Attribute("remote_queue", _ANY_NAME),
        "RQMNAME": Attribute("remote_queue_manager", _ANY_NAME),
        "XMITQ": Attribute("transmission_queue", _ANY_NAME),
        "QSGDISP": _DISPOSITION,
    },
    QueueManagerAttributes: {
        "DEADQ": Attribute("dead_letter_queue", _ANY_NAME),
        "DEFXMITQ": Attribute("default_transmission_queue", _ANY_NAME),
        "DEFCLXQ": Attribute("default_cluster_queue", _words(DefaultClusterQueue)),
        "MAXMSGL": Attribute("max_message_length", Number(0, 104_857_600)),
        "CLWLUSEQ": Attribute(
            "cluster_use", Choice({"LOCAL": UseQueue.LOCAL, "ANY": UseQueue.ANY})
        ),
        "CLWLMRUC": Attribute("cluster_channels_used", Number(1, _MOST)),
        "IGQ": Attribute("intra_group_queuing", _ENABLED),
        "SQQMNAME": Attribute("shared_queue_manager_name", _words(SharedQueueManagerName)),
        "REPOS": Attribute("repository_cluster", _ANY_NAME),
        "REPOSNL": Attribute("repository_namelist", _ANY_NAME),
    },
    Channel: {
        "CHLTYPE": Attribute("channel_type", _words(ChannelType)),
        "CONNAME": Attribute("connection", Text()),
        "XMITQ": Attribute("transmission_queue", _ANY_NAME),
        "CLUSTER": Attribute("cluster", _ANY_NAME),
        "CLUSNL": Attribute("cluster_namelist", _ANY_NAME),
        "CLWLRANK": Attribute("cluster_rank", _DIGIT),
        "CLWLPRTY": Attribute("cluster_priority", _DIGIT),
        "CLWLWGHT": Attribute("cluster_weight", Number(1, 99)),
        "NETPRTY": Attribute("network_priority", _DIGIT),
        "NPMSPEED": Attribute("fast_nonpersistent", _yes("FAST", "NORMAL")),
        "USEDLQ": Attribute("use_dead_letter_queue", _yes("YES", "NO")),
        "MRRTY": Attribute("message_retries", Number(0, _MOST)),
        "MRTMR": Attribute("message_retry_interval", Number(0, _MOST)),
    },
    Namelist: {"NAMES": Attribute("names", NameList(), is_list=True)},
    Topic: {},
}
"""Attributes that resolution uses: object type to keyword to field and form."""

SYNONYMS: Mapping[str, str] = {
    "TARGQ": "TARGET",
    "NOSHARE": "SHARE",
    "NOTRIGGER": "TRIGGER",
    "NOHARDENBO": "HARDENBO",
    "NOREPLACE": "REPLACE",
}
"""Keywords that are given at most once together with the keyword they stand for or negate."""

OPTIONS = frozenset(["LIKE", "REPLACE", "NOREPLACE", "CMDSCOPE", "FORCE", "NOFORCE", "IGNSTATE"])
"""Keywords that say how to carry out a command and are no attributes of the object."""

_EVERY_OBJECT = "DESCR LIKE REPLACE CMDSCOPE ALTDATE ALTTIME CRDATE CRTIME CUSTOM FORCE "
_EVERY_QUEUE = _EVERY_OBJECT + (
    "SCOPE PROPCTL DEFPRESP DEFREADA QSGDISP DEFTYPE QTYPE CLUSDATE CLUSTIME CLUSQMGR "
    "CLUSQT CLUSTERT QMID TYPE OTELTRAC OTELPCTL "
)
_HOLDS_MESSAGES = _EVERY_QUEUE + (
    "ACCTQ BOQNAME BOTHRESH CFSTRUCT DEFSOPT DISTL HARDENBO IMGRCOVQ INDXTYPE INITQ IPPROCS "
    "CURDEPTH MAXFSIZE MONQ NPMCLASS OPPROCS PROCESS QDEPTHHI QDEPTHLO QDPHIEV QDPLOEV "
    "QDPMAXEV QSVCIEV QSVCINT RETINTVL SHARE STATQ STGCLASS TPIPE TRIGDATA "
    "TRIGDPTH TRIGGER TRIGMPRI TRIGTYPE "
)
_QUEUE_MANAGER = _EVERY_OBJECT + (
    "ACCTCONO ACCTINT ACCTMQI ACCTQ ACTCHL ACTIVREC ACTVCONO ACTVTRC ADOPTCHK ADOPTMCA ADVCAP "
    "AMQPCAP AUTHOREV BRIDGEEV CCSID CERTLABL CERTQSGL CERTVPOL CFCONLOS CHAD CHADEV CHADEXIT "
    "CHIADAPS CHIDISPS CHISERVP CHLAUTH CHLEV CLWLDATA CLWLEXIT CLWLLEN CMDEV CMDLEVEL COMMANDQ "
    "CONFIGEV CONNAUTH CPILEVEL DEFREADA DISTL DNSGROUP DNSWLM EXPRYINT GROUPUR IGQAUT IGQUSER "
    "IMGINTVL IMGLOGLN IMGRCOVO IMGRCOVQ IMGSCHED INHIBTEV INITKEY IPADDRV KEYRPWD LOCALEV "
    "LOGGEREV LSTRTMR LU62ARM LU62CHL LUGROUP LUNAME MARKINT MAXCHL MAXHANDS MAXPROPL MAXPRTY "
    "MAXUMSGS MONACLS MONCHL MONQ MQIACCT MQISTAT MULC OPORTMAX OPORTMIN OTELPCTL OTELTRAC PARENT "
    "PERFMEV PLATFORM PSCLUS PSMODE PSNPMSG PSNPRES PSRTYCNT PSSYNCPT QMID QMNAME QSGCERT QSGNAME "
    "RCVTIME RCVTMIN RCVTTYPE REMOTEEV REVDNS ROUTEREC SCHINIT SCMDSERV SCYCASE SPLCAP SSLCRLNL "
    "SSLCRYP SSLEV SSLFIPS SSLKEYR SSLRKEYC SSLTASKS STATACLS STATCHL STATINT STATMQI STATQ "
    "STRSTPEV SUITEB SYNCPT TCPCHL TCPKEEP TCPNAME TCPSTACK TRAXSTR TRAXTBL TREELIFE TRIGINT "
    "VERSION XRCAP "
)
_CHANNEL = _EVERY_OBJECT + (
    "AFFINITY AMQPKA AUTOSTART BACKLOG BATCHHB BATCHINT BATCHLIM BATCHSZ CERTLABL CLNTWGHT "
    "COMPHDR COMPMSG CONVERT DEFCDISP DEFRECON DISCINT HBINT JAASCFG KAINT LOCLADDR LONGRTY "
    "LONGTMR MAXINST MAXINSTC MAXMSGL MCANAME MCATYPE MCAUSER MODENAME MONCHL MRDATA MREXIT "
    "MSGDATA MSGEXIT OTELPCTL OTELTRAC PASSWORD PORT PROPCTL PROTOCOL PUTAUT QMNAME QSGDISP "
    "RCVDATA RCVEXIT RESETSEQ SCYDATA SCYEXIT SENDDATA SENDEXIT SEQWRAP SHARECNV SHORTRTY "
    "SHORTTMR SPLPROT SSLCAUTH SSLCIPH SSLKEYP SSLKEYR SSLPEER STATCHL TMPMODEL TMPQPRFX "
    "TPNAME TPROOT TRPTYPE USECLTID USERID "
)

OTHER_KEYWORDS: Mapping[type[Definition], frozenset[str] | None] = {
    LocalQueue: frozenset(_HOLDS_MESSAGES.split()),
    ModelQueue: frozenset((_HOLDS_MESSAGES + "USAGE CLCHNAME DEFBIND").split()),
    AliasQueue: frozenset(_EVERY_QUEUE.split()),
    RemoteQueue: frozenset(_EVERY_QUEUE.split()),
    QueueManagerAttributes: frozenset(_QUEUE_MANAGER.split()),
    Channel: frozenset(_CHANNEL.split()),
    Namelist: None,
    Topic: None,
}
"""Keywords that are known and kept as written; None where every keyword is."""

NAME_LENGTHS: Mapping[type[Definition], int] = {Channel: MAX_CHANNEL_NAME_LENGTH}
"""Longest object names where they differ from ``MAX_NAME_LENGTH``."""
