"""The operator's pages of jobs, keys, alerts and buildings. What they do, the command line does by the same methods."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from campus.app import Campus
from campus.features.operator.configuration import shown_configuration
from campus.features.operator.overview import (
    ENDING_SOON,
    calls_by_day,
    done,
    facts_of,
    jobs_of,
    key_counts,
    read_sections,
    rendered,
)
from campus.features.operator.sign_in import NO_STORE
from campus.keys.repository import KeyRecord, ending_keys, newest_keys
from campus.keys.tokens import pasted
from campus.layout.renderer import Pages

USAGE_DAYS = 30
KEYS_PER_PAGE = 50
TARGETS_SHOWN = 100
LONGEST_NOTE, LONGEST_SEARCH = 200, 60


@dataclass(frozen=True)
class OperatorPages:
    """The pages of jobs, keys, alerts and buildings. Each handler receives the request and the fields of its form."""

    campus: Campus
    pages: Pages

    async def jobs(self, request: Request, form: Mapping[str, str], refused: str | None = None) -> Response:
        """Every job: when it ran, whether it failed and why, when it runs next; and a button that runs it."""
        found = await read_sections(jobs=lambda: jobs_of(self.campus))
        services = self.campus.services.findings()
        return self._page("jobs.html", request, refused, jobs=found["jobs"], now=self.campus.core.now(), services=services)

    async def run_job(self, request: Request, form: Mapping[str, str]) -> Response:
        name = request.path_params["name"]
        _, refused = await done(lambda: self.campus.scheduler.ask(name))
        return await self.jobs(request, {}, refused) if refused else _see_other(f"/jobs#{name}")

    async def usage(self, request: Request, form: Mapping[str, str]) -> Response:
        return self._page("usage.html", request, **await read_sections(calls=lambda: calls_by_day(self.campus)))

    async def keys(self, request: Request, form: Mapping[str, str], refused: str | None = None) -> Response:
        """The newest keys, or those that a text finds; a form that issues one. The text is in no address: it may be a whole key."""
        asked = form if "like" in form else request.query_params
        like = pasted(asked.get("like", ""))[:LONGEST_SEARCH]
        before = asked.get("before") or None

        async def newest() -> Sequence[KeyRecord]:
            core = self.campus.core
            return await newest_keys(core.storage, before=before, limit=KEYS_PER_PAGE + 1, like=like, now=core.now())

        async def ending() -> Sequence[KeyRecord]:
            core = self.campus.core
            return await ending_keys(core.storage, now=core.now(), within=ENDING_SOON, limit=KEYS_PER_PAGE)

        found = await read_sections(keys=newest, counts=lambda: key_counts(self.campus), ending=ending)
        records = found["keys"].value or ()
        usage = self.campus.feature("usage")
        called = await read_sections(calls=lambda: usage.totals({one.key.lineage for one in records}, days=USAGE_DAYS))
        return self._page(
            "keys.html",
            request,
            refused,
            keys=found["keys"],
            records=records[:KEYS_PER_PAGE],
            next=records[KEYS_PER_PAGE - 1].key.id if len(records) > KEYS_PER_PAGE else None,
            counts=found["counts"],
            ending=found["ending"],
            now=self.campus.core.now(),
            calls=called["calls"],
            like=like,
            before=before,
            given=form,
            ends_soon=self.campus.core.now() + ENDING_SOON,
            products=self.campus.plan.config.products,
        )

    async def issue_key(self, request: Request, form: Mapping[str, str]) -> Response:
        """Issue a key, as `campus key issue` does; it is on the page that answers, and nowhere else."""
        found, refused = await done(
            lambda: self.campus.keys.issue(form.get("product", ""), note=form.get("note", "").strip()[:LONGEST_NOTE])
        )
        if found is None:
            return await self.keys(request, form, refused)
        return self._page("key_issued.html", request, key=found[0], token=found[1])

    async def revoke_key(self, request: Request, form: Mapping[str, str]) -> Response:
        key, refused = await done(lambda: self.campus.keys.revoke(request.path_params["key"]))
        return _see_other(f"/keys?like={key.id}") if key else await self.keys(request, {}, refused)

    async def alerts(self, request: Request, form: Mapping[str, str]) -> Response:
        """By building: how many alerts wait, and the targets that they do not reach, with the reason."""

        async def targets() -> object:
            return await self.campus.feature("alerts").troubled_targets(limit=TARGETS_SHOWN)

        found = await read_sections(states=self.campus.feature("alerts").states, targets=targets)
        return self._page("alerts.html", request, **found, has_mail=self.campus.feature("mail") is not None)

    async def buildings(self, request: Request, form: Mapping[str, str]) -> Response:
        plan = self.campus.plan
        loaded = list(plan.loaded)

        async def configuration() -> str:
            return shown_configuration(plan.config, loaded)

        found = await read_sections(facts=lambda: facts_of(self.campus), findings=self.campus.health.findings, configuration=configuration)
        return self._page(
            "buildings.html",
            request,
            **found,
            loaded=loaded,
            entries={entry.name: entry for entry in plan.directory.buildings()},
            environment=sorted(plan.config.secrets),  # the names of variables; never their values
        )

    def _page(self, template: str, request: Request, refused: str | None = None, /, **variables: Any) -> Response:
        return rendered(self.pages, template, request, refused, **variables)


def _see_other(path: str) -> Response:
    return RedirectResponse(path, status_code=303, headers=NO_STORE)
