"""A campus without a public address: tools that may change something and that nobody declared take the key that is printed."""

import stat
from pathlib import Path

import pytest
from fastmcp import Client, FastMCP
from fastmcp.client.transports import StreamableHttpTransport
from patience import patience
from serving import serving

from campus import free
from campus.cli.local_key import announce
from campus.testing import open_campus
from tests import patient

NOTES = """
from fastmcp import FastMCP

from campus import free

mcp = FastMCP("Notes")
kept = ["buy milk"]


@mcp.tool
def delete_note(number: int = 0) -> str:
    "Delete a note."
    return kept.pop(number)


@mcp.tool(annotations={"readOnlyHint": True})
def list_notes() -> list[str]:
    "List the notes."
    return kept
"""
TABLE = '[buildings.notes]\nserver = "./notes.py"\n'
EVIL = {"Origin": "https://evil.example"}


@pytest.mark.anyio
async def test_a_web_page_and_a_program_of_others_change_nothing_and_the_key_of_the_machine_does(tmp_path: Path) -> None:
    (tmp_path / "notes.py").write_text(NOTES)
    with serving(tmp_path, TABLE) as campus:
        kept = tmp_path / "data" / "local.key"
        token = kept.read_text().strip()
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600
        async with patient.AsyncClient(base_url=campus.url, timeout=patience(20)) as http:
            page = await http.post("/v1/notes/delete_note", content="{}", headers=EVIL | {"Content-Type": "text/plain"})
            assert (page.status_code, page.json()["code"]) == (403, "origin_refused")
            refused = await http.post("/v1/notes/delete_note", json={})
            assert (refused.status_code, "`campus serve`" in refused.json()["detail"]) == (402, True)
            assert (await http.get("/v1/notes/list_notes")).json() == {"result": ["buy milk"]}
        async with Client(f"{campus.url}/notes/mcp") as client:
            assert (await client.call_tool("delete_note", raise_on_error=False)).is_error
        async with Client(StreamableHttpTransport(f"{campus.url}/notes/mcp", headers={"Authorization": f"Bearer {token}"})) as client:
            assert (await client.call_tool("delete_note")).data == "buy milk"
    with serving(tmp_path, TABLE) as campus:
        assert kept.read_text().strip() == token
        answer = patient.post(
            f"{campus.url}/v1/notes/delete_note", json={}, headers={"Authorization": f"Bearer {token}"}, timeout=patience(20)
        )
        assert answer.json() == {"result": "buy milk"}


def test_the_key_is_there_also_for_the_tools_of_a_server_that_is_reached_later(tmp_path: Path) -> None:
    with serving(tmp_path, '[buildings.gone]\nserver = { command = "false" }\n'):
        assert (tmp_path / "data" / "local.key").read_text().startswith("campus_live_")


@pytest.mark.anyio
@pytest.mark.parametrize("public_url", ["http://127.0.0.1:8000", "http://tools.lan:8000", "https://campus.example"])
async def test_the_start_says_what_everybody_may_call_and_prints_the_key(public_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    declared, undeclared = FastMCP("Declared"), FastMCP("Undeclared")

    @declared.tool(meta=free())
    def ring() -> str:
        """Ring."""
        return "rung"

    @undeclared.tool
    def wipe() -> str:
        """Wipe."""
        return "wiped"

    tables = {"server": {"public_url": public_url, "openapi": "declared"}}
    async with open_campus(declared=declared, undeclared=undeclared, tables=tables) as campus:
        await announce(campus.service.plan, campus.service.core)
        said = capsys.readouterr().out
        is_local = public_url == "http://127.0.0.1:8000"
        assert (
            "everybody who reaches http://127.0.0.1:8000 may call: declared.ring\nundeclared.wipe may change something and takes a key"
            in said
        ) == is_local
        assert ("    export CAMPUS_KEY=campus_live_" in said) == is_local
        assert (said == "") != is_local
        assert (await campus.http.post(f"{public_url}/v1/declared/ring", json={})).status_code == 200
        answer = await campus.http.post(f"{public_url}/v1/undeclared/wipe", json={})
        assert answer.status_code == (402 if is_local else 200)
        assert ("wipe" in str((await campus.service.ask("check"))["undeclared"])) != is_local
