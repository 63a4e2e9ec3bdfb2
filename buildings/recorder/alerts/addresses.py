"""The addresses of alerts in a call: which are refused, and how often one sender may have them checked."""

from dataclasses import dataclass

from buildings.recorder.monitors.credentials import lineage_of
from buildings.recorder.problems import key_needed_for_email, no_mail_here
from buildings.recorder.runtime import RecorderSite
from campus import Caller
from campus.alerts import Address, Registrant, check_webhook, email_address, sender_of, webhook_address


@dataclass(frozen=True)
class Addresses:
    """The addresses that a call named; None for those that it did not."""

    webhook: Address | None
    email: Address | None


async def addresses_in(webhook: str | None, email: str | None, site: RecorderSite, caller: Caller) -> Addresses:
    """The addresses that were sent; an empty text is none. Problem 402 or 422, which says what to send, for those that cannot be used."""
    if email and site.mail is None:  # first, so that nobody buys a key for e-mail that is never sent
        raise no_mail_here()
    if email and caller.key is None:
        raise key_needed_for_email([one for one in site.directory.products if one.scope in (site.name, "all")])
    channels = site.state.dispatcher.channels
    sender = sender_of(lineage_of(caller), caller.network)
    to_mail = await email_address(email, channels).for_sender(sender) if email else None
    to_web = webhook_address(webhook, site.web, channels) if webhook else None
    return Addresses(to_web, to_mail)


async def check_addresses(addresses: Addresses, site: RecorderSite, caller: Caller) -> str | None:
    """Count the call and check its webhook; returns a warning about the webhook. Problem 429 beyond the limit."""
    sender = sender_of(lineage_of(caller), caller.network)
    site.state.registration_limits.count(sender, site.now())
    async with site.state.registration_limits.checking(sender):
        return await check_webhook(addresses.webhook, site.state.checks) if addresses.webhook else None


def registrant(owner: str | None, site: RecorderSite, caller: Caller) -> Registrant:
    """Who registers the targets of a monitor: its owner, or without one the network of the caller."""
    settings = site.settings
    return Registrant(owner, sender_of(owner, caller.network), settings.monitors_per_host, settings.everyones_hosts)
