"""The addresses of alerts in a call: which are refused, and how often one sender may have them checked."""

from buildings.recorder.monitors.credentials import lineage_of
from buildings.recorder.problems import key_needed_for_email, no_mail_here
from buildings.recorder.runtime import RecorderSite
from campus import Caller
from campus.alerts import Addresses, Registrant, sender_of


async def addresses_in(webhook: str | None, email: str | None, site: RecorderSite, caller: Caller) -> Addresses:
    """The addresses that were sent; an empty text is none. Problem 402 or 422, which says what to send, for those that cannot be used."""
    if email and site.mail is None:  # first, so that nobody buys a key for e-mail that is never sent
        raise no_mail_here()
    if email and caller.key is None:
        raise key_needed_for_email([product for product in site.directory.products if product.scope in (site.name, "all")])
    return await site.state.registrations.addresses(webhook, email, sender_of(lineage_of(caller), caller.network))


async def check_addresses(addresses: Addresses, site: RecorderSite, caller: Caller) -> str | None:
    """Count the call and check its webhook; returns a warning about the webhook. Problem 429 beyond the limit."""
    return await site.state.registrations.check(addresses.webhook, sender_of(lineage_of(caller), caller.network), site.now())


def registrant(owner: str | None, site: RecorderSite, caller: Caller) -> Registrant:
    """Who registers the targets of a monitor: its owner, or without one the network of the caller."""
    settings = site.settings
    return Registrant(owner, sender_of(owner, caller.network), settings.monitors_per_host, settings.everyones_hosts)
