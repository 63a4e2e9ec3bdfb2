"""Runs a command and reports it to a monitor of campus: its start, exit code, duration and last lines of output.

    CAMPUS_BEAT_URL=https://campus.example/v1/recorder/beat/mon_…/… campus-beat -- backup.sh /srv

The command is not changed by it: same standard input, environment, process group and terminal; its output is passed on byte by byte;
signals reach it; and campus-beat ends as it ended, with its exit code or by its signal. Whatever happens to the report, the command
runs: when campus cannot be reached, that is one line on standard error.

Standard library only.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import FrameType
from typing import Any, NoReturn
from urllib import error, request
from urllib.parse import urlsplit
from uuid import uuid4

__version__ = "0.1.0"

ADDRESS = "CAMPUS_BEAT_URL"
FORWARDED = ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGWINCH")
OF_THE_TERMINAL = (signal.SIGINT, signal.SIGQUIT, signal.SIGWINCH)
"""What a terminal sends to all processes of its foreground group: the command has it already."""
BLOCK = 65_536
KEPT_BYTES = 7_900
"""How much of the output's end is kept: campus keeps the last 8,192 bytes, which end with a line about how the command ended."""
QUIET_SECONDS, LONGEST_REST = 0.2, 10.0
"""After the command ended, its output is read until it is silent: a process that it left behind may hold it open for ever."""
TRY_SECONDS, FIRST_PAUSE = 5.0, 0.5
NOT_FOUND, NOT_EXECUTABLE = 127, 126
"""Exit codes as a shell's."""
USAGE = "campus-beat [--url URL] [--lines N] [--within MINUTES] [--wait SECONDS] -- command [argument …]"


class Reporter:
    """Sends beats to one address, and says on standard error what could not be sent. The address itself is never shown."""

    def __init__(self, url: str | None, *, say: Callable[[str], None]) -> None:
        self._say = say
        self._url = url if url and urlsplit(url).scheme in ("http", "https") else None
        self._opener = request.build_opener(_NoRedirects)
        if self._url is None:
            say(f"nothing is reported: {ADDRESS} is not set to the beat_url of a monitor")

    def try_once(self, beat: Mapping[str, Any]) -> None:
        """Send a beat; what goes wrong is not said, since the last beat of a run says it."""
        if self._url is not None:
            self._try(json.dumps(beat).encode(), timeout=TRY_SECONDS)

    def send(self, beat: Mapping[str, Any], *, seconds: float) -> None:
        """Send a beat, trying again for so many seconds while campus cannot be reached. Raises nothing."""
        if self._url is None:
            return
        body, give_up_at, pause = json.dumps(beat).encode(), time.monotonic() + seconds, FIRST_PAUSE
        while True:
            trouble, may_pass = self._try(body, timeout=max(0.1, min(TRY_SECONDS, give_up_at - time.monotonic())))
            if trouble is None:
                return
            if not may_pass or time.monotonic() + pause >= give_up_at:
                self._say(f"not reported to {urlsplit(self._url).hostname}: {trouble}")
                return
            time.sleep(pause)
            pause *= 2

    def _try(self, body: bytes, *, timeout: float) -> tuple[str | None, bool]:
        """What went wrong, None if nothing did; and whether it may pass."""
        assert self._url is not None
        asked = request.Request(
            self._url, data=body, headers={"Content-Type": "application/json", "User-Agent": f"campus-beat/{__version__}"}
        )
        try:
            with self._opener.open(asked, timeout=timeout):
                return None, False
        except error.HTTPError as refused:
            with refused:
                return _reason_of(refused), refused.code >= 500 or refused.code == 429
        except (OSError, ValueError) as failed:
            return str(getattr(failed, "reason", failed)) or type(failed).__name__, not isinstance(failed, ValueError)
        except Exception as failed:  # http.client's own errors; nothing of the report may reach the command
            return type(failed).__name__, True


class _NoRedirects(request.HTTPRedirectHandler):
    """A redirected POST would lose its body, and tell the secret in the address to another server."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def _reason_of(refused: error.HTTPError) -> str:
    try:
        problem = json.loads(refused.read(BLOCK))
        return f"{refused.code} {problem['detail']}"
    except (OSError, ValueError, TypeError, KeyError):
        return f"{refused.code} {refused.reason}"


class Tail:
    """The last bytes of what was written to it, in the order in which it came."""

    def __init__(self) -> None:
        self._data = b""
        self._lock = threading.Lock()

    def add(self, data: bytes) -> None:
        """Add what one of the streams wrote."""
        with self._lock:
            self._data = (self._data + data)[-KEPT_BYTES:]

    def lines(self, most: int) -> str:
        """The last lines as text; bytes that are none, and NUL, are shown as U+FFFD."""
        lines = self._data.decode(errors="replace").replace("\0", "\ufffd").splitlines()
        return "\n".join(lines[-most:]) if most > 0 else ""


class Stream(threading.Thread):
    """Passes one output stream of the command on, as it comes."""

    def __init__(self, source: int, target: int, tail: Tail, ended: threading.Event) -> None:
        super().__init__(daemon=True)
        self._source = source
        self._target = target
        self._tail = tail
        self._ended = ended

    def run(self) -> None:
        """Copy until the stream ends, or until the command ended and the stream is silent. A reader who left ends it too."""
        rest_until: float | None = None
        with suppress(OSError):
            while True:
                readable = select.select([self._source], [], [], QUIET_SECONDS)[0]
                if self._ended.is_set():
                    rest_until = rest_until or time.monotonic() + LONGEST_REST
                    if not readable or time.monotonic() > rest_until:
                        break
                if not readable:
                    continue
                if not (data := os.read(self._source, BLOCK)):
                    break
                self._tail.add(data)
                while data:
                    select.select([], [self._target], [])  # whoever started campus-beat may have made it non-blocking
                    data = data[os.write(self._target, data) :]
        os.close(self._source)  # so that the command learns, by SIGPIPE, that nobody reads any more


class Command:
    """The command as it runs. Signals that arrive before it started reach it then."""

    def __init__(self, words: Sequence[str]) -> None:
        self._words = words
        self._process: subprocess.Popen[bytes] | None = None
        self._waiting: list[int] = []
        self.tail = Tail()

    def run(self) -> int:
        """Run it to its end; returns its exit code, negative for the signal that ended it. Raises OSError if it cannot be started."""
        for name in FORWARDED:
            number = getattr(signal, name)
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup's choice is kept
                signal.signal(number, self._forward)
        piped = [subprocess.PIPE if not os.isatty(number) else None for number in (1, 2)]
        self._process = process = subprocess.Popen(self._words, stdout=piped[0], stderr=piped[1])
        for number in self._waiting:
            process.send_signal(number)
        ended = threading.Event()
        streams = [
            Stream(os.dup(pipe.fileno()), target, self.tail, ended)
            for target, pipe in ((1, process.stdout), (2, process.stderr))
            if pipe is not None
        ]
        for pipe in filter(None, (process.stdout, process.stderr)):
            pipe.close()
        for stream in streams:
            stream.start()
        code = process.wait()
        ended.set()
        for stream in streams:
            stream.join()
        return code

    def _forward(self, number: int, _: FrameType | None) -> None:
        if number in OF_THE_TERMINAL and _in_foreground():
            return
        if self._process is None:
            self._waiting.append(number)
        else:
            self._process.send_signal(number)


def _in_foreground() -> bool:
    """Whether the terminal, if there is one, sends its signals to this process group."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


def main() -> NoReturn:
    """Run the command of the command line, and end as it ended."""
    options, words = _arguments(sys.argv[1:])
    reporter = Reporter(options.url or os.environ.get(ADDRESS), say=_say)
    rid = uuid4().hex  # which end belongs to which start, where runs overlap
    within = {} if options.within is None else {"next_in": options.within}
    start = threading.Thread(target=lambda: reporter.try_once({"status": "start", "rid": rid, **within}), daemon=True)
    start.start()  # beside the command, which waits for nothing
    command, trouble, started = Command(words), "", time.monotonic()
    try:
        code = command.run()
    except OSError as failed:
        code, trouble = NOT_FOUND if isinstance(failed, FileNotFoundError) else NOT_EXECUTABLE, f"{words[0]}: {failed.strerror}"
        _say(trouble)
    start.join(TRY_SECONDS)
    ended = f"with exit code {code}" if code >= 0 else f"by {signal.Signals(-code).name}"
    summary = f"{os.path.basename(words[0])} on {socket.gethostname()} ended {ended} after {time.monotonic() - started:.1f} s"
    output = "\n".join(filter(None, (trouble or command.tail.lines(options.lines), summary)))
    reporter.send({"status": code if code >= 0 else 128 - code, "rid": rid, "output": output}, seconds=options.wait)
    _end_as(code)


def _arguments(given: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """The options and the command's words. Ends with exit code 2 and a sentence if there is no command."""
    parser = argparse.ArgumentParser("campus-beat", usage=USAGE, description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--url", help=f"the monitor's beat_url; better set {ADDRESS}, since all users of a machine see arguments")
    parser.add_argument("--lines", type=int, default=50, help="how many of the last lines of output are reported (50); 0 for none")
    parser.add_argument("--within", type=float, metavar="MINUTES", help="the longest time that the command may take, if not the period")
    parser.add_argument(
        "--wait", type=float, default=15.0, metavar="SECONDS", help="how long to try to reach campus after the command (15)"
    )
    parser.add_argument("--version", action="version", version=__version__)
    given = list(given)
    at = given.index("--") if "--" in given else len(given)
    options, words = parser.parse_args(given[:at]), given[at + 1 :]
    if not words:
        parser.error("write the command after --, as in: campus-beat -- backup.sh /srv")
    return options, words


def _say(text: str) -> None:
    """One line on standard error, if anybody reads it."""
    with suppress(OSError, ValueError):
        print(f"campus-beat: {text}", file=sys.stderr, flush=True)


def _end_as(code: int) -> NoReturn:
    """Exit with the command's code, or by the signal that ended it, so that whoever waits sees what he would have seen."""
    if code < 0:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the command has dumped its own
        with suppress(OSError):
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    main()
