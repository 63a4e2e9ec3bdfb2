"""Sends a scanner's report to campus and says what to fix first, with an exit code for pipelines.

    CAMPUS_URL=https://campus.example CAMPUS_KEY=… campus-report trivy.json --sarif campus.sarif --markdown summary.md

Exit codes: 0, nothing has to be fixed as soon as --fail-on says; 1, something has; 2, the command line is wrong; 3, the report was not
judged, or not wholly: campus could not be reached or refused, the list is old, or with --strict some findings could not be told.

Standard library only; the key is sent to CAMPUS_URL alone.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from typing import Any, NoReturn
from urllib import error, request
from urllib.parse import urlencode, urlsplit

__version__ = "0.1.0"

ADDRESS, KEY = "CAMPUS_URL", "CAMPUS_KEY"
PATH = "/v1/cve/verdicts"
FIX, WRONG, NOT_JUDGED = 1, 2, 3
URGENCIES = ("today", "this_week")
UNTOLD = ("state_unknown", "not_looked_up", "unreadable")
"""Buckets of findings of which campus does not know whether they matter."""
LARGEST = 20_000_000
TRIES, FIRST_PAUSE, LONGEST_PAUSE = 4, 1.0, 60.0
KINDS = {"sarif": "application/sarif+json", "markdown": "text/markdown", "csv": "text/csv", "json": "application/json"}


class NotJudged(Exception):
    """The report was not judged; the text says why."""


class Campus:
    """One campus, asked with one key. A redirect is refused: it would carry the key elsewhere."""

    def __init__(self, url: str, key: str, *, timeout: float) -> None:
        self._url = url.rstrip("/")
        self._key = key
        self._timeout = timeout
        self._opener = request.build_opener(_NoRedirects)

    def verdicts(self, report: bytes, media_type: str, choices: list[tuple[str, str]]) -> bytes:
        """What campus answers about a report in one format. Raises NotJudged."""
        address = f"{self._url}{PATH}?{urlencode(choices)}"
        headers = {
            "Authorization": f"Bearer {self._key}",
            "Content-Type": "application/octet-stream",
            "Accept": media_type,
            "User-Agent": f"campus-report/{__version__}",
        }
        pause = FIRST_PAUSE
        for remaining in reversed(range(TRIES)):
            reason, wait = "", pause
            try:
                with self._opener.open(request.Request(address, data=report, headers=headers), timeout=self._timeout) as answer:
                    body: bytes = answer.read()
                    return body
            except error.HTTPError as refused:
                with refused:
                    reason = _reason_of(refused)
                    if refused.code != 429 and refused.code < 500:
                        raise NotJudged(reason) from None
                    wait = _seconds(refused.headers.get("Retry-After")) or pause
            except (OSError, ValueError) as failed:
                reason = f"{urlsplit(self._url).hostname} cannot be reached: {getattr(failed, 'reason', failed)}"
            if not remaining or wait > LONGEST_PAUSE:
                raise NotJudged(reason)
            time.sleep(wait)
            pause *= 2
        raise AssertionError("the last try returns or raises")


class _NoRedirects(request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def _reason_of(refused: error.HTTPError) -> str:
    try:
        return f"{refused.code} {json.loads(refused.read(65_536))['detail']}"
    except (OSError, ValueError, TypeError, KeyError):
        return f"{refused.code} {refused.reason}"


def _seconds(text: str | None) -> float | None:
    return float(text) if text and text.isdigit() else None


def main() -> NoReturn:
    """Judge the report that the command line names."""
    options = _arguments(sys.argv[1:])
    try:
        code = _judge(options)
    except NotJudged as failed:
        print(f"campus-report: not judged: {failed}", file=sys.stderr)
        code = NOT_JUDGED
    sys.exit(code)


def _judge(options: argparse.Namespace) -> int:
    report = _read(options.file)
    campus = Campus(options.url, options.key, timeout=options.timeout)
    chosen = [("exposed", options.exposed or "unknown"), ("limit", str(options.lines))]
    chosen += [("exposed_places", pattern) for pattern in options.exposed_place or []]
    try:
        answer = json.loads(campus.verdicts(report, KINDS["json"], chosen))
    except ValueError:
        raise NotJudged("what answered is not campus: no JSON came back") from None
    for kind, path in _wanted(options):
        body = campus.verdicts(report, KINDS[kind], chosen)
        with open(path, "wb") as out:
            out.write(body)
    return _told(answer, options)


def _told(answer: dict[str, Any], options: argparse.Namespace) -> int:
    """Print what to fix, and return the exit code."""
    accounting = answer["accounting"]
    buckets: dict[str, int] = accounting["counts"]
    counted = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in buckets.items() if count) or "none"
    print(f"{accounting['form']}: {accounting['findings']} findings by the list of {answer['day']}: {counted}")
    for note in [*accounting["notes"], *filter(None, [accounting.get("difference")])]:
        print(f"note: {note}")
    urgent = [one for one in answer.get("findings", []) if one["bucket"] in URGENCIES]
    for one in urgent:
        what = [one.get(name) for name in ("package", "installed_version")] + [
            f"-> {one['fixed_version']}" if "fixed_version" in one else None
        ]
        shown = [one["bucket"].replace("_", " ").ljust(9), one.get("cve_id") or one.get("id"), *what, one.get("place")]
        print(*filter(None, shown))
    if sooner := sum("when_if_exposed" in one for one in answer.get("findings", [])):
        print(f"note: {sooner} of the first {len(answer['findings'])} have to be fixed sooner if the internet reaches them: send --exposed")
    untold = sum(buckets[name] for name in UNTOLD)
    if answer.get("sample"):
        raise NotJudged("campus has no list yet, only its sample")
    if options.fail_on != "never" and any(buckets[name] for name in URGENCIES[: URGENCIES.index(options.fail_on) + 1]):
        return FIX
    if answer["stale"]:
        raise NotJudged("the feeds behind the list are old")
    if options.strict and untold:
        raise NotJudged(f"{untold} findings could not be told: {', '.join(name.replace('_', ' ') for name in UNTOLD if buckets[name])}")
    return 0


def _read(name: str) -> bytes:
    try:
        if name == "-":
            report = sys.stdin.buffer.read(LARGEST + 1)
        else:
            with open(name, "rb") as file:
                report = file.read(LARGEST + 1)
    except OSError as failed:
        raise NotJudged(f"{name}: {failed.strerror}") from None
    if len(report) > LARGEST:
        raise NotJudged(f"{name} has more than {LARGEST:,} bytes")
    return report


def _wanted(options: argparse.Namespace) -> list[tuple[str, str]]:
    return [(kind, path) for kind in KINDS if (path := getattr(options, kind))]


def _arguments(given: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("campus-report", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("file", help="the report, as the scanner wrote it; - reads standard input")
    parser.add_argument("--url", default=os.environ.get(ADDRESS), help=f"campus's address, if not in {ADDRESS}")
    parser.add_argument("--exposed", choices=["yes", "no", "unknown"], help="whether what was scanned can be reached from the internet")
    parser.add_argument("--exposed-place", action="append", metavar="PATTERN", help="a host, image or file that can, such as 'web-*'")
    parser.add_argument("--fail-on", choices=[*URGENCIES, "never"], default="today", help="the exit code is 1 if so much is found (today)")
    parser.add_argument("--strict", action="store_true", help="the exit code is 3 if some findings could not be told")
    parser.add_argument("--lines", type=int, default=50, help="how many findings are printed (50); files have all")
    parser.add_argument("--timeout", type=float, default=60.0, metavar="SECONDS", help="how long one answer may take (60)")
    for kind, what in (
        ("sarif", "SARIF, for code scanning"),
        ("markdown", "Markdown, for a pull request"),
        ("csv", "CSV"),
        ("json", "JSON"),
    ):
        parser.add_argument(f"--{kind}", metavar="FILE", help=f"write the verdicts as {what}")
    parser.add_argument("--version", action="version", version=__version__)
    options = parser.parse_args(given)
    options.key = os.environ.get(KEY)
    if not options.url or urlsplit(options.url).scheme not in ("http", "https"):
        parser.error(f"set {ADDRESS} to campus's address, such as https://campus.example")
    if not options.key:
        parser.error(f"set {KEY} to a key of scope cve; no option takes it, since all users of a machine see arguments")
    return options


if __name__ == "__main__":
    main()
