"""What a building's command writes to stderr, as lines of campus's log that name the building, without what was given to it in secret."""

import logging
import os
import re
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import pairwise
from threading import Thread

from campus.errors import one_line
from campus.observability.logs import OF_COMMANDS
from campus.secrets import HIDDEN, SECRET_NAME

LONGEST_LINE = 4_000
LAST_LINES, LONGEST_SHOWN = 6, 300
"""How many lines are kept for the operator, and how many characters of each."""
SHORTEST_SECRET, SHORTEST_VALUE = 4, 6
"""Shorter values are numbers, switches and words of every sentence."""
LABELLED = re.compile(
    r"""((?:authorization|secret|passw(?:or)?d|passphrase|pwd|token|api[_-]?key|access[_-]?key|private[_-]?key|credential|cookie)[\w-]{0,40}
    ["']?\s?[:=]\s?["']?(?:bearer\s|basic\s)?|\b(?:bearer|basic)\s)[^\s"',;]{4,}""",
    re.IGNORECASE | re.VERBOSE,
)
SHAPED = re.compile(
    r"\b(?:(?:sk|pk|rk|glpat|xox[a-z])[_-]|gh[a-z]_|github_pat_|campus_|AKIA|eyJ)[\w.-]{12,}|\b(?=\w*\d)(?=\w*[A-Za-z])\w{32,}\b"
)
"""Tokens of well-known services, JSON web tokens, and long runs of letters and digits."""
log = logging.getLogger(OF_COMMANDS)


def given_secrets(env: Mapping[str, str], args: Sequence[str]) -> Sequence[str]:
    """What a command is started with and nobody should read: the values of its environment, and of options with a name like --token."""
    values = [value for name, value in env.items() if len(value) >= (SHORTEST_SECRET if SECRET_NAME.search(name) else SHORTEST_VALUE)]
    for option, value in pairwise(["", *args, ""]):
        name, _, written = option.partition("=")
        given = written or value
        if name.startswith("-") and SECRET_NAME.search(name) and len(given) >= SHORTEST_SECRET:
            values.append(given)
    return sorted(values, key=len, reverse=True)


class LabelledStderr:
    """A file for the stderr of a command. One thread reads it, because it outlives the event loop that starts the command."""

    def __init__(self, building: str) -> None:
        self._building = building
        self.secrets: Sequence[str] = ()
        """What is never logged."""
        self.last_lines: deque[str] = deque(maxlen=LAST_LINES)
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
                    line = self._without_secrets(text)
                    self.last_lines.append(one_line(line, longest=LONGEST_SHOWN))
                    log.info("stderr", extra={"building": self._building, "line": line})

    def _without_secrets(self, line: str) -> str:
        for value in self.secrets:
            line = line.replace(value, HIDDEN)
        return SHAPED.sub(HIDDEN, LABELLED.sub(rf"\1{HIDDEN}", line))

    def __del__(self) -> None:
        if self._end is not None:
            os.close(self._end)  # and the thread ends with the last process that writes
