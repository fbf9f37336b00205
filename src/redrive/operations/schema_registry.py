"""Decodes bodies whose schema a registry knows to JSON: Avro, JSON Schema and Protobuf.

Source: the wire format of Confluent's serializers (a zero byte, the schema's id in four bytes, for
Protobuf the indexes of the message, then the payload) and the REST API of Schema Registry, which
Apicurio and Karapace also have. The libraries come with the extra ``redrive[registry]``.
"""

from __future__ import annotations

import base64
import importlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from io import BytesIO
from typing import Any, Final
from urllib.parse import quote

import orjson

from redrive.configuration import RegistryAccess
from redrive.messages.schemes.scheme import varint

_MAGIC: Final = b"\x00"
_PREFIX: Final = 5
"""Length of the magic byte and the id."""
_TIMEOUT: Final = 10.0
"""Seconds to wait for one answer of the registry."""
_AVRO, _JSON, _PROTOBUF = "AVRO", "JSON", "PROTOBUF"
_WELL_KNOWN: Final = "google/protobuf/"
"""Files that come with the library and need no registry."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """A body with a schema."""

    schema: int
    """The schema's id."""
    kind: str = ""
    """``AVRO``, ``JSON`` or ``PROTOBUF``; empty if unknown."""
    text: str = ""
    """The body as JSON with indents."""
    problem: str = ""
    """Why it was not decoded; empty if it was."""


@dataclass(frozen=True, slots=True)
class _Schema:
    kind: str
    text: str
    references: Sequence[Mapping[str, Any]]


class _SchemaError(Exception):
    """The registry did not return a schema; the text says why."""


def schema_of(body: bytes | None) -> int | None:
    """The id of the schema of a body; None if it does not begin like one with a schema."""
    if body is None or len(body) <= _PREFIX or not body.startswith(_MAGIC):
        return None
    return int.from_bytes(body[1:_PREFIX], "big")


class SchemaRegistry:
    """Decodes bodies by the schemas of a registry."""

    def __init__(self, access: RegistryAccess) -> None:
        self._access = access
        self._schema = cache(self._fetch)  # once each, because ids and versions never change

    def decoded(self, body: bytes | None) -> Decoded | None:
        """A body as JSON; None if it does not begin like one with a schema.

        Neither its content nor the registry's answers make this raise.
        """
        schema = schema_of(body)
        if body is None or schema is None:
            return None
        payload = body[_PREFIX:]
        kind = ""
        try:
            definition = self._schema(f"/schemas/ids/{schema}")
            kind = definition.kind
            value = self._read(definition, payload, schema)
            text = json.dumps(value, indent=2, ensure_ascii=False, default=_plain)
            return Decoded(schema, kind, text)
        except ImportError as error:
            problem = f"{error.name} is not installed: pip install 'redrive[registry]'"
        except _SchemaError as error:
            problem = str(error)
        except Exception as error:  # noqa: BLE001 - libraries raise what they like on odd bytes
            problem = f"the body does not fit its schema: {type(error).__name__}: {error}"
        return Decoded(schema, kind, problem=problem)

    def _read(self, schema: _Schema, payload: bytes, number: int) -> Any:  # noqa: ANN401 - any JSON
        if schema.kind == _AVRO:
            return self._avro(schema, payload)
        if schema.kind == _PROTOBUF:
            return self._protobuf(self._schema(f"/schemas/ids/{number}", is_binary=True), payload)
        if schema.kind == _JSON:
            return orjson.loads(payload)
        raise _SchemaError(f"schema {number} is of type {schema.kind}, which cannot be read")

    # -- Avro ----------------------------------------------------------------------------------

    def _avro(self, schema: _Schema, payload: bytes) -> Any:  # noqa: ANN401 - any JSON
        import fastavro  # noqa: PLC0415 - of an extra

        named: dict[str, Any] = {}
        for referenced in self._referenced(schema):
            fastavro.parse_schema(json.loads(referenced.text), named_schemas=named)
        parsed = fastavro.parse_schema(json.loads(schema.text), named_schemas=named)
        data = BytesIO(payload)
        value = fastavro.schemaless_reader(data, parsed, None)
        if rest := len(payload) - data.tell():
            raise ValueError(f"{rest} bytes are left over")
        return value

    def _referenced(self, schema: _Schema) -> Iterator[_Schema]:
        """The schemas that one refers to, each after its own references."""
        for reference in schema.references:
            referenced = self._schema(_version(reference))
            yield from self._referenced(referenced)
            yield referenced

    # -- Protobuf ------------------------------------------------------------------------------

    def _protobuf(self, schema: _Schema, payload: bytes) -> Any:  # noqa: ANN401 - any JSON
        from google.protobuf import descriptor_pool, json_format, message_factory  # noqa: PLC0415

        pool = descriptor_pool.DescriptorPool()
        proto = self._add_file(pool, schema, "message.proto")
        indexes, payload = _indexes(payload)
        descriptor, name = proto, proto.package
        for depth, index in enumerate(indexes):
            descriptor = (descriptor.nested_type if depth else descriptor.message_type)[index]
            name = f"{name}.{descriptor.name}".lstrip(".")
        message = message_factory.GetMessageClass(pool.FindMessageTypeByName(name))()
        message.ParseFromString(payload)
        return json_format.MessageToDict(
            message, preserving_proto_field_name=True, descriptor_pool=pool
        )

    def _add_file(self, pool: Any, schema: _Schema, name: str) -> Any:  # noqa: ANN401 - untyped
        """Add a file of definitions to a pool, after those that it imports."""
        from google.protobuf import descriptor_pb2  # noqa: PLC0415 - of an extra

        for reference in schema.references:
            self._add_file(
                pool, self._schema(_version(reference), is_binary=True), reference["name"]
            )
        proto = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(schema.text))
        proto.name = name
        for imported in proto.dependency:
            if imported.startswith(_WELL_KNOWN):
                # The module of a definition file that comes with the library.
                name = imported.removesuffix(".proto").replace("/", ".") + "_pb2"
                module = importlib.import_module(name)
                pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
        pool.Add(proto)
        return proto

    # -- the registry --------------------------------------------------------------------------

    def _fetch(self, path: str, *, is_binary: bool = False) -> _Schema:
        """The schema at a path."""
        import httpx  # noqa: PLC0415 - of an extra

        url = self._access.url.rstrip("/") + path
        headers = self._token_header()
        params = {"format": "serialized"} if is_binary else None
        try:
            answer = self._client.get(url, params=params, headers=headers)
        except httpx.HTTPError as error:
            raise _SchemaError(f"the schema registry did not answer: {error}") from error
        if answer.status_code == httpx.codes.NOT_FOUND:
            raise _SchemaError(f"the schema registry has no {path}")
        if not answer.is_success:
            code = answer.status_code
            raise _SchemaError(f"the schema registry answered {code} {answer.reason_phrase}")
        try:
            schema = answer.json()
            kind = schema.get("schemaType") or _AVRO
            return _Schema(kind, str(schema["schema"]), schema.get("references") or ())
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            message = f"the server at {self._access.url} is not a schema registry"
            raise _SchemaError(message) from error

    def _token_header(self) -> dict[str, str]:
        endpoint = self._access.oauth_endpoint
        try:
            token = self._access.requested_token() if endpoint else ""
        except (OSError, ValueError) as error:
            message = f"no token for the schema registry from {endpoint}: {error}"
            raise _SchemaError(message) from error
        return {"Authorization": f"Bearer {token}"} if token else {}

    @cached_property
    def _client(self) -> Any:  # noqa: ANN401 - of a library that may be missing
        import ssl  # noqa: PLC0415 - as the other

        import httpx  # noqa: PLC0415 - of an extra

        access = self._access
        auth = (access.username, access.password) if access.username else None
        trust = ssl.create_default_context(cafile=access.ssl_ca_file or None)
        if access.ssl_certificate_file:
            trust.load_cert_chain(
                access.ssl_certificate_file, access.ssl_key_file, lambda: access.ssl_key_password
            )
        return httpx.Client(auth=auth, verify=trust, timeout=_TIMEOUT)


def _version(reference: Mapping[str, Any]) -> str:
    return f"/subjects/{quote(str(reference['subject']), safe='')}/versions/{reference['version']}"


def _indexes(payload: bytes) -> tuple[list[int], bytes]:
    count, at = _zigzag(payload, 0)
    indexes = []
    for _ in range(count):
        index, at = _zigzag(payload, at)
        indexes.append(index)
    return indexes or [0], payload[at:]


def _zigzag(data: bytes, at: int) -> tuple[int, int]:
    number, end = varint(data, at)
    return (number >> 1) ^ -(number & 1), end


def _plain(value: object) -> str:
    return f"0x{value.hex()}" if isinstance(value, bytes | bytearray) else str(value)
