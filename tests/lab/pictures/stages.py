"""The campuses that are pictured: on their first day, on their hundredth, with many monitors, with nothing for sale, without a list."""

import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
from contract.served_campus import SAMPLE, UNPAYABLE
from cve.conftest import Make
from features.cards.stripe_server import KEY, SECRET, StripeServer, open_stripe, signed
from features.connect.chat_app import ChatApp
from forms import HTML
from lab.pictures.views import View
from lab.pictures.visitors import ORIGIN, Visitor, visiting
from pages.harbour import make_harbour
from recorder.receivers import Mailbox, open_mailbox
from recorder.recorders import Recorder, unlike
from sqlalchemy import insert, update

from buildings.checkout import building as checkout
from buildings.cve.building import building as cve
from buildings.gateway import building as gateway
from buildings.recorder import building as recorder
from buildings.recorder.tables import MONITORS, OWNERS
from campus.asgi import open_admin
from campus.features.status.days import SERVICE
from campus.features.status.tables import StatusDay
from campus.storage import in_transaction
from campus.testing import Clock, TestCampus, open_campus
from tests import patient

FIRST_DAY, DAYS = date(2026, 5, 14), 100
BEGIN = datetime.combine(FIRST_DAY, time(21), tzinfo=UTC)
FEEDS = {"kev": "kev.json", "kev_mirror": "kev.json", "epss": "epss.csv.gz", "nvd": "nvd.json", "osv": "osv"}
PASSWORD = "operator-of-pictures"
LONG = "Nightly-reconciliation-of-the-ledger-with-the-bank's-statements-" + "and-so-on-" * 3 + " and with blanks, for the team in Reykjavík"
PRODUCTS: Mapping[str, Any] = {
    "cve": {"title": "CVE list", "description": "For those who patch: the whole list of each day.", "scope": "cve", "price": "19"},
    "monitors": {"title": "Agent monitors", "description": "For those who run agents.", "scope": "recorder", "price": "19"},
    "pass": {"title": "Everything", "description": "All of it.", "recommended": True, "scope": "all", "price": "29"},
    "year": {"title": "Everything, for a year", "description": "The same.", "scope": "all", "price": "149", "term": "12 months"},
    "prepaid": {"title": "Prepaid calls", "description": "Pay as you go.", "scope": "all", "price": "5", "credits": "5.00", "calls": 20},
}
SELLER = {"name": "Harbour & Sons Ltd", "address": "1 Quay Street\n12345 Harbour", "contact": "mailto:shop@harbour.example"}


@dataclass
class Stage:
    """A campus, the time in it, and those who look at it."""

    campus: TestCampus
    clock: Clock
    stack: AsyncExitStack
    feeds: Path
    mailbox: Mailbox
    stripe: StripeServer
    views: list[View]
    visitors: int = 0

    async def visitor(self, product: str | None = None, *, token: str = "") -> Visitor:
        self.visitors += 1
        found = await self.stack.enter_async_context(visiting(self.campus.app, address=f"192.0.2.{self.visitors % 250 + 1}"))
        if product or token:
            await found.sign_in(token or await self.campus.key(str(product)))
        return found

    async def operator(self) -> Visitor:
        found = await self.stack.enter_async_context(visiting(open_admin(self.campus.service), origin="http://localhost"))
        await found.send("/sign-in", page="/sign-in", password=PASSWORD)
        return found

    def see(self, visitor: Visitor, name: str, *paths: str) -> None:
        for path in paths:
            self.views.append(View(_group(path), name, visitor, path))

    async def try_to(self, visitor: Visitor, group: str, state: str, path: str, /, *, page: str, **fields: str) -> None:
        self.views.append(View(group, state, visitor, await visitor.send(path, page=page, **fields)))

    @property
    def recorder(self) -> Recorder:
        return Recorder(replace(self.campus, main="recorder"), self.clock)

    async def call(self, tool: str, building: str, key: str | None = None, **arguments: Any) -> dict[str, Any]:
        reply = await self.campus.call(tool, building=building, key=key, **arguments)
        assert reply.status == 200, reply.data
        found: dict[str, Any] = reply.data
        return found


def _group(path: str) -> str:
    bare = path.partition("?")[0]
    for shape, name in (("/cve/CVE", "/cve/{cve_id}"), ("/recorder/free/", "/recorder/free"), ("/recorder/mon", "/recorder/{monitor_id}")):
        if bare.startswith(shape):
            return name
    return "/pricing/card" if bare.startswith("/pricing/card/") else bare


@asynccontextmanager
async def staged(
    *,
    at: datetime = BEGIN,
    products: Mapping[str, Any] = PRODUCTS,
    sample: bool = True,
    sells: bool = True,
    harbour: bool = False,
) -> AsyncIterator[Stage]:
    clock = Clock(at)
    async with AsyncExitStack() as stack:
        feeds = Path(stack.enter_context(TemporaryDirectory()))
        mailbox = await stack.enter_async_context(open_mailbox())
        stripe = stack.enter_context(open_stripe())
        stripe.now = lambda: clock().timestamp()
        terms = {name: {"term": "30 days", **table} for name, table in products.items()}
        tables: dict[str, Any] = {
            "server": {
                "public_url": ORIGIN,
                "openapi": "cve",
                "name": "campus",
                "title": "Patch what attackers use. Know when your agent stops.",
            },
            "products": terms,
            "mail": {"host": "127.0.0.1", "port": mailbox.port, "sender": "alerts@campus.test", "tls": "none"},
            "web": {"allowed_hosts": ["127.0.0.1"]},
            "limits": {"free": "off", "keyed": "off", "unpaid": "off"},
            "connect": {},
            "buildings": {
                "gateway": {"path": "/"},
                "cve": {
                    **{"sample": sample, "archive_start": FIRST_DAY.isoformat(), "osv_ecosystems": [], "watches_per_minute": 10_000},
                    **{f"{name}_url": (feeds / file).as_uri() for name, file in FEEDS.items()},
                    "free_reports_per_day": 3,
                },
                "recorder": {"registrations_per_minute": 100_000, "monitors_per_host": 100_000, "monitors": 20_000},
            },
        }
        buildings: dict[str, Any] = {"gateway": gateway, "cve": cve, "recorder": recorder}
        if harbour:
            buildings["harbour"] = make_harbour()
            tables["buildings"]["harbour"] = {}
        if sells:
            buildings["checkout"] = checkout
            tables["buildings"]["checkout"] = {"grants": ["keys"]}
            pages = _documents(Path(stack.enter_context(TemporaryDirectory())))
            tables |= {"seller": {**SELLER, **pages}, "payments": dict(UNPAYABLE), "cards": {"api_url": stripe.url}}
        secrets = {"CAMPUS_OPERATOR_PASSWORD": PASSWORD}
        if sells:
            secrets |= {"CAMPUS_CARDS_API_KEY": KEY, "CAMPUS_CARDS_WEBHOOK_SECRET": SECRET}
        options: Any = {"clock": clock, "secrets": secrets, "tables": tables}
        campus = await stack.enter_async_context(open_campus(**options, **buildings))
        http = await stack.enter_async_context(patient.AsyncClient(transport=httpx.ASGITransport(campus.app), base_url=ORIGIN))
        campus = replace(campus, http=http, main="cve")
        yield Stage(campus, clock, stack, feeds, mailbox, stripe, [])


def _documents(folder: Path) -> dict[str, str]:
    found = {name: folder / f"{name}.md" for name in ("terms", "privacy")}
    for name, path in found.items():
        path.write_text(f"# Our {name}\n\nWhat holds between you and us.\n\n## Length\n\n{LONG * 10}\n")
    return {name: str(path) for name, path in found.items()}


# What is the same in each stage


async def all_pages(stage: Stage, visitor: Visitor, name: str) -> None:
    stage.see(visitor, name, "/", "/cve", "/cve/next", "/cve/methodology", "/cve/report", "/cve/vendors", "/cve/watches", "/recorder")
    stage.see(visitor, name, "/pricing", "/keys", "/status", "/connect")


async def operators_pages(stage: Stage, name: str) -> None:
    operator = await stage.operator()
    for path in ("/", "/jobs", "/keys", "/usage", "/payments", "/alerts", "/buildings"):
        stage.views.append(View(f"operator {path}", name, operator, path))
    stage.views.append(
        View("operator /keys issued", name, operator, await operator.send("/keys", page="/keys", product="pass", label=LONG[:80]))
    )


@asynccontextmanager
async def first_day() -> AsyncIterator[Sequence[View]]:
    async with staged() as stage:
        stranger, holder = await stage.visitor(), await stage.visitor("pass")
        await stage.campus.run("recorder.beat_demo")
        await stage.recorder.sweep()
        await all_pages(stage, stranger, "first day")
        await all_pages(stage, holder, "first day, with a key")
        stage.see(
            stranger,
            "first day",
            "/seller",
            "/refunds",
            "/terms",
            "/privacy",
            "/docs",
            "/docs/buyers",
            "/docs/api",
            "/errors",
            "/errors/not_found",
            "/v1/cve",
        )
        stage.see(stranger, "first day", "/cve/CVE-2021-44228", "/nothing", "/tools/cve/cve_verdict", "/tools/recorder/register_monitor")
        stage.see(holder, "first day", "/keys/receipt")
        stage.see(stranger, "wrong sale", "/pricing/card/card_nothing")
        for product in PRODUCTS:
            stage.see(stranger, "first day", f"/pricing/{product}")
        stage.see(await stage.visitor("prepaid"), "credits, none used", "/keys")
        await stage.try_to(stranger, "/keys wrong", "wrong key", "/keys", page="/keys", key="campus_live_" + "a" * 38)
        await stage.try_to(
            stranger, "/recorder wrong", "wrong webhook", "/recorder", page="/recorder", name=LONG[:60], alert_webhook="ftp://x"
        )
        await cards(stage)
        app = ChatApp((await stage.visitor()).http, building="cve")
        await app.register(name=f"Chat app of {LONG[:30]}")
        answer = await app.authorize()
        stage.see(Visitor(app.http), "asked", answer.headers["location"].removeprefix(ORIGIN))
        await operators_pages(stage, "first day")
        operator = await stage.stack.enter_async_context(visiting(open_admin(stage.campus.service), origin="http://localhost"))
        stage.views.append(View("operator /sign-in", "first day", operator, "/sign-in"))
        yield stage.views


async def cards(stage: Stage) -> None:
    """A sale by card in each of its states."""
    for state in ("waiting", "paid", "expired", "disputed", "refunded", "silent"):
        buyer = await stage.visitor()
        sale = (await buyer.send("/pricing/pass/card", page="/pricing")).removesuffix("/pay")
        assert "/card_" in sale, sale
        stage.see(buyer, state, sale)
        stage.see(await stage.visitor(), f"{state}, other browser", sale)
        if state in ("paid", "disputed", "refunded"):
            await hook(stage, stage.stripe.pay())
        if state == "expired":
            await hook(stage, stage.stripe.expire())
        if state == "disputed":
            await buyer.http.get(sale, headers=HTML)
            await hook(stage, stage.stripe.dispute("needs_response"))
        if state == "refunded":
            await buyer.http.get(sale, headers=HTML)
            await hook(stage, stage.stripe.refund(2900))
        if state == "paid":
            page = (await buyer.http.get(sale, headers=HTML)).text
            (token,) = set(re.findall(r"campus_live_[0-9A-Za-z]+", page))
            stage.see(await stage.visitor(token=token), "one, by card", "/keys/receipt")


async def hook(stage: Stage, event: Mapping[str, Any]) -> None:
    body, headers = signed(event)
    answer = await stage.campus.http.post("/v1/cards/webhook", content=body, headers=headers)
    assert answer.status_code == 200, answer.text


def publish(stage: Stage, day: date) -> None:
    """The feeds of a day: the sample's listings, with one more every third day, and scores that move."""
    make = Make()
    listed = json.loads((SAMPLE / "kev.json").read_text())["vulnerabilities"]
    count = (day - FIRST_DAY).days
    new = [
        make.kev_entry(f"CVE-2026-{1000 + n}", FIRST_DAY + timedelta(days=n), product=f"Anvil {n}", vendorProject=f"Vendor {n % 11}")
        for n in range(0, count + 1, 3)
    ]
    older = [
        make.kev_entry(
            f"CVE-2025-{1000 + n}", FIRST_DAY - timedelta(days=400 - n), vendorProject=f"Maker {n % 90}", product=f"Works {n % 7}"
        )
        for n in range(390)
    ]
    released = f"{day}T17:00:00.000Z"
    (stage.feeds / "kev.json").write_bytes(make.kev_catalog([*listed, *older, *new], released=released))
    rows = (SAMPLE / "epss.csv").read_text().splitlines()[2:]
    scores = {row.split(",")[0]: float(row.split(",")[1]) for row in rows}
    scores |= {f"CVE-2026-{1000 + n}": round(0.01 + (n * 37 % 83) / 100 + (n + count) % 7 / 100, 5) for n in range(130)}
    scores |= {f"CVE-2025-{1000 + n}": round((n * 53 % 97) / 100, 5) for n in range(390)}
    (stage.feeds / "epss.csv.gz").write_bytes(make.epss_file(scores, scored=f"{day}T12:00:00Z"))
    records = [one["cve"] for one in json.loads((SAMPLE / "nvd.json").read_text())["vulnerabilities"]]
    (stage.feeds / "nvd.json").write_bytes(make.nvd_page([*records, make.nvd_record("CVE-2026-1002", vulnStatus="Rejected")]))


def _noon(day: date) -> datetime:
    return datetime.combine(day, time(21), tzinfo=UTC)


@asynccontextmanager
async def hundredth_day() -> AsyncIterator[Sequence[View]]:
    async with staged(at=_noon(FIRST_DAY)) as stage:
        owner = await stage.campus.key("year")
        old = await stage.recorder.register("http://127.0.0.1:9/hook", key=owner, name="Old agent", period_minutes=1440, grace_minutes=60)
        for count in range(DAYS):
            day = FIRST_DAY + timedelta(days=count)
            publish(stage, day)
            await stage.recorder.pass_time(seconds=(_noon(day) - stage.clock()).total_seconds())
            if count == DAYS - 5:
                await told(stage)
            if count not in (40, 41, 77):
                await stage.recorder.beat(old, **({"capsule": {"step": count}} if count % 10 == 0 else {}))
            await stage.recorder.sweep()
            if count % 5 == 0 or count > DAYS - 10:  # a list takes half a second
                await stage.campus.run("cve.refresh", accept=count == 0)
        await stage.campus.run("cve.grade")
        await measured(stage)
        await stage.recorder.pass_time(minutes=1)
        await stage.campus.run("recorder.beat_demo")
        stranger, holder = await stage.visitor(), await stage.visitor("pass")
        await all_pages(stage, stranger, "hundredth day")
        await all_pages(stage, holder, "hundredth day, with a key")
        stage.see(await stage.visitor(token=owner), "an owner", "/recorder", f"/recorder/{old['monitor_id']}")
        for name, cve_id in _SOME_CVES.items():
            stage.see(stranger, name, f"/cve/{cve_id}")
            stage.see(holder, f"{name}, with a key", f"/cve/{cve_id}")
        stage.see(stranger, "one", "/cve/vendors/maker3", "/cve/vendors/microsoft")
        stage.see(stranger, "unknown", "/cve/vendors/nobody-at-all")
        await reports(stage, stranger, holder)
        await watches(stage)
        await operators_pages(stage, "hundredth day")
        yield stage.views


_SOME_CVES = {
    "attacked": "CVE-2021-44228",
    "new": "CVE-2026-1099",
    "not listed": "CVE-2026-1001",
    "withdrawn": "CVE-2026-1002",
    "unknown": "CVE-2019-99999",
    "no CVE": "CVE-1-1",
}


async def measured(stage: Stage) -> None:
    """The status of a hundred days, with one bad day and one worse."""
    today, works = stage.clock().date(), dict.fromkeys((SERVICE, "cve", "recorder", "gateway", "checkout"), True)
    async with stage.campus.service.core.storage.write() as session:
        for back in range(90):
            day = (today - timedelta(days=back)).isoformat()
            bad = {30: 600, 31: 40_000}.get(back, 0)
            for name in works:
                session.add(StatusDay(day=day, name=name, good=86_400 - bad, bad=bad, until=stage.clock()))
    await stage.campus.service.feature("status").measure(stage.clock(), works, Counter())


async def reports(stage: Stage, stranger: Visitor, holder: Visitor) -> None:
    for count in (0, 1, 2, 7, 30, 168, 10_000):
        text = report(count)
        for visitor, name in ((await stage.visitor(), ""), (holder, ", with a key")):
            await stage.try_to(visitor, "/cve/report answer", f"{count} findings{name}", "/cve/report", page="/cve/report", report=text)
    await stage.try_to(stranger, "/cve/report answer", "nothing that can be read", "/cve/report", page="/cve/report", report="hello, world")
    for _ in range(4):
        location = await stranger.send("/cve/report", page="/cve/report", report="CVE-2021-44228")
    stage.views.append(View("/cve/report answer", "none free today", stranger, location))


def report(count: int) -> str:
    """A scanner's report with so many findings, as Grype writes one."""
    if count > 1_000:  # as JSON it would be larger than a form may be
        return "\n".join(f"CVE-{2000 + n % 26}-{1000 + n}" for n in range(count))
    cves = [f"CVE-2026-{1000 + n * 3 % 130}" for n in range(count)] if count > 2 else ["CVE-2021-44228", "CVE-2014-0160"][:count]
    matches = [
        {
            "vulnerability": {
                **{
                    "id": cve_id if n % 3 else f"CVE-{2010 + n % 12}-{n:05}",
                    "severity": ("High", "Low", "Critical")[n % 3],
                    "namespace": "debian",
                },
                **{"fix": {"versions": [f"2.{n}.1"] if n % 2 else [], "state": "fixed" if n % 2 else "not-fixed"}},
            },
            "artifact": {"name": f"libsomething-with-a-name-{n}", "version": f"2.{n}.0-1+deb12u3", "type": "deb"},
        }
        for n, cve_id in enumerate(cves)
    ]
    return json.dumps({"matches": matches, "source": {"type": "image", "target": {"userInput": "app"}}, "descriptor": {"name": "grype"}})


async def told(stage: Stage) -> None:
    """A watch with a confirmed mailbox, of which the next lists have news."""
    email = {"alert_email": "news@harbour.example"}
    await stage.call("create_watch", "cve", await stage.campus.key("cve"), name="Ours", vendors=[f"Vendor {n}" for n in range(11)], **email)
    await _deliver_news(stage)
    stranger = await stage.visitor()
    confirm = stage.mailbox.link("confirm").removeprefix(ORIGIN)
    await stranger.send(confirm, page=confirm, answer="allow")


async def _deliver_news(stage: Stage) -> None:
    await stage.campus.service.sites["cve"].state.watching.dispatcher.deliver_due()


async def watches(stage: Stage) -> None:
    await _deliver_news(stage)
    for count in (1, 20):
        key = await stage.campus.key("cve")
        for n in range(count):
            name = LONG[:100] if n == 0 else f"Watch {n}"
            email = {"alert_email": "team@harbour.example"} if n == 0 else {}
            await stage.call("create_watch", "cve", key, name=name, vendors=["Microsoft", f"Vendor {n}"], **email)
        await _deliver_news(stage)
        stage.see(await stage.visitor(token=key), f"{count} watches", "/cve/watches")
    stranger = await stage.visitor()
    mails(stage, stranger, "watch")


def mails(stage: Stage, stranger: Visitor, name: str) -> None:
    """The mails that came, and the pages behind their links."""
    for message, html in zip(stage.mailbox.messages, stage.mailbox.htmls, strict=True):
        stage.views.append(View("mails", f"{name}: {message['subject']}", stranger, html=html))
        for link in dict.fromkeys(re.findall(r'href="https://campus.test(/v1/\w+/email/[^"]+|/v1/\w+/acknowledge/[^"]+)"', html)):
            stage.see(stranger, name, link)
    stage.mailbox.messages.clear()
    stage.mailbox.htmls.clear()


@asynccontextmanager
async def many_monitors() -> AsyncIterator[Sequence[View]]:
    """The recorder with 1, 2, 7, 30 and 10,000 monitors, in all their states, with 0, 1 and 100 runs."""
    async with staged(at=datetime(2026, 8, 21, 12, tzinfo=UTC)) as stage:
        keys = {count: await stage.campus.key("monitors") for count in (1, 2, 7, 30, 10_000)}
        fleets = {count: await fleet(stage, key, min(count, 30)) for count, key in keys.items()}
        mailed = await stage.recorder.register(None, key=keys[7], alert_email="team@harbour.example", name=LONG[:100])
        await stage.recorder.deliver()
        stranger = await stage.visitor()
        mails(stage, stranger, "to be confirmed")
        ran, once = fleets[30][0], fleets[30][1]
        for _ in range(100):
            await stage.recorder.beat(ran, status="start")
            await stage.recorder.pass_time(minutes=3)
            await stage.recorder.beat(ran, status="ok", output="done: 41 of 60 orders" * 3)
            await stage.recorder.pass_time(minutes=7)
            await stage.recorder.sweep()
        await stage.recorder.beat(once, status="start")
        await stage.recorder.beat(once, status="fail", output="Traceback (most recent call last):\n" + "a long line " * 40)
        for beaten in (*fleets[30][2:20], *fleets[10_000], *fleets[2], *fleets[7][:5]):
            await stage.recorder.beat(beaten, capsule={"step": 41, "of": 60, "next": LONG})
        await stage.recorder.beat(fleets[30][2], status="fail")
        confirm = next(view.path for view in stage.views if "/confirm/" in view.path)
        await stranger.send(confirm, page=confirm, answer="allow")
        await stage.recorder.deliver()
        mails(stage, stranger, "alert")
        await stage.recorder.pass_time(minutes=200)
        await stage.recorder.sweep()
        await stage.recorder.deliver()
        mails(stage, stranger, "dead")
        await ten_thousand(stage, fleets[10_000][0])
        for count, key in keys.items():
            stage.see(await stage.visitor(token=key), f"{count} monitors", "/recorder")
        offline = await stage.visitor(token=keys[30])
        offline.is_offline = True
        stage.see(offline, "30 monitors, offline", "/recorder")
        holder = await stage.visitor(token=keys[30])
        for name, one in {"100 runs": ran, "one failed run": once, "dead": fleets[30][3], "never beat": fleets[30][25]}.items():
            stage.see(holder, name, f"/recorder/{one['monitor_id']}")
        stage.see(holder, "unknown", "/recorder/mon_nothing")
        stage.see(await stage.visitor(token=keys[7]), "mail, long name", f"/recorder/{mailed['monitor_id']}")
        free = await stage.recorder.register("http://127.0.0.1:9/free", name="free one")
        stage.see(stranger, "free, never beat", free["page_url"].removeprefix(ORIGIN))
        await stage.try_to(
            holder,
            "/recorder answer",
            "registered",
            "/recorder",
            page="/recorder",
            name=LONG[:100],
            alert_webhook="http://127.0.0.1:9/made",
        )
        await operators_pages(stage, "10,000 monitors")
        yield stage.views


@asynccontextmanager
async def expired_key() -> AsyncIterator[Sequence[View]]:
    async with staged() as stage:
        holder = await stage.visitor("pass")
        stage.clock.move(timedelta(days=40))
        for path in ("/keys", "/recorder", "/cve", "/cve/watches", "/pricing", "/recorder/mon_nothing", "/keys/receipt"):
            stage.see(holder, "expired key", path)
        yield stage.views


async def fleet(stage: Stage, key: str, count: int) -> list[dict[str, Any]]:
    return [
        await stage.recorder.register(
            f"http://127.0.0.1:9/{n}", key=key, name=LONG[: 100 - n] if n % 9 == 4 else f"worker {n}", tags=["prod"]
        )
        for n in range(count)
    ]


async def ten_thousand(stage: Stage, like: Mapping[str, Any]) -> None:
    row = await stage.recorder.row(like)
    site = stage.campus.service.sites["recorder"]

    def insert_all(connection: Any) -> None:
        rows = [{**row._asdict(), **unlike(f"mon_copy{n:05}"), "name": f"copy {n}"} for n in range(9_970)]
        for first in range(0, len(rows), 500):
            connection.execute(insert(MONITORS), rows[first : first + 500])
        connection.execute(update(OWNERS).where(OWNERS.c.lineage == row.owner).values(monitors=10_000))

    await in_transaction(site.storage, insert_all)


@asynccontextmanager
async def nothing_for_sale() -> AsyncIterator[Sequence[View]]:
    async with staged(at=_noon(FIRST_DAY), products={}, sells=False, sample=False) as stage:
        stranger = await stage.visitor()
        await all_pages(stage, stranger, "nothing for sale, no list")
        stage.see(stranger, "no list", "/cve/CVE-2021-44228", "/docs/api", "/docs/buyers")
        await operators_pages(stage, "nothing for sale, no list")
        yield stage.views


@asynccontextmanager
async def one_product() -> AsyncIterator[Sequence[View]]:
    """One product, which nobody can buy here, and a building whose author writes too much."""
    only = {"pass": {"title": f"Everything {LONG[:49]}", "scope": "all", "price": "12345.67", "url": "https://shop.example/pass"}}
    async with staged(at=_noon(FIRST_DAY), products=only, sells=False, harbour=True) as stage:
        stranger, holder = await stage.visitor(), await stage.visitor("pass")
        stage.see(
            stranger, "one product, hostile", "/", "/pricing", "/pricing/pass", "/docs/api", "/tools/harbour/find", "/v1/harbour", "/log"
        )
        stage.see(holder, "one product, hostile", "/keys", "/pricing/pass?renew", "/tools/harbour/secret_berth")
        yield stage.views


@asynccontextmanager
async def two_products() -> AsyncIterator[Sequence[View]]:
    """Two products, one recommended: a key that has no calls left, and one with 30 receipts."""
    more = {"description": "For a team of up to ten.", "recommended": True, "credits": "0.02", "calls": 1}
    async with staged(products={"monitors": PRODUCTS["monitors"], "pass": {**PRODUCTS["pass"], **more}}) as stage:
        renewed = await stage.visitor("pass")
        for _ in range(30):
            await renewed.send("/pricing/pass/card", page="/pricing/pass?renew")
            await hook(stage, stage.stripe.pay())
            stage.clock.move(timedelta(hours=1))
        stage.see(renewed, "30 receipts", "/keys/receipt", "/keys")
        stranger, tool = await stage.visitor(), "/tools/cve/top_cves_today"
        stage.see(stranger, "two products", "/", "/pricing", "/pricing/pass", "/keys", "/cve")
        await stage.try_to(stranger, f"{tool} answer", "without a key", tool, page=tool)
        key = await stage.campus.key("pass")
        for _ in range(2):
            await stage.call("top_cves_today", "cve", key)
        spent = await stage.visitor(token=key)
        stage.see(spent, "credits used up", "/keys", "/cve", "/recorder", "/pricing")
        await stage.try_to(spent, f"{tool} answer", "credits used up", tool, page=tool)
        yield stage.views


STAGES: Mapping[str, Callable[[], AbstractAsyncContextManager[Sequence[View]]]] = {
    "first": first_day,
    "hundredth": hundredth_day,
    "many": many_monitors,
    "expired": expired_key,
    "nothing": nothing_for_sale,
    "one": one_product,
    "two": two_products,
}
