"""Alerts: an outbox in a building's own database, a dispatcher that sends the alerts in it, and channels: webhooks, Discord, Slack, e-mail.

A building adds two tables to its own registry, composes the text of its alerts, and runs the dispatcher as a service:

    class Target(AlertTarget, Tables, table=True): ...
    class Alert(WaitingAlert, Tables, table=True):
        port: str                                     # the building's own columns

    OUTBOX = Outbox(Target, Alert)

    class FloodAlerts(AlertContents):
        def compose(self, alerts): ...                # returns Content

An alert is raised in the transaction of the change that it reports: `OUTBOX.raise_alerts(connection, rows, now=now)`; then
`dispatcher.wake()`. Each target receives it at least once, always under the same id. More than five waiting alerts are sent
as one digest. A target that fails is retried for days and then disabled. A slow target of one caller does not delay the
alerts of others. tests/alerts/floods is a whole building.
"""

from campus.alerts.channels import CHAT_SERVICES, KINDS, open_channels
from campus.alerts.channels.discord import Discord
from campus.alerts.channels.email import Email, email_pages
from campus.alerts.channels.slack import Slack
from campus.alerts.channels.webhook import Webhook, signing_secret
from campus.alerts.dispatcher import Dispatcher
from campus.alerts.mailboxes import Mailboxes
from campus.alerts.message import AlertContents, AlertText, Attempt, Channel, Content, Message, Outcome, Question, post
from campus.alerts.outbox import CONFIRM, Outbox
from campus.alerts.tables import AlertTarget, DeliveredAlert, WaitingAlert
from campus.alerts.targets import (
    UNCONFIRMED,
    Address,
    Addresses,
    ClaimedTarget,
    Registrant,
    Registrations,
    TargetState,
    address_of,
    check_webhook,
    masked_address,
    sender_of,
    target_state,
    visible_name,
    webhook_address,
)
from campus.alerts.turns import AlertLimits

__all__ = [
    "CHAT_SERVICES",
    "CONFIRM",
    "KINDS",
    "UNCONFIRMED",
    "Address",
    "Addresses",
    "AlertContents",
    "AlertLimits",
    "AlertTarget",
    "AlertText",
    "Attempt",
    "Channel",
    "ClaimedTarget",
    "Content",
    "DeliveredAlert",
    "Discord",
    "Dispatcher",
    "Email",
    "Mailboxes",
    "Message",
    "Outbox",
    "Outcome",
    "Question",
    "Registrant",
    "Registrations",
    "Slack",
    "TargetState",
    "WaitingAlert",
    "Webhook",
    "address_of",
    "check_webhook",
    "email_pages",
    "masked_address",
    "open_channels",
    "post",
    "sender_of",
    "signing_secret",
    "target_state",
    "visible_name",
    "webhook_address",
]
