"""What buildings import of campus.features.alerts."""

from campus.features.alerts.channels import CHAT_SERVICES, KINDS, SERVICE_HOSTS, open_channels
from campus.features.alerts.channels.apprise import Apprise
from campus.features.alerts.channels.discord import Discord
from campus.features.alerts.channels.email import Email, email_pages
from campus.features.alerts.channels.slack import Slack
from campus.features.alerts.channels.webhook import Webhook, signing_secret
from campus.features.alerts.dispatcher import Dispatcher
from campus.features.alerts.mailboxes import Mailboxes
from campus.features.alerts.message import AlertContents, AlertText, Attempt, Channel, Content, Message, Outcome, Question, post
from campus.features.alerts.outbox import CONFIRM, Outbox
from campus.features.alerts.tables import AlertTarget, DeliveredAlert, WaitingAlert
from campus.features.alerts.targets import (
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
from campus.features.alerts.turns import AlertLimits

__all__ = [
    "CHAT_SERVICES",
    "CONFIRM",
    "KINDS",
    "SERVICE_HOSTS",
    "UNCONFIRMED",
    "Address",
    "Addresses",
    "AlertContents",
    "AlertLimits",
    "AlertTarget",
    "AlertText",
    "Apprise",
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
