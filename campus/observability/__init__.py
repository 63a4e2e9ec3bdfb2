"""What operators see of a running campus: its log, its metrics, and which tool holds the event loop; and how texts show times and URLs."""

from campus.observability.logs import origin_of, utc_text

__all__ = ["origin_of", "utc_text"]
