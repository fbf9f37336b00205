"""The reason codes that name resolution and puts can end with."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final


class Reason(IntEnum):
    """MQRC codes of resolution and put, named as IBM MQ names them without ``MQRC_``.

    docs/resolution.md, "Reason codes", says when each occurs, and ``ADVICE`` what to change.
    """

    NONE = 0
    ALIAS_BASE_Q_TYPE_ERROR = 2001
    DYNAMIC_Q_NAME_ERROR = 2011
    MSG_TOO_BIG_FOR_Q = 2030
    MSG_TOO_BIG_FOR_Q_MGR = 2031
    NOT_AUTHORIZED = 2035
    NOT_OPEN_FOR_OUTPUT = 2039
    OPTION_NOT_VALID_FOR_TYPE = 2045
    OPTIONS_ERROR = 2046
    PERSISTENT_NOT_ALLOWED = 2048
    PUT_INHIBITED = 2051
    Q_FULL = 2053
    Q_TYPE_ERROR = 2057
    UNKNOWN_ALIAS_BASE_Q = 2082
    UNKNOWN_OBJECT_NAME = 2085
    UNKNOWN_OBJECT_Q_MGR = 2086
    UNKNOWN_REMOTE_Q_MGR = 2087
    XMIT_Q_TYPE_ERROR = 2091
    XMIT_Q_USAGE_ERROR = 2092
    OBJECT_ALREADY_EXISTS = 2100
    RESOURCE_PROBLEM = 2102
    FORMAT_ERROR = 2110
    REMOTE_Q_NAME_ERROR = 2184
    CLUSTER_RESOLUTION_ERROR = 2189
    UNKNOWN_XMIT_Q = 2196
    UNKNOWN_DEF_XMIT_Q = 2197
    DEF_XMIT_Q_TYPE_ERROR = 2198
    DEF_XMIT_Q_USAGE_ERROR = 2199
    CLUSTER_PUT_INHIBITED = 2268
    NO_DESTINATIONS_AVAILABLE = 2270
    FUNCTION_NOT_SUPPORTED = 2298
    OBJECT_NOT_UNIQUE = 2343


TEMPORARY: Final = frozenset({Reason.PUT_INHIBITED, Reason.Q_FULL})
"""Reasons for which a receiving channel retries a put (MRRTY); others are final at once (IBM's
reference of MQCD, MsgRetryCount, which names one more, of z/OS)."""


ADVICE: Final[Mapping[int, str]] = {
    Reason.ALIAS_BASE_Q_TYPE_ERROR: (
        "make the alias name a local queue, a remote definition or a cluster queue"
    ),
    Reason.DYNAMIC_Q_NAME_ERROR: (
        "give a dynamic queue name; an asterisk may only end it, at position 1 to 33"
    ),
    Reason.MSG_TOO_BIG_FOR_Q: "raise MAXMSGL of the queue, or send less",
    Reason.MSG_TOO_BIG_FOR_Q_MGR: "raise MAXMSGL of the queue manager, or send less",
    Reason.NOT_OPEN_FOR_OUTPUT: "open for output too",
    Reason.OPTION_NOT_VALID_FOR_TYPE: (
        "open for output only, or open the queue on the manager that holds it"
    ),
    Reason.OPTIONS_ERROR: "give at least one open option, none twice",
    Reason.PERSISTENT_NOT_ALLOWED: (
        "send the message non-persistent, or give the model queue DEFTYPE(PERMDYN)"
    ),
    Reason.PUT_INHIBITED: "allow puts with ALTER ... PUT(ENABLED) on the object named",
    Reason.Q_FULL: "get messages from the queue, or raise its MAXDEPTH",
    Reason.Q_TYPE_ERROR: "open the model queue by its own name with MQOPEN",
    Reason.UNKNOWN_ALIAS_BASE_Q: "define what the alias targets, or correct its TARGET",
    Reason.UNKNOWN_OBJECT_NAME: "define the queue, or correct the name; names are case-sensitive",
    Reason.UNKNOWN_OBJECT_Q_MGR: "use up to 48 of the characters A-Z a-z 0-9 . / _ %",
    Reason.UNKNOWN_REMOTE_Q_MGR: "define a transmission queue for the manager, or set DEFXMITQ",
    Reason.XMIT_Q_TYPE_ERROR: "make the transmission queue a QLOCAL with USAGE(XMITQ)",
    Reason.XMIT_Q_USAGE_ERROR: "give the local queue USAGE(XMITQ), or name another one",
    Reason.OBJECT_ALREADY_EXISTS: ("choose an unused dynamic queue name, or end it in an asterisk"),
    Reason.REMOTE_Q_NAME_ERROR: "name the queue: set RNAME, or open with both names",
    Reason.CLUSTER_RESOLUTION_ERROR: "make a full repository reachable",
    Reason.UNKNOWN_XMIT_Q: "define the transmission queue that XMITQ names",
    Reason.UNKNOWN_DEF_XMIT_Q: "define the queue that DEFXMITQ names",
    Reason.DEF_XMIT_Q_TYPE_ERROR: "set DEFXMITQ to a QLOCAL with USAGE(XMITQ)",
    Reason.DEF_XMIT_Q_USAGE_ERROR: (
        "set DEFXMITQ to a QLOCAL with USAGE(XMITQ) that is not the cluster's"
    ),
    Reason.CLUSTER_PUT_INHIBITED: "allow puts on an instance of the cluster queue",
    Reason.NO_DESTINATIONS_AVAILABLE: "allow puts on an instance of the cluster queue",
    Reason.FUNCTION_NOT_SUPPORTED: (
        "let the alias target a queue; set STRMQOS(BESTEF) if messages may lack their copies"
    ),
    Reason.OBJECT_NOT_UNIQUE: "remove the private definition or the shared queue of this name",
}
"""What to change when a put ends with the code, one imperative phrase each."""
