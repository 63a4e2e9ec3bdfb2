"""What a building's author tests with: a campus in this process. A chain, a facilitator and payers are in campus.testing.payments."""

from campus.testing.town import ORIGIN as ORIGIN
from campus.testing.town import Built as Built
from campus.testing.town import Clock, Reply, Town, open_campus
from campus.testing.town import Frame as Frame
from campus.testing.town import feed_transport as feed_transport

__all__ = ["Clock", "Reply", "Town", "open_campus"]
