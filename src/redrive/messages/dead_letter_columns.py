"""Dead-letter headers by the column: the same codec as for one header, for many at once.

Integers are read and written through NumPy views of the 172-byte structure; texts are converted
once per distinct value.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from redrive.messages.dead_letter_header import (
    EYE_CATCHERS,
    MQDLH,
    MQDLH_LENGTH,
    UTF8_LITTLE_ENDIAN,
    VERSIONS,
    Representation,
    character_set,
    decode_text,
    encode_text,
)
from redrive.messages.fields import Field, FieldType

__all__ = ["HEADER_SCHEMA", "decode_headers", "encode_headers"]

_FIELDS: Final = [it for it in MQDLH.values() if it.name not in {"StrucId", "Version"}]

HEADER_SCHEMA: Final = pa.schema(
    [
        ("Version", pa.int32()),
        *((it.name, pa.int32() if it.type is FieldType.LONG else pa.string()) for it in _FIELDS),
        ("Source", pa.binary(MQDLH_LENGTH)),
    ]
)
"""The fields of an MQDLH by MQ's names, Version first, and the bytes they were decoded from."""

_BYTES: Final = np.dtype((np.void, MQDLH_LENGTH))
_STRUCTURES: Final = {
    order: np.dtype(
        [
            (it.name, f"{sign}i4" if it.type is FieldType.LONG else f"V{it.length}")
            for it in MQDLH.values()
        ]
    )
    for order, sign in (("big", ">"), ("little", "<"))
}
_ASCII_CODECS: Final = {"ascii", "cp437", "cp850", "cp1252", "latin-1", "utf-8"}
_STARTS: Final = [eye + version for eye in EYE_CATCHERS for version in VERSIONS]


def decode_headers(values: pa.BinaryArray, ccsid: int = 0) -> pa.RecordBatch:
    """Decode the dead-letter headers that messages begin with.

    Args:
        values: Messages, or their first bytes.
        ccsid: The CCSID that their message descriptors declare; 0 if unknown.

    Returns:
        One row per message with the columns of ``HEADER_SCHEMA``; all null where there is no valid
        header.
    """
    starts = pc.binary_slice(values, 0, 8).fill_null(b"")
    valid = pc.is_in(starts, pa.array(_STARTS, starts.type)).to_numpy(zero_copy_only=False)
    valid &= pc.binary_length(values).fill_null(0).to_numpy(zero_copy_only=False) >= MQDLH_LENGTH
    source = pc.binary_slice(values.filter(pa.array(valid)), 0, MQDLH_LENGTH)
    decoded = _decode(_as_bytes(source), ccsid)
    rows = pa.array(np.cumsum(valid) - 1, pa.int64(), mask=~valid)
    return decoded.take(rows)


def _as_bytes(source: pa.Array) -> npt.NDArray[np.void]:
    # One element of 172 bytes per row; no row is null.
    fixed = source.cast(pa.binary(MQDLH_LENGTH))
    data = np.frombuffer(fixed.buffers()[1] or b"", dtype=_BYTES)
    return data[fixed.offset : fixed.offset + len(fixed)]


def _decode(source: npt.NDArray[np.void], ccsid: int) -> pa.RecordBatch:
    parts = list(_representations(source, ccsid))
    if len(parts) == 1:
        return _decode_part(source, parts[0][1])
    if not parts:
        return pa.RecordBatch.from_pylist([], HEADER_SCHEMA)
    decoded = [_decode_part(source[rows], representation) for rows, representation in parts]
    table = pa.Table.from_batches(decoded, HEADER_SCHEMA).combine_chunks()
    order = np.argsort(np.concatenate([np.flatnonzero(rows) for rows, _ in parts]))
    return table.to_batches()[0].take(pa.array(order))


def _decode_part(source: npt.NDArray[np.void], representation: Representation) -> pa.RecordBatch:
    structure = source.view(_STRUCTURES[representation.byte_order])
    columns = [
        pa.array(structure[it.name].astype(np.int32))
        if it.type is FieldType.LONG
        else _decode_texts(structure[it.name], representation.codec)
        for it in _FIELDS
    ]
    versions = pa.array(np.ones(len(source), np.int32))
    return pa.record_batch([versions, *columns, _fixed(source)], schema=HEADER_SCHEMA)


def _decode_texts(column: npt.NDArray[np.void], codec: str) -> pa.StringArray:
    raw = _fixed(column)
    if _is_plain(column, codec):
        return pc.ascii_rtrim(raw.cast(pa.binary()).cast(pa.string()), " ")
    encoded = raw.dictionary_encode()
    distinct = [decode_text(text, codec) for text in encoded.dictionary.to_pylist()]
    return pa.array(distinct, pa.string()).take(encoded.indices)


def _is_plain(column: npt.NDArray[np.void], codec: str) -> bool:
    # Whether all texts are ASCII without NULs, as they nearly always are, and need trimming only.
    data = np.ascontiguousarray(column).view(np.uint8)
    return codec in _ASCII_CODECS and bool(data.all()) and not bool((data & 0x80).any())


def _representations(
    source: npt.NDArray[np.void], ccsid: int
) -> Iterator[tuple[npt.NDArray[np.bool_], Representation]]:
    # The rows of each representation that occurs.
    heads = source.view(
        np.dtype({"names": ["start"], "formats": ["S8"], "itemsize": _BYTES.itemsize})
    )
    for eye_catcher, ebcdic in EYE_CATCHERS.items():
        for version, order in VERSIONS.items():
            # NumPy compares byte strings without their trailing NULs.
            rows = heads["start"] == (eye_catcher + version).rstrip(b"\0")
            if rows.any():
                yield rows, Representation(order, character_set(ccsid, ebcdic=ebcdic)[0])


def _fixed(column: npt.NDArray[np.void]) -> pa.FixedSizeBinaryArray:
    data = pa.py_buffer(np.ascontiguousarray(column))
    width = pa.binary(column.dtype.itemsize)
    return pa.FixedSizeBinaryArray.from_buffers(width, len(column), [None, data])


def encode_headers(
    batch: pa.RecordBatch, representation: Representation = UTF8_LITTLE_ENDIAN
) -> pa.BinaryArray:
    """Write dead-letter headers.

    Args:
        batch: Columns of ``HEADER_SCHEMA``; Version is ignored. With a column ``Source``, its rows
            keep their own byte order and character set, and fields that still say the same are
            written as they stood.
        representation: How rows without a source are written; of rows with a source it tells the
            declared CCSID.

    Returns:
        172 bytes per row; null where Reason is null.

    Raises:
        ValueError: If a text does not fit its field or the character set.
    """
    present = batch.column("Reason").is_valid()
    kept = batch.filter(present)
    written = np.zeros(len(kept), dtype=_BYTES)
    sourced = np.zeros(len(kept), dtype=np.bool_)
    if "Source" in batch.schema.names:
        sourced = kept.column("Source").is_valid().to_numpy(zero_copy_only=False)
        _write_sourced(written, sourced, kept, representation.ccsid)
    if not sourced.all():
        afresh = kept.filter(pa.array(~sourced))
        written[~sourced] = _encode(afresh, representation)
    positions = np.cumsum(present.to_numpy(zero_copy_only=False)) - 1
    rows = pa.array(positions, pa.int64(), mask=~present.to_numpy(zero_copy_only=False))
    return _fixed(written).take(rows).cast(pa.binary())


def _write_sourced(
    written: npt.NDArray[np.void], sourced: npt.NDArray[np.bool_], kept: pa.RecordBatch, ccsid: int
) -> None:
    rows_of_source = np.flatnonzero(sourced)
    kept = kept.filter(pa.array(sourced))
    source = _as_bytes(kept.column("Source"))
    for rows, representation in _representations(source, ccsid):
        new, before = kept.filter(pa.array(rows)), _decode_part(source[rows], representation)
        result = source[rows].copy()
        fields = result.view(_STRUCTURES[representation.byte_order])
        for it in _FIELDS:
            same = pc.equal(new.column(it.name), before.column(it.name))
            changed = pc.invert(same.fill_null(False))  # noqa: FBT003 (the value to fill in)
            column = new.column(it.name).filter(changed)
            at = changed.to_numpy(zero_copy_only=False)
            fields[it.name][at] = _encode_column(column, it, representation.codec)
        written[rows_of_source[rows]] = result


def _encode(batch: pa.RecordBatch, representation: Representation) -> npt.NDArray[np.void]:
    written = np.zeros(len(batch), dtype=_STRUCTURES[representation.byte_order])
    codec = representation.codec
    written["StrucId"] = np.void("DLH ".encode(codec))
    written["Version"] = 1
    for it in _FIELDS:
        written[it.name] = _encode_column(batch.column(it.name), it, codec)
    return written.view(_BYTES)


def _encode_column(column: pa.Array, it: Field, codec: str) -> npt.NDArray[Any]:
    if it.type is FieldType.LONG:
        numbers: npt.NDArray[np.int32] = column.fill_null(0).to_numpy(zero_copy_only=False)
        return numbers
    encoded = column.fill_null("").dictionary_encode()
    distinct = [encode_text(text, it, codec) for text in encoded.dictionary.to_pylist()]
    texts: npt.NDArray[np.void] = np.frombuffer(b"".join(distinct), dtype=f"V{it.length}")
    rows: npt.NDArray[np.void] = texts[encoded.indices.to_numpy()]
    return rows
