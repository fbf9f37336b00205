"""What attributes take that resolution does not use: their values, and the channels that have them.

Values are kept as written; what ``runmqsc`` refuses is refused all the same, so that a script which
``redrive check`` accepts is one that a queue manager accepts. The rules are those of the references
of DEFINE QLOCAL, DEFINE CHANNEL (with its table of attributes by channel type) and ALTER QMGR. An
attribute that is not named here takes anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from redrive.topology.mq.forms import Choice, Flag, Form, Number, NumberOrNone, Text
from redrive.topology.mq.objects import (
    Channel,
    ChannelType,
    Definition,
    LocalQueue,
    ModelQueue,
    QueueManagerAttributes,
)

_MOST: Final = 999_999_999
_SHORT: Final = 999_999


def _words(text: str) -> Choice:
    return Choice({word: word for word in text.split()})


def _each(keywords: str, form: Form) -> dict[str, Form]:
    return dict.fromkeys(keywords.split(), form)


_ON: Final = _words("ON OFF")
_ENABLED: Final = _words("ENABLED DISABLED")
_YES: Final = _words("YES NO")
_LEVEL: Final = "OFF LOW MEDIUM HIGH"
ANY_OBJECT: Final[Mapping[str, Form]] = {"DESCR": Text(longest=64)}
"""What objects of every kind have."""

_QUEUE: Final[Mapping[str, Form]] = {
    **ANY_OBJECT,
    **_each("SHARE TRIGGER HARDENBO", Flag()),
    **_each("BOTHRESH QSVCINT RETINTVL", Number(0, _MOST)),
    "TRIGDPTH": Number(1, _MOST),
    "TRIGMPRI": Number(0, 9),
    "TRIGTYPE": _words("EVERY FIRST DEPTH NONE"),
    "NPMCLASS": _words("NORMAL HIGH"),
    **_each("QDEPTHHI QDEPTHLO", Number(0, 100)),
    **_each("QDPHIEV QDPLOEV QDPMAXEV", _ENABLED),
    "QSVCIEV": _words("HIGH OK NONE"),
    "DISTL": _YES,
    "DEFSOPT": _words("EXCL SHARED"),
    "INDXTYPE": _words("NONE MSGID CORRELID GROUPID MSGTOKEN"),
    "MONQ": _words(f"QMGR {_LEVEL}"),
    **_each("STATQ ACCTQ", _words("QMGR ON OFF")),
}

_QUEUE_MANAGER: Final[Mapping[str, Form]] = {
    **ANY_OBJECT,
    **_each("CHLAUTH CHAD AUTHOREV INHIBTEV LOCALEV REMOTEEV PERFMEV STRSTPEV LOGGEREV", _ENABLED),
    **_each("CONFIGEV SSLEV CHADEV ACCTCONO ACTVCONO PSCLUS", _ENABLED),
    "CHLEV": _words("ENABLED DISABLED EXCEPTION"),
    "CMDEV": _words("ENABLED DISABLED NODISPLAY"),
    **_each("MONQ MONCHL STATCHL", _words(f"NONE {_LEVEL}")),
    **_each("MONACLS STATACLS", _words(f"QMGR {_LEVEL}")),
    **_each("STATQ ACCTQ", _words("NONE ON OFF")),
    **_each("STATMQI ACCTMQI ACTVTRC", _ON),
    **_each("ACTIVREC ROUTEREC", _words("DISABLED MSG QUEUE")),
    **_each("MAXUMSGS", Number(1, _MOST)),
    **_each("MAXHANDS TRIGINT SSLRKEYC", Number(0, _MOST)),
    "PSMODE": _words("ENABLED COMPAT DISABLED"),
    "PSSYNCPT": _words("YES IFPER"),
    "SSLFIPS": _YES,
}

_CHANNEL: Final[Mapping[str, Form]] = {
    **ANY_OBJECT,
    "TRPTYPE": _words("TCP LU62 NETBIOS SPX UDP DECNET ALL"),
    **_each("HBINT DISCINT BATCHHB BATCHLIM", Number(0, _SHORT)),
    "BATCHSZ": Number(1, 9999),
    "BATCHINT": Number(0, _MOST),
    **_each("SHORTRTY SHORTTMR LONGRTY LONGTMR SHARECNV MAXINST MAXINSTC", Number(0, _MOST)),
    "SEQWRAP": Number(100, _MOST),
    "MAXMSGL": Number(0, 104_857_600),
    "KAINT": NumberOrNone(Number(0, 99_999), "AUTO"),
    **_each("MONCHL STATCHL", _words(f"QMGR {_LEVEL}")),
    "CONVERT": _YES,
    "PUTAUT": _words("DEF CTX ONLYMCA ALTMCA"),
    "MCATYPE": _words("PROCESS THREAD"),
    "SSLCAUTH": _words("REQUIRED OPTIONAL NEVER"),
    "CLNTWGHT": Number(0, 99),
    "AFFINITY": _words("PREFERRED NONE"),
    "DEFRECON": _words("NO YES QMGR DISABLED"),
}

RECORDED: Final[Mapping[type[Definition], Mapping[str, Form]]] = {
    LocalQueue: {**_QUEUE, "DEFTYPE": _words("PREDEFINED")},
    ModelQueue: _QUEUE,
    Channel: _CHANNEL,
    QueueManagerAttributes: _QUEUE_MANAGER,
}
"""By kind and keyword: the form of the values."""

_SENDS: Final = {ChannelType.SDR, ChannelType.SVR}
_RECEIVES: Final = {ChannelType.RCVR, ChannelType.RQSTR, ChannelType.CLUSRCVR}
_OF_CLUSTER: Final = {ChannelType.CLUSSDR, ChannelType.CLUSRCVR}
_MOVES: Final = _SENDS | _RECEIVES | _OF_CLUSTER
_CALLS: Final = {*_SENDS, ChannelType.RQSTR, *_OF_CLUSTER, ChannelType.CLNTCONN}
_OF_CLIENT: Final = {ChannelType.CLNTCONN}

CHANNEL_TYPES: Final[Mapping[str, frozenset[ChannelType]]] = {
    keyword: frozenset(types)
    for keywords, types in [
        ("XMITQ", _SENDS),
        ("CONNAME", _CALLS),
        ("CLUSTER CLUSNL CLWLRANK CLWLPRTY CLWLWGHT", _OF_CLUSTER),
        ("NETPRTY", {ChannelType.CLUSRCVR}),
        ("MRRTY MRTMR MREXIT MRDATA", _RECEIVES),
        ("USEDLQ NPMSPEED BATCHSZ SEQWRAP", _MOVES),
        ("SHORTRTY SHORTTMR LONGRTY LONGTMR CONVERT", _SENDS | _OF_CLUSTER),
        ("MAXINST MAXINSTC", {ChannelType.SVRCONN, ChannelType.AMQP}),
        ("SHARECNV", {ChannelType.SVRCONN, ChannelType.CLNTCONN}),
        ("QMNAME CLNTWGHT AFFINITY DEFRECON", _OF_CLIENT),
    ]
    for keyword in keywords.split()
}
"""Attributes that only some types of channels have."""
