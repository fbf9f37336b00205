"""Round trip: a queue manager printed as MQSC reads as the same queue manager."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from redrive.topology.mq.objects import (
    AliasQueue,
    Channel,
    ChannelType,
    DefaultBind,
    Definition,
    Disposition,
    DynamicType,
    LocalQueue,
    ModelQueue,
    Namelist,
    QueueManagerAttributes,
    RemoteQueue,
    TargetType,
    Topic,
    Usage,
    UseQueue,
)
from redrive.topology.mq.printer import print_mqsc
from redrive.topology.mq.queue_manager import QueueManager
from redrive.topology.mq.reader import read_mqsc

NAMES = st.text("ABab01./_%", min_size=1, max_size=20)
BLANK_OR_NAME = st.just("") | NAMES
DIGITS = st.integers(0, 9)
DEPTHS = st.integers(0, 999_999_999)
LENGTHS = st.integers(0, 104_857_600)
OTHERS = st.dictionaries(
    st.just("DESCR"),
    st.text("ab '+-;*()é", max_size=10).map(
        lambda text: "DESCR('" + text.replace("'", "''") + "')"
    ),
)
QUEUE = {
    "put_enabled": st.booleans(),
    "default_persistence": st.booleans(),
    "default_priority": DIGITS,
    "others": OTHERS,
}
CLUSTERED = QUEUE | {
    "default_bind": st.sampled_from(DefaultBind),
    "cluster": BLANK_OR_NAME,
    "cluster_namelist": BLANK_OR_NAME,
    "cluster_rank": DIGITS,
    "cluster_priority": DIGITS,
}
HOLDS_MESSAGES = {"get_enabled": st.booleans(), "max_depth": DEPTHS, "max_message_length": LENGTHS}


def local_queues() -> st.SearchStrategy[LocalQueue]:
    return st.builds(
        LocalQueue,
        name=NAMES | st.just("SYSTEM.DEFAULT.LOCAL.QUEUE"),
        usage=st.sampled_from(Usage),
        cluster_use=st.sampled_from(UseQueue),
        cluster_channels=st.sampled_from(["", "TO.*", "*"]),
        disposition=st.sampled_from([Disposition.QMGR, Disposition.COPY]),
        **CLUSTERED,
        **HOLDS_MESSAGES,
    )


def queues() -> st.SearchStrategy[Definition]:
    return st.one_of(
        local_queues(),
        st.builds(
            ModelQueue,
            name=NAMES,
            dynamic_type=st.sampled_from(DynamicType),
            **QUEUE,
            **HOLDS_MESSAGES,
        ),
        st.builds(
            AliasQueue,
            name=NAMES,
            target=BLANK_OR_NAME,
            target_type=st.sampled_from(TargetType),
            **CLUSTERED,
        ),
        st.builds(
            RemoteQueue,
            name=NAMES,
            remote_queue=BLANK_OR_NAME,
            remote_queue_manager=BLANK_OR_NAME,
            transmission_queue=BLANK_OR_NAME,
            **CLUSTERED,
        ),
    )


def channels() -> st.SearchStrategy[Channel]:
    return st.builds(
        Channel,
        name=NAMES,
        channel_type=st.sampled_from(ChannelType),
        connection=st.sampled_from(["", "host(1414)", "h1(1),h2(2)"]),
        transmission_queue=BLANK_OR_NAME,
        cluster=BLANK_OR_NAME,
        cluster_weight=st.integers(1, 99),
        network_priority=DIGITS,
        fast_nonpersistent=st.booleans(),
        use_dead_letter_queue=st.booleans(),
        message_retries=DEPTHS,
        others=OTHERS,
    )


def by_name(definitions: st.SearchStrategy[Definition]) -> st.SearchStrategy[dict[str, Definition]]:
    return st.lists(definitions, max_size=4).map(lambda many: {one.name: one for one in many})


@given(
    st.builds(
        QueueManager,
        attributes=st.builds(
            QueueManagerAttributes,
            name=st.just("QM1"),
            dead_letter_queue=BLANK_OR_NAME,
            default_transmission_queue=BLANK_OR_NAME,
            max_message_length=LENGTHS,
            cluster_use=st.sampled_from([UseQueue.LOCAL, UseQueue.ANY]),
            intra_group_queuing=st.booleans(),
            others=OTHERS,
        ),
        queues=by_name(queues()),
        channels=by_name(channels()),
        topics=by_name(st.builds(Topic, name=NAMES, others=OTHERS)),
        namelists=by_name(
            st.builds(Namelist, name=NAMES, names=st.lists(NAMES, max_size=3).map(tuple))
        ),
        suspended_clusters=st.frozensets(NAMES, max_size=2),
    )
)
def test_a_printed_manager_reads_as_the_same_manager(manager: QueueManager) -> None:
    """Definitions survive printing and reading, whatever their values, without a finding."""
    result = read_mqsc(print_mqsc(manager), refuses=False)
    assert result.diagnostics == ()
    assert result.queue_manager == manager


def test_only_what_differs_from_the_defaults_is_printed() -> None:
    """The printed form is that of dmpmqcfg without -a."""
    read = read_mqsc("DEF QL(a) MAXDEPTH(5000) USAGE(XMITQ) DESCR('x')", queue_manager="QM1")
    assert print_mqsc(read.queue_manager) == (
        "* Queue manager name: QM1\n"
        "ALTER QMGR\n"
        "DEFINE QLOCAL('A') +\n"
        "       USAGE(XMITQ) +\n"
        "       DESCR('x') +\n"
        "       REPLACE\n"
    )
