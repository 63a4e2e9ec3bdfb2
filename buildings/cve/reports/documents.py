"""Decodes what a caller sends as a report: archive, characters and syntax, each bounded. Pure.

What cannot be decoded in part is said: in `notes` what was replaced, in `unreadable` what was passed over. What must not be decoded
is refused with a sentence.
"""

import io
import re
import zipfile
import zlib
from dataclasses import replace
from itertools import chain
from json import JSONDecoder
from typing import Any
from xml.parsers import expat

from pydantic_core import from_json

from buildings.cve.reports.findings import Document, ReportRefused, Unreadable
from buildings.cve.reports.rows import csv_rows, dialect_of, printed_rows

LARGEST = 20_000_000
"""Bytes of a document, unpacked: an ordinary image's report has one million, a large network scan's some ten."""
LARGEST_RATIO = 200
"""Unpacked to packed: real reports reach 50, a bomb of deflate 1,000."""
MOST_PARTS = 3_000_000
"""Values of a JSON document, cells of a CSV: real ones have one in 25 bytes, and each costs some 60 bytes of memory."""
MOST_ELEMENTS = 1_000_000
MOST_ATTRIBUTES = 200
LONGEST_DEFAULT = 20
"""Characters of the value that an attribute has where it is not given: Burp declares `false`."""
DEEPEST = 100
MOST_UNREADABLE = 100
"""Broken parts of a stream that are listed; after them the rest is said to be unread."""

ZIP, GZIP = (b"PK\x03\x04", b"PK\x05\x06"), b"\x1f\x8b"
BOMS = (
    (b"\xef\xbb\xbf", "utf-8"),
    (b"\xff\xfe\0\0", "utf-32"),
    (b"\0\0\xfe\xff", "utf-32"),
    (b"\xff\xfe", "utf-16"),
    (b"\xfe\xff", "utf-16"),
)
DECLARED = re.compile(rb"""<\?xml[^>]{0,100}\bencoding\s*=\s*["']([A-Za-z0-9._-]{1,40})""")
SURROGATES = re.compile(r"\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
BEGINS_JSON = re.compile(r"""\s*(?:\{|\[\s*[\[{"\]])""")
"""A log line may begin with a bracket too."""
PAGE = re.compile(r"\s*<(?:!doctype )?html", re.IGNORECASE)
SPACES = re.compile(r"\s*")
NEXT_VALUE = re.compile(r"\n(?=[{\[])")
"""Where the next value of a stream may begin: within a value a brace at the beginning of a line is indented, or in a list of one."""


def decode(data: bytes | str) -> Document:
    """The document in `data`. Raises ReportRefused if it is too large, or must not or cannot be decoded."""
    notes: list[str] = []
    sent = data.encode("utf-8", "replace") if isinstance(data, str) else data
    if len(sent) > LARGEST:
        raise _too_large(LARGEST)
    text = sent.decode() if isinstance(data, str) else _text_of(_unpacked(sent, notes), notes)
    if "\0" in text:
        notes.append(f"{text.count(chr(0)):,} NUL characters are read as \ufffd.")
        text = text.replace("\0", "\ufffd")
    text = text.removeprefix("\ufeff")
    attempt = _json if BEGINS_JSON.match(text) else _xml if text.lstrip()[:1] == "<" else _rows
    read = attempt(text, notes)
    document = read if isinstance(read, Document) else Document("text", text, notes, (read,) if read else ())
    return replace(document, notes=list(dict.fromkeys(document.notes)), size=len(text))


def is_packed(data: bytes) -> bool:
    """Whether it is an archive, whose document may be far larger."""
    return data.startswith((*ZIP, GZIP))


def _refused(detail: str) -> ReportRefused:
    return ReportRefused("unreadable_report", detail)


def _too_large(largest: int) -> ReportRefused:
    return ReportRefused(
        "report_too_large", f"the report has over {largest:,} bytes, unpacked; send it in parts, or only its identifiers in cve_ids"
    )


# Archives


def _unpacked(data: bytes, notes: list[str]) -> bytes:
    most = min(LARGEST, LARGEST_RATIO * len(data))
    if data.startswith(ZIP):
        unpacked, kind = _unzipped(data, most + 1), "zip archive"
    elif data.startswith(GZIP):
        unpacked, kind = _gunzipped(data, most + 1), "gzip file"
    else:
        return data
    if len(unpacked) > most:
        raise _too_large(most)
    if is_packed(unpacked):
        raise _refused("the report is an archive in an archive; send the file itself")
    notes.append(f"Read from a {kind}.")
    return unpacked


def _unzipped(data: bytes, most: int) -> bytes:
    if data.count(b"PK\x01\x02") > MOST_UNREADABLE:
        raise _refused("the report is a zip archive of many files; send one report")
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            files = [one for one in archive.infolist() if not one.is_dir() and not one.filename.startswith("__MACOSX/")]
            if len(files) != 1:
                raise _refused(f"the report is a zip archive of {len(files)} files; send an archive of one")
            if files[0].flag_bits & 1 or files[0].compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise _refused("the report is a zip archive that is encrypted or not deflated; send the file itself")
            with archive.open(files[0]) as member:
                return member.read(most)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, ValueError, OSError) as error:
        raise _refused(f"the report begins like a zip archive and cannot be unpacked: {error}") from error


def _gunzipped(data: bytes, most: int) -> bytes:
    unpack = zlib.decompressobj(wbits=31)
    try:
        unpacked = unpack.decompress(data, most)
    except zlib.error as error:
        raise _refused(f"the report begins like a gzip file and cannot be unpacked: {error}") from error
    if len(unpacked) < most and not unpack.eof:
        raise _refused("the report is a gzip file that is cut off; send all of it")
    if unpack.unused_data.strip(b"\0"):
        raise _refused("the report is a gzip file of several parts; send one report")
    return unpacked


# Characters


def _text_of(data: bytes, notes: list[str]) -> str:
    encoding = next((encoding for mark, encoding in BOMS if data.startswith(mark)), None)
    if encoding is None and data[1:2] == b"\0":
        encoding = "utf-16-le"
    if encoding is None and data[:1] == b"\0":
        encoding = "utf-16-be"
    if encoding is None and (declared := DECLARED.match(data.lstrip()[:200])) and not declared[1].lower().startswith(b"utf-16"):
        encoding = declared[1].decode()
    try:
        text = data.decode(encoding or "utf-8", "replace")
    except (LookupError, UnicodeError) as error:
        raise _refused(f"the report declares the encoding {encoding}, which is not known; send it in UTF-8") from error
    if (replaced := text.count("\ufffd") - data.count("\ufffd".encode())) > 0:
        notes.append(f"{replaced:,} places are not {(encoding or 'UTF-8').upper()}; each is read as \ufffd.")
    return text


# JSON


def _json(text: str, notes: list[str]) -> Document | Unreadable | None:
    if text.count(",") + text.count("[") + text.count("{") > MOST_PARTS:
        raise _refused(f"the report has over {MOST_PARTS:,} values in JSON; send it in parts")
    try:
        return Document("json", _value_of(text, notes), notes)
    except ValueError as error:
        values, unreadable = _stream_of(text, notes)
        if values:
            notes.append(f"Read as a stream of {len(values):,} JSON value{'s' * (len(values) > 1)}.")
            return Document("json", values if len(values) > 1 else values[0], notes, unreadable)
        notes.append("It begins like JSON and is none: read as plain text, so that states and packages are not known.")
        return Unreadable("the document as a whole", f"it is not JSON: {error}")


def _value_of(text: str, notes: list[str]) -> Any:
    try:
        return from_json(text.encode())
    except ValueError as error:
        if "surrogate" not in str(error) and "hex escape" not in str(error):
            raise
        value = from_json(_mended(text).encode())
        notes.append("Halves of characters (lone surrogates) are read as \ufffd.")
        return value


def _mended(text: str) -> str:
    return SURROGATES.sub(lambda match: "\\ufffd" if len(match[0]) == 6 else match[0], text)


def _stream_of(text: str, notes: list[str]) -> tuple[list[Any], list[Unreadable]]:
    """The objects and lists of JSON Lines, or of values one after the other; none if the first is no value."""
    values: list[Any] = []
    unreadable: list[Unreadable] = []
    at, line = 0, 1
    for end in chain((match.end() for match in NEXT_VALUE.finditer(text)), (len(text),)):
        part = text[at:end]
        try:
            if part.strip():
                values += _values_of(part, notes)
        except (ValueError, RecursionError) as error:
            if not values or len(unreadable) == MOST_UNREADABLE:
                unreadable.append(Unreadable(f"line {line} and all after it", f"not read: {error}"))
                break
            unreadable.append(Unreadable(f"line {line}", f"it is not JSON: {error}"))
        line += part.count("\n")
        at = end
    return values, unreadable


def _values_of(part: str, notes: list[str]) -> list[Any]:
    """The value of a part, or the values on one line of it."""
    try:
        return [_value_of(part, notes)]
    except ValueError as error:
        if "trailing characters" not in str(error):
            raise
    values, at, decoder, part = [], 0, JSONDecoder(), _mended(part)
    while space := SPACES.match(part, at):
        if space.end() == len(part):
            break
        value, at = decoder.raw_decode(part, space.end())
        values.append(value)
    return values


# XML


def _xml(text: str, notes: list[str]) -> Document | Unreadable | None:
    try:
        root = _element_of(text)
    except expat.ExpatError as error:
        if PAGE.match(text):
            return None
        notes.append("It begins like XML and is none: read as plain text, so that states and packages are not known.")
        return Unreadable(f"line {error.lineno}", f"from here on it is not XML: {expat.ErrorString(error.code)}")
    return None if "html" in root else Document("xml", root, notes)


def _element_of(text: str) -> dict[str, Any]:
    """The root under its name. Entities are refused where they are declared; a DTD elsewhere, which Qualys names, is never fetched."""
    root: dict[str, Any] = {}
    open_elements: list[tuple[dict[str, Any], list[str]]] = [(root, [])]
    count = 0

    def begin(name: str, attributes: dict[str, str]) -> None:
        nonlocal count
        count += 1 + len(attributes)
        if len(open_elements) > DEEPEST or count > MOST_ELEMENTS or len(attributes) > MOST_ATTRIBUTES:
            limits = f"{DEEPEST} levels, {MOST_ELEMENTS:,} elements and attributes, or {MOST_ATTRIBUTES} attributes of one element"
            raise _refused(f"the report in XML has over {limits}; send it in parts")
        own = {f"@{_local(name)}": value for name, value in attributes.items() if not name.startswith("xmlns")}
        open_elements.append((own, []))

    def end(name: str) -> None:
        element, texts = open_elements.pop()
        text = "".join(texts).strip()
        if element and text:
            element["#text"] = text
        open_elements[-1][0].setdefault(_local(name), []).append(element or text)

    def add(text: str) -> None:
        open_elements[-1][1].append(text)

    def refuse(*declared: object) -> None:
        raise _refused("the report in XML declares entities or long values of attributes, which are not expanded; send it without them")

    def attribute(_element: str, _name: str, _type: str, default: str | None, _required: bool) -> None:
        if default and len(default) > LONGEST_DEFAULT:
            refuse()

    parser = expat.ParserCreate("utf-8")
    parser.StartElementHandler, parser.EndElementHandler, parser.CharacterDataHandler, parser.EntityDeclHandler = begin, end, add, refuse
    parser.AttlistDeclHandler = attribute
    parser.buffer_text = True
    parser.Parse(text.lstrip().encode(), True)
    return {name: elements[0] for name, elements in root.items()}


def _local(name: str) -> str:
    return name.rpartition(":")[2]


# Tables


def _rows(text: str, notes: list[str]) -> Document | None:
    dialect = dialect_of(text)
    if dialect is None:
        rows = printed_rows(text)
        return Document("csv", rows, [*notes, "Read as a table of text."]) if rows else None
    if text.count(dialect.delimiter) + text.count("\n") > MOST_PARTS:
        raise _refused(f"the report has over {MOST_PARTS:,} cells of CSV; send it in parts")
    rows, unreadable = csv_rows(text, dialect)
    return Document("csv", rows, notes, unreadable[:MOST_UNREADABLE])
