"""Metrics: what /metrics shows of requests, refused connections, jobs, checks and events, and how late the event loop is."""

import json
import re
import subprocess
import time
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from shutil import which
from typing import Any

import anyio
import pytest
import yaml
from features.alerts.floods import OUTBOX
from features.alerts.floods import building as floods
from patience import patience
from prometheus_client.parser import text_string_to_metric_families
from service.conftest import shop_named

from buildings.cve.building import building as cve
from buildings.recorder import building as recorder
from campus import Building, Check, Job, Problem, Site
from campus.observability.metrics import Metrics
from campus.testing import Clock, TestCampus, open_campus

ROOT = Path(__file__).parents[2]
OF_BUILDINGS = {"campus_recorder_deaths_total", "campus_"}
"""Names in the page for operators that are no metric, or that appear with their first event."""


async def samples_of(campus: TestCampus) -> dict[tuple[str, ...], float]:
    async with campus.admin() as admin:
        families = text_string_to_metric_families((await admin.get("/metrics")).text)
    return {(one.name, *one.labels.values()): one.value for family in families for one in family.samples}


@pytest.mark.anyio
async def test_a_call_is_counted_by_its_route_and_its_outcome_alike_over_http_and_mcp(shop: Building) -> None:
    async with open_campus(shop=shop) as campus:
        for over in (campus, replace(campus, frame="mcp")):
            for day, key in (("2026-01-02", "shop"), ("1999-01-02", "shop"), ("no day", "shop"), ("2026-01-02", None)):
                await over.call("text_of", key=key, day=day)
            await over.call("crash", key="shop")
        found = await samples_of(campus)
    for route, crash, method in (("shop:text_of", "shop:crash", "POST"), ("/v1/shop/text/{day}", "/v1/shop/crash", "GET")):
        outcomes = {one[3]: value for one, value in found.items() if one[:3] == ("campus_requests_total", method, route)}
        assert outcomes == {"200": 1, "402": 1, "404": 1, "422": 1}
        assert found["campus_request_duration_seconds_count", route] == 4
        assert found["campus_requests_total", "POST", crash, "500"] == 1
    assert found[("campus_requests_running",)] == 0


@pytest.mark.anyio
async def test_no_caller_makes_a_time_series(shop: Building) -> None:
    async with open_campus(shop=shop) as campus:
        for number in range(20):
            await campus.http.request(f"BREW{number}", "/v1/shop/sample", headers={"X-Request-Id": f"id-{number}"})
            await campus.http.get(f"/v1/shop/unknown{number}")
            await campus.http.post("/shop/mcp", json={"jsonrpc": "2.0", "id": number, "method": f"unknown{number}"})
        found = await samples_of(campus)
    requests = {one[1:]: value for one, value in found.items() if one[0] == "campus_requests_total"}
    assert len(requests) == 3, requests
    assert set(requests.values()) == {20}


@pytest.mark.anyio
async def test_what_the_checks_find_and_how_the_jobs_do_is_shown_and_a_rule_fires_for_a_list_that_was_never_made(shop: Building) -> None:
    async def stock(site: Site[Any, Any]) -> Sequence[str]:
        return ["the shop is empty", "the shop is closed"]

    async def deliver(site: Site[Any, Any]) -> None: ...

    async def refresh(site: Site[Any, Any]) -> None:
        raise Problem(503, "no_van", "there is no van")

    jobs = [Job(one, every=timedelta(days=1)) for one in (deliver, refresh)]
    async with open_campus(cve=replace(shop, jobs=jobs, checks=[Check(stock, on="ready")])) as campus:
        await campus.run("deliver")
        with pytest.raises(Problem):
            await campus.run("refresh")
        await campus.service.scheduler.read_records()
        found, now = await samples_of(campus), campus.site.now().timestamp()
    assert {one[1]: value for one, value in found.items() if one[0] == "campus_check_findings"} == {"storage": 0, "jobs": 1, "cve": 2}
    assert (found["campus_job_failures", "cve.deliver"], found["campus_job_failures", "cve.refresh"]) == (0, 1)
    assert abs(found["campus_job_last_success_timestamp_seconds", "cve.deliver"] - now) < 60
    rule = re.findall(r"alert: CampusListMissing\n +expr: (.*)", (ROOT / "deploy/prometheus-rules.yml").read_text())[0]
    (there, missing) = re.findall(r"(\w+){job_name=\"([\w.]+)\"}", rule)
    assert found[there] == 1
    assert missing not in found


@pytest.mark.anyio
async def test_alerts_that_wait_are_shown_with_how_late_the_next_one_is_and_how_old_the_oldest() -> None:
    clock = Clock()
    async with open_campus(floods=replace(floods, gives={"alerts": OUTBOX}), clock=clock) as campus:
        await campus.call("subscribe", address="pager:1")
        for port in ("brest", "nantes"):
            await campus.call("report", port=port, metres=6)
        clock.move(timedelta(seconds=80))
        found = await samples_of(campus)
        assert (found["campus_alerts_waiting", "floods"], found["campus_alerts_late_seconds", "floods"]) == (2, 80)
        assert found["campus_alerts_oldest_seconds", "floods"] == 80
        await campus.site.state.dispatcher.deliver_due()
        found = await samples_of(campus)
    assert (found["campus_alerts_waiting", "floods"], found["campus_alerts_late_seconds", "floods"]) == (0, 0)
    assert found["campus_alerts_oldest_seconds", "floods"] == 0


@pytest.mark.anyio
async def test_the_dashboard_the_rules_and_the_page_for_operators_name_metrics_and_labels_that_there_are() -> None:
    tables = {"buildings": {"recorder": {}, "cve": {"sample": True}}}
    async with open_campus(recorder=recorder, cve=cve, tables=tables) as campus, campus.admin() as admin:
        calls = campus.service.metrics.calls
        await campus.call("brief_teaser", building="cve")
        await campus.call("register_monitor", period_minutes=5, alert_webhook="https://hooks.example/1")
        calls.earned("cve", "verdict", 20_000)
        calls.refused("free")
        await campus.service.scheduler.read_records()
        page = (await admin.get("/metrics")).text
    families = list(text_string_to_metric_families(page))
    served = set(re.findall(r"^# TYPE (\w+)", page, re.MULTILINE))
    for file, unseen in (("deploy/prometheus-rules.yml", set()), ("docs/operate.md", OF_BUILDINGS)):
        named = {name.removesuffix("_bucket") for name in re.findall(r"\bcampus_\w*", (ROOT / file).read_text())}
        assert named - served <= unseen, file
    labels = {sample.name: {*sample.labels} for family in families for sample in family.samples}
    labels |= {family.name: set() for family in families if not family.samples}
    empty = {name for name, found in labels.items() if not found}
    dashboard = json.loads((ROOT / "deploy/grafana/campus.json").read_text())
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    assert len(expressions) > 20
    for expression in expressions:
        bare = re.sub(r'"[^"]*"', "", expression)
        named = set(re.findall(r"\b(?:campus|process)_\w+", bare))
        assert named, expression
        for name in named:
            known = [one for one in (name, name.removesuffix("_total")) if one in labels]
            assert known, f"{name} is not served"
            used = {label for by in re.findall(r"by \(([^)]*)\)", bare) for label in by.replace(" ", "").split(",")}
            used |= set(re.findall(r"(\w+)=", bare))
            assert used - {"instance", "job"} <= labels[known[0]] or known[0] in empty, f"{expression}: {labels[known[0]]}"
    variables = dashboard["templating"]["list"]
    assert {one["name"] for one in variables} >= set(re.findall(r"\$(?!__)(\w+)", " ".join(expressions)))


@pytest.mark.anyio
async def test_calls_are_counted_by_what_opened_them_and_by_the_limit_that_refused_them(shop: Building) -> None:
    async with open_campus(shop=shop, tables={"limits": {"keyed": 2}}) as campus:
        for over in (campus, replace(campus, frame="mcp")):
            key = await campus.key("shop")
            for _ in range(3):
                await over.call("text_of", key=key, day="2026-01-02")
            await over.call("text_of", day="2026-01-02")
        found = await samples_of(campus)
    opened = {one[1:]: value for one, value in found.items() if one[0] == "campus_calls_opened_total"}
    assert opened == {("shop", "key"): 4}
    assert {one[1:]: value for one, value in found.items() if one[0] == "campus_limits_reached_total"} == {("keyed",): 2}


@pytest.mark.anyio
async def test_a_building_has_gauges_and_one_that_cannot_be_read_is_left_out(shop: Building) -> None:
    async def boats(site: Site[Any, Any]) -> dict[tuple[str, str], dict[str, float]]:
        return {("boats", "state"): {"moored": 3, "out": 1}}

    async def wrong(site: Site[Any, Any]) -> dict[tuple[str, str], dict[str, float]]:
        return {("no name", "state"): {"moored": 3}}

    async with open_campus(wrong=replace(shop_named("wrong"), gauges=wrong), shop=replace(shop, gauges=boats)) as campus:
        found = await samples_of(campus)
    assert (found["campus_shop_boats", "moored"], found["campus_shop_boats", "out"]) == (3, 1)
    assert ("campus_reads_running", "campus") in found


def test_the_collectors_pipelines_name_parts_that_there_are() -> None:
    collector = yaml.safe_load((ROOT / "deploy/otel-collector.yaml").read_text())
    for pipeline in collector["service"]["pipelines"].values():
        for kind, names in pipeline.items():
            assert set(names) <= set(collector[kind])
    [scrape] = collector["receivers"]["prometheus"]["config"]["scrape_configs"]
    assert (scrape["job_name"], scrape["static_configs"][0]["targets"]) == ("campus", [shipped_admin()])


def shipped_admin() -> str:
    return str(tomllib.loads((ROOT / "campus.toml").read_text())["server"]["admin"])


@pytest.mark.skipif(which("promtool") is None, reason="promtool is not installed")
def test_each_rule_fires_when_it_must_and_not_before() -> None:
    rules, cases = ROOT / "deploy/prometheus-rules.yml", Path(__file__).with_name("prometheus-rules-test.yml")
    alerts = set(re.findall(r"alert: (\w+)", rules.read_text()))
    assert set(re.findall(r"alertname: (\w+)", cases.read_text())) == alerts
    ran = subprocess.run(["promtool", "test", "rules", cases], capture_output=True, text=True, timeout=patience(60), check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_events_are_counted_by_their_labels() -> None:
    metrics = Metrics()
    for kind in ("book", "book", "pen"):
        metrics.add("shop", "sales", {"kind": kind, "way": "key"})
    metrics.add("shop", "visits", {})
    page = anyio.run(metrics.page).decode()
    assert 'campus_shop_sales_total{kind="book",way="key"} 2.0\ncampus_shop_sales_total{kind="pen",way="key"} 1.0\n' in page
    assert "# TYPE campus_shop_visits_total counter\ncampus_shop_visits_total 1.0\n" in page


def test_an_event_cannot_be_counted_with_other_labels() -> None:
    metrics = Metrics()
    metrics.add("shop", "sales", {"kind": "book"})
    with pytest.raises(ValueError, match="Incorrect label names"):
        metrics.add("shop", "sales", {"size": "large"})
    assert b"large" not in anyio.run(metrics.page)


@pytest.mark.anyio
async def test_a_stall_of_the_event_loop_is_in_the_histogram_of_its_lag() -> None:
    metrics = Metrics()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(metrics.event_loop_lag.measure)
        await anyio.sleep(0.05)
        before = await lags_over_quarter_second(metrics)
        time.sleep(0.4)  # noqa: ASYNC251  # the stall
        await anyio.sleep(0.05)
        tasks.cancel_scope.cancel()
    assert await lags_over_quarter_second(metrics) == before + 1


async def lags_over_quarter_second(metrics: Metrics) -> int:
    page = (await metrics.page()).decode()
    upto, everything = (re.search(rf'campus_event_loop_lag_seconds_bucket{{le="{bound}"}} (\d+)', page) for bound in ("0.25", r"\+Inf"))
    assert upto is not None
    assert everything is not None
    return int(everything[1]) - int(upto[1])
