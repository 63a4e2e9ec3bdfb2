"""E-mail: an alert or a digest as text and HTML, the question whether an address wants alerts, and the pages behind its links."""

import hmac
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from hashlib import sha256
from typing import Any
from unicodedata import category, normalize

from sqlalchemy import Row, select
from starlette.requests import Request
from starlette.responses import Response

from campus.building import Page
from campus.features.alerts.dispatcher import Dispatcher
from campus.features.alerts.mailboxes import Mailboxes, normalised_mailbox
from campus.features.alerts.message import DELIVERED, WITHHELD, AlertText, Attempt, Channel, Content, Outcome, Question
from campus.features.mail.smtp import Mail, MailRefused, MailUnavailable
from campus.layout.renderer import Pages
from campus.outbound.http_clients import GuardedClient
from campus.storage import in_snapshot, in_transaction
from twins import Problem

ADDRESS = re.compile(r"[^\s@]{1,64}@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+")
LONGEST_ADDRESS = 254
QUESTION = """{question}

To receive alerts, confirm your address here:
{confirm}

If you did not ask for this, do nothing: no alert is sent without your confirmation. Whoever names this address, it is asked at most
once a day, and no more after three questions without an answer. To be asked never again:
{questions}
"""
PLAIN = frozenset(" -_'\"()[]{},;!?#*+=&~$^|<>\u200c\u200d\u2026")
"""What may stand within a word beside letters, marks, digits and symbols, because no mail program makes a link of it."""
NUMBER = re.compile("[(+-]?[0-9]+(?:[.:][0-9]+){0,2}[,;)%]?")
"""A decimal number, or a time of day."""
TIME = re.compile(
    r"(?<![\w.:/@-])((?:[0-9]{4}-[0-9]{2}-[0-9]{2}T)?[0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]{1,9})?(?:Z|[+-][0-9]{2}:?[0-9]{2})?)(?![\w:/@-]|\.\w)"
)
"""A time with seconds within a word, such as in JSON and in the lines of a log: no mail program makes a link of it."""
OWN_LINK = "/[A-Za-z0-9_/?=&-]*[.,)]?"
"""What follows the service's own address in a link."""
FOOTER = "--\nUnsubscribe: {unsubscribe}\n"
ALLOW = b"answer=allow"
NO_MAIL = "this service has no mail server configured"
UNANSWERED = Outcome("retry", "the mail server did not say whether it took the e-mail")
CONFIRM = "Confirm alerts to this address"
PRIVATE = {"Cache-Control": "private, no-store", "X-Robots-Tag": "noindex"}


class Email(Channel):
    """Mailboxes, through the operator's SMTP server; `links` is the public URL below which the pages of `email_pages` are served."""

    kind = "email"
    name = "e-mail"
    confirms = True

    def __init__(self, mail: Mail | None, mailboxes: Mailboxes, pages: Pages, *, links: str) -> None:
        self._mail = mail
        self._mailboxes = mailboxes
        self._pages = pages
        self._links = links

    @classmethod
    def of(cls, site: Any, *, links: str) -> "Email":
        """With the operator's SMTP server, if there is one."""
        return cls(site.feature("mail"), site.feature("alerts").mailboxes, site.pages, links=f"{site.url}{links}")

    @property
    def trouble(self) -> str | None:
        return NO_MAIL if self._mail is None else None

    def recognizes(self, address: str) -> bool:
        """Addresses such as name@host.example."""
        return ADDRESS.fullmatch(address) is not None and len(address) <= LONGEST_ADDRESS

    def host_of(self, address: str) -> str:
        """The same name for all addresses, because the operator's one server receives every e-mail."""
        return "email"

    def place_of(self, address: str) -> str:
        """The mailbox, however its address is spelled."""
        return f"mailto:{normalised_mailbox(address)}"

    async def has_agreed(self, address: str, sender: str) -> bool:
        """Whether the mailbox's holder agreed to the sender's alerts in any building, and has not unsubscribed since."""
        return await self._mailboxes.has_agreed(address, sender)

    async def check(self, address: str, client: GuardedClient) -> None:
        """Checks nothing: the owner's confirmation shows whether the mailbox exists."""

    async def send(self, attempt: Attempt, content: Content) -> Outcome:
        """Hand an alert or a digest to the SMTP server."""
        unsubscribe = self._link("unsubscribe", attempt)
        texts = [self._unlinked(text) for text in content.texts]
        parts = ["\n".join([text.headline, *(f"  {line}" for line in text.details)]) for text in texts]
        if len(texts) == 1:
            (text,) = texts
            output = ["", *(f"    {line}" for line in text.output.splitlines())] if text.output else []
            parts = ["\n".join([text.headline, "", *text.lines, *output])]
        body = "\n\n".join([*parts, FOOTER.format(unsubscribe=unsubscribe) + self._signature()])
        if content.mail_until is not None and attempt.now >= content.mail_until:
            return WITHHELD
        subject = unlinked(content.subject, own=self._links)
        told = [(text, [self._label_and_link(line) for line in text.details]) for text in texts]
        html = self._pages.part("alert_mail.html", subject=subject, told=told, unsubscribe=unsubscribe)
        return await self._hand_over(attempt, subject, body, html, unsubscribing(unsubscribe))

    async def ask(self, attempt: Attempt, question: Question) -> Outcome:
        """Send the question, if its mailbox may be asked. Its links are the one that confirms the address, and the one that refuses.

        A part of the question, such as a monitor's name, was written by whoever named the address, whose owner did not ask for it.
        """
        if question.mail_until is not None and attempt.now >= question.mail_until:
            return WITHHELD
        address, sender = attempt.message.address, attempt.message.lane.sender
        token = await self._mailboxes.count_question(address, sender)
        if isinstance(token, Outcome):
            return token
        questions = f"{self._links}/questions/{token}"
        text = unlinked(question.text, own=self._links)
        confirm = self._link("confirm", attempt)
        body = QUESTION.format(question=text, confirm=confirm, questions=questions) + self._signature()
        html = self._pages.part("question_mail.html", subject=CONFIRM, question=text, confirm=confirm, questions=questions)
        outcome = await self._hand_over(attempt, CONFIRM, body, html, unsubscribing(questions))
        if outcome.result == "retry" and outcome is not UNANSWERED:
            await self._mailboxes.discount(address, sender)
        return outcome

    def _unlinked(self, text: AlertText) -> AlertText:
        details = [unlinked(line, own=self._links) for line in text.details]
        headline, output = (unlinked(part, own=self._links) for part in (text.headline, text.output))
        return replace(text, headline=headline, details=details, output=output)

    def _label_and_link(self, line: str) -> tuple[str, str]:
        """A line of details, and the link to the service with which it ends; "" if it ends with none."""
        label, _, url = line.rpartition(": ")
        return (label, url) if own_link(self._links).fullmatch(url) else (line, "")

    def _signature(self) -> str:
        """The lines below a text that say who sells the service."""
        seller = self._pages.layout.seller
        return "" if seller is None else "\n".join(filter(None, ["", seller.name, seller.address, seller.contact])) + "\n"

    async def _hand_over(self, attempt: Attempt, subject: str, body: str, html: str, headers: dict[str, str]) -> Outcome:
        if self._mail is None:
            return Outcome("retry", NO_MAIL)
        try:
            await self._mail.send(attempt.message.address, subject, body, html=html, headers=headers, message_name=attempt.message.id)
        except MailRefused as refused:
            return Outcome("gone", str(refused))
        except MailUnavailable as error:
            return UNANSWERED if error.maybe_sent else Outcome("retry", str(error))
        return DELIVERED

    def _link(self, purpose: str, attempt: Attempt) -> str:
        message = attempt.message
        return f"{self._links}/{purpose}/{message.target_id}/{link_token(purpose, message.secret)}"


def unsubscribing(url: str) -> dict[str, str]:
    return {"List-Unsubscribe": f"<{url}>", "List-Unsubscribe-Post": "List-Unsubscribe=One-Click"}


def unlinked(text: str, *, own: str) -> str:
    """The text, in which mail programs find nothing to make a link of, except links to the service whose URL begins `own`.

    Within a word only letters, digits, symbols and a few signs are left as they are; a space follows every other character, such as
    the dot of example. com and of its relatives in other scripts. Times of day stay as they are.
    """
    ours = own_link(own)

    def word(found: re.Match[str]) -> str:
        if ours.fullmatch(found[0]) or NUMBER.fullmatch(found[0]):
            return found[0]
        parts = TIME.split(found[0])  # every second one is a time
        spaced = "".join(part if place % 2 else "".join(map(_spaced, part)) for place, part in enumerate(parts))
        return spaced.rstrip(" ")

    return re.sub(r"\S+", word, normalize("NFKC", text))


@cache
def own_link(own: str) -> re.Pattern[str]:
    """Links to the service whose URL begins `own`."""
    return re.compile(f"{re.escape('/'.join(own.split('/')[:3]))}{OWN_LINK}")


def _spaced(one: str) -> str:
    return one if category(one)[0] in "LMNS" or one in PLAIN else f"{one} "


def link_token(purpose: str, key: bytes) -> str:
    """The secret part of a link in an e-mail. It is derived from the target's key, so nothing is stored."""
    return hmac.new(key, purpose.encode(), sha256).hexdigest()


def email_pages(path: str, dispatcher_of: Callable[[Any], Dispatcher]) -> list[Page]:
    """The pages behind the links in e-mails, below a path such as /v1/recorder/email; `dispatcher_of(site)` finds the Dispatcher."""

    async def confirm(request: Request, site: Any) -> Response:
        """Asks on GET, because mail programs open links by themselves; confirms on POST."""
        dispatcher = dispatcher_of(site)
        target = await _target_of(request, dispatcher, "confirm")
        if request.method != "POST":
            text = f"Send alerts to {target.address}? This holds for all monitors and watches of the key that named it."
            return _page(site, request, "Alerts to this address", text, label="Yes, send them")
        await dispatcher.mailboxes.agree(target.address, target.sender)
        confirmed = partial(dispatcher.outbox.confirm, target_id=target.id, now=dispatcher.now())
        await in_transaction(dispatcher.storage, confirmed)
        dispatcher.wake()
        return _page(site, request, "Confirmed", f"{target.address} may be sent alerts from now on. Each contains a link to unsubscribe.")

    async def unsubscribe(request: Request, site: Any) -> Response:
        """Asks on GET; unsubscribes on POST, which mail programs also send for List-Unsubscribe."""
        dispatcher = dispatcher_of(site)
        target = await _target_of(request, dispatcher, "unsubscribe")
        if request.method != "POST":
            return _page(site, request, "Unsubscribe", f"Stop sending alerts to {target.address}?", label="Stop sending alerts")
        token = await dispatcher.mailboxes.unsubscribe(target.address, target.sender)
        unsubscribed = partial(dispatcher.outbox.unsubscribe, target_id=target.id, now=dispatcher.now())
        await in_transaction(dispatcher.storage, unsubscribed)
        return _refused(site, request, f"Alerts are no longer sent to {target.address}.", action=f"{path}/questions/{token}")

    async def questions(request: Request, site: Any) -> Response:
        """Shows whether a mailbox refuses questions; refuses them on POST, or allows them again."""
        mailboxes = dispatcher_of(site).mailboxes
        token = request.path_params["token"]
        if (is_refused := await mailboxes.is_refused(token)) is None:
            raise _link_not_found()
        if request.method != "POST":
            ask = "Shall this service never again ask this mailbox whether it wants alerts, whoever names it?"
            return (
                _refused(site, request) if is_refused else _page(site, request, "Questions to your mailbox", ask, label="Never ask again")
            )
        if await request.body() == ALLOW:
            await mailboxes.allow(token)
            return _page(site, request, "Allowed", "Your mailbox may be asked again whether it wants alerts.")
        await mailboxes.refuse(token)
        return _refused(site, request)

    linked = [Page(f"GET|POST {path}/{page.__name__}/{{target_id}}/{{token}}", page, cross_site=True) for page in (confirm, unsubscribe)]
    return [*linked, Page(f"GET|POST {path}/questions/{{token}}", questions, cross_site=True)]


async def _target_of(request: Request, dispatcher: Dispatcher, purpose: str) -> Row[Any]:
    target_id = request.path_params["target_id"]
    token = request.path_params["token"]
    targets = dispatcher.outbox.targets
    chosen = select(targets).where(targets.c.id == target_id)
    row = await in_snapshot(dispatcher.storage, lambda connection: connection.execute(chosen).one_or_none())
    expected = link_token(purpose, row.secret if row else b"")
    if not hmac.compare_digest(expected.encode(), token.encode()) or row is None:
        raise _link_not_found()
    return row


def _link_not_found() -> Problem:
    return Problem(404, "link_not_found", "this link is not valid; check that it was copied completely")


def _refused(site: Any, request: Request, text: str = "", *, action: str = "") -> Response:
    """The page of a mailbox that refuses questions, where its holder can allow them again."""
    rest = "This service no longer asks this mailbox whether it wants alerts, whoever names it. You can allow that again here."
    return _page(site, request, "Done", f"{text} {rest}".strip(), label="Allow questions again", action=action, answer="allow")


def _page(
    site: Any, request: Request, title: str, text: str, *, label: str | None = None, action: str = "", answer: str = "yes"
) -> Response:
    """A page with a button of that `label`, if there is anything left to answer."""
    said: Response = site.page("mailbox.html", request, headers=PRIVATE, title=title, text=text, label=label, action=action, answer=answer)
    return said
