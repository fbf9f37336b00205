"""Bodies by the schemas of a registry, which is a small server with its API."""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from threading import Thread
from typing import Any

import fastavro
import orjson
import pytest
from google.protobuf import descriptor_pb2, timestamp_pb2
from hypothesis import given
from hypothesis import strategies as st
from tests.security.token_server import CERTIFICATES, CLIENT, SCOPE, SECRET, token_server

from redrive.command import record
from redrive.configuration import RegistryAccess
from redrive.kafka.records import StoredRecord
from redrive.masking import Mask
from redrive.messages import TopicPartition
from redrive.messages.schemes import KNOWN
from redrive.operations.record_view import RecordView
from redrive.operations.schema_registry import SchemaRegistry

USER, PASSWORD = "alice", "hunter2"
TOKENS: list[str] = []
"""Those that the registry takes."""
ADDRESS = {
    "type": "record",
    "name": "Address",
    "namespace": "shop",
    "fields": [{"name": "city", "type": "string"}],
}
ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "to", "type": "shop.Address"},
        {"name": "raw", "type": "bytes"},
        {"name": "note", "type": ["null", "string"]},
    ],
}
_TYPES = descriptor_pb2.FieldDescriptorProto


def _message(name: str, *fields: tuple[str, Any, str]) -> descriptor_pb2.DescriptorProto:
    message = descriptor_pb2.DescriptorProto(name=name)
    for number, (field, kind, of) in enumerate(fields, 1):
        added = message.field.add(name=field, number=number, type=kind, label=_TYPES.LABEL_OPTIONAL)
        if of:
            added.type_name = of
    return message


def _files() -> list[str]:
    """A file of definitions and one that it imports, as the registry tells them."""
    common = descriptor_pb2.FileDescriptorProto(package="shop", syntax="proto3")
    common.message_type.append(_message("Money", ("cents", _TYPES.TYPE_INT64, "")))
    order = descriptor_pb2.FileDescriptorProto(
        package="shop",
        syntax="proto3",
        dependency=["common.proto", "google/protobuf/timestamp.proto"],
    )
    order.message_type.append(_message("Ignored"))
    outer = _message("Order")
    outer.nested_type.append(
        _message(
            "Line",
            ("sku", _TYPES.TYPE_STRING, ""),
            ("price", _TYPES.TYPE_MESSAGE, ".shop.Money"),
            ("at", _TYPES.TYPE_MESSAGE, ".google.protobuf.Timestamp"),
        )
    )
    order.message_type.append(outer)
    return [base64.b64encode(file.SerializeToString()).decode() for file in (order, common)]


_ORDER_PROTO, _COMMON_PROTO = _files()
ANSWERS: Mapping[str, Any] = {
    "/schemas/ids/1": {
        "schema": json.dumps(ORDER),
        "references": [{"name": "shop.Address", "subject": "a/b", "version": 2}],
    },
    "/subjects/a%2Fb/versions/2": {"schema": json.dumps(ADDRESS)},
    "/schemas/ids/2": {"schemaType": "JSON", "schema": "{}"},
    "/schemas/ids/3": {"schemaType": "PROTOBUF", "schema": 'syntax = "proto3";'},
    "/schemas/ids/3?format=serialized": {
        "schemaType": "PROTOBUF",
        "schema": _ORDER_PROTO,
        "references": [{"name": "common.proto", "subject": "common", "version": 1}],
    },
    "/subjects/common/versions/1?format=serialized": {
        "schemaType": "PROTOBUF",
        "schema": _COMMON_PROTO,
    },
    "/schemas/ids/4": {"schemaType": "THRIFT", "schema": ""},
    "/schemas/ids/5": ["no schema"],
}


class _Server(BaseHTTPRequestHandler):
    """Answers as a registry does that wants a password."""

    def do_GET(self) -> None:
        wanted = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        taken = {f"Basic {wanted}", *(f"Bearer {token}" for token in TOKENS)}
        if self.headers.get("Authorization") not in taken:
            self.send_error(401)
        elif self.path in ANSWERS:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(orjson.dumps(ANSWERS[self.path]))
        else:
            self.send_error(404)

    def log_message(self, *_arguments: object) -> None:
        """Says nothing."""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Server) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture(scope="module")
def registry(url: str) -> SchemaRegistry:
    """A client that signs in."""
    return SchemaRegistry(RegistryAccess(url=url, username=USER, password=PASSWORD))


@pytest.mark.parametrize("is_certified", [True, False])
def test_a_registry_may_require_a_certificate(*, is_certified: bool) -> None:
    context = ssl.create_default_context(
        ssl.Purpose.CLIENT_AUTH, cafile=CERTIFICATES / "authority.pem"
    )
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(CERTIFICATES / "server.pem", CERTIFICATES / "server.key")
    with ThreadingHTTPServer(("127.0.0.1", 0), _Server) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        Thread(target=server.serve_forever, daemon=True).start()
        access = RegistryAccess(
            url=f"https://127.0.0.1:{server.server_port}",
            username=USER,
            password=PASSWORD,
            ssl_ca_file=str(CERTIFICATES / "authority.pem"),
        )
        if is_certified:
            access = replace(
                access,
                ssl_certificate_file=str(CERTIFICATES / "client.pem"),
                ssl_key_file=str(CERTIFICATES / "encrypted.key"),
                ssl_key_password="hunter2",  # noqa: S106 - of a key for tests
            )
        decoded = SchemaRegistry(access).decoded(written(2, b"{}"))
        server.shutdown()
    assert decoded is not None
    assert (decoded.problem == "") == is_certified
    assert is_certified or "did not answer" in decoded.problem


def test_a_registry_may_want_a_token(url: str) -> None:
    """It answers holders of the OAuth server's tokens; a refusal is shown."""
    with token_server(issued=TOKENS) as server:
        access = RegistryAccess(
            url=url,
            oauth_endpoint=f"{server}/token",
            oauth_client_id=CLIENT,
            oauth_client_secret=SECRET,
            oauth_scope=SCOPE,
        )
        decoded = SchemaRegistry(access).decoded(written(2, b"{}"))
        other = replace(access, oauth_client_secret="another")  # noqa: S106 - of a client for tests
        refused = SchemaRegistry(other).decoded(written(2, b"{}"))
    assert decoded is not None
    assert refused is not None
    assert (decoded.problem, len(TOKENS)) == ("", 1)
    assert (
        f"no token for the schema registry from {server}/token: HTTP Error 401" in refused.problem
    )


def written(schema: int, payload: bytes) -> bytes:
    """A body as a serializer of Confluent's writes it."""
    return b"\0" + schema.to_bytes(4, "big") + payload


def avro(order: dict[str, Any]) -> bytes:
    """An order, with its schema's id."""
    named: dict[str, Any] = {}
    fastavro.parse_schema(ADDRESS, named_schemas=named)
    out = BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(ORDER, named_schemas=named), order)
    return written(1, out.getvalue())


_order = st.fixed_dictionaries(
    {
        "id": st.integers(-(2**63), 2**63 - 1),
        "to": st.fixed_dictionaries({"city": st.text(max_size=5)}),
        "raw": st.binary(max_size=5),
        "note": st.none() | st.text(max_size=5),
    }
)


@given(order=_order)
def test_avro_is_told_as_json(registry: SchemaRegistry, order: dict[str, Any]) -> None:
    decoded = registry.decoded(avro(order))
    assert decoded is not None
    assert (decoded.schema, decoded.kind, decoded.problem) == (1, "AVRO", "")
    assert json.loads(decoded.text) == {**order, "raw": f"0x{order['raw'].hex()}"}


def test_json_schema_is_json_behind_an_id(registry: SchemaRegistry) -> None:
    decoded = registry.decoded(written(2, b'{"a":1}'))
    assert decoded is not None
    assert (decoded.kind, decoded.text) == ("JSON", '{\n  "a": 1\n}')


def test_protobuf_is_read_by_the_index_of_its_message(registry: SchemaRegistry) -> None:
    at = timestamp_pb2.Timestamp(seconds=1_767_225_600).SerializeToString()
    money = b"\x08\x96\x01"
    line = b"\x0a\x03A-1" + b"\x12\x03" + money + b"\x1a" + bytes([len(at)]) + at
    decoded = registry.decoded(written(3, b"\x04\x02\x00" + line))
    assert decoded is not None
    assert decoded.problem == ""
    assert json.loads(decoded.text) == {
        "sku": "A-1",
        "price": {"cents": "150"},
        "at": "2026-01-01T00:00:00Z",
    }
    first = registry.decoded(written(3, b"\x00" + b"\x08\x01"))
    assert first is not None
    assert (first.text, first.problem) == ("{}", "")


@given(schema=st.integers(1, 6), payload=st.binary(min_size=1, max_size=40))
def test_no_body_makes_reading_raise(registry: SchemaRegistry, schema: int, payload: bytes) -> None:
    decoded = registry.decoded(written(schema, payload))
    assert decoded is not None
    assert bool(decoded.text) is not bool(decoded.problem)


def test_what_has_no_schema_is_left_alone(registry: SchemaRegistry) -> None:
    for body in (None, b"", b"\0", b'{"a": 1}', b"\0\0\0\0\1"):
        assert registry.decoded(body) is None


@pytest.mark.parametrize(
    ("schema", "password", "problem"),
    [
        (9, PASSWORD, "has no /schemas/ids/9"),
        (4, PASSWORD, "of type THRIFT"),
        (5, PASSWORD, "is not a schema registry"),
        (1, "wrong", "answered 401"),
    ],
)
def test_what_the_registry_refuses_is_told(
    url: str, schema: int, password: str, problem: str
) -> None:
    registry = SchemaRegistry(RegistryAccess(url=url, username=USER, password=password))
    decoded = registry.decoded(written(schema, b"x"))
    assert decoded is not None
    assert problem in decoded.problem
    assert PASSWORD not in repr(RegistryAccess(url=url, username=USER, password=PASSWORD))


def test_a_registry_that_is_not_there_is_told() -> None:
    nobody = SchemaRegistry(RegistryAccess(url="http://127.0.0.1:1"))
    stored = StoredRecord(TopicPartition("dlq", 0), 7, 0, b"k", written(1, b"xyz"), [])
    shown = "\n".join(record.lines(RecordView.of(stored, KNOWN, registry=nobody)))
    assert "schema 1: the schema registry did not answer" in shown
    assert "body (8 bytes, hexadecimal)" in shown


def test_a_library_that_is_missing_is_told(
    registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "fastavro", None)
    decoded = registry.decoded(avro({"id": 1, "to": {"city": ""}, "raw": b"", "note": None}))
    assert decoded is not None
    assert decoded.problem.endswith("pip install 'redrive[registry]'")


def test_a_decoded_body_is_shown_and_masked(registry: SchemaRegistry) -> None:
    """In lines and as JSON; hexadecimal digits only if they are asked for."""
    order = {"id": 7, "to": {"city": "4111111111111111"}, "raw": b"", "note": None}
    stored = StoredRecord(TopicPartition("dlq", 0), 7, 0, b"k", avro(order), [])
    view = RecordView.of(stored, KNOWN, Mask(("[0-9]{16}",)), registry)
    shown = "\n".join(record.lines(view))
    assert "AVRO by schema 1)" in shown
    assert '"city": "***"' in shown
    everything = shown + orjson.dumps(record.as_json(view)).decode()
    assert record.as_json(view)["decoded"]["kind"] == "AVRO"
    assert "4111" not in everything
    assert "hexadecimal" in "\n".join(record.lines(view, "hex"))
