"""Reports are decoded whatever they are packed, written and drawn in; what cannot be read is said, what must not be is refused."""

import gzip
import io
import json
import zipfile

import pytest

from buildings.cve.reports.documents import LARGEST, MOST_ELEMENTS, decode
from buildings.cve.reports.findings import Document, ReportRefused
from buildings.cve.reports.reader import read_report

LOG4J = "CVE-2021-44228"
OBJECT = json.dumps({"id": LOG4J})
ENTITIES = "".join(f"<!ENTITY e{n} '&e{n - 1};&e{n - 1};'>" for n in range(1, 10))


def zip_of(*files: tuple[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", method) as archive:
        for name, content in files:
            archive.writestr(name, content)
    return packed.getvalue()


@pytest.mark.parametrize(
    "data",
    [
        OBJECT,
        OBJECT.encode(),
        b"\xef\xbb\xbf" + OBJECT.encode(),
        OBJECT.encode("utf-16"),
        OBJECT.encode("utf-16-le"),
        OBJECT.encode("utf-16-be"),
        OBJECT.encode("utf-32"),
        gzip.compress(OBJECT.encode()),
        zip_of(("report.json", OBJECT.encode()), ("__MACOSX/._report.json", b"x")),
    ],
)
def test_a_report_is_the_same_however_it_is_packed_and_encoded(data: bytes | str) -> None:
    document = decode(data)
    assert (document.syntax, document.value, document.unreadable) == ("json", {"id": LOG4J}, ())


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (zip_of(("a.json", b"{}"), ("b.json", b"{}")), "a zip archive of 2 files"),
        (zip_of(*((f"{n}.json", b"{}") for n in range(200))), "many files"),
        (zip_of(("a.zip", zip_of(("a.json", b"{}")))), "an archive in an archive"),
        (gzip.compress(gzip.compress(b"{}")), "an archive in an archive"),
        (zip_of(("a.json", b"{}"), method=zipfile.ZIP_LZMA), "not deflated"),
        (zip_of(("a.json", b"{}" * 1000))[:60], "cannot be unpacked"),
        (gzip.compress(OBJECT.encode())[:-9], "cut off"),
        (gzip.compress(b"{}") + gzip.compress(b"{}"), "several parts"),
        (f'<!DOCTYPE a [<!ENTITY e0 "x">{ENTITIES}]><a>&e9;</a>', "declares entities"),
        ('<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><a>&x;</a>', "declares entities"),
        ('<!DOCTYPE a [<!ENTITY % x SYSTEM "http://127.0.0.1:1/"> %x;]><a/>', "declares entities"),
        (f"<!DOCTYPE r [<!ATTLIST a b CDATA '{'x' * 500}'>]><r/>", "long values of attributes"),
        ("<a>" * 101 + "</a>" * 101, "over 100 levels"),
        ("<a {}/>".format(" ".join(f"b{n}='1'" for n in range(201))), "200 attributes"),
        (b'<?xml version="1.0" encoding="rot13"?><a/>', "the encoding rot13"),
        (b'<?xml version="1.0" encoding="idna"?><a/>', "the encoding idna"),
        ("[" + "[]," * 3_000_000 + "[]]", "over 3,000,000 values"),
        ("cve,a\n" + "," * 3_000_000, "over 3,000,000 cells"),
    ],
)
def test_what_must_not_be_decoded_is_refused_with_a_reason(data: bytes | str, problem: str) -> None:
    with pytest.raises(ReportRefused, match=problem) as refused:
        decode(data)
    assert refused.value.code == "unreadable_report"


@pytest.mark.parametrize("data", [b"x" * (LARGEST + 1), gzip.compress(b" " * (LARGEST + 1)), zip_of(("a", b" " * (LARGEST + 1)))])
def test_a_report_of_over_20_mb_unpacked_is_too_large(data: bytes) -> None:
    with pytest.raises(ReportRefused) as refused:
        decode(data)
    assert refused.value.code == "report_too_large"


def test_xml_is_an_object_of_lists_with_local_names_and_its_document_type_is_not_fetched() -> None:
    document = decode(
        '<!DOCTYPE R SYSTEM "http://127.0.0.1:1/r.dtd"><x:R xmlns:x="u" x:a="1"><x:b>one</x:b><x:b c="2"> two </x:b><d/></x:R>'
    )
    assert document.value == {"R": {"@a": "1", "b": ["one", {"@c": "2", "#text": "two"}], "d": [""]}}


@pytest.mark.parametrize(
    "data",
    [
        '<?xml version="1.0" encoding="UTF-16"?><a b="ü"/>',
        '<?xml version="1.0" encoding="UTF-16"?><a b="ü"/>'.encode("utf-16"),
        '<?xml version="1.0" encoding="utf-16"?><a b="ü"/>'.encode(),
        '<?xml version="1.0" encoding="iso-8859-1"?><a b="ü"/>',
        '<?xml version="1.0" encoding="iso-8859-1"?><a b="ü"/>'.encode("latin-1"),
    ],
)
def test_xml_is_read_in_the_encoding_that_it_has(data: bytes | str) -> None:
    assert decode(data).value == {"a": {"@b": "ü"}}


def test_xml_of_too_many_elements_is_refused() -> None:
    with pytest.raises(ReportRefused, match="elements"):
        decode(f"<a>{'<b/>' * MOST_ELEMENTS}</a>")


@pytest.mark.parametrize("separator", ["\n", "\r\n", "", " "])
def test_json_values_one_after_the_other_are_a_list(separator: str) -> None:
    document = decode(separator.join([OBJECT, json.dumps({"id": "b"}, indent=1), OBJECT]))
    assert document.value == [{"id": LOG4J}, {"id": "b"}, {"id": LOG4J}]


def test_a_json_value_before_lines_of_a_log_is_that_value_and_the_log_is_said() -> None:
    document = decode(f"{OBJECT}\n[INFO] done\n")
    assert (document.value, [part.where for part in document.unreadable]) == ({"id": LOG4J}, ["line 2"])


def test_a_broken_line_of_json_lines_is_said_and_the_others_are_read() -> None:
    document = decode(f'{OBJECT}\n{{"id": \n{OBJECT}\n')
    assert document.value == [{"id": LOG4J}, {"id": LOG4J}]
    assert [part.where for part in document.unreadable] == ["line 2"]


@pytest.mark.parametrize("text", ['{"id": "CVE-2021-44228", ', "[" * 100_000, "<a><b>CVE-2021-44228</a>"])
def test_what_only_begins_like_json_or_xml_is_text_and_said_to_be_broken(text: str) -> None:
    document = decode(text)
    assert (document.syntax, document.value, len(document.unreadable)) == ("text", text, 1)
    assert "read as plain text" in document.notes[0]


@pytest.mark.parametrize(
    ("data", "value", "note"),
    [
        (b'{"id": "\xff"}', {"id": "\ufffd"}, "1 places are not UTF-8"),
        (r'{"id": "\ud800 \\ud800 \ud83d\ude00"}', {"id": "\ufffd \\ud800 \U0001f600"}, "lone surrogates"),
        ("CVE-2021-44228\0", "CVE-2021-44228\ufffd", "1 NUL characters"),
    ],
)
def test_characters_that_cannot_be_read_are_replaced_and_said(data: bytes | str, value: object, note: str) -> None:
    document = decode(data)
    assert document.value == value
    assert note in document.notes[0]


def rows_of(data: bytes | str) -> list[dict[str, str]]:
    document = decode(data)
    assert document.syntax == "csv"
    return list(document.value)


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_csv_is_read_in_its_dialect_below_its_titles(delimiter: str, encoding: str) -> None:
    head, row = ["CVE ID", "Package_Name", "Note", "Note"], [LOG4J, "lög4j", '"two\nlines, and; ""quotes"""', ""]
    text = f"# made by a tool\nReport{delimiter}2026-11-26\n\n{delimiter.join(head)}\n{delimiter.join(row)}\n\n"
    assert rows_of(text.encode(encoding)) == [{"cveid": LOG4J, "packagename": "lög4j", "note": 'two\nlines, and; "quotes"'}]


def test_cells_of_a_csv_that_are_formulas_are_texts() -> None:
    assert rows_of(f'cve,package\n{LOG4J},=cmd|x\n"=HYPERLINK(""{LOG4J}"")",@SUM(1)\n')[1] == {
        "cve": f'=HYPERLINK("{LOG4J}")',
        "package": "@SUM(1)",
    }


def test_a_row_of_too_many_columns_and_a_quotation_mark_that_is_never_closed_are_said() -> None:
    document = decode(f'cve,package\n{"x," * 2_000}\n{LOG4J},"x\n{LOG4J},y\n')
    assert [part.where for part in document.unreadable] == ["row 2", "row 3"]


@pytest.mark.parametrize("text", [f"{LOG4J}, openssl, high\n{LOG4J}, zlib, low\n", f"Dear all, see {LOG4J}, please.\n", "a" * 1_000_000])
def test_text_without_a_head_is_no_csv(text: str) -> None:
    assert decode(text) == Document("text", text, [])


PRINTED = """
alpine:3.10 (alpine 3.10.9)
===========================
Total: 3 (HIGH: 1, CRITICAL: 2)

┌──────────────┬────────────────┬──────────┬───────────────────┬───────────────┬──────────────────┐
│   Library    │ Vulnerability  │ Severity │ Installed Version │ Fixed Version │      Title       │
├──────────────┼────────────────┼──────────┼───────────────────┼───────────────┼──────────────────┤
│ apk-tools    │ CVE-2021-36159 │ CRITICAL │ 2.10.6-r0         │ 2.10.7-r0     │ libfetch before  │
│              │                │          │                   │               │ 2021-07-26       │
├──────────────┼────────────────┼──────────┼───────────────────┼───────────────┼──────────────────┤
│ libcrypto1.1 │ CVE-2021-3711  │ HIGH     │ 1.1.1k-r0         │ 1.1.1l-r0     │ SM2 overflow     │
│              ├────────────────┤          │                   ├───────────────┼──────────────────┤
│              │ CVE-2021-3712  │          │                   │               │ read overrun     │
└──────────────┴────────────────┴──────────┴───────────────────┴───────────────┴──────────────────┘
"""


def test_a_table_on_a_terminal_has_a_row_for_each_of_its_rows_though_cells_span_several() -> None:
    read = [(row["library"], row["vulnerability"], row["severity"], row["fixedversion"], row["title"]) for row in rows_of(PRINTED)]
    assert read == [
        ("apk-tools", "CVE-2021-36159", "CRITICAL", "2.10.7-r0", "libfetch before 2021-07-26"),
        ("libcrypto1.1", "CVE-2021-3711", "HIGH", "1.1.1l-r0", "SM2 overflow"),
        ("libcrypto1.1", "CVE-2021-3712", "HIGH", "", "read overrun"),
    ]
    assert {row["target"] for row in rows_of(PRINTED)} == {"alpine:3.10 (alpine 3.10.9)"}


@pytest.mark.parametrize(
    "text",
    [
        f"NAME        INSTALLED  FIXED-IN  TYPE  VULNERABILITY   SEVERITY\nlog4j-core  2.14.1               java  {LOG4J}  Critical\n",
        f"| Name | Installed | Fixed in | Vulnerability |\n|---|:--|---|---|\n| log4j-core | 2.14.1 | | {LOG4J} |\n",
    ],
)
def test_tables_without_lines_between_rows_have_a_row_a_line(text: str) -> None:
    (row,) = rows_of(text)
    assert (row["name"], row["installed"], row["fixedin"], row["vulnerability"]) == ("log4j-core", "2.14.1", "", LOG4J)


@pytest.mark.parametrize(
    ("report", "note"),
    [
        ('{"type": "error", "data": "Couldn\'t find package"}', "Couldn't find package"),
        ('{"vulnerabilities": {}, "metadata": {}, "error": {"code": "ENOLOCK", "summary": "no lock file"}}', "no lock file"),
        ('{"ok": false, "error": "Missing node_modules", "vulnerabilities": [], "path": "."}', "Missing node_modules"),
        (
            '{"dependencies": [{"name": "a", "skip_reason": "not on the index"}, {"name": "b", "version": "1", "vulns": []}], "fixes": []}',
            "1 dep",
        ),
        ('{"matches": [], "errors": ["one", {"message": "two"}], "descriptor": {}, "source": {}}', "two"),
    ],
)
def test_what_a_tool_says_is_missing_stands_in_the_notes(report: str, note: str) -> None:
    assert any(note in each for each in read_report(report).notes), read_report(report).notes
    assert not any("error" in each for each in read_report('{"dependencies": [], "fixes": []}').notes)
