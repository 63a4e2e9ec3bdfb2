"""What a plain start loads, and commands that open nothing: a package that they do not need costs each of them time and memory."""

import re
from collections.abc import Collection
from pathlib import Path

from serving import command, serving

PROFILED = {"PYTHONPROFILEIMPORTTIME": "1"}
"""Python writes each module that it loads to standard error."""
LOADED = re.compile(r"^import time:.*\| +(\S+)$", re.MULTILINE)
PLAIN = """
[storage]
url = "sqlite:data"
[buildings.gateway]
path = "/"
[buildings.cve]
sample = true
[buildings.recorder]
"""
OF_REMOTE_SERVERS = (
    "campus.features.foreign_servers.mirrored",
    "campus.features.foreign_servers.watched",
    "fastmcp.client",
    "key_value",
    "beartype",
    "jsonschema",
    "referencing",
)
OF_PAYMENTS = ("x402", "web3", "eth_abi", "eth_account", "eth_utils", "coincurve", "Crypto")
OF_OTHER_DATABASES = ("asyncpg", "alembic", "obstore")
OF_OPTIONS = (
    "fastmcp_tasks",
    "opentelemetry.sdk",
    "campus.features.traces.tracing",
    "campus.features.operator.routes",
    "campus.testing",
    "campus.features.dev.command",
)
OF_A_SERVER = ("fastmcp", "mcp", "sqlalchemy", "sqlmodel", "httpx", "uvicorn", "twins", "buildings", "jinja2")


def loaded_of(text: str, packages: Collection[str]) -> set[str]:
    names = set(LOADED.findall(text))
    assert "campus.cli" in names, "no module was reported"
    return {each for each in packages if any(name == each or name.startswith(f"{each}.") for name in names)}


def test_a_plain_start_loads_nothing_of_what_it_does_not_serve(tmp_path: Path) -> None:
    with serving(tmp_path, PLAIN):  # makes the databases: a later start has nothing to migrate
        pass
    with serving(tmp_path, PLAIN, environ=PROFILED, fresh=True) as served:
        pass
    assert loaded_of(served.log, ("fastmcp", "buildings.cve.server")), "the start was not reported"
    assert loaded_of(served.log, [*OF_REMOTE_SERVERS, *OF_PAYMENTS, *OF_OTHER_DATABASES, *OF_OPTIONS]) == set()


def test_a_command_that_opens_nothing_loads_nothing_that_serves() -> None:
    for words in ("--help", "key list --help"):
        done = command(*words.split(), environ=PROFILED, fresh=True)
        assert done.returncode == 0, done.stderr
        assert loaded_of(done.stderr, OF_A_SERVER) == set(), words
