"""An agent that writes ahead, as "Work that survives its agent" of docs/beats.md says, and dies or freezes at one point of its work.

Run as a program it is the agent: a process of its own, with Python's own HTTP. `outlived` lets agents die, replaces each by the next
one, and returns what the store of their effects saw.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:  # an agent starts without them
    from recorder.recorders import Recorder

REPLACED = 9  # The exit code of an agent that was told that another has its work.
CALLS_A_STEP, POINTS_A_CALL = 3, 3


class Agent:
    """One life: it takes the work over, or has the secret, and goes on from the capsule until the last step."""

    def __init__(self, order: dict[str, Any]) -> None:
        self.order = order
        self.points = 0

    def point(self) -> None:
        """A point at which it may die: before a call, after sending the request, and after the answer."""
        self.points += 1
        if self.points == self.order["dies_at"]:
            os.kill(os.getpid(), self.order["signal"])

    def post(self, url: str, body: dict[str, Any], *, key: str | None = None, counts: bool = True) -> tuple[int, Any]:
        parts = urlsplit(url)
        connection = HTTPConnection(parts.hostname or "", parts.port, timeout=60)
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        if counts:
            self.point()
        connection.request("POST", parts.path, json.dumps(body), headers)
        if counts:
            self.point()
        answer = connection.getresponse()
        status, said = answer.status, json.loads(answer.read() or b"null")
        if counts:
            self.point()
        if status == 409:
            sys.exit(REPLACED)
        assert status == 200, (status, said)
        return status, said

    def live(self) -> None:
        order, name = self.order, self.order["monitor_id"]
        capsule, seq, secret = {"done": 0}, 0, order["secret"]
        if secret is None:
            _, taken = self.post(f"{order['campus']}/v1/recorder/monitors/{name}/takeover", {}, key=order["key"], counts=False)
            self.post(order["store"], {"fence": taken["fence"]}, counts=False)  # from here on the store refuses who was replaced
            secret = taken["secret"]
            if taken["last"] is not None:
                capsule, seq = taken["last"]["capsule"], taken["last"]["seq"]
        done = capsule["done"]
        while done < order["last"]:
            doing = done + 1
            key = f"{name}-step-{doing}"
            assert capsule.get("doing", doing) == doing, "the capsule is another agent's text: it is checked"
            fence = self.beat(secret, {"done": done, "doing": doing, "key": key}, seq := seq + 1)
            self.post(order["store"], {"key": key, "fence": fence})
            done, capsule = doing, {}
            self.beat(secret, {"done": done}, seq := seq + 1)

    def beat(self, secret: str, capsule: dict[str, Any], seq: int) -> int:
        url = f"{self.order['campus']}/v1/recorder/beat/{self.order['monitor_id']}/{secret}"
        _, beaten = self.post(url, {"capsule": capsule, "seq": seq})
        assert beaten["capsule_stored"]
        return int(beaten["fence"])


class Store(ThreadingHTTPServer):
    """What the agents write to: it does the same key once, and refuses a fence below the highest that it saw."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), StoreRequest)
        self.effects: list[tuple[str, int]] = []
        self.counts = Counter[str]()
        self.fence = 0
        self.lock = threading.Lock()

    def write(self, fence: int, key: str | None) -> int:
        with self.lock:
            if fence < self.fence:
                self.counts["refused by the fence"] += 1
                return 409
            self.fence = fence
            if key is not None and key in {known for known, _ in self.effects}:
                self.counts["done again under the same key"] += 1
            elif key is not None:
                self.effects.append((key, fence))
            return 200


class StoreRequest(BaseHTTPRequestHandler):
    """One write."""

    server: Store

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.send_response(self.server.write(body["fence"], body.get("key")))
        self.send_header("Content-Length", "0")
        self.end_headers()

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True  # its agent is dead

    def log_message(self, format: str, *args: Any) -> None:
        """Prints nothing."""


@contextmanager
def open_store() -> Iterator[Store]:
    with Store() as store:
        thread = threading.Thread(target=store.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        yield store
        store.shutdown()


@dataclass
class Lives:
    """What became of the agents: how many were killed, how many froze and woke as zombies, and what the zombies were told."""

    killed: int = 0
    frozen: int = 0
    zombies: list[subprocess.Popen[bytes]] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)


async def outlived(recorder: "Recorder", address: str, store: Store, *, deaths: int, chance: Random) -> Lives:
    """Let so many agents die at random points, each replaced by the next; the last one ends the work, three steps later."""
    from anyio import to_thread

    key, lives = await recorder.campus.key("recorder"), Lives()
    await recorder.pass_time(seconds=0)
    monitor = await recorder.register(period_minutes=5, grace_minutes=1, key=key)
    order = {"campus": address, "store": f"http://127.0.0.1:{store.server_port}/", "monitor_id": monitor["monitor_id"], "key": key}
    for number in range(deaths + 1):
        is_last = number == deaths
        order |= {
            "secret": monitor["secret"] if number == 0 else None,
            "signal": chance.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGSTOP)),
            "dies_at": None if is_last else chance.randint(1, 2 * CALLS_A_STEP * POINTS_A_CALL),
            "last": len(store.effects) + 3,
        }
        words = [sys.executable, "-I", str(Path(__file__)), json.dumps(order)]
        agent = await to_thread.run_sync(subprocess.Popen[bytes], words)
        how = await to_thread.run_sync(os.waitid, os.P_PID, agent.pid, os.WEXITED | os.WSTOPPED | os.WNOWAIT)
        assert how is not None
        while lives.zombies:  # of the agent that this one replaced: it wakes up now, and goes on
            lives.zombies[0].send_signal(signal.SIGCONT)
            lives.ended.append(await to_thread.run_sync(lives.zombies.pop(0).wait))
        if is_last:
            assert (how.si_code, how.si_status) == (os.CLD_EXITED, 0)
            agent.wait()
        elif how.si_code == os.CLD_STOPPED:
            lives.frozen += 1
            lives.zombies.append(agent)
        else:
            assert (how.si_code, how.si_status) == (os.CLD_KILLED, signal.SIGKILL)
            lives.killed += 1
            agent.wait()
        while not is_last and (await recorder.call("get_monitor", monitor_id=monitor["monitor_id"], key=key)).data["state"] != "dead":
            await recorder.pass_time(minutes=6)  # again if what a dead one had sent arrives after it
            await recorder.sweep()
    return lives


def check(lives: Lives, store: Store, *, deaths: int) -> str:
    """Assert that each step's effect was made once, in order, and none by who was replaced; returns the figures."""
    steps, fences = [int(key.rpartition("-")[2]) for key, _ in store.effects], [fence for _, fence in store.effects]
    assert steps == list(range(1, len(steps) + 1))
    assert fences == sorted(fences)
    assert fences[-1] == deaths == lives.killed + lives.frozen
    assert len(lives.ended) == lives.frozen
    assert set(lives.ended) <= {REPLACED}, "who wakes up after its takeover is refused"
    counted = ", ".join(f"{number} {words}" for words, number in sorted(store.counts.items()))
    return f"{lives.killed} killed, {lives.frozen} frozen and refused when they woke up; {len(steps)} effects, each once; {counted}"


if __name__ == "__main__":
    Agent(json.loads(sys.argv[1])).live()
