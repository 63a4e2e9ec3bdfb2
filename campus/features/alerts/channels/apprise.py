"""Telegram, PagerDuty, Microsoft Teams and other services of a fixed host, by addresses in Apprise's form such as tgram://token/chat.

Apprise composes each request, and sends none: in a private copy of its plugin's module the name `requests` stands for an object that
notes what the plugin would send. The guarded client sends that, once for each try, and follows no redirect. So nothing of Apprise waits,
retries, or reaches a host that is not in the list below; and what a service answers decides, not Apprise's True or False.

Only addresses of the forms in the list are taken: Apprise knows more, some of which name a host, a file, or a page to fetch.
"""

import logging
import re
from collections.abc import Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import cache
from html import escape
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

import anyio
import httpx
from anyio import to_thread
from pydantic_core import to_json

from campus.errors import TargetRefused
from campus.features.alerts.channels.webhook import LONGEST_TEXT, RATE_LIMITED, REDIRECTS, neutral, pause_of, refused, retry_after
from campus.features.alerts.message import DELIVERED, OUTPUT_FOLLOWS, AlertText, Attempt, Channel, Content, Outcome, post
from campus.outbound.http_clients import GuardedClient

SCHEME = re.compile("([a-z][a-z0-9]{1,20})://", re.IGNORECASE)
OPTION = re.compile(r"([a-z]{1,20})=([\w.-]{1,40})", re.ASCII)
GONE = frozenset({401, 403, 404, 410})
LONGEST_SEND = 30.0
"""Seconds for all incidents of one digest. The next try begins anew: an incident is opened once, because each has a key."""
LEAST_OUTPUT = 40  # Where less of a run's output fits into a message, it is left out.
KINDS = {"problem": "failure", "recovery": "success", "notice": "info"}
SAMPLE = AlertText("Test", (), datetime.fromtimestamp(0, UTC))


class Service(NamedTuple):
    """One service: the scheme of its addresses, the pattern of the rest, and the host that its requests go to.

    `plugin` is Apprise's module and class; without one the request is composed here. `options` may follow a question mark, and `urgent`
    are those of a problem, unless the address has its own. To a service for incidents each subject is one, named by the option `key`,
    with the options `closing`, by which Apprise closes it at a recovery (Opsgenie's is closed here). `gone` is what a refusal says when
    the address is at fault. With `wild` the host is any below `host`. `breaks` is how its text begins a new line.
    """

    name: str
    form: str
    rest: str
    host: str
    plugin: tuple[str, str] | None
    options: frozenset[str] = frozenset()
    urgent: Mapping[str, str] = {}
    key: str | None = None
    closing: Mapping[str, str] = {}
    gone: str = "(?!)"
    wild: bool = False
    breaks: str = "\n"
    more_hosts: tuple[str, ...] = ()

    @property
    def scheme(self) -> str:
        return self.form.partition("://")[0]

    def is_its(self, url: str) -> bool:
        """Whether a URL leads to the service."""
        parts = urlsplit(url)
        host = parts.hostname or ""
        return parts.scheme == "https" and (host in (self.host, *self.more_hosts) or (self.wild and host.endswith(f".{self.host}")))


MAP = {"action": "map"}
REGION, PRIORITY = frozenset({"region"}), frozenset({"priority"})
HIGH = {"priority": "high"}
SERVICES = (
    Service("Telegram", "tgram://BOT_TOKEN/CHAT_ID", r"\d{5,15}:[\w-]{15,60}/(?:-?\d{4,20}|@[a-z]\w{3,31})(?::\d{1,10})?",
        "api.telegram.org", ("telegram", "NotifyTelegram"), frozenset({"silent"}),
        gone="chat not found|upgraded to a supergroup|deactivated"),
    Service("ntfy.sh", "ntfys://TOPIC", r"(?!ntfy\.sh)[\w-]{1,64}|(?:tk_\w{20,60}@)?ntfy\.sh/[\w-]{1,64}", "ntfy.sh", ("ntfy",
        "NotifyNtfy"), PRIORITY, urgent=HIGH),
    Service("Pushover", "pover://USER_KEY@APP_TOKEN", r"[a-z0-9]{30}@[a-z0-9]{30}(?:/[\w-]{1,25})?", "api.pushover.net", ("pushover",
        "NotifyPushover"), PRIORITY | {"sound"}, urgent=HIGH, gone='"(?:user|token)": *"invalid"'),
    Service("PagerDuty", "pagerduty://INTEGRATION_KEY@events", r"[a-z0-9]{20,40}@[\w+.-]{1,64}", "events.pagerduty.com", ("pagerduty",
        "NotifyPagerDuty"), REGION, key="dedup", closing={**MAP, "source": "campus"}, gone="routing.key",
        more_hosts=("events.eu.pagerduty.com",)),
    Service("Opsgenie", "opsgenie://API_KEY", r"[\w-]{20,60}", "api.opsgenie.com", ("opsgenie", "NotifyOpsgenie"), REGION | PRIORITY,
        urgent={"priority": "2"}, key="alias", closing={"action": "new"}, more_hosts=("api.eu.opsgenie.com",)),
    Service("Squadcast", "squadcast://KEY", r"[\w-]{10,80}", "api.squadcast.com", ("squadcast", "NotifySquadcast"), REGION, key="dedup",
        closing=MAP, more_hosts=("api.eu.squadcast.com",)),
    Service("ilert", "ilert://KEY", r"[\w-]{10,80}", "api.ilert.com", ("ilert", "NotifyILert"), key="dedup", closing=MAP),
    Service("incident.io", "incidentio://SOURCE_ID/TOKEN", r"[\w-]{10,40}/[\w.-]{10,200}", "api.incident.io", ("incidentio",
        "NotifyIncidentIO"), key="dedup", closing=MAP),
    Service("Splunk On-Call", "victorops://ROUTING_KEY@API_KEY", r"[\w-]{1,60}@[\w-]{36}", "alert.victorops.com", ("splunk",
        "NotifySplunk"), key="entity_id", closing=MAP),
    Service("Microsoft Teams", "workflows://HOST.logic.azure.com/WORKFLOW/SIGNATURE",
        r"[a-z0-9.-]{1,120}\.logic\.azure\.com(?::443)?/[\w-]{1,80}/[\w-]{1,100}", "logic.azure.com", ("workflows", "NotifyWorkflows"),
        wild=True, breaks="\n\n"),
    Service("Webex", "wxteams://TOKEN", r"[\w=-]{80,160}", "api.ciscospark.com", ("webexteams", "NotifyWebexTeams"), breaks="\n\n"),
    Service("Google Chat", "gchat://SPACE/KEY/TOKEN", r"[\w-]{1,40}/[\w-]{10,80}/[\w=-]{10,100}", "chat.googleapis.com", ("google_chat",
        "NotifyGoogleChat")),
    Service("Pushbullet", "pbul://ACCESS_TOKEN", r"[\w.]{20,60}", "api.pushbullet.com", ("pushbullet", "NotifyPushBullet")),
    Service("Prowl", "prowl://API_KEY", r"[a-f0-9]{40}", "api.prowlapp.com", ("prowl", "NotifyProwl"), PRIORITY, urgent=HIGH),
    Service("Spike.sh", "spike://TOKEN", r"[a-z0-9]{32}", "api.spike.sh", ("spike", "NotifySpike")),
    Service("Zulip", "zulip://BOT@ORGANIZATION/TOKEN/STREAM", r"[a-z0-9-]{1,40}@[a-z0-9-]{1,40}/[a-z0-9]{32}/[\w.-]{1,60}",
        "zulipchat.com", ("zulip", "NotifyZulip"), wild=True),
    Service("matrix.org", "matrixs://ACCESS_TOKEN@matrix.org/!ROOM_ID",
        r"([\w.-]{10,300})@matrix\.org/(![\w-]{1,64}(?::[\w.-]{1,100})?)", "matrix-client.matrix.org", None),
)  # fmt: skip
BY_SCHEME = {one.scheme: one for one in SERVICES} | {one.scheme[:-1]: one for one in SERVICES if one.scheme in ("ntfys", "matrixs")}
WEBHOOKS = (
    (re.compile(r"slack://(\w+)/(\w+)/(\w+)/?", re.ASCII), "https://hooks.slack.com/services/{}/{}/{}"),
    (re.compile(r"discord://(\d+)/([\w-]+)/?", re.ASCII), "https://discord.com/api/webhooks/{}/{}"),
    (re.compile(r"mmosts://([a-z0-9.-]+(?::\d+)?)/(\w+)/?", re.ASCII), "https://{}/hooks/{}"),
)
"""Addresses in Apprise's form that are a webhook's, and how that is written."""
UNKNOWN = (
    "{scheme}:// is no service that alerts are sent to. Write an https:// address, such as the incoming webhook of a Mattermost or"
    " Rocket.Chat, or the address of a relay of your own, or one of {forms}"
)
MISSING = "Addresses such as {form} need the extra `apprise` (pip install 'mcp-campus[apprise]'), which this service does not have"


class Request(NamedTuple):
    """What is sent to a service."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes


class Named(NamedTuple):
    """An address that was read: its service, the text without options, and the options."""

    service: Service
    plain: str
    options: Mapping[str, str]


class Apprise(Channel):
    """Services of a fixed host, by addresses in Apprise's form."""

    kind = "apprise"
    name = "another service by its address in Apprise's form, such as tgram://token/chat"

    def recognizes(self, address: str) -> bool:
        """Every address with a scheme other than http and https; `check_text` refuses those that are not taken."""
        found = SCHEME.match(address)
        return found is not None and found[1].lower() not in ("http", "https")

    def rewritten(self, address: str) -> str:
        """The https address of a webhook of Slack, Discord or Mattermost, for which there are other channels."""
        for pattern, url in WEBHOOKS:
            if found := pattern.fullmatch(address):
                return url.format(*found.groups())
        return address

    def host_of(self, address: str) -> str:
        """The service's host, of those that have many the domain that they share."""
        return named(address).service.host

    def place_of(self, address: str) -> str:
        """The address without its options."""
        return named(address).plain

    def check_text(self, address: str, client: GuardedClient) -> None:
        """Refuse an address that is not written as those of its service are."""
        named(address)

    async def check(self, address: str, client: GuardedClient) -> None:
        """Compose a message, and look up the host that it would go to."""
        found = named(address)
        await to_thread.run_sync(plugin_of, found.service)  # the first time it imports Apprise, which takes a fifth of a second
        await client.check_target(composed(found, SAMPLE, "test").url)

    async def send(self, attempt: Attempt, content: Content) -> Outcome:
        """Send the message; to a service for incidents one request for each subject, with the last news of it."""
        try:
            found = named(attempt.message.address)
            await to_thread.run_sync(plugin_of, found.service)
            if found.service.key is None:
                return await _sent(attempt, found.service, composed(found, _whole(content), attempt.message.id))
            return await self._send_incidents(attempt, found, content)
        except TargetRefused as refused:
            return Outcome("retry", str(refused))

    async def _send_incidents(self, attempt: Attempt, found: Named, content: Content) -> Outcome:
        names = [text.about if text.severity != "notice" else None for text in content.texts]
        subjects = {
            name or f"{attempt.message.id}-{place}": text for place, (name, text) in enumerate(zip(names, content.texts, strict=True))
        }
        with anyio.move_on_after(LONGEST_SEND):
            for key, text in subjects.items():
                outcome = await _sent(attempt, found.service, composed(found, text, key))
                if outcome is not DELIVERED:
                    return outcome
            return DELIVERED
        return Outcome("retry", f"{found.service.name} did not take all incidents within {LONGEST_SEND:g} s")


def named(address: str) -> Named:
    """The parts of an address. Raises TargetRefused for a service or a form that is not in the list; nothing that it says is secret."""
    scheme, _, rest = address.partition("://")
    service = BY_SCHEME.get(scheme.lower())
    if service is None:
        raise TargetRefused("scheme", UNKNOWN.format(scheme=scheme, forms=", ".join(one.form for one in SERVICES)))
    rest, _, query = rest.partition("?")
    if not re.fullmatch(f"(?:{service.rest})/?", rest, re.ASCII | re.IGNORECASE):
        raise TargetRefused("url", f"It is not written as addresses of {service.name} are: {service.form}")
    options = [OPTION.fullmatch(part) for part in query.split("&")] if query else []
    if not all(option is not None and option[1] in service.options for option in options):
        taken = " and ".join(sorted(service.options)) or "none"
        raise TargetRefused("url", f"It has an option that is not taken; of {service.name} {taken} can be given, as in ?name=value")
    return Named(service, f"{service.scheme}://{rest.rstrip('/')}", {option[1]: option[2] for option in options if option})


def composed(found: Named, text: AlertText, key: str) -> Request:
    """The one request that reports `text`; `key` names its incident, or the message."""
    service = found.service
    if service.plugin is None:
        return _matrix_request(found, text, key)
    is_problem = text.severity == "problem"
    options = {**service.urgent, **found.options} if is_problem else {**found.options, "priority": ""}
    if service.key:
        options |= {service.key: key, **service.closing}
    plugin = plugin_of(service)
    query = "&".join(f"{name}={quote(value)}" for name, value in options.items() if value)
    address = f"{found.plain}/?{query}" if query else found.plain
    noted = NOTED.set([])
    try:
        made = plugin(**{**plugin.parse_url(address), **_details(service, text), "asset": _asset()})
        made.request_rate_per_sec = 0
        made.notify(**_said(service, text, made.title_maxlen, made.body_maxlen), notify_type=KINDS[text.severity], overflow="truncate")
        requests = NOTED.get()
    except Exception as error:  # the border: what Apprise says of an address quotes it, and it is a secret
        raise TargetRefused("url", f"Apprise cannot use this address of {service.name} ({type(error).__name__}); check it") from None
    finally:
        NOTED.reset(noted)
    if len(requests) != 1 or not service.is_its(requests[0].url):
        raise TargetRefused("url", f"This address of {service.name} does not lead to one place at it; check it")
    if service.key == "alias" and text.severity == "recovery":
        return _closing(requests[0], text, key)
    return requests[0]


def plugin_of(service: Service) -> Any:
    """Apprise's class for a service, from a copy of its module that can send nothing; None for a service without one."""
    if find_spec("apprise") is None:
        raise TargetRefused("apprise", MISSING.format(form=service.form))
    return _loaded(*service.plugin) if service.plugin else None


NOTED: ContextVar[list[Request]] = ContextVar("noted")


class Notepad:
    """Stands for the library `requests` in the copy of a plugin: notes a request, and answers as if it had been accepted."""

    def __init__(self, library: Any) -> None:
        self._library = library
        self.codes, self.RequestException = library.codes, library.RequestException

    def post(self, url: str, **options: Any) -> Any:
        what = {name: options[name] for name in ("params", "data", "json", "headers", "auth", "files") if name in options}
        made = self._library.Request("POST", url, **what).prepare()
        headers = {name.lower(): value for name, value in made.headers.items() if name.lower() not in ("content-length", "user-agent")}
        body = made.body or b""
        NOTED.get().append(Request("POST", made.url, headers, body.encode() if isinstance(body, str) else body))
        answer = self._library.Response()
        answer.status_code, answer._content = 200, b"{}"
        return answer


@cache
def _loaded(module: str, name: str) -> Any:
    spec = find_spec(f"apprise.plugins.{module}")
    assert spec is not None, "the installed Apprise has this plugin"
    assert spec.loader is not None, "it is a file"
    copy = module_from_spec(spec)
    spec.loader.exec_module(copy)
    vars(copy)["requests"] = Notepad(import_module("requests"))
    plugin = getattr(copy, name)
    plugin.logger = logging.Logger("apprise", logging.CRITICAL + 1)  # one that is nobody's: what Apprise logs holds addresses and alerts
    return plugin


@cache
def _asset() -> Any:
    return import_module("apprise").AppriseAsset(
        app_id="campus", app_desc="campus", app_url="", image_url_mask="", image_url_logo="", http_redirects=False
    )


def _details(service: Service, text: AlertText) -> dict[str, Any]:
    """Of PagerDuty the details of an incident, whose summary is the headline alone."""
    if service.name != "PagerDuty":
        return {}
    return {"details": {"details": neutral("\n".join(text.details)), **({"output": neutral(text.output)} if text.output else {})}}


def _said(service: Service, text: AlertText, longest_title: int, longest: int) -> dict[str, str]:
    headline = neutral(text.headline)
    if service.name == "Telegram":
        return {"body": _html(text, longest), "body_format": "html"}
    room = longest if longest_title else longest - len(headline) - 2
    body = "" if service.name == "PagerDuty" else _plain(text, room, service.breaks)
    return {"title": headline if body else "", "body": body or headline, "body_format": "text"}


def _plain(text: AlertText, most: int, breaks: str) -> str:
    """The details that fit, and as much of the output's end."""
    lines = [neutral(line) for line in text.details]
    while len(body := breaks.join(lines)) > most:
        del lines[-1]
    room = most - len(body) - len(OUTPUT_FOLLOWS) - 4
    output = neutral(text.output).replace("\n", breaks)
    return f"{body}{breaks}{OUTPUT_FOLLOWS}\n\n{output[-room:]}" if output and room >= LEAST_OUTPUT else body


def _html(text: AlertText, most: int) -> str:
    """The text with its output as code, at most `most` characters with all that had to be escaped."""
    for room in (most, most // 2, most // 6):
        lines = "\n".join(text.lines)[:room]
        output = text.output[-max(room - len(lines), LEAST_OUTPUT) :]
        code = f"\n<pre>{escape(output, quote=False)}</pre>" if output else ""
        said = f"<b>{escape(neutral(text.headline[:200]), quote=False)}</b>\n{escape(neutral(lines), quote=False)}{code}"
        if len(said) <= most:
            break
    return said


def _matrix_request(found: Named, text: AlertText, key: str) -> Request:
    """An event of a room; its id is the message's, so that a second try adds no second one. It mentions nobody."""
    token, room = re.fullmatch(found.service.rest, found.plain.partition("://")[2], re.ASCII).groups()  # type: ignore[union-attr]
    plain = "\n".join([neutral(text.headline), _plain(text, LONGEST_TEXT, "\n")])
    html = _html(text, LONGEST_TEXT).replace("\n", "<br>", 1 + len(text.lines))
    event = {"msgtype": "m.text", "body": plain, "format": "org.matrix.custom.html", "formatted_body": html, "m.mentions": {}}
    url = f"https://{found.service.host}/_matrix/client/v3/rooms/{quote(room, safe='')}/send/m.room.message/{key}"
    return Request("PUT", url, {"authorization": f"Bearer {token}", "content-type": "application/json"}, to_json(event))


def _closing(opening: Request, text: AlertText, key: str) -> Request:
    """Closes Opsgenie's alert by its alias: Apprise does so only for those that the same process opened."""
    url = f"{opening.url}/{quote(key, safe='')}/close?identifierType=alias"
    return opening._replace(url=url, body=to_json({"source": "campus", "note": neutral(text.headline)}))


def _whole(content: Content) -> AlertText:
    """A message as one text; of several only the headlines."""
    if len(content.texts) == 1:
        return content.texts[0]
    kinds = {text.severity for text in content.texts}
    severity = "problem" if "problem" in kinds else content.texts[-1].severity
    return AlertText(content.subject, [text.headline for text in content.texts], content.texts[-1].at, severity)


async def _sent(attempt: Attempt, service: Service, request: Request) -> Outcome:
    answer = await post(attempt.client, request.url, request.body, request.headers, method=request.method)
    return answer if isinstance(answer, Outcome) else _refusal(service, answer, now=attempt.now)


def _refusal(service: Service, answer: httpx.Response, *, now: datetime) -> Outcome:
    """What a service's refusal means. Nothing of its text is repeated: it may quote the address."""
    status = answer.status_code
    if status in GONE or (status != RATE_LIMITED and answer.is_client_error and re.search(service.gone, answer.text, re.IGNORECASE)):
        return Outcome("gone", f"{service.name} answered {status}: the token or the recipient in the address is not valid")
    if status in REDIRECTS:
        return Outcome("retry", f"{service.name} redirects, and redirects are not followed")
    return refused(service.name, answer, pause=retry_after(answer.headers.get("retry-after"), now=now) or pause_of(answer.content))
