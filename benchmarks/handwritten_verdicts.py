"""Baseline of the verdicts: one Starlette route over the same store, its answer a dict. `handwritten_verdicts PORT CONFIG`."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime
from pathlib import Path
from random import Random
from typing import Any

from pydantic import TypeAdapter
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from benchmarks.bare_starlette import OrjsonResponse
from benchmarks.baseline_server import listen
from buildings.cve.arguments import canonical, number_of, spelled
from buildings.cve.models import NvdDetails
from buildings.cve.ranking.deadlines import Deadlines, in_words, urgency_of
from buildings.cve.ranking.edition import Edition
from buildings.cve.ranking.enrichment import patch_of
from buildings.cve.ranking.formula import factors_of
from buildings.cve.ranking.results import links_of, listing_of
from campus.app import assemble
from campus.config import read_config

SEED = 20260821
DEADLINES = TypeAdapter(Deadlines)


def app(config: Path) -> Starlette:
    """The routes: a verdict, and random identifiers to request."""
    editions: list[Edition] = []

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with assemble(read_config(config), exclusive=False) as campus:
            editions.append(campus.sites["cve"].state.edition)
            yield

    async def one(request: Request) -> Response:
        if (cve_id := canonical(request.path_params["cve_id"])) is None:
            raise HTTPException(400)
        return OrjsonResponse(verdict(editions[0], cve_id, today=datetime.now(UTC).date()))

    async def draw(request: Request) -> Response:
        numbers = Random(SEED).choices(editions[0].ranked.numbers, k=int(request.path_params["count"]))
        return OrjsonResponse([spelled(number) for number in numbers])

    async def well(request: Request) -> Response:
        return OrjsonResponse({"ok": True})

    routes = [Route("/v1/cve/{cve_id}", one), Route("/draw/{count}", draw), Route("/healthz", well)]
    return Starlette(routes=routes, lifespan=lifespan)


def verdict(edition: Edition, cve_id: str, *, today: date) -> dict[str, Any]:
    """The verdict on one CVE; 404 when it is not ranked."""
    cve = edition.ranked.find(cve_id)
    if cve is None:
        raise HTTPException(404)
    listing = edition.facts.kev.get(cve_id)
    record = edition.nvd.find(cve_id)
    points = factors_of(epss=cve.epss, added=listing.date_added if listing else None, day=edition.day)
    patch = patch_of(record, cve_id=cve_id, end_of_life=listing.date_added if listing and listing.end_of_life else None)
    rating = record and record.rating
    removal = edition.facts.removed.get(cve_id)
    said = listing_of(edition, cve_id)
    urgency = urgency_of(listing, record.ssvc if record else None, epss=cve.epss, exposed="unknown", today=today)
    sample = {"sample": True} if edition.is_sample else {}
    return sample | {
        "ok": True,
        "day": edition.day,
        "found": True,
        "stale": edition.facts.issues.is_stale(today),
        "of": len(edition.ranked),
        "when": urgency.when,
        **({"when_if_exposed": urgency.when_if_exposed} if urgency.when_if_exposed else {}),
        "why": urgency.why,
        "deadlines": DEADLINES.dump_python(in_words(urgency.deadlines)),
        "listing": said.model_dump() if said else None,
        "links": [page.model_dump() for page in links_of(edition, cve_id)],
        "rank": cve.rank,
        "cve_id": cve_id,
        "score": round(points.score, 3),
        "kev": listing is not None,
        "kev_date_added": listing.date_added if listing else None,
        "kev_due_date": listing.due_date if listing else None,
        "kev_removed_on": removal.noticed_on if removal else None,
        "ransomware": True if listing and listing.ransomware else None,
        "epss": cve.epss,
        "epss_percentile": cve.percentile,
        "severity": rating.severity if rating else "UNKNOWN",
        "severity_source": rating.source if rating else None,
        "cvss": {"score": rating.score, "version": rating.version, "vector": rating.vector} if rating else None,
        "patch_status": patch.status,
        "patch_evidence": {"url": patch.url, "date": patch.said_on} if patch.url and patch.said_on else None,
        "vendor": (listing and listing.vendor) or (record and record.vendor) or None,
        "product": (listing and listing.product) or (record and record.product) or None,
        "nvd_record": edition.nvd.state_of(number_of(cve_id)),
        "exploit_reference": record.exploit_url if record else None,
        "nvd": NvdDetails.model_validate(record, from_attributes=True).model_dump() if record else None,
        "factors": {"kev": points.kev, "epss": round(points.epss, 3), "recency": round(points.recency, 3)},
    }


if __name__ == "__main__":
    listen(app(Path(sys.argv[2])), port=int(sys.argv[1]))
