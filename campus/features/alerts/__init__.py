"""Alerts: an outbox in a building's own database, a dispatcher that sends the alerts in it, and channels: webhooks, Discord, Slack, e-mail.

A building adds two tables to its own registry, composes the text of its alerts, and runs the dispatcher as a service:

    class Target(AlertTarget, Tables, table=True): ...
    class Alert(WaitingAlert, Tables, table=True):
        port: str                                     # the building's own columns

    OUTBOX = Outbox(Target, Alert)

    class FloodAlerts(AlertContents):
        def compose(self, alerts): ...                # returns Content

The building gives the outbox to the feature, for `campus alerts`, the operator's pages and /metrics: `Building(gives={"alerts": OUTBOX})`.

An alert is raised in the transaction of the change that it reports: `OUTBOX.raise_alerts(connection, rows, now=now)`; then
`dispatcher.wake()`. Each target receives it at least once, always under the same id. More than five waiting alerts are sent
as one digest. A target that fails is retried for days and then disabled. A slow target of one caller does not delay the
alerts of others. tests/features/alerts/floods is a whole building.

Its names are imported at their first use: whatever reads a campus.toml finds the feature here, and does without SQLAlchemy.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from campus.features.alerts.api import *  # noqa: F403  # that module lists them once
    from campus.features.alerts.api import __all__ as __all__


def __getattr__(name: str) -> Any:
    if name.startswith("__") and name != "__all__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("campus.features.alerts.api"), name)
