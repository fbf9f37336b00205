"""The syntax of MQSC scripts, every micro-vector of the specification, and findings in place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.diagnostics import Diagnostic, Severity
from redrive.topology.mq import objects as mq
from redrive.topology.mq.objects import AliasQueue, LocalQueue, RemoteQueue
from redrive.topology.mq.reader import MqscResult, read_mqsc
from redrive.topology.mq.script import decode_script


def read(text: str) -> MqscResult:
    return read_mqsc(text, queue_manager="QM1", file="qm1.mqsc")


def errors(result: MqscResult) -> list[Diagnostic]:
    return [
        diagnostic for diagnostic in result.diagnostics if diagnostic.severity is Severity.ERROR
    ]


def description(result: MqscResult, name: str) -> str:
    return result.queue_manager.queues[name].others["DESCR"]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("def ql(abc)", ["ABC"]),
        ("DEF QL('abc')", ["abc"]),
        ("define   qlocal ( 'a.b/c_d%' )", ["a.b/c_d%"]),
        ("DEF QL(A);\nDEF QL(B)", ["A", "B"]),
        ("DEF QL(A); DEF QL(B) ;DEF QL(C);", ["A", "B", "C"]),
        ("DEF QL(A) ; +\nDEF QL(B)", ["A", "B"]),
        ("DEF QL(A)\nEND\nDEF QL(B)", ["A"]),
        ("DEF QL(A)\nend;\nDEF QL(B)", ["A"]),
        ("DEF QL(A)\nquit\nDEF QL(B)", ["A"]),  # reference of runmqsc, q083460
        ("DEF QL(A)\nExit\nDEF QL(B)", ["A"]),
        ("* DEF QL(A)\n\n   \nDEF QL(B)", ["B"]),
        ("*DEF QL(A) +\n* MAXDEPTH(5)\nDEF QL(B)", ["B"]),
        ("DEF,QL(A),,MAXDEPTH(5) , PUT(DISABLED)", ["A"]),
        ("DEF QL(A)MAXDEPTH(5)", ["A"]),
        ("DEF +\n  QLO+\n  CAL(A+\n  B)", ["AB"]),
        ("DEF QL(AB-\nCD)", ["ABCD"]),
        ("DEF QL(A)\r\nDEF QL(B)\r\n", ["A", "B"]),
        ("DEF QL(A) +", ["A"]),
        ("\tDEF\tQL(A)\t", ["A"]),
        ("DEF QL('A   ')", ["A"]),
    ],
)
def test_scripts_are_cut_into_commands(text: str, names: list[str]) -> None:
    """Case, separators, continuation, comments, semicolons and END as the rules say."""
    result = read(text)
    assert errors(result) == []
    assert list(result.queue_manager.queues) == names


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("DEF QL(A) DESCR('Fr+\n   ed')", "Fred"),
        ("DEF QL(A) DESCR('Fr-\ned')", "Fred"),
        ("DEF QL(A) DESCR('Fr-\n  ed')", "Fr  ed"),
        ("DEF QL(A) DESCR('it''s')", "it''s"),
        ("DEF QL(A) DESCR('a;b')", "a;b"),
        ("DEF QL(A) DESCR('a (b) c')", "a (b) c"),
        ("DEF QL(A) DESCR('a   +\n*note\n\n   b')", "a   b"),
        ("DEF QL(A) DESCR('+QMNAME+')", "+QMNAME+"),
        ("DEF QL(A) DESCR('Привет')", "Привет"),
    ],
)
def test_quoted_text_is_kept(text: str, expected: str) -> None:
    result = read(text)
    assert errors(result) == []
    assert description(result, "A") == f"DESCR('{expected}')"


@pytest.mark.parametrize("note", ["* note", "  * note", "", "   ", "* note +"])
def test_comments_inside_a_continued_command_are_dropped(note: str) -> None:
    result = read(f"DEF QL(A) +\n{note}\n  MAXDEPTH(5)\nDEF QL(B)")
    assert errors(result) == []
    queue = result.queue_manager.queues["A"]
    assert isinstance(queue, LocalQueue)
    assert queue.max_depth == 5
    assert "B" in result.queue_manager.queues


@pytest.mark.parametrize(
    ("text", "code", "line", "column"),
    [
        (" * x", "UNKNOWN_COMMAND", 1, 2),
        ("# note", "UNKNOWN_COMMAND", 1, 1),
        ("DEF QR(A) RNAME(B)\nRQMNAME(C)", "UNKNOWN_COMMAND", 2, 1),
        ("DEFIN QL(A)", "UNKNOWN_COMMAND", 1, 1),
        ("DEF", "SYNTAX", 1, 3),
        ("DEF QL", "SYNTAX", 1, 5),
        ("DEF QL('')", "BAD_NAME", 1, 5),
        ("DEF QX(A)", "UNKNOWN_OBJECT_TYPE", 1, 5),
        ("DEF QL(A-B)", "BAD_NAME", 1, 8),
        ("DEF QL('A B')", "BAD_NAME", 1, 9),
        (f"DEF QL({'A' * 49})", "TOO_LONG", 1, 8),
        (f"DEF CHL({'A' * 21}) CHLTYPE(RCVR)", "TOO_LONG", 1, 9),
        ("DEF QL(A) MAXDEPTH(5) MAXDEPTH(5)", "DUPLICATE", 1, 23),
        ("DEF QL(A) SHARE NOSHARE", "DUPLICATE", 1, 17),
        ("DEF QL(A) REPLACE NOREPLACE", "DUPLICATE", 1, 19),
        ("DEF QA(A) TARGET(X) TARGQ(Y)", "DUPLICATE", 1, 21),
        ("DEF QL(A) MAXDEPHT(5)", "UNKNOWN_KEYWORD", 1, 11),
        ("DEF QR(A) MAXDEPTH(5)", "UNKNOWN_KEYWORD", 1, 11),
        ("DEF QM(A) CLUSTER(C)", "UNKNOWN_KEYWORD", 1, 11),
        ("DEF QL(A) MAXDEPTH", "SYNTAX", 1, 11),
        ("DEF QL(A) MAXDEPTH(five)", "BAD_VALUE", 1, 20),
        ("DEF QL(A) MAXDEPTH(-1)", "BAD_VALUE", 1, 20),
        ("DEF QL(A) DEFPRTY(10)", "RANGE", 1, 19),
        (f"DEF QL(A) MAXDEPTH({'9' * 5000})", "RANGE", 1, 20),
        ("DEF QL(A) USAGE(XMIT)", "BAD_VALUE", 1, 17),
        ("DEF QL(A) +\n   USAGE(+\n  XMIT)", "BAD_VALUE", 3, 3),
        ("DEF ql5XXX)", "SYNTAX", 1, 11),
        ("DEF QL(A) DESCR('x", "UNTERMINATED", 1, 17),
        ("DEF QL(A) DESCR(x", "UNTERMINATED", 1, 16),
        ("DEF QL(A) DESCR('" + "''" * 50, "UNTERMINATED", 1, 17),
        ("DEF CHL(A) CHLTYPE(SDR) CONNAME(host(1414))", "SYNTAX", 1, 37),
        ("DEF QL(A) DESCR(‘x’)", "SYNTAX", 1, 17),  # noqa: RUF001 - what the test is about
        ("DEF QL(A) DESCR 'x'", "SYNTAX", 1, 17),
        ("DEF QL(A) 'x'", "SYNTAX", 1, 11),
        ("DEF CHL(A)", "MISSING", 1, 5),
        ("DEF QMGR DEADQ(X)", "SYNTAX", 1, 5),
        ("DEF QL(A) LIKE(B)", "NOT_FOUND", 1, 11),
        ("ALTER QL(A) MAXDEPTH(5)", "NOT_FOUND", 1, 7),
        ("DELETE QL(A)", "NOT_FOUND", 1, 8),
        ("DEF QA(A)\nALTER QL(A) MAXDEPTH(5)", "NOT_FOUND", 2, 7),
        ("DEF QL(A)\nALTER QL(A) REPLACE", "SYNTAX", 2, 13),
        ("DEF QL(A)\nDEF QL(A)", "EXISTS", 2, 5),
        ("DEF QL(A)\nDEF QA(A) REPLACE", "EXISTS", 2, 5),
        ("DEF QL(A) ; DEF QL(A)", "EXISTS", 1, 17),
        ("DEF CHL(A) CHLTYPE(SVRCONN)\nALTER CHL(A) CHLTYPE(RCVR)", "EXISTS", 2, 7),
        ("DEF CHL(A) CHLTYPE(CLNTCONN) CONNAME(h)\nDELETE CHL(A)", "NOT_FOUND", 2, 8),
        ("DEF CHL(A) CHLTYPE(SVRCONN)\nDELETE CHL(A) CHLTABLE(CLNTTAB)", "NOT_FOUND", 2, 8),
        ("DEF CHL(A) CHLTYPE(SVRCONN)\nDEF CHL(A) CHLTYPE(RCVR)", "EXISTS", 2, 5),
        ("DEF CHL(A) CHLTYPE(SDR) CONNAME(h)", "REFUSED", 1, 5),
        ("DEF CHL(A) CHLTYPE(SVR) CONNAME(h)", "REFUSED", 1, 5),
        ("DEF CHL(A) CHLTYPE(SDR) XMITQ(X)", "REFUSED", 1, 5),
        ("DEF CHL(A) CHLTYPE(RQSTR)", "REFUSED", 1, 5),
        ("DEF CHL(A) CHLTYPE(CLUSSDR) CLUSTER(C)", "REFUSED", 1, 5),
        ("DEF CHL(A) CHLTYPE(CLUSRCVR) CLUSTER(C) CLUSNL(N)", "REFUSED", 1, 5),
        ("DEF QL(A) CLUSTER(C) CLUSNL(N)", "REFUSED", 1, 5),
        ("DEF QA(A) CLUSTER(C)\nALTER QA(A) CLUSNL(N)", "REFUSED", 2, 7),
        ("DEF QL(A) CLUSTER(C) USAGE(XMITQ)", "REFUSED", 1, 5),
        ("DEF QL(A) USAGE(XMITQ)\nALTER QL(A) CLUSTER(C)", "REFUSED", 2, 7),
        ("DEF QL(A) CLCHNAME(*)", "REFUSED", 1, 5),
        ("DEF QL(A) MAXMSGL(4194305)", "REFUSED", 1, 5),
        ("DEF QL(A) MAXMSGL(1000)\nALTER QMGR MAXMSGL(999)", "REFUSED", 2, 7),
        ("ALTER QMGR DEFXMITQ(SYSTEM.CLUSTER.TRANSMIT.QUEUE)", "REFUSED", 1, 7),
        ("ALTER QMGR REPOS(C) REPOSNL(N)", "REFUSED", 1, 7),
        ("{{- if .x }}", "UNKNOWN_COMMAND", 1, 1),
        ("(A)", "UNKNOWN_COMMAND", 1, 1),
    ],
)
def test_a_wrong_command_is_one_finding_in_its_place(
    text: str, code: str, line: int, column: int
) -> None:
    result = read(f"{text}\nDEF QL(NEXT)")
    assert [(error.code, error.line, error.column) for error in errors(result)] == [
        (code, line, column)
    ]
    finding = errors(result)[0]
    assert finding.file == "qm1.mqsc"
    assert finding.source_line == text.split("\n")[line - 1]
    assert "NEXT" in result.queue_manager.queues


def test_a_misspelt_word_is_recognised() -> None:
    hints = [
        errors(read(text))[0].hint
        for text in ("DEF QL(A) MAXDEPHT(5)", "DEFNE QL(A)", "DEF QLOCL(A)", "DEF QL(A)\nRNAME(X)")
    ]
    assert hints == [
        "did you mean MAXDEPTH?",
        "did you mean DEFINE?",
        "did you mean QLOCAL?",
        "to continue the previous command, end its line with +",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "DISPLAY QL(*) WHERE(CURDEPTH GT 0)",
        "SET CHLAUTH('*') TYPE(ADDRESSMAP) ADDRESS('*') USERSRC(NOACCESS)",
        "SET AUTHREC PROFILE('A.**') OBJTYPE(QUEUE) GROUP('app') AUTHADD(PUT, GET, BROWSE)",
        "DEFINE LISTENER(L) TRPTYPE(TCP) PORT(1414) CONTROL(QMGR) REPLACE",
        "DEFINE SERVICE(S) STARTARG(+QMNAME+) STARTCMD(+MQ_INSTALL_PATH+bin)",
        "START LISTENER(L)",
        "REFRESH SECURITY(*) TYPE(CONNAUTH)",
        "ALTER AUTHINFO(A) AUTHTYPE(IDPWOS) CHCKCLNT({{ .ChckClnt }})",
        "CLEAR QLOCAL(A)",
        "PING QMGR",
    ],
)
def test_commands_that_do_not_concern_resolution_are_noted(text: str) -> None:
    result = read(text)
    assert [(diagnostic.severity, diagnostic.code) for diagnostic in result.diagnostics] == [
        (Severity.NOTE, "IGNORED")
    ]
    assert result.queue_manager == read("").queue_manager


def test_definitions_remember_where_they_were_written() -> None:
    result = read("* head\nDEF QL(A)\n\nDEF QA(B) +\n  TARGET(A)\nALTER QL(A) MAXDEPTH(1)")
    queues = result.queue_manager.queues
    assert str(queues["A"].location) == "qm1.mqsc:2"
    assert str(queues["B"].location) == "qm1.mqsc:4"


def test_a_physical_line_over_the_limit_is_a_warning() -> None:
    result = read("DEF QL(A) DESCR('" + "x" + " " * 2048 + "')")
    assert [(diagnostic.severity, diagnostic.code) for diagnostic in result.diagnostics] == [
        (Severity.WARNING, "LINE_TOO_LONG")
    ]
    assert "A" in result.queue_manager.queues


def test_findings_come_in_the_order_of_the_script() -> None:
    result = read("FOO\n" + "DEF QL(A) DESCR('" + "x" + " " * 2048 + "')\nBAR")
    assert [diagnostic.line for diagnostic in result.diagnostics] == [1, 2, 3]


DUMP = """\
*******************************************************************************
* Script generated on 2024-05-01   at 10.00.00
* Script generated by user 'mqm' on host 'host1'
* Queue manager name: GATE.WAY
* Queue manager platform: UNIX
* Queue manager command level: (930/930)
* Command issued: dmpmqcfg -m GATE.WAY
*******************************************************************************
ALTER QMGR +
* ALTDATE(2024-05-01) +
* ALTTIME(10.00.00) +
  CHLAUTH(ENABLED) +
* CRDATE(2024-05-01) +
  DEADQ('DLQ') +
  FORCE
DEFINE QLOCAL('DLQ') +
* DEFTYPE(PREDEFINED) +
  DESCR('undelivered messages of ''GATE.WAY''') +
  TRIGDATA(' ') +
  MAXDEPTH(100000) +
* CRTIME(10.00.00) +
  REPLACE
DEFINE QREMOTE('pay.roll') +
  RNAME('PAY') +
  RQMNAME('QM2') +
  REPLACE
*******************************************************************************
* Script ended on 2024-05-01   at 10.00.01
* Number of Inquiry commands issued: 14
*******************************************************************************
"""


ONE_LINE = """\
* Queue manager name: GATE.WAY
ALTER QMGR CHLAUTH(ENABLED) DEADQ('DLQ') FORCE
DEFINE QLOCAL('DLQ') DESCR('undelivered messages of ''GATE.WAY''') MAXDEPTH(100000) REPLACE
DEFINE QREMOTE('pay.roll') RNAME('PAY') RQMNAME('QM2') REPLACE
"""


@pytest.mark.parametrize("text", [DUMP, ONE_LINE])
def test_output_of_dmpmqcfg_is_read(text: str) -> None:
    result = read_mqsc(text)
    assert errors(result) == []
    manager = result.queue_manager
    assert manager.name == "GATE.WAY"
    assert manager.attributes.dead_letter_queue == "DLQ"
    dead_letters, pay_roll = manager.queues["DLQ"], manager.queues["pay.roll"]
    assert isinstance(dead_letters, LocalQueue)
    assert dead_letters.max_depth == 100_000
    assert isinstance(pay_roll, RemoteQueue)
    assert (pay_roll.remote_queue, pay_roll.remote_queue_manager) == ("PAY", "QM2")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ("DEF QL(A)\n".encode("utf-16"), "UTF-16"),
        ("DEF QL(A)\n".encode("utf-16-le"), "UTF-16"),
        ("* note\nDEFINE QLOCAL(A)\n".encode("cp037"), "EBCDIC"),
        (b"DEF QL(A)\nDEF QL(B) DESCR('caf\xe9')\n", "0xe9 at column 21"),
    ],
)
def test_another_encoding_is_one_finding(data: bytes, words: str) -> None:
    """A script that is not UTF-8 gives one clear finding and no definitions."""
    finding = decode_script(data, file="qm1.mqsc")
    assert isinstance(finding, Diagnostic)
    assert finding.code == "ENCODING"
    assert words in finding.message


def test_a_byte_order_mark_is_dropped() -> None:
    """A script saved as UTF-8 with a mark reads like one without."""
    assert decode_script(b"\xef\xbb\xbfDEF QL(A)", file="f") == "DEF QL(A)"


def test_like_copies_and_defaults_are_the_system_objects() -> None:
    """LIKE copies attributes only; a plain DEFINE copies the default object as it stands."""
    result = read(
        "DEF QL(X) USAGE(XMITQ) MAXDEPTH(7)\n"
        "DEF QL(Y) LIKE(X) MAXDEPTH(8)\n"
        "ALTER QL(SYSTEM.DEFAULT.LOCAL.QUEUE) MAXDEPTH(9)\n"
        "DEF QL(Z)\n"
        "DEF QL(X) REPLACE\n"
    )
    assert errors(result) == []
    queues = result.queue_manager.queues
    x, y, z = (queues[name] for name in "XYZ")
    assert isinstance(x, LocalQueue)
    assert isinstance(y, LocalQueue)
    assert isinstance(z, LocalQueue)
    assert (y.is_transmission_queue, y.max_depth, str(y.location)) == (True, 8, "qm1.mqsc:2")
    assert z.max_depth == 9
    assert (x.is_transmission_queue, x.max_depth) == (False, 9)


def test_the_managers_name_is_inserted() -> None:
    result = read("DEF CHL('UNI_+QMNAME+') CHLTYPE(CLUSRCVR) CLUSTER(UNI) CONNAME(+CONN+)")
    assert errors(result) == []
    assert result.queue_manager.channels["UNI_QM1"].connection == "+CONN+"


# What public sample scripts contain, in our own words: every line is valid.
IN_THE_WILD = """\
* Set up a dead letter queue, größer
DEFINE QLOCAL('APP.QUEUE.1') DEFPSIST(YES) BOTHRESH(5) BOQNAME('APP.BACKOUT') REPLACE
  define ql(APP.BACKOUT)   defpsist(yes) like(APP.QUEUE.1) replace
ALTER QMGR CHLAUTH (DISABLED) CONNAUTH(' ') DEADQ(APP.BACKOUT) force
DEFINE CHANNEL('APP.SVRCONN') CHLTYPE(SVRCONN) TRPTYPE(TCP) MCAUSER('app') SSLCAUTH(OPTIONAL) +
  SSLCIPH('ANY_TLS12_OR_HIGHER') SHARECNV(10) REPLACE
DEFINE CHL (TO.QM2) chltype (sdr) conname ('qm2(1414),other(1415)') xmitq (QM2) descr('x ')
define qlocal (QM2) usage (xmitq) trigger trigdata(TO.QM2) initq(SYSTEM.CHANNEL.INITQ)
SET CHLAUTH('APP.SVRCONN') TYPE(USERMAP) CLNTUSER('app') USERSRC(CHANNEL) ACTION(REPLACE)
SET AUTHREC PRINCIPAL('app') OBJTYPE(QMGR) AUTHADD(CONNECT,INQ)
DEFINE AUTHINFO('LDAP') AUTHTYPE(IDPWOS) CHCKCLNT(REQDADM) ADOPTCTX(YES) REPLACE
DEFINE TOPIC('APP.BASE') TOPICSTR('app/') REPLACE
DEFINE SUB('S') TOPICSTR('app/news') DEST('APP.QUEUE.1') REPLACE
DEFINE LISTENER(TCP) TRPTYPE(TCP) PORT(1414) CONTROL(QMGR) REPLACE
	DEFINE	QREMOTE(FAR)	RNAME(Q)	RQMNAME(QM2)	XMITQ(QM2);
START LISTENER(TCP) IGNSTATE(YES)
REFRESH SECURITY TYPE(CONNAUTH)
"""


def test_what_is_seen_in_the_wild_is_read() -> None:
    result = read(IN_THE_WILD)
    assert errors(result) == []
    names = {*result.queue_manager.queues, *result.queue_manager.channels}
    assert names == {"APP.QUEUE.1", "APP.BACKOUT", "QM2", "FAR", "APP.SVRCONN", "TO.QM2"}
    assert list(result.queue_manager.topics) == ["APP.BASE"]
    assert sum(diagnostic.code == "IGNORED" for diagnostic in result.diagnostics) == 7


def test_alter_leaves_what_it_does_not_name() -> None:
    """ALTER changes the attributes given; DELETE takes the object away."""
    result = read("DEF QA(A) TARGET(B) PUT(DISABLED)\nALTER QA(A) TARGQ(C)\nDEF QL(D)\nDEL QL(D)")
    alias = result.queue_manager.queues["A"]
    assert isinstance(alias, AliasQueue)
    assert (alias.target, alias.put_enabled) == ("C", False)
    assert "D" not in result.queue_manager.queues


def test_suspend_and_resume_are_kept() -> None:
    result = read("SUSPEND QMGR CLUSTER(C1)\nSUSPEND QMGR CLUSTER(C2)\nRESUME QMGR CLUSTER(C1)")
    assert result.queue_manager.suspended_clusters == {"C2"}


@given(st.text(alphabet="DEFQLA()'+-*; \t\n,.x", max_size=60))
def test_no_text_stops_the_reader(text: str) -> None:
    lines = text.split("\n")
    for finding in read(text).diagnostics:
        assert finding.source_line == lines[finding.line - 1]
        assert 1 <= finding.column <= len(finding.source_line) + 1


@pytest.mark.parametrize(
    "text",
    [
        "ALTER QL(SYSTEM.CHANNEL.INITQ) MAXDEPTH(9)",
        "ALTER CHL(SYSTEM.AUTO.RECEIVER) CHLTYPE(RCVR) MCAUSER('x')",
        "ALTER CHL(SYSTEM.DEF.SENDER) CHLTYPE(SDR) MCAUSER('x')",
        "ALTER TOPIC(SYSTEM.BASE.TOPIC) PUB(DISABLED)",
        "ALTER NAMELIST(SYSTEM.QPUBSUB.QUEUE.NAMELIST) NAMES(A)",
        "DEF QM(R) LIKE(SYSTEM.MQSC.REPLY.QUEUE)",
        "DEF CHL(R) CHLTYPE(RCVR) LIKE(SYSTEM.DEF.RECEIVER)",
        "DEF QL(NEW) LIKE(SYSTEM.DEAD.LETTER.QUEUE)",
    ],
)
def test_the_objects_of_a_new_manager_exist(text: str) -> None:
    """ALTER and LIKE find them without a DEFINE (q081590)."""
    assert errors(read(text)) == []


def test_an_alias_may_target_a_topic_of_a_new_manager() -> None:
    """SYSTEM.BASE.TOPIC is known to resolution too."""
    manager = read("DEF QA(A) TARGET(SYSTEM.BASE.TOPIC) TARGTYPE(TOPIC)").queue_manager
    assert manager.topic("SYSTEM.BASE.TOPIC") is not None
    assert manager.topic("SYSTEM.NO.TOPIC") is None


def test_client_connections_have_a_name_space_of_their_own() -> None:
    both = "DEF CHL(CHAN2) CHLTYPE(SVRCONN) TRPTYPE(TCP)\n"
    both += "DEF CHL(CHAN2) CHLTYPE(CLNTCONN) CONNAME('h(1414)') LIKE(SYSTEM.DEF.CLNTCONN)\n"
    altered = read(f"{both}ALTER CHL(CHAN2) CHLTYPE(CLNTCONN) CONNAME('other')")
    assert errors(altered) == []
    manager = altered.queue_manager
    assert manager.channels["CHAN2"].channel_type is mq.ChannelType.SVRCONN
    assert manager.client_channels["CHAN2"].connection == "other"
    for deletion in ("CHLTABLE(CLNTTAB)", "CHLTYPE(CLNTCONN)", "CHLTABLE('clnttab')"):
        without_client = read(f"{both}DELETE CHL(CHAN2) {deletion}").queue_manager
        assert (list(without_client.channels), without_client.client_channels) == (["CHAN2"], {})
    without_server = read(f"{both}DELETE CHL(CHAN2)").queue_manager
    assert (without_server.channels, list(without_server.client_channels)) == ({}, ["CHAN2"])


# Attributes as a manager of level 942 displays them, in the form in which dmpmqcfg -a writes them.
ALL_ATTRIBUTES = """\
* Queue manager name: ALL.QM
ALTER QMGR ACCTCONO(DISABLED) ACCTINT(1800) ACCTMQI(OFF) ACCTQ(OFF) ACTIVREC(MSG) +
   ACTVCONO(DISABLED) ACTVTRC(OFF) ADVCAP(ENABLED) AUTHOREV(DISABLED) CCSID(1208) CERTLABL('l') +
   CERTVPOL(ANY) CHAD(DISABLED) CHADEV(DISABLED) CHADEXIT(' ') CHLEV(DISABLED) +
   CHLAUTH(DISABLED) CLWLDATA(' ') CLWLEXIT(' ') CLWLLEN(100) CLWLMRUC(999999999) +
   CLWLUSEQ(LOCAL) CMDEV(DISABLED) CONFIGEV(DISABLED) CONNAUTH('A') CUSTOM(' ') DEADQ('DLQ') +
   DEFCLXQ(SCTQ) DEFXMITQ(' ') DESCR(' ') IMGINTVL(60) IMGLOGLN(OFF) IMGRCOVO(YES) +
   IMGRCOVQ(YES) IMGSCHED(MANUAL) INHIBTEV(DISABLED) INITKEY(' ') IPADDRV(IPV4) +
   LOCALEV(DISABLED) LOGGEREV(DISABLED) MARKINT(5000) MAXHANDS(256) MAXMSGL(4194304) +
   MAXPROPL(NOLIMIT) MAXPRTY(9) MAXUMSGS(10000) MONACLS(QMGR) MONCHL(OFF) MONQ(OFF) PARENT(' ') +
   PERFMEV(DISABLED) PSMODE(ENABLED) PSCLUS(ENABLED) PSNPMSG(DISCARD) PSNPRES(NORMAL) +
   PSRTYCNT(5) PSSYNCPT(IFPER) REMOTEEV(DISABLED) REPOS(' ') REPOSNL(' ') REVDNS(ENABLED) +
   ROUTEREC(MSG) SCHINIT(QMGR) SCMDSERV(QMGR) SSLCRLNL(' ') SSLCRYP(' ') SSLEV(DISABLED) +
   SSLFIPS(NO) KEYRPWD(' ') SSLKEYR('/k') SSLRKEYC(0) STATACLS(QMGR) STATCHL(OFF) STATINT(30) +
   STATMQI(ON) STATQ(OFF) STRSTPEV(ENABLED) SUITEB(NONE) TREELIFE(1800) TRIGINT(999999999) +
   FORCE
DEFINE QLOCAL('DLQ') ACCTQ(QMGR) BOQNAME(' ') BOTHRESH(0) CLUSNL(' ') CLUSTER(' ') +
   CLCHNAME(' ') CLWLPRTY(0) CLWLRANK(0) CLWLUSEQ(QMGR) CUSTOM(' ') DEFBIND(OPEN) DEFPRTY(0) +
   DEFPSIST(YES) DEFPRESP(SYNC) DEFREADA(NO) DEFSOPT(SHARED) DEFTYPE(PREDEFINED) DESCR(' ') +
   DISTL(NO) GET(ENABLED) HARDENBO IMGRCOVQ(QMGR) INITQ(' ') MAXDEPTH(200000) MAXFSIZE(DEFAULT) +
   MAXMSGL(4194304) MONQ(QMGR) MSGDLVSQ(PRIORITY) NOTRIGGER NPMCLASS(NORMAL) PROCESS(' ') +
   PUT(ENABLED) PROPCTL(COMPAT) QDEPTHHI(80) QDEPTHLO(20) QDPHIEV(DISABLED) QDPLOEV(DISABLED) +
   QDPMAXEV(ENABLED) QSVCIEV(NONE) QSVCINT(999999999) RETINTVL(999999999) SCOPE(QMGR) SHARE +
   STATQ(QMGR) STREAMQ(' ') STRMQOS(BESTEF) TRIGDATA(' ') TRIGDPTH(1) TRIGMPRI(0) +
   TRIGTYPE(FIRST) USAGE(NORMAL) CAPEXPRY(NOLIMIT) REPLACE
DEFINE CHANNEL('SYSTEM.DEF.SENDER') CHLTYPE(SDR) TRPTYPE(TCP) BATCHHB(0) BATCHINT(0) +
   BATCHLIM(5000) BATCHSZ(50) CERTLABL(' ') COMPHDR(NONE) COMPMSG(NONE) CONNAME(' ') +
   CONVERT(NO) DESCR(' ') DISCINT(6000) HBINT(300) KAINT(AUTO) LOCLADDR(' ') LONGRTY(999999999) +
   LONGTMR(1200) MAXMSGL(4194304) MCANAME(' ') MCATYPE(PROCESS) MCAUSER(' ') MODENAME(' ') +
   MONCHL(QMGR) MSGDATA(' ') MSGEXIT(' ') NPMSPEED(FAST) PASSWORD(' ') PROPCTL(COMPAT) +
   RCVDATA(' ') RCVEXIT(' ') SCYDATA(' ') SCYEXIT(' ') SENDDATA(' ') SENDEXIT(' ') +
   SEQWRAP(999999999) SHORTRTY(10) SHORTTMR(60) SSLCIPH(' ') SSLPEER(' ') STATCHL(QMGR) +
   TPNAME(' ') USEDLQ(YES) USERID(' ') XMITQ(' ') REPLACE
DEFINE CHANNEL('TO.ALL') CHLTYPE(CLUSRCVR) CLUSNL(' ') CLUSTER('C') CLWLPRTY(0) CLWLRANK(0) +
   CLWLWGHT(50) CONNAME('h(1)') MRDATA(' ') MREXIT(' ') MRRTY(10) MRTMR(1000) NETPRTY(0) +
   NPMSPEED(FAST) PUTAUT(DEF) RESETSEQ(NO) SSLCAUTH(REQUIRED) USEDLQ(YES) REPLACE
DEFINE AUTHINFO('A') AUTHTYPE(IDPWOS) ADOPTCTX(YES) DESCR(' ') CHCKCLNT(REQDADM) REPLACE
SET CHLAUTH('*') TYPE(BLOCKUSER) DESCR(' ') CUSTOM(' ') WARN(NO) USERLIST('*MQADMIN') +
   ACTION(ADD)
"""


@pytest.mark.parametrize("joined", [False, True])
def test_a_dump_with_all_attributes_is_read(*, joined: bool) -> None:
    """``dmpmqcfg -a``, in lines and with ``-o 1line``, without an error."""
    text = ALL_ATTRIBUTES.replace(" +\n  ", "") if joined else ALL_ATTRIBUTES
    result = read_mqsc(text)
    assert errors(result) == []
    assert result.queue_manager.name == "ALL.QM"
    assert {"DLQ"} == set(result.queue_manager.queues)
    assert str(result.counts) == (
        "6 MQSC commands read. No commands have a syntax error. "
        "All valid MQSC commands were processed."
    )
