"""The routes of the operator's pages, each behind the sign-in, and their stream of events."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path

import anyio
from starlette.requests import Request
from starlette.responses import Response

from campus.app import Campus
from campus.features.operator.overview import OverviewPage, jobs_of
from campus.features.operator.pages import OperatorPages
from campus.features.operator.payments import PaymentPages
from campus.features.operator.sign_in import PATH, SIGN_OUT, OperatorSessions, SignIn
from campus.http.service_routes import answers_page, own_page
from campus.keys.sign_ins import SignInLimit
from campus.layout.events import EventStreams
from campus.layout.renderer import Layout, Link
from twins import Problem, RouteEntry

TEMPLATES = Path(__file__).parent / "templates"
NAVIGATION = (
    Link("/", "Overview"),
    Link("/jobs", "Jobs"),
    Link("/keys", "Keys"),
    Link("/usage", "Calls"),
    Link("/payments", "Payments"),
    Link("/alerts", "Alerts"),
    Link("/buildings", "Buildings"),
)
JOBS_SECONDS, OVERVIEW_SECONDS = 2.0, 5.0
"""How often the streams of a page look for changes. With 100,000 keys, monitors and targets, a look takes 0.4 s of a database's threads."""


def operators_pages(campus: Campus, password: str) -> tuple[Layout, list[RouteEntry]]:
    config = campus.plan.config
    now = campus.core.now
    url = f"http://{config.server.admin or 'localhost'}"
    navigation = (*NAVIGATION, Link(config.url, "Public site"))
    layout = Layout(config.server.name, url, campus.layout.kept, navigation=navigation, places={"sign_in": PATH}, operator=True)
    templates = layout.pages_of([TEMPLATES])
    limit = SignInLimit(now)
    sign_in = SignIn(templates, OperatorSessions(password, now=now), limit=limit, audit=campus.feature("audit_log"))
    overview = OverviewPage(campus, templates)
    pages = OperatorPages(campus, templates)
    payments = PaymentPages(campus, templates)
    behind = sign_in.guarded
    entries = [
        answers_page(layout),
        own_page(["GET"], PATH, sign_in.show),
        own_page(["POST"], PATH, sign_in.sign_in),
        own_page(["POST"], SIGN_OUT, behind(sign_in.sign_out)),
        own_page(["GET"], "/", behind(overview.show)),
        own_page(["POST"], "/check", behind(overview.check)),
        own_page(["GET"], "/jobs", behind(pages.jobs)),
        own_page(["POST"], "/jobs/{name}/run", behind(pages.run_job)),
        own_page(["GET"], "/keys", behind(pages.keys)),
        own_page(["POST"], "/keys", behind(pages.issue_key)),
        own_page(["POST"], "/keys/search", behind(pages.keys)),
        own_page(["POST"], "/keys/{key}/revoke", behind(pages.revoke_key)),
        own_page(["GET"], "/usage", behind(pages.usage)),
        own_page(["GET"], "/payments", behind(payments.show)),
        own_page(["POST"], "/payments/accept", behind(payments.accept_unproven)),
        own_page(["POST"], "/payments/reconcile", behind(payments.reconcile)),
        own_page(["GET"], "/alerts", behind(pages.alerts)),
        own_page(["GET"], "/buildings", behind(pages.buildings)),
        *stream_entries(campus, sign_in, overview),
        *(asset.route for asset in layout.assets.values()),
    ]
    return layout, entries


@dataclass(frozen=True)
class PageStream:
    """The stream of events of one page, for as long as the session lasts. It looks every so many seconds at what `read` returns."""

    sign_in: SignIn
    streams: EventStreams
    read: Callable[[], Awaitable[bytes]]
    seconds: float
    stopping: anyio.Event

    async def answer(self, request: Request) -> Response:
        """The stream; the refusal of a visitor who is not signed in."""
        session = self.sign_in.session_of(request)
        self.sign_in.check(session)
        check = partial(self._check, session)
        return self.streams.response(
            request, session, self._fingerprint, page=self.read, check=check, stopping=self.stopping, look_seconds=self.seconds
        )

    async def _check(self, session: str) -> None:
        self.sign_in.check(session)

    async def _fingerprint(self) -> bytes:
        try:
            return await self.read()
        except Exception as error:  # such as a database that cannot be read at the moment
            raise Problem(503, "storage_unavailable", "not read") from error


def stream_entries(campus: Campus, sign_in: SignIn, overview: OverviewPage) -> list[RouteEntry]:
    streams = EventStreams()
    of_jobs = partial(_jobs_fingerprint, campus)
    return [
        own_page(["GET"], "/events", PageStream(sign_in, streams, overview.fingerprint, OVERVIEW_SECONDS, campus.stopping).answer),
        own_page(["GET"], "/jobs/events", PageStream(sign_in, streams, of_jobs, JOBS_SECONDS, campus.stopping).answer),
    ]


async def _jobs_fingerprint(campus: Campus) -> bytes:
    # to the minute: some jobs run every few seconds, and a page that is replaced all the time cannot be clicked
    found = [
        (one.name, one.running, one.failures, f"{one.last_success:%H:%M}" if one.last_success else "") for one in await jobs_of(campus)
    ]
    return sha256(repr(found).encode()).digest()
