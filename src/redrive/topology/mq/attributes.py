"""MQSC attributes that resolution does not use.

They are kept as written. Their values are checked all the same, so that a queue manager accepts
every script that ``redrive check`` accepts; the rules are those of the references of DEFINE QLOCAL,
DEFINE CHANNEL and ALTER QMGR. docs/resolution.md, "Attributes", says which attributes are honoured,
recorded or ignored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from redrive.topology.mq import objects as mq
from redrive.topology.mq.forms import Form, flag, number, one_of, text

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
_MOST, _SHORT, _SWITCH, _LEVEL = "0..999999999", "0..999999", "ENABLED DISABLED", "LOW MEDIUM HIGH"

# Objects, keywords, and the values they take: limits of a number, ``LIMITS or WORD``, the most
# characters of a text, words, ``flag`` for none, or blank for anything.
_ROWS: Final = (
    (f"{_ALL} NAMELIST TOPIC", "DESCR", "text 64"),
    (_ALL, "LIKE REPLACE CMDSCOPE ALTDATE ALTTIME CRDATE CRTIME CUSTOM FORCE OTELPCTL", ""),
    (_ALL, "OTELTRAC", ""),
    (_QUEUES, "SCOPE PROPCTL DEFPRESP DEFREADA QSGDISP DEFTYPE QTYPE CLUSDATE CLUSTIME", ""),
    ("QMODEL QALIAS QREMOTE", "QSGDISP", mq.PRIVATE),
    (_QUEUES, "CLUSQMGR CLUSQT CLUSTERT QMID TYPE", ""),
    ("QLOCAL", "DEFTYPE", "PREDEFINED"),
    ("QMODEL", "USAGE CLCHNAME DEFBIND", ""),
    (_HOLDING, "BOQNAME CFSTRUCT IMGRCOVQ IPPROCS CURDEPTH MAXFSIZE OPPROCS", ""),
    (_HOLDING, "INITQ PROCESS STGCLASS TPIPE TRIGDATA TRIGDPTH TRIGMPRI TRIGTYPE", ""),
    (_HOLDING, "SHARE TRIGGER HARDENBO", "flag"),
    (_HOLDING, "BOTHRESH QSVCINT RETINTVL", _MOST),
    (_HOLDING, "NPMCLASS", "NORMAL HIGH"),
    (_HOLDING, "QDEPTHHI QDEPTHLO", "0..100"),
    (_HOLDING, "QDPHIEV QDPLOEV QDPMAXEV", _SWITCH),
    (_HOLDING, "QSVCIEV", "HIGH OK NONE"),
    (_HOLDING, "DISTL", "YES NO"),
    (_HOLDING, "DEFSOPT", "EXCL SHARED"),
    (_HOLDING, "INDXTYPE", "NONE MSGID CORRELID GROUPID MSGTOKEN"),
    (_HOLDING, "MONQ", f"QMGR OFF {_LEVEL}"),
    (_HOLDING, "STATQ ACCTQ", "QMGR ON OFF"),
    ("QMGR", "ACCTINT ACTCHL ADOPTCHK ADOPTMCA ADVCAP AMQPCAP BRIDGEEV CCSID CERTLABL", ""),
    ("QMGR", "CERTQSGL CERTVPOL CFCONLOS CHADEXIT CHIADAPS CHIDISPS CHISERVP CLWLDATA", ""),
    ("QMGR", "CLWLEXIT CLWLLEN CMDLEVEL COMMANDQ CONNAUTH CPILEVEL DEFREADA DISTL DNSGROUP", ""),
    ("QMGR", "DNSWLM EXPRYINT GROUPUR IGQAUT IGQUSER IMGINTVL IMGLOGLN IMGRCOVO IMGRCOVQ", ""),
    ("QMGR", "IMGSCHED INITKEY IPADDRV KEYRPWD LSTRTMR LU62ARM LU62CHL LUGROUP LUNAME MARKINT", ""),
    ("QMGR", "MAXCHL MAXPROPL MAXPRTY MQIACCT MQISTAT MULC OPORTMAX OPORTMIN PARENT PLATFORM", ""),
    ("QMGR", "PSNPMSG PSNPRES PSRTYCNT QMID QMNAME QSGCERT RCVTIME RCVTMIN RCVTTYPE", ""),
    ("QMGR", "REVDNS SCHINIT SCMDSERV SCYCASE SPLCAP SSLCRLNL SSLCRYP SSLKEYR SSLTASKS", ""),
    ("QMGR", "STATINT SUITEB SYNCPT TCPCHL TCPKEEP TCPNAME TCPSTACK TRAXSTR TRAXTBL TREELIFE", ""),
    ("QMGR", "VERSION XRCAP", ""),
    ("QMGR", "CHLAUTH CHAD AUTHOREV INHIBTEV LOCALEV REMOTEEV PERFMEV STRSTPEV", _SWITCH),
    ("QMGR", "LOGGEREV CONFIGEV SSLEV CHADEV ACCTCONO ACTVCONO PSCLUS", _SWITCH),
    ("QMGR", "CHLEV", "ENABLED DISABLED EXCEPTION"),
    ("QMGR", "CMDEV", "ENABLED DISABLED NODISPLAY"),
    ("QMGR", "MONQ MONCHL STATCHL", f"NONE OFF {_LEVEL}"),
    ("QMGR", "MONACLS STATACLS", f"QMGR OFF {_LEVEL}"),
    ("QMGR", "STATQ ACCTQ", "NONE ON OFF"),
    ("QMGR", "STATMQI ACCTMQI ACTVTRC", "ON OFF"),
    ("QMGR", "ACTIVREC ROUTEREC", "DISABLED MSG QUEUE"),
    ("QMGR", "MAXUMSGS", "1..999999999"),
    ("QMGR", "MAXHANDS TRIGINT SSLRKEYC", _MOST),
    ("QMGR", "PSMODE", "ENABLED COMPAT DISABLED"),
    ("QMGR", "PSSYNCPT", "YES IFPER"),
    ("QMGR", "SSLFIPS", "YES NO"),
    ("CHANNEL", "AMQPKA AUTOSTART BACKLOG CERTLABL COMPHDR COMPMSG DEFCDISP JAASCFG LOCLADDR", ""),
    ("CHANNEL", "MCANAME MCAUSER MODENAME MRDATA MREXIT MSGDATA MSGEXIT PASSWORD PORT PROPCTL", ""),
    ("CHANNEL", "PROTOCOL QMNAME QSGDISP RCVDATA RCVEXIT RESETSEQ SCYDATA SCYEXIT SENDDATA", ""),
    ("CHANNEL", "SENDEXIT SPLPROT SSLCIPH SSLKEYP SSLKEYR SSLPEER TMPMODEL TMPQPRFX TPNAME", ""),
    ("CHANNEL", "TPROOT USECLTID USERID", ""),
    ("CHANNEL", "TRPTYPE", "TCP LU62 NETBIOS SPX UDP DECNET ALL"),
    ("CHANNEL", "HBINT DISCINT BATCHHB BATCHLIM", _SHORT),
    ("CHANNEL", "BATCHSZ", "1..9999"),
    ("CHANNEL", "BATCHINT SHORTTMR LONGTMR SHARECNV MAXINST MAXINSTC", _MOST),
    ("CHANNEL", "SEQWRAP", "100..999999999"),
    ("CHANNEL", "MAXMSGL", "0..104857600"),
    ("CHANNEL", "KAINT", "0..99999 or AUTO"),
    ("CHANNEL", "MONCHL STATCHL", f"QMGR OFF {_LEVEL}"),
    ("CHANNEL", "CONVERT", "YES NO"),
    ("CHANNEL", "PUTAUT", "DEF CTX ONLYMCA ALTMCA"),
    ("CHANNEL", "MCATYPE", "PROCESS THREAD"),
    ("CHANNEL", "SSLCAUTH", "REQUIRED OPTIONAL NEVER"),
    ("CHANNEL", "CLNTWGHT", "0..99"),
    ("CHANNEL", "AFFINITY", "PREFERRED NONE"),
    ("CHANNEL", "DEFRECON", "NO YES QMGR DISABLED"),
)  # fmt: skip

TAKING_ANY_KEYWORD: Final = (mq.Namelist, mq.Topic)
"""Kinds of objects of which every attribute is kept as written."""


def _form(values: str) -> Form | None:
    kind, _, rest = values.partition(" ")
    if kind == "text":
        return text(int(rest))
    if ".." in kind:
        low, high = map(int, kind.split(".."))
        return number(low, high, rest.removeprefix("or "))
    if values == "flag":
        return flag
    return one_of(values) if values else None


RECORDED: Final[Mapping[type[mq.Definition], Mapping[str, Form | None]]] = {
    kind: {
        keyword: _form(values)
        for objects, keywords, values in _ROWS
        if kind.keyword in objects.split()
        for keyword in keywords.split()
    }
    for kind in mq.ATTRIBUTES
}
"""By kind and keyword: the form of the values; None for any."""

CHANNEL_TYPES: Final[Mapping[str, frozenset[mq.ChannelType]]] = {
    keyword: frozenset(map(mq.ChannelType, types.split()))
    for keywords, types in (
        ("XMITQ", "SDR SVR"),
        ("CONNAME", "SDR SVR RQSTR CLUSSDR CLUSRCVR CLNTCONN"),
        ("CLUSTER CLUSNL CLWLRANK CLWLPRTY CLWLWGHT", "CLUSSDR CLUSRCVR"),
        ("NETPRTY", "CLUSRCVR"),
        ("MRRTY MRTMR MREXIT MRDATA", "RCVR RQSTR CLUSRCVR"),
        ("USEDLQ NPMSPEED BATCHSZ SEQWRAP", "SDR SVR RCVR RQSTR CLUSSDR CLUSRCVR"),
        ("SHORTRTY SHORTTMR LONGRTY LONGTMR CONVERT", "SDR SVR CLUSSDR CLUSRCVR"),
        ("MAXINST MAXINSTC", "SVRCONN AMQP"),
        ("SHARECNV", "SVRCONN CLNTCONN"),
        ("QMNAME CLNTWGHT AFFINITY DEFRECON", "CLNTCONN"),
    )
    for keyword in keywords.split()
}
"""Attributes that only some types of channels have."""

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


def ignored_attributes(definition: mq.Definition) -> Iterator[tuple[str, str]]:
    """The attributes of a definition that have no effect here, with the consequence of each."""
    for keyword, (harmless, consequence) in IGNORED.get(definition.keyword, {}).items():
        written = definition.others.get(keyword)
        if written is not None:
            value = written.partition("(")[2].removesuffix(")").strip("' ").upper()
            if value not in {"", *harmless.split()}:
                yield written, consequence
    if _asks_for_trigger_messages(definition):
        yield "TRIGGER", "no trigger message is put; programs that read its topic have to run"
    match definition:
        case mq.LocalQueue(stream_queue=name, must_duplicate=False) if name:
            yield f"STREAMQ({name})", "messages are put without a copy"
    match definition:
        case mq.LocalQueue(get_enabled=False) if not definition.is_transmission_queue:
            yield "GET(DISABLED)", "applications can still read its topic"
        case mq.AliasQueue(get_enabled=False):
            yield "GET(DISABLED)", "applications can still read the topic of its base"


def _asks_for_trigger_messages(definition: mq.Definition) -> bool:
    """Whether a queue has TRIGGER; on a transmission queue it starts a channel, which runs here."""
    if not isinstance(definition, mq.LocalQueue) or definition.is_transmission_queue:
        return False
    kind = definition.others.get("TRIGTYPE", "").upper()
    return definition.others.get("TRIGGER") == "TRIGGER" and kind != "TRIGTYPE(NONE)"
