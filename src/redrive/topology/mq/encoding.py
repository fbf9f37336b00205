"""The text of an MQSC script: which encoding a file is in, and why it cannot be read."""

from __future__ import annotations

from redrive.diagnostics import Diagnostic, Severity, SourceLocation

# Blanks and letters of EBCDIC; in UTF-8 or Latin text these bytes are ``@`` and accents.
_EBCDIC_BYTES = frozenset([0x40, *range(0x81, 0xAA), *range(0xC1, 0xEA)])


def decode_script(data: bytes, *, file: str) -> str | Diagnostic:
    """The text of a script, which has to be UTF-8.

    Args:
        data: The file's bytes.
        file: Its name, for the finding.

    Returns:
        The text without a byte order mark, or the one finding that says which encoding it is in.
    """
    if data.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in data[:4096]:
        return _encoding_finding("it is UTF-16 or binary", file)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        if _looks_like_ebcdic(data):
            return _encoding_finding("it is EBCDIC", file)
        before = data[: problem.start]
        line = before.count(b"\n") + 1
        column = problem.start - (before.rfind(b"\n") + 1) + 1
        what = f"byte {data[problem.start]:#04x} at column {column} is no UTF-8"
        return _encoding_finding(what, file, line=line)


def _looks_like_ebcdic(data: bytes) -> bool:
    sample = data[:4096]
    likely = sum(byte in _EBCDIC_BYTES for byte in sample)
    return likely * 2 > len(sample) and b" " not in sample


def _encoding_finding(what: str, file: str, *, line: int = 0) -> Diagnostic:
    return SourceLocation(file, line).finding(
        Severity.ERROR,
        "ENCODING",
        f"the script cannot be read: {what}",
        expected="a text in UTF-8",
        hint="convert it, for example with iconv -t UTF-8",
    )
