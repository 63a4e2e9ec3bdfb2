"""When a working agent is stuck: it reports the same progress, or calls one tool with the same arguments, too often in a row. Pure."""


def same_progress(before: bytes | None, times: int, progress: bytes | None) -> tuple[bytes | None, int]:
    """The last reported progress and how often in a row it came, after a beat; a beat that reports none changes neither."""
    if progress is None:
        return before, times
    return progress, times + 1 if progress == before else 1


def is_stuck(stuck_after: int | None, *, times: int, repeats: int) -> bool:
    """Whether the same progress came so many `times`, or the same call was repeated so often, that its owner calls that stuck."""
    return stuck_after is not None and max(times, repeats) >= stuck_after
