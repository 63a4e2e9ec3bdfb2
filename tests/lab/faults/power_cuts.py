"""A power cut at a hundred moments of one load: of each, the disk is made that it would have left, and read.

Every write and sync of the served process is noted (disk_journal.c). What was synced before a cut is on its disk; of what was not, each
page is there or not, by chance. Run by `make faults`, and not by `make test`.
"""

import itertools
import os
import random
import shutil
import sqlite3
import struct
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from serving import command, serving, write_config

from tests import patient

CONFIG = """
openapi = "recorder"
[storage]
url = "sqlite:data"
[web]
allowed_hosts = ["localhost"]
[products.recorder]
scope = "recorder"
price = "19"
term = "30 days"
[buildings.recorder]
alerts_per_target = 1000
[limits]
keyed = "off"
free = "off"
"""
CUTS, AUDITS, SECONDS, CALLERS = 100, 5, 20.0, 4
LASTING, PASSING = 4, 3
"""Monitors of each caller: a key may own 20, and register 30 a minute."""
PAGE = 4096
HEAD = struct.Struct("=dIIqq")
WRITTEN, TRUNCATED, SYNCED, GONE = range(4)


class Note(NamedTuple):
    """What disk_journal.c says of one call."""

    at: float
    kind: int
    path: str
    offset: int
    data: bytes


class Change(NamedTuple):
    """A write or a new size that is not synced; a size has no data."""

    number: int
    offset: int
    data: bytes


@dataclass
class Disk:
    """The files of a folder: what is synced, and the changes that are not."""

    synced: dict[str, bytearray]
    changes: dict[str, list[Change]] = field(default_factory=lambda: defaultdict(list))

    def follow(self, number: int, note: Note) -> None:
        if note.kind == SYNCED:
            for change in self.changes[note.path]:
                if change.number < note.offset:
                    _apply(self.synced.setdefault(note.path, bytearray()), change)
            self.changes[note.path] = [change for change in self.changes[note.path] if change.number >= note.offset]
        elif note.kind == GONE:
            self.synced.pop(note.path, None)
            self.changes.pop(note.path, None)
        else:
            self.changes[note.path].append(Change(number, note.offset, note.data))

    def cut(self, chance: random.Random) -> Iterator[tuple[str, bytes]]:
        """The files after a power cut now."""
        share = chance.choice((0.0, 0.5, 1.0))
        for path in self.synced.keys() | self.changes.keys():
            left = bytearray(self.synced.get(path, b""))
            for change in self.changes.get(path, ()):
                for page in _pages(change):
                    if chance.random() < share:
                        _apply(left, page)
            yield path, bytes(left)


def _pages(change: Change) -> Iterator[Change]:
    yield from (
        change._replace(offset=change.offset + first, data=change.data[first : first + PAGE]) for first in range(0, len(change.data), PAGE)
    )
    if not change.data:
        yield change


def _apply(content: bytearray, change: Change) -> None:
    if not change.data:
        content[:] = content[: change.offset].ljust(change.offset, b"\0")
        return
    content.extend(bytes(max(0, change.offset - len(content))))
    content[change.offset : change.offset + len(change.data)] = change.data


def notes_of(journal: Path) -> Iterator[Note]:
    data, place = journal.read_bytes(), 0
    while place < len(data):
        at, kind, path, offset, length = HEAD.unpack_from(data, place)
        place += HEAD.size
        yield Note(at, kind, data[place : place + path].decode(), offset, data[place + path : place + path + length])
        place += path + length


@dataclass
class Load:
    """Callers that beat with capsules, register and delete monitors, and when each answer came."""

    url: str
    key: str
    until: float
    beats: list[tuple[float, str, int]] = field(default_factory=list)
    made: list[tuple[float, str]] = field(default_factory=list)
    deleted: list[tuple[float, str]] = field(default_factory=list)
    asked_to_delete: set[str] = field(default_factory=set)

    def run(self) -> None:
        with ThreadPoolExecutor(CALLERS) as callers:
            for call in [callers.submit(self.call) for _ in range(CALLERS)]:
                call.result()

    def call(self) -> None:
        """One caller: monitors that live, and a few that come and go."""
        with patient.Client(base_url=self.url, headers={"Authorization": f"Bearer {self.key}"}) as client:
            lasting = [self.registered(client) for _ in range(LASTING)]
            for number in itertools.count(1):
                if time.monotonic() > self.until:
                    break
                self.beat(client, lasting[number % LASTING], number)
                if number % 100 == 0 and number <= 100 * PASSING:
                    self.delete(client, self.registered(client))

    def registered(self, client: httpx.Client) -> dict[str, Any]:
        answer = client.post("/v1/recorder/monitors", json={"name": "a", "alert_webhook": "https://localhost/hook"})
        assert answer.status_code == 200, answer.text
        monitor: dict[str, Any] = answer.json()
        self.made.append((time.monotonic(), monitor["monitor_id"]))
        return monitor

    def beat(self, client: httpx.Client, monitor: dict[str, Any], number: int) -> None:
        path = f"/v1/recorder/beat/{monitor['monitor_id']}/{monitor['secret']}"
        answer = client.post(path, json={"capsule": {"n": number}, "seq": number})
        if answer.status_code == 429:  # 120 beats a minute and monitor
            time.sleep(0.1)
        elif answer.status_code == 200:
            self.beats.append((time.monotonic(), monitor["monitor_id"], number))
        else:
            raise AssertionError(answer.text)

    def delete(self, client: httpx.Client, monitor: dict[str, Any]) -> None:
        self.asked_to_delete.add(monitor["monitor_id"])
        answer = client.delete(f"/v1/recorder/monitors/{monitor['monitor_id']}")
        assert answer.status_code == 200, answer.text
        self.deleted.append((time.monotonic(), monitor["monitor_id"]))

    def missing_from(self, folder: Path, cut: float) -> Sequence[str]:
        with closing(sqlite3.connect(folder / "recorder.db")) as database:
            assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            stored = dict(database.execute("SELECT id, coalesce(last_seq, 0) FROM monitor"))
            capsules = dict(database.execute("SELECT monitor_id, max(seq) FROM capsule GROUP BY monitor_id"))
        beats = {monitor: number for at, monitor, number in self.beats if at < cut}
        return [
            *(f"beat {number} of {monitor}" for monitor, number in beats.items() if stored.get(monitor, 0) < number),
            *(f"capsule {number} of {monitor}" for monitor, number in beats.items() if capsules.get(monitor, 0) < number),
            *(f"registration of {one}" for at, one in self.made if at < cut and one not in stored.keys() | self.asked_to_delete),
            *(f"deletion of {one}" for at, one in self.deleted if at < cut and one in stored),
        ]


@pytest.mark.timeout(900)
@pytest.mark.faults("power cut")
@pytest.mark.skipif(not shutil.which("gcc"), reason="gcc makes the library that notes what is written")
def test_what_was_acknowledged_before_a_power_cut_is_on_the_disk_that_it_leaves(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    data, journal, library = tmp_path / "data", tmp_path / "journal", tmp_path / "disk_journal.so"
    source = Path(__file__).with_name("disk_journal.c")
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", library, source, "-ldl", "-lpthread"], check=True)
    with serving(tmp_path, CONFIG) as campus:
        key = campus.key("recorder")
    disk = Disk({str(file): bytearray(file.read_bytes()) for file in data.iterdir() if file.is_file()})
    environ = {"LD_PRELOAD": str(library), "DISK_FOLDER": f"{data}{os.sep}", "DISK_JOURNAL": str(journal)}
    with serving(tmp_path, CONFIG, environ=environ, fresh=True) as campus:
        began = time.monotonic()
        load = Load(campus.url, key, began + SECONDS)
        load.run()
    chance = random.Random(1)
    notes = list(notes_of(journal))
    syncs = [note.at for note in notes if note.kind == SYNCED and began < note.at < load.until]
    moments = [*chance.choices(syncs or [began], k=CUTS // 2), *(chance.uniform(began, load.until) for _ in range(CUTS - CUTS // 2))]
    missing, done = [], 0
    for number, moment in enumerate(sorted(moments)):
        while done < len(notes) and notes[done].at < moment:
            disk.follow(done, notes[done])
            done += 1
        folder = tmp_path / f"cut{number}" / "data"
        folder.mkdir(parents=True)
        for path, content in disk.cut(chance):
            (folder / Path(path).relative_to(data)).write_bytes(content)
        missing += load.missing_from(folder, moment)
        if number % (CUTS // AUDITS) == 0:
            audit = command("audit", "--config", str(write_config(folder.parent, CONFIG, port=1)))
            assert audit.returncode == 0, audit.stdout + audit.stderr
        shutil.rmtree(folder.parent)
    record_property(
        "figures", f"{CUTS} cuts, {len(load.beats)} beats, {len(load.made)} registrations, {len(syncs)} syncs; {len(missing)} lost"
    )
    assert not missing
