"""Views of the vectors' dead letters; those of puts are in ``test_one_put``."""

from __future__ import annotations

import pytest
from tests.conformance.rules_driver import dead_letter
from tests.conformance.test_rules_sequence import arrivals_of
from tests.conformance.vectors import Vector, octets
from tests.engine.jobs import NOW, MemoryJob, at_now
from tests.engine.test_views import ORDERS, check_dead_letters

from redrive.messages import Form, Headers, OutputRecord

TABLES = [
    "RETRYINT(5)\nACTION(RETRY) RETRY(2)\n",
    "DIALECT(KAFKA)\nSCHEME(spring*) ACTION(RETRY) RETRY(2) TO(GROUP)\nACTION(FWD) FWDQ(A)\n",
]


@pytest.mark.vectors("rules", kinds=["match", "select", "transform", "sequence"])
@at_now
def test_every_view_says_what_the_job_does(vector: Vector) -> None:
    letters = [letter for _, letter in arrivals_of(vector)]
    if "message" in vector:
        letters += [dead_letter(vector["message"], Form.BINARY)]
    replaced: str = vector.get("table_replaced_by") or vector["table"]
    for order in ORDERS:
        for table in [replaced, *TABLES]:
            check_dead_letters(MemoryJob(vector["table"]), letters, order, MemoryJob(table))


@pytest.mark.vectors("schemes")
@at_now
def test_every_view_says_what_the_job_does_with_dead_letters_of_other_schemes(
    vector: Vector,
) -> None:
    headers: Headers = [(name, octets(content)) for name, content in vector["headers"]]
    letter = OutputRecord("DLQ", octets(vector["key"]), octets(vector["value"]), headers, NOW)
    for order in ORDERS:
        for table, changed in (TABLES, reversed(TABLES)):
            check_dead_letters(MemoryJob(table), [letter], order, MemoryJob(changed))
