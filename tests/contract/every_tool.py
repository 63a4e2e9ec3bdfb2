"""One good call of every tool, in an order in which each can answer, for clients that were generated from the documents."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

NOWHERE = "http://127.0.0.1:9/alerts"
MONITOR = {"monitor_id": "monitor_id", "secret": "secret"}


@dataclass(frozen=True)
class Call:
    """A tool by its operationId in its server's document, its arguments, and the members of its answer that later calls use.

    `known` names arguments whose values come from earlier answers or from the campus. A `status` that is not a success needs
    a `code`.
    """

    tool: str
    given: Mapping[str, Any] = field(default_factory=dict)
    known: Mapping[str, str] = field(default_factory=dict)
    learns: tuple[str, ...] = ()
    status: int = 200
    code: str | None = None

    def arguments(self, known: Mapping[str, Any]) -> dict[str, Any]:
        return {**self.given, **{argument: known[name] for argument, name in self.known.items()}}

    def learned(self, answer: Mapping[str, Any]) -> dict[str, Any]:
        return {name: answer[name] for name in self.learns}


CALLS = (
    Call("list_buildings"),
    Call("how_to_pay"),
    Call("how_to_connect", {"client": "cursor"}),
    Call("about_service"),
    Call("brief_teaser"),
    Call("top_cves_today"),
    Call("kev_fresh"),
    Call("cve_verdict", {"cve_id": "CVE-2021-44228"}),
    Call("cve_verdict", {"cve_id": "CVE-1999-0001"}),
    Call("cve_facts", {"cve_id": "CVE-2021-44228"}),
    Call("cve_history", {"cve_id": "CVE-2021-44228"}),
    Call("archived_brief", known={"date": "day"}),
    Call("cve_verdicts", {"cve_ids": ["CVE-2021-44228"], "report": "fix CVE-1999-0001"}),
    Call("cve_verdicts_post", {"report": "fix CVE-1999-0001"}),
    Call("search_cves", {"vendors": ["Apache"], "kev": True, "limit": 5}),
    Call("brief_change_counts"),
    Call("brief_changes", known={"to": "day"}),
    Call("create_feed_url", {"label": "generated"}, learns=("feed_id",)),
    Call("list_feed_urls"),
    Call("keep_feed_url", {}, {"feed_id": "feed_id"}),
    Call("revoke_feed_url", {}, {"feed_id": "feed_id"}),
    Call("create_watch", {"name": "generated", "vendors": ["Apache"], "alert_webhook": NOWHERE}, learns=("watch_id",)),
    Call("update_watch", {"least_score": 50}, {"watch_id": "watch_id"}),
    Call("watch_report", {"name": "generated scan", "report": "fix CVE-1999-0001"}),
    Call("list_watches"),
    Call("watch_news", {"since": 0}),
    Call("delete_watch", {}, {"watch_id": "watch_id"}),
    Call("next_teaser"),
    Call("next_in_kev"),
    Call("next_record"),
    Call("register_monitor", {"name": "generated", "period_minutes": 30, "alert_webhook": NOWHERE}, learns=("monitor_id", "secret")),
    Call("heartbeat", {"capsule": {"step": 7, "done": ["a"]}, "seq": 1}, MONITOR),
    Call("heartbeat_get", {"capsule": "a text", "seq": 2, "next_in": 1.5}, MONITOR),
    Call("heartbeat", {"status": 0}, MONITOR),
    Call("update_monitor", {"period_minutes": 45, "alert_webhook": NOWHERE}, {"monitor_id": "monitor_id"}),
    Call("claim_monitor", {}, MONITOR),
    Call("beat_now", {}, {"monitor_id": "monitor_id"}),
    Call("get_monitor", {"runs": 1}, {"monitor_id": "monitor_id"}),
    Call("make_fleet_key", {"kind": "ping"}, learns=("hint",)),
    Call("list_fleet_keys"),
    Call("end_fleet_key", {}, {"hint": "hint"}),
    Call("import_monitors", {"document": '{"checks": []}', "alert_webhook": NOWHERE}),
    Call("pause_monitor", {}, {"monitor_id": "monitor_id"}),
    Call("resume_monitor", {}, {"monitor_id": "monitor_id"}),
    Call("send_test_alert", {}, {"monitor_id": "monitor_id"}),
    Call("fetch_capsule", {}, {"monitor_id": "monitor_id", "s": "secret"}),
    Call("fleet_status", {"limit": 20, "tags": ["web"], "state": "alive"}),
    Call("heartbeat", {"status": "fail"}, MONITOR),
    Call("acknowledge", {}, {"monitor_id": "monitor_id"}),
    Call("snooze", {"minutes": 0}, {"monitor_id": "monitor_id"}),
    Call("takeover", {}, {"monitor_id": "monitor_id"}, learns=("secret",)),
    Call("replace_secret", {}, {"monitor_id": "monitor_id"}, learns=("secret",)),
    Call("delete_monitor", {}, {"monitor_id": "monitor_id", "s": "secret"}),
    Call("delete_everything", {"confirm": "delete everything"}),
    Call("list_products"),
    Call("buy_key", {"product": "cve"}, status=402, code="access_required"),
)


def answered_otherwise(call: Call, status: int, answer: Mapping[str, Any]) -> str | None:
    if (status, answer.get("code")) == (call.status, call.code):
        return None
    return f"{call.tool} answered {status} {answer.get('code') or ''} instead of {call.status} {call.code or ''}"
