"""E-mail: an alert or a digest in plain text, the question whether an address wants alerts, and the pages behind its links."""

import hmac
import re
from collections.abc import Callable
from datetime import datetime
from functools import partial
from hashlib import sha256
from html import escape
from typing import Any, Protocol

from sqlalchemy import Row, select
from starlette.requests import Request
from starlette.responses import Response

from campus.alerts.dispatcher import Dispatcher
from campus.alerts.message import DELIVERED, WITHHELD, Attempt, Channel, Content, Outcome, Question
from campus.alerts.outbox import Outbox
from campus.alerts.targets import confirm_target, unsubscribe_target
from campus.building import Page
from campus.errors import MailRefused, MailUnavailable
from campus.outbound.http_clients import GuardedClient
from campus.outbound.mail import Mail
from campus.storage import Storage, in_snapshot, in_transaction
from twins import Problem

ADDRESS = re.compile(r"[^\s@]{1,64}@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+")
LONGEST_ADDRESS = 254
QUESTION = """{question}

To receive alerts, confirm your address here:
{confirm}

If you did not ask for this, do nothing: no alert is sent without your confirmation. This question comes at most once a day.
"""
LINKING = re.compile("[.\u3002\uff0e\uff61](?=\\S)|@")
"""What mail programs make links of: the dots within a host's name, also those of other scripts, and the sign of an address."""
FOOTER = "--\nUnsubscribe: {unsubscribe}\n"
HTML = (
    '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    "<title>{title}</title><h1>{title}</h1><p>{text}</p>{form}</html>"
)
FORM = '<form method="post"><button>{label}</button></form>'
PRIVATE = {"Cache-Control": "private, no-store", "Referrer-Policy": "no-referrer", "X-Robots-Tag": "noindex"}


class Email(Channel):
    """Mailboxes, through the operator's SMTP server; `links` is the public URL below which the pages of `email_pages` are served."""

    kind = "email"
    confirms = True

    def __init__(self, mail: Mail | None, *, links: str) -> None:
        self._mail = mail
        self._links = links

    def recognizes(self, address: str) -> bool:
        """Addresses such as name@host.example."""
        return ADDRESS.fullmatch(address) is not None and len(address) <= LONGEST_ADDRESS

    def host_of(self, address: str) -> str:
        """The same name for all addresses, because the operator's one server receives every e-mail."""
        return "email"

    async def check(self, address: str, client: GuardedClient) -> None:
        """Checks nothing: the owner's confirmation shows whether the mailbox exists."""

    async def send(self, attempt: Attempt, content: Content) -> Outcome:
        """Hand an alert or a digest to the SMTP server."""
        unsubscribe = self._link("unsubscribe", attempt)
        parts = ["\n".join([text.headline, *(f"  {line}" for line in text.details)]) for text in content.texts]
        if len(content.texts) == 1:
            parts = ["\n".join([content.texts[0].headline, "", *content.texts[0].details])]
        body = "\n\n".join([*parts, FOOTER.format(unsubscribe=unsubscribe)])
        headers = {"List-Unsubscribe": f"<{unsubscribe}>", "List-Unsubscribe-Post": "List-Unsubscribe=One-Click"}
        return await self._hand_over(attempt, content.subject, body, headers, until=content.mail_until)

    async def ask(self, attempt: Attempt, question: Question) -> Outcome:
        """Send the question with the link that confirms the address, which is the only one.

        A part of the question, such as a monitor's name, was written by whoever named the address, whose owner did not ask for it.
        """
        body = QUESTION.format(question=unlinked(question.text), confirm=self._link("confirm", attempt))
        return await self._hand_over(attempt, "Confirm alerts to this address", body, {}, until=question.mail_until)

    async def _hand_over(self, attempt: Attempt, subject: str, body: str, headers: dict[str, str], *, until: datetime | None) -> Outcome:
        if self._mail is None:
            return Outcome("retry", "this service has no mail server configured")
        if until is not None and attempt.now >= until:
            return WITHHELD
        try:
            await self._mail.send(attempt.message.address, subject, body, headers=headers, message_name=attempt.message.id)
        except MailRefused as refused:
            return Outcome("gone", str(refused))
        except MailUnavailable as error:
            return Outcome("retry", str(error))
        return DELIVERED

    def _link(self, purpose: str, attempt: Attempt) -> str:
        message = attempt.message
        return f"{self._links}/{purpose}/{message.target_id}/{link_token(purpose, message.secret)}"


def unlinked(text: str) -> str:
    """The text, in which mail programs find no address to make a link of: example. com, name (at) host."""
    return LINKING.sub(lambda found: " (at) " if found[0] == "@" else f"{found[0]} ", text)


def link_token(purpose: str, key: bytes) -> str:
    """The secret part of a link in an e-mail. It is derived from the target's key, so nothing is stored."""
    return hmac.new(key, purpose.encode(), sha256).hexdigest()


class LinkSite(Protocol):
    """What the pages need of a building's Site."""

    @property
    def storage(self) -> Storage:
        """The storage of the outbox."""
        ...


def email_pages(path: str, outbox: Outbox, dispatcher_of: Callable[[Any], Dispatcher]) -> list[Page]:
    """The pages behind the links in e-mails, below a path such as /v1/recorder/email; `dispatcher_of(site)` finds the Dispatcher."""

    async def confirm(request: Request, site: LinkSite) -> Response:
        """Asks on GET, because mail programs open links by themselves; confirms on POST."""
        target = await _target_of(request, site, "confirm", outbox)
        if request.method != "POST":
            return _page("Alerts to this address", f"Send alerts to {target.address}?", form="Yes, send them")
        dispatcher = dispatcher_of(site)
        await in_transaction(site.storage, partial(confirm_target, outbox=outbox, target_id=target.id, now=dispatcher.now()))
        dispatcher.wake()
        return _page("Confirmed", f"Alerts are sent to {target.address} from now on. Each contains a link to unsubscribe.")

    async def unsubscribe(request: Request, site: LinkSite) -> Response:
        """Asks on GET; unsubscribes on POST, which mail programs also send for List-Unsubscribe."""
        target = await _target_of(request, site, "unsubscribe", outbox)
        if request.method != "POST":
            return _page("Unsubscribe", f"Stop sending alerts to {target.address}?", form="Stop sending alerts")
        now = dispatcher_of(site).now()
        await in_transaction(site.storage, partial(unsubscribe_target, outbox=outbox, target_id=target.id, now=now))
        return _page("Done", f"Alerts are no longer sent to {target.address}.")

    return [Page(f"GET|POST {path}/{page.__name__}/{{target_id}}/{{token}}", page, cross_site=True) for page in (confirm, unsubscribe)]


async def _target_of(request: Request, site: LinkSite, purpose: str, outbox: Outbox) -> Row[Any]:
    target_id = request.path_params["target_id"]
    token = request.path_params["token"]
    chosen = select(outbox.targets).where(outbox.targets.c.id == target_id)
    row = await in_snapshot(site.storage, lambda connection: connection.execute(chosen).one_or_none())
    expected = link_token(purpose, row.secret if row else b"")
    if not hmac.compare_digest(expected.encode(), token.encode()) or row is None:
        raise Problem(404, "link_not_found", "this link is not valid; check that it was copied completely")
    return row


def _page(title: str, text: str, *, form: str | None = None) -> Response:
    body = HTML.format(title=escape(title), text=escape(text), form=FORM.format(label=escape(form)) if form else "")
    return Response(body, media_type="text/html", headers=PRIVATE)
