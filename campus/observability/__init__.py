"""What operators see of a running campus: its log, its metrics, and which tool holds the event loop; and times and URLs in words."""

from campus.durations import counted, every, in_words
from campus.observability.logs import origin_of, utc_text

__all__ = ["counted", "every", "in_words", "origin_of", "utc_text"]
