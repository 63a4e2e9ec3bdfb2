"""What a building's command writes to stderr, as lines of campus's log that name the building."""

import logging
import os
from threading import Thread

LONGEST_LINE = 4_000
log = logging.getLogger(__name__)


class LabelledStderr:
    """A file for the stderr of a command. One thread reads it, because it outlives the event loop that starts the command."""

    def __init__(self, building: str) -> None:
        self._building = building
        self._end: int | None = None

    def fileno(self) -> int:
        """The writing end of a pipe, made when the command is first started."""
        if self._end is None:
            read, self._end = os.pipe()
            Thread(target=self._relay, args=(read,), daemon=True, name=f"stderr of {self._building}").start()
        return self._end

    def _relay(self, read: int) -> None:
        with open(read, encoding="utf-8", errors="replace") as lines:
            while line := lines.readline(LONGEST_LINE):
                if text := line.strip():
                    log.info("stderr", extra={"building": self._building, "line": text})

    def __del__(self) -> None:
        if self._end is not None:
            os.close(self._end)  # and the thread ends with the last process that writes
