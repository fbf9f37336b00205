"""MQSC attributes that resolution does not use.

They are kept as written, whatever their values; only their keywords are checked, for spelling.
docs/resolution.md, "Attributes", says which attributes are honoured, recorded or ignored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from redrive.topology.mq import objects as mq

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

TAKING_ANY_KEYWORD: Final = (mq.Namelist, mq.Topic)
"""Kinds of objects of which every attribute is kept as written."""

RECORDED: Final[Mapping[type[mq.Definition], frozenset[str]]] = {
    kind: frozenset(
        keyword
        for objects, keywords in _KEYWORDS.items()
        if kind.keyword in objects.split()
        for keyword in keywords.split()
    )
    for kind in mq.ATTRIBUTES
}
"""Keywords that objects of a kind have besides those of ``ATTRIBUTES``."""

CHANNEL_TYPES: Final[Mapping[str, frozenset[mq.ChannelType]]] = {
    keyword: frozenset(map(mq.ChannelType, types.split()))
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
