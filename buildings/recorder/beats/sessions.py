"""Which events of an agent's host move its monitor: those of the main loop of the session that has the monitor. Pure.

A session takes the monitor when it starts or gets a prompt. From then on the events of every other session change nothing, until the
session ends: then the next one that starts or works has the monitor.

Subagents' events carry an `agent_id`. They count as the session's own while its main loop depends on them: from its call of a tool that
runs a subagent in the foreground until that call ends, and after a turn that left work in the background. At any other time they are
shown as runs and change nothing: a subagent that stops does not make its session idle, and one that works hides no main loop that hangs.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple

from pydantic_core import from_json, to_json

from buildings.recorder.monitors.state_machine import WITH_DEADLINE, Event, Mode, Status, event_of

Meaning = Literal["opens", "prompt", "works", "compacts", "asks", "waits", "turn", "fails", "ends", "agent_starts", "agent_stops", "shown"]
TAKES: frozenset[Meaning] = frozenset(("opens", "prompt"))
OF_SUBAGENTS: Mapping[Meaning, Status] = {"works": "ok", "agent_starts": "start", "agent_stops": "ok", "asks": "idle"}
MOST_REPEATS = 1_000_000


class HostEvent(NamedTuple):
    """An event as a host's hook reported it. `agent` is the id of the subagent that it happened in.

    `calls` is 1 when the main loop calls a tool that runs a subagent in the foreground, and -1 when that call ends. `background` says
    that work goes on after the turn. `digest` is that of the tool and its arguments, `repeats` how often in a row the sender counted it.
    `status` is that of the address, which replaces the event's.
    """

    meaning: Meaning
    session: str | None = None
    agent: str | None = None
    calls: int = 0
    background: bool = False
    digest: str | None = None
    repeats: int | None = None
    status: Status | None = None


class Session(NamedTuple):
    """The session that has a monitor: None before the first one, empty after the last one ended.

    `calls` counts its calls that run subagents in the foreground. `repeats` is how often in a row it called one tool with one `digest`.
    """

    id: str | None = None
    calls: int = 0
    background: bool = False
    digest: str | None = None
    repeats: int = 0

    @property
    def stored(self) -> bytes | None:
        return None if self == NOBODY else to_json(self._asdict())


class Heard(NamedTuple):
    """What an event does: the session after it, the status that is shown, and the event of the monitor, None if it changes nothing."""

    session: Session
    status: Status
    event: Event | None


NOBODY = Session()


def read_session(stored: bytes | None) -> Session:
    return NOBODY if stored is None else Session(**from_json(stored))


def hear(session: Session, event: HostEvent, mode: Mode, *, is_dead: bool) -> Heard:
    """What an event of a host does to a monitor in this mode, which this session has."""
    if event.session is not None and event.session != session.id:
        may_take = session.id is None or event.meaning in TAKES or (session.id == "" and event.meaning == "works")
        if event.agent is not None or not may_take:
            return Heard(session, "log", None)
        session = Session(event.session)
    if event.agent is not None:
        return _of_subagent(session, event)
    if event.meaning == "ends":
        return Heard(Session(""), "log", None if is_dead else "pause")
    after, status, means = _of_main_loop(session, event, mode)
    if event.status is not None and means is not None:
        return Heard(after, event.status, event_of(event.status))
    return Heard(after, status, means)


def _of_subagent(session: Session, event: HostEvent) -> Heard:
    """Its start and end open and end a run of its own, so the monitor never takes the start for one of the main loop."""
    status = OF_SUBAGENTS.get(event.meaning, "log")
    counts = session.calls > 0 or session.background
    if not counts and event.meaning not in ("agent_starts", "agent_stops"):
        status = "log"
    return Heard(session, status, event_of("ok" if status == "start" else status) if counts else None)


def _of_main_loop(session: Session, event: HostEvent, mode: Mode) -> Heard:
    waiting = Session(session.id)
    match event.meaning:
        case "prompt":
            return Heard(waiting, "start", "start")
        case "works":
            return Heard(_after_work(session, event), "ok", "ok")
        case "compacts":  # in the middle of a turn, or because its user asked for it while it waits
            return Heard(session, "ok", "ok") if mode in WITH_DEADLINE else Heard(session, "log", None)
        case "turn" if event.background:
            return Heard(waiting._replace(background=True), "ok", "ok")
        case "turn":
            return Heard(waiting, "idle", "done")
        case "fails":
            return Heard(waiting, "fail", "fail")
        case "opens":
            return Heard(waiting, "idle", "idle")
        case "asks":
            return Heard(session._replace(digest=None, repeats=0), "idle", "idle")
        case "waits" if not session.background:
            return Heard(waiting, "idle", "idle")
    return Heard(session, "log", None)


def _after_work(session: Session, event: HostEvent) -> Session:
    repeats = session.repeats
    if event.repeats is not None:
        repeats = min(event.repeats, MOST_REPEATS)
    elif event.digest is not None:
        repeats = min(repeats + 1, MOST_REPEATS) if event.digest == session.digest else 1
    return Session(session.id, max(session.calls + event.calls, 0), digest=event.digest or session.digest, repeats=repeats)
