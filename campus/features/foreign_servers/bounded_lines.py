"""Runs a command and passes on what it writes to stdout, but no line longer than a bound: `python -I -S bounded_lines.py BYTES COMMAND …`.

A program of its own between campus and a command: mcp's reader keeps a line of any length. In place of an answer that is too long it
writes an error with the same id, so that calls that run beside it are not lost.
"""

import re
import subprocess
import sys
from typing import IO

TOO_LONG = "the answer is longer than {:,} bytes"
EDGE = 200
"""The bytes of a line in which an id is looked for: servers write it first or last."""
FIRST, LAST = re.compile(rb'\{"jsonrpc": ?"2\.0", ?"id": ?(\d{1,18}),'), re.compile(rb',"id": ?(\d{1,18})(,"jsonrpc": ?"2\.0")?\}\s*$')
ERROR = '{{"jsonrpc":"2.0","id":{},"error":{{"code":-32603,"message":"{}"}}}}\n'


def relay(source: IO[bytes], target: IO[bytes], limit: int) -> None:
    """Pass on the lines until the source ends."""
    while line := source.readline(limit + 1):
        if len(line) <= limit:
            target.write(line)
        else:
            end = line
            while not end.endswith(b"\n") and (more := source.readline(limit)):
                end = end[-EDGE:] + more
            if found := FIRST.match(line) or LAST.search(end[-EDGE:]):
                target.write(ERROR.format(int(found[1]), TOO_LONG.format(limit)).encode())
        target.flush()


def main(limit: int, command: list[str]) -> int:
    """Run the command; the exit code is its own."""
    try:
        process = subprocess.Popen(command, stdout=subprocess.PIPE)  # noqa: S603  # the operator's own
    except OSError as error:
        print(f"{command[0]!r} cannot be started: {error.strerror}", file=sys.stderr)
        return 127
    assert process.stdout is not None
    relay(process.stdout, sys.stdout.buffer, limit)
    return process.wait()


if __name__ == "__main__":
    raise SystemExit(main(int(sys.argv[1]), sys.argv[2:]))
