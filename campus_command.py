"""The `campus` command: campus is imported while the garbage collector rests, which is a fifth of the start.

What an import makes lives as long as the process: looking for garbage in it, again and again as it grows, finds none.
It stands outside of the package, since importing any part of a package imports the package first.
"""

import gc

gc.disable()
from campus.cli import main as run  # noqa: E402  # this is the import

gc.freeze()
gc.enable()


def main() -> None:
    """Run the command line."""
    run()
