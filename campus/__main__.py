"""The `campus` command, also `python -m campus`: its code is imported while the garbage collector rests, a fifth of the start.

What an import makes lives as long as the process: looking for garbage in it, again and again as it grows, finds none.
"""

import gc
import signal

gc.disable()
raises = signal.getsignal(signal.SIGINT) is signal.default_int_handler
if raises:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C during the imports ends the process without a traceback
from campus.cli import main as run  # noqa: E402  # this is an import too


def main() -> None:
    run(imported=_imported)


def _imported() -> None:
    gc.freeze()
    gc.enable()
    if raises:
        signal.signal(signal.SIGINT, signal.default_int_handler)


if __name__ == "__main__":
    main()
