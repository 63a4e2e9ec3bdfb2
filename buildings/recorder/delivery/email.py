"""E-mail: an alert or a digest in plain text, and the question whether an address wants any."""

from datetime import datetime

from buildings.recorder.delivery.event import Digest, body_of
from buildings.recorder.delivery.ladder import DELIVERED, Outcome
from buildings.recorder.delivery.parcel import Parcel
from buildings.recorder.delivery.wording import details, headline
from buildings.recorder.secrets import token_for
from buildings.recorder.urls import mail_url
from campus import Mail, MailRefused, MailUnavailable

ASKED = """Somebody, hopefully you, wants alerts sent to this address when the monitor "{name}" misses its beats.

Confirm it here, and only then will they be:
{confirm}

If it was not you, do nothing: no alert will ever come. You will be asked once a day at most.
"""
FOOT = "--\nNo more of these: {unsubscribe}\n"


async def send_email(parcel: Parcel, mail: Mail | None, *, url: str, now: datetime) -> Outcome:
    """Hand the message to the SMTP server; nothing goes out for a key that has ended."""
    if mail is None:
        return Outcome("retry", "this service has no mail server configured")
    if parcel.key_ends_at is not None and now >= parcel.key_ends_at:
        return DELIVERED
    is_question = parcel.items[0].kind == "confirm"
    subject, text = _question(parcel, url) if is_question else _alert(parcel, url)
    unsubscribe = _link("unsubscribe", parcel, url)
    headers = {} if is_question else {"List-Unsubscribe": f"<{unsubscribe}>", "List-Unsubscribe-Post": "List-Unsubscribe=One-Click"}
    try:
        await mail.send(parcel.address, subject, text, headers=headers, message_name=parcel.message_id)
    except MailRefused as refused:
        return Outcome("gone", str(refused))
    except MailUnavailable as error:
        return Outcome("retry", str(error))
    return DELIVERED


def _question(parcel: Parcel, url: str) -> tuple[str, str]:
    name = parcel.items[0].name or "a monitor"
    return "Confirm alerts to this address", ASKED.format(name=name, confirm=_link("confirm", parcel, url))


def _alert(parcel: Parcel, url: str) -> tuple[str, str]:
    body = body_of(parcel, url=url)
    foot = FOOT.format(unsubscribe=_link("unsubscribe", parcel, url))
    if isinstance(body, Digest):
        parts = ["\n".join([headline(event), *(f"  {line}" for line in details(event))]) for event in body.events]
        return f"{body.count} alerts of your monitors", "\n\n".join([*parts, foot])
    return headline(body), "\n".join([headline(body), "", *details(body), "", foot])


def _link(purpose: str, parcel: Parcel, url: str) -> str:
    return mail_url(url, purpose, parcel.target_id, token_for(purpose, parcel.secret))
