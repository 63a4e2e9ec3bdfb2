"""Small reports, one for each tool and form: what each of their findings must become.

`reports/expected.txt` says it: a document's name, the number of findings that its tool reports, and a line for each:
ids | said | state | by | package | version | fixed | place | severity.
"""

import gzip
import io
import json
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from buildings.cve.reports.findings import Finding, Report, ReportRefused
from buildings.cve.reports.reader import read_report, readable

FOLDER = Path(__file__).parent / "reports"
MEMBERS = ("said", "state", "by", "package", "version", "fixed", "place", "severity")
REFUSED = "refused"


def expected() -> Iterator[tuple[str, str, list[Finding]]]:
    for block in (FOLDER / "expected.txt").read_text("utf-8").split("\n\n"):
        head, *lines = block.strip().splitlines()
        name, count = head.split(" = ")
        yield name, count, [finding(line) for line in lines]


def finding(line: str) -> Finding:
    ids, *cells = (cell.strip() for cell in line.split("|"))
    return Finding(ids=tuple(ids.split(", ")), **dict(zip(MEMBERS, cells, strict=True)))


EXPECTED = {name: (count, findings) for name, count, findings in expected()}
READ = {name: findings for name, (count, findings) in EXPECTED.items() if count != REFUSED}


def read(name: str) -> Report:
    return read_report((FOLDER / name).read_bytes())


@pytest.mark.parametrize("name", list(READ))
def test_each_finding_of_a_report_becomes_what_its_tool_says_of_it(name: str) -> None:
    report = read(name)
    assert list(report.findings) == READ[name]
    count = int(EXPECTED[name][0])
    assert len(report.findings) + len(report.unreadable) == count
    assert report.claimed in (None, count)


@pytest.mark.parametrize("name", [name for name, (count, _) in EXPECTED.items() if count == REFUSED])
def test_what_declares_entities_or_has_nothing_to_say_is_refused(name: str) -> None:
    with pytest.raises(ReportRefused):
        readable(read(name))


STRUCTURE = {"ignored", "suppressed", "called", "advisory", "fix"}
"""States that a document says by the name of a member, or by what kind of thing it lists: no word of the tool's."""
DECIDED_ELSEWHERE = {
    *(("trivy-2-modified.json", state) for state in ("not_affected", "fixed")),
    *(("grype-0.80-ignored.json", state) for state in ("not_affected", "fixed", "no nscd here")),
    ("composer-audit.json", "not used"),
    ("dependabot-graphql.json", "FIXED"),
    ("dependency-track-fpf.json", "FALSE_POSITIVE"),
}
"""States that stand among what the tool took out, or beside another member that says so too."""


def states() -> Iterator[tuple[str, str]]:
    """The words of state that a document has as values."""
    for name, findings in READ.items():
        text = (FOLDER / name).read_text("utf-8")
        for state in dict.fromkeys(each.state for each in findings):
            if state and state not in STRUCTURE and value(state).search(text):
                yield name, state


def value(word: str) -> re.Pattern[str]:
    """A whole value in JSON, XML or CSV."""
    return re.compile(rf"""(?<=[">,;]){re.escape(word)}(?="\s*[,\]}}]|<|[,;]|$)""", re.MULTILINE)


@pytest.mark.parametrize(("name", "state"), list(states()))
def test_a_state_is_read_in_either_case_and_is_unknown_if_no_list_has_it(name: str, state: str) -> None:
    text, findings = (FOLDER / name).read_text("utf-8"), READ[name]
    swapped = read_report(value(state).sub(state.swapcase(), text)).findings
    assert [each.said for each in swapped] == [each.said for each in findings]
    unheard_of = read_report(value(state).sub("unheard of", text)).findings
    said = [each.said for each, before in zip(unheard_of, findings, strict=True) if before.state == state]
    if (name, state) in DECIDED_ELSEWHERE:
        assert "open" not in said
    else:
        assert set(said) == {"unknown"}


def zipped(data: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("report", data)
    return buffer.getvalue()


WRAPPINGS: dict[str, Callable[[str], bytes]] = {
    "UTF-8 with BOM": lambda text: text.encode("utf-8-sig"),
    "UTF-16 with BOM": lambda text: text.encode("utf-16"),
    "UTF-16 big-endian without BOM": lambda text: text.encode("utf-16-be"),
    "lines of Windows": lambda text: text.replace("\n", "\r\n").encode(),
    "zip of one file": lambda text: zipped(text.encode()),
    "gzip of UTF-16": lambda text: gzip.compress(text.encode("utf-16")),
}


@pytest.mark.parametrize("wrapping", list(WRAPPINGS))
@pytest.mark.parametrize(
    "name", ["trivy-2-image.json", "govulncheck-1-stream.json", "nessus-2.nessus", "any-semicolon.csv", "text-ids.txt"]
)
def test_a_report_is_read_the_same_whatever_it_is_wrapped_in(name: str, wrapping: str) -> None:
    text = (FOLDER / name).read_text("utf-8")
    assert list(read_report(WRAPPINGS[wrapping](text)).findings) == READ[name]


def lists() -> Iterator[str]:
    for name in READ:
        if name.endswith(".json") and len(READ[name]) > 1 and (FOLDER / name).read_text("utf-8").startswith("["):
            yield name


@pytest.mark.parametrize("name", list(lists()))
def test_a_list_may_be_sent_as_lines(name: str) -> None:
    lines = "\n".join(json.dumps(each) for each in json.loads((FOLDER / name).read_bytes()))
    assert list(read_report(lines).findings) == READ[name]


@pytest.mark.parametrize("name", [name for name, findings in READ.items() if findings and not name.endswith((".csv", ".txt", ".jsonl"))])
def test_a_report_that_is_cut_off_is_refused_or_says_so(name: str) -> None:
    data = (FOLDER / name).read_bytes()
    for end in (len(data) // 3, 2 * len(data) // 3):
        with suppress(ReportRefused):
            report = read_report(data[:end])
            assert report.unreadable or report.notes, f"{end} of {len(data)} bytes"


ODD = (7, [["x"]], {"x": [None]})


def mutants(value: Any, at: Callable[[Any], Any], seen: set[str], path: str = "") -> Iterator[Any]:
    """The document with something else at one place: once for each place that a form may look at."""
    if path not in seen:
        seen.add(path)
        yield at(ODD[len(seen) % len(ODD)])
    if isinstance(value, dict):
        for name, member in value.items():
            yield from mutants(member, lambda odd, name=name: at({**value, name: odd}), seen, f"{path}.{name}")
    elif isinstance(value, list):
        for place, member in enumerate(value):
            yield from mutants(member, lambda odd, place=place: at([*value[:place], odd, *value[place + 1 :]]), seen, f"{path}[]")


@pytest.mark.parametrize("name", [name for name in READ if name.endswith(".json") and not name.startswith("govulncheck-1")])
def test_what_is_of_another_kind_than_documented_is_no_error(name: str) -> None:
    for document in mutants(json.loads((FOLDER / name).read_bytes()), lambda odd: odd, set()):
        with suppress(ReportRefused):
            assert all(each.ids for each in read_report(json.dumps(document)).findings)


THROUGH_BOTH_DOORS = (
    *("trivy-2-modified.json", "grype-0.80-ignored.json", "grype-empty.json", "govulncheck-1-stream.json", "dependency-track-fpf.json"),
    *("nessus-2.nessus", "openvex-0.2.json", "qualys-vm.csv", "any-semicolon.csv", "text-ids.txt"),
    *("unknown-form.xml", "unknown-lines.jsonl"),
)
ROW = ("package", "installed_version", "fixed_version", "place", "tool_severity", "state", "said_by")


@pytest.mark.anyio
async def test_both_front_doors_answer_with_what_the_table_says(few, open_test_campus) -> None:
    async with open_test_campus(few.url, frame="mcp") as campus:
        await campus.run("refresh", accept=True)
        key = await campus.key("cve")
        for name in THROUGH_BOTH_DOORS:
            text = (FOLDER / name).read_text("utf-8")
            answer = (await campus.call("cve_verdicts", key=key, report=text, limit=100)).data
            rows = answer.get("findings", ())
            assert Counter(map(told, rows)) == Counter(map(expected_row, READ[name])), name
            assert answer["accounting"]["findings"] == sum(answer["accounting"]["counts"].values()) == len(rows), name
            headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/octet-stream"}
            body = text.encode("utf-16")
            packed = zipped(body) if name == THROUGH_BOTH_DOORS[0] else body  # a process reads each archive
            as_body = await campus.http.post("/v1/cve/verdicts", params={"limit": 100}, content=packed, headers=headers)
            assert as_body.json()["findings" if rows else "misses"] == (answer["findings"] if rows else []), name
        refused = await campus.call("cve_verdicts", key=key, report=(FOLDER / "entities.xml").read_text("utf-8"))
        assert (refused.status, refused.code) == (422, "unreadable_report")


def told(row: Mapping[str, Any]) -> tuple[object, ...]:
    ids = sorted({row["id"], *row.get("other_ids", ()), *filter(None, [row.get("cve_id")])})
    settled = row["bucket"] if row["bucket"] in ("suppressed", "not_affected", "fixed") else ""
    return *ids, settled, row["bucket"] == "state_unknown", *(row.get(name, "") for name in ROW)


def expected_row(finding: Finding) -> tuple[object, ...]:
    settled = "" if finding.said in ("open", "unknown") else finding.said
    texts = (finding.package, finding.version, finding.fixed, finding.place, finding.severity, finding.state, finding.by)
    return *sorted(finding.ids), settled, finding.said == "unknown", *texts


def test_the_table_names_every_document_once() -> None:
    listed = [name for name, _, _ in expected()]
    assert len(set(listed)) == len(listed) >= 90
    assert {path.name for path in FOLDER.iterdir()} - {"expected.txt"} == set(listed)
