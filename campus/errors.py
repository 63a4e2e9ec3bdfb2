"""Every error that campus raises for the operator, each with one clear sentence; what callers get is in problems.py.

CampusError                 the command line prints it and exits with 2
├── ConfigError             campus.toml or the environment is wrong
├── LoadError               a building cannot be opened
│   ├── Unreachable         … for its server, elsewhere, does not answer just now
│   └── BuildingFailed      … for its own code raises an error when it is imported, or when it makes its server
├── ServeError              the address cannot be served
├── KeyRefused              a key command names a key or product that does not exist
├── JobRefused              a job cannot be run now
├── TargetRefused           a caller's URL or alert target may not be used; the sentence is for the caller
├── JobFailed               a job could not do its work, for a reason that it foresaw
└── StorageError            the database cannot be used
    └── StorageUnavailable  … at the moment: callers get 503 and may try again
        └── StorageFault    … until somebody mends it, or for a reason that no list of campus has
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["JobFailed", "KeyRefused", "StorageUnavailable", "TargetRefused"]

LONGEST_REASON = 200  # Characters of another machine's text that an error repeats.


class CampusError(Exception):
    """An error whose message is a sentence for the operator: what is wrong, where, and what to do."""


class ConfigError(CampusError):
    """campus.toml or the environment is wrong."""


class LoadError(CampusError):
    """A building cannot be opened."""


class Unreachable(LoadError):
    """A building's server is a separate one and does not answer at the moment; it may later."""


class BuildingFailed(LoadError):
    """A building's own code raises an error when it is imported or makes its server: `campus serve` closes it, and serves the others."""


class ServeError(CampusError):
    """The address cannot be served."""


class KeyRefused(CampusError):
    """A key command names a key or product that does not exist."""


class JobRefused(CampusError):
    """A job cannot be run now."""


class JobFailed(CampusError):
    """A job could not do its work, for a reason that it foresaw: logged in one line without a traceback, and tried again."""


class TargetRefused(CampusError):
    """A URL or an alert target that a caller names may not be used; the sentence is for the caller, and says what to send instead.

    `rule`: length, characters, fragment, userinfo, scheme, port, literal, reserved_name, name, own_host, url (it can be read
    in two ways) or address (the name leads to a private place). Of alert targets also: discord (the webhook does not exist), apprise
    (the extra of this name is not installed), in_use (another user has the target) or host_limit (the caller has too many targets at
    the host).
    """

    def __init__(self, rule: str, sentence: str) -> None:
        super().__init__(sentence)
        self.rule = rule


class StorageError(CampusError):
    """The database cannot be used."""


class StorageUnavailable(StorageError):
    """The database cannot be used at the moment; the same call may succeed in a few seconds."""

    level = logging.WARNING
    """How grave it is in the log."""


class StorageFault(StorageUnavailable):
    """The database cannot be used until somebody mends it. Where campus does not know the reason, the log has a traceback too."""

    level = logging.ERROR

    def __init__(self, message: str, *, is_known: bool = True) -> None:
        super().__init__(message)
        self.is_known = is_known


def one_line(text: object, *, longest: int | None = LONGEST_REASON) -> str:
    """Another machine's text on one line and without control characters, so that it is safe to store, log and repeat."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in str(text)).split())[:longest]


@contextmanager
def unwrapped_errors() -> Iterator[None]:
    """An error in the body leaves it as it was raised: task groups wrap it in exception groups."""
    try:
        yield
    except BaseExceptionGroup as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
            error = error.exceptions[0]
        raise error from None
