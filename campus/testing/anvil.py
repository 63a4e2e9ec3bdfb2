"""A chain in its own process: anvil, Foundry's test node, if it is installed."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx

from campus.testing import token
from campus.testing.listener import HOST

READY_SECONDS = 20
PAUSE_SECONDS = 0.01


def program() -> str | None:
    """The path of anvil: CAMPUS_ANVIL in the environment, else found on the PATH."""
    return os.environ.get("CAMPUS_ANVIL") or shutil.which("anvil")


@contextmanager
def running() -> Iterator[str]:
    """Start a chain that has the token; yields its URL. The process ends with the block."""
    found = program()
    if found is None:
        raise FileNotFoundError("anvil is not installed: put it on the PATH or name it in CAMPUS_ANVIL, or use eth-tester")
    port = _free_port()
    command = [found, "--host", HOST, "--port", str(port), "--chain-id", str(token.CHAIN_ID), "--silent"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: S603  # the tester names the program
    try:
        url = f"http://{HOST}:{port}"
        _install_token(url, process)
        yield url
    finally:
        process.terminate()
        process.wait()


def _install_token(url: str, process: subprocess.Popen[bytes]) -> None:
    """Install the token at its address, as soon as the chain answers."""
    call = {"jsonrpc": "2.0", "id": 1, "method": "anvil_setCode", "params": [token.ADDRESS, token.code()]}
    deadline = time.monotonic() + READY_SECONDS
    with httpx.Client(trust_env=False) as client:
        while process.poll() is None and time.monotonic() < deadline:
            try:
                client.post(url, json=call).raise_for_status()
            except httpx.TransportError:
                time.sleep(PAUSE_SECONDS)
            else:
                return
    raise RuntimeError(f"anvil did not answer at {url}; exit code: {process.returncode}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port
