"""For tests of buildings: a campus in the test's process. A chain, a facilitator and payers are in campus.features.chain."""

from campus.testing.campus import ORIGIN as ORIGIN
from campus.testing.campus import Built as Built
from campus.testing.campus import Clock, Reply, TestCampus, open_campus
from campus.testing.campus import Frame as Frame
from campus.testing.campus import feed_transport as feed_transport

__all__ = ["Clock", "Reply", "TestCampus", "open_campus"]
