"""The page of a key's watches, /cve/watches, with a form that makes one; and what the key's own page says of its watches and feeds."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import anyio.to_thread
from sqlalchemy import func, select

from buildings.cve.pages.feed_urls import feeds_of, lineage_in
from buildings.cve.pages.lists import NOT_ADMITTED
from buildings.cve.pages.reports import unpacked
from buildings.cve.ranking.latest import CveSite
from buildings.cve.tables import WATCHES as WATCH_ROWS
from buildings.cve.watches.models import MOST_WATCHES, WatchList, WatchMade
from buildings.cve.watches.news import latest_news
from buildings.cve.watches.store import list_watches
from campus import Problem, Request, Response
from campus.building import Holding, ToolCall
from campus.caller import Key
from campus.storage import in_snapshot

WATCHES = "/cve/watches"
TEXTS = ("name", "exposed", "alert_webhook", "alert_email")
LISTS = ("vendors", "products", "cve_ids")
FIELDS = (*TEXTS, *LISTS, "least_score")
SHOWN_NEWS = 20


async def show_watches(request: Request, site: CveSite) -> Response:
    if request.method == "POST":
        return await _make(request, site)
    return await _page(request, site)


async def remove_watch(request: Request, site: CveSite) -> Response:
    await site.admit(request, "list_watches")
    try:
        await site.call(request, "delete_watch", watch_id=request.path_params["watch_id"])
    except Problem as refused:
        return await _page(request, site, refused=refused)
    return Response(status_code=303, headers={"Location": WATCHES})


async def watches_used(site: CveSite, key: Key) -> str:
    chosen = select(func.count()).select_from(WATCH_ROWS).where(WATCH_ROWS.c.lineage == key.lineage)
    count = await in_snapshot(site.storage, lambda connection: connection.scalar(chosen))
    return f"{count or 0} of {MOST_WATCHES} watches"


async def _make(request: Request, site: CveSite) -> Response:
    form = await request.form()
    given = {name: text.strip() for name in FIELDS if isinstance(text := form.get(name), str) and text.strip()}
    await site.admit(request, "list_watches")
    try:
        if packed_report := form.get("packed"):  # from the page of a report
            report = await anyio.to_thread.run_sync(unpacked, str(packed_report))
            answer = await site.call(request, "watch_report", report=report, **_arguments(given))
        else:
            answer = await site.call(request, "create_watch", **_arguments(given))
    except Problem as refused:
        return await _page(request, site, refused=refused, given=given)
    return await _page(request, site, made=WatchMade.model_validate(answer))


def _arguments(given: Mapping[str, str]) -> dict[str, Any]:
    """The arguments of the tool. Lists are separated by commas or lines; a number that is none is explained by the tool's refusal."""
    arguments: dict[str, Any] = {name: given[name] for name in TEXTS if name in given}
    for name in LISTS:
        if name in given:
            arguments[name] = [part.strip() for part in given[name].replace("\n", ",").split(",") if part.strip()]
    if "least_score" in given:
        try:
            arguments["least_score"] = float(given["least_score"])
        except ValueError:
            arguments["least_score"] = given["least_score"]
    return arguments


async def _page(
    request: Request,
    site: CveSite,
    *,
    refused: Problem | None = None,
    given: Mapping[str, str] | None = None,
    made: WatchMade | None = None,
) -> Response:
    try:
        caller = await site.admit(request, "list_watches")
    except Problem as refusal:
        if refusal.status not in NOT_ADMITTED:
            raise
        data = {"ok": True, "signed_in": False, "detail": refusal.detail}
        return site.page("no_watches.html", request, data=data, refusal=refusal)
    shown = WatchList.model_validate(await site.call(request, "list_watches"))
    news = await in_snapshot(site.storage, partial(latest_news, lineage=lineage_in(caller), most=SHOWN_NEWS))
    return site.page(
        "watches.html",
        request,
        data={"watches": shown, "news": news},
        status=refused.status if refused else 200,
        headers=refused.headers if refused else None,
        shown=shown,
        news=news,
        refused=refused,
        given=given or {},
        made=made,
        most=MOST_WATCHES,
        has_mail=site.feature("mail") is not None,
    )


async def feeds_and_watches(site: CveSite, key: Key) -> list[Holding]:
    feeds = [
        Holding(
            id=row.id,
            kind="feed address",
            name=row.label or row.id,
            made_at=row.made_at,
            made_by=row.made_by,
            end=ToolCall("revoke_feed_url", {"feed_id": row.id}),
            keep=ToolCall("keep_feed_url", {"feed_id": row.id}),
        )
        for row in await feeds_of(site.storage, key.lineage)
    ]
    watches = [
        Holding(
            id=watch.watch_id,
            kind=", ".join(["watch", *(f"{target.kind} {target.address}" for target in watch.targets)]),
            name=watch.name,
            made_at=watch.made_at,
            made_by=watch.made_by.id,
            end=ToolCall("delete_watch", {"watch_id": watch.watch_id}),
            keep=ToolCall("update_watch", {"watch_id": watch.watch_id}),
        )
        for watch in (await in_snapshot(site.storage, partial(list_watches, lineage=key.lineage))).watches
    ]
    return [*feeds, *watches]
