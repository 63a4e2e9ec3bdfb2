"""Stripe as its documentation describes it, on 127.0.0.1: Checkout Sessions, its page, and signed webhooks that a test sends."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from time import time as machine_time
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import stripe

from tests import patient

KEY, SECRET = "sk_test_local", "whsec_local"
KNOWN = {
    *("mode", "allowed_payment_method_types", "adaptive_pricing", "line_items", "client_reference_id", "metadata"),
    *("payment_intent_data", "custom_text", "success_url", "cancel_url", "expires_at"),
}
PAGE = """<!doctype html><html lang="en"><title>Checkout</title><h1>{name}</h1><p>${amount}</p><p>{message}</p>
<form method="post"><button>Pay</button></form><a href="{cancel_url}">Back to the shop</a></html>"""


@dataclass
class StripeServer:
    url: str = ""
    sessions: dict[str, dict[str, Any]] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)
    answers: dict[str, tuple[Mapping[str, str], dict[str, Any]]] = field(default_factory=dict)
    status: int | None = None  # Answered to every question of the API, if it is set.
    asked: list[str] = field(default_factory=list)
    hook: str | None = None
    """Where webhooks are sent as things happen; the test sends those of a campus in its own process."""
    livemode: bool = False
    now: Callable[[], float] = machine_time

    def create(self, form: Mapping[str, str], idempotency_key: str) -> tuple[int, dict[str, Any]]:
        if unknown := {name.partition("[")[0] for name in form} - KNOWN:
            return 400, _error("parameter_unknown", f"Received unknown parameter: {unknown.pop()}")
        if (earlier := self.answers.get(idempotency_key)) is not None:
            return (200, earlier[1]) if earlier[0] == form else (400, _error("idempotency_error", "other parameters"))
        number = len(self.sessions) + 1
        item = "line_items[0][price_data]"
        assert form["line_items[0][quantity]"] == "1"
        assert 1800 <= int(form["expires_at"]) - self.now() <= 24 * 3600
        session = {
            "id": f"cs_test_{number}",
            "object": "checkout.session",
            "amount_total": int(form[f"{item}[unit_amount]"]),
            "currency": form[f"{item}[currency]"],
            "client_reference_id": form["client_reference_id"],
            "metadata": {"campus": form["metadata[campus]"], "sale": form["metadata[sale]"]},
            "livemode": self.livemode,
            "status": "open",
            "payment_status": "unpaid",
            "payment_intent": None,
            "url": f"{self.url}/c/pay/cs_test_{number}",
            "success_url": form["success_url"],
            "cancel_url": form["cancel_url"],
            "name": form[f"{item}[product_data][name]"],
            "message": form["custom_text[submit][message]"],
        }
        self.sessions[str(session["id"])] = session
        self.answers[idempotency_key] = (form, session)
        return 200, session

    @property
    def last(self) -> dict[str, Any]:
        return list(self.sessions.values())[-1]

    def pay(self, session: dict[str, Any] | None = None) -> dict[str, Any]:
        session = session or self.last
        session |= {"status": "complete", "payment_status": "paid", "payment_intent": f"pi_{session['id'][3:]}"}
        return self.happened("checkout.session.completed", session)

    def expire(self) -> dict[str, Any]:
        self.last["status"] = "expired"
        return self.happened("checkout.session.expired", self.last)

    def refund(self, cents: int) -> dict[str, Any]:
        charge = {"object": "charge", "id": "ch_1", "amount": self.last["amount_total"], "amount_refunded": cents}
        return self.happened("charge.refunded", {**charge, "payment_intent": self.last["payment_intent"]})

    def dispute(self, status: str, *, ended: bool = False) -> dict[str, Any]:
        dispute = {"object": "dispute", "id": "dp_1", "charge": "ch_1", "status": status, "payment_intent": self.last["payment_intent"]}
        return self.happened(f"charge.dispute.{'closed' if ended else 'created'}", dispute)

    def happened(self, kind: str, thing: Mapping[str, Any]) -> dict[str, Any]:
        event = {
            "id": f"evt_{len(self.events) + 1}",
            "object": "event",
            "type": kind,
            "created": int(self.now()),
            "livemode": self.livemode,
            "data": {"object": json.loads(json.dumps(thing))},
        }
        self.events.append(event)
        if self.hook is not None:
            body, headers = signed(event)
            assert patient.post(self.hook, content=body, headers=headers).status_code == 200
        return event

    def answer(self, method: str, target: str, body: str, headers: Mapping[str, str]) -> tuple[int, Any]:
        path, query = urlsplit(target).path, dict(parse_qsl(urlsplit(target).query))
        self.asked.append(f"{method} {path}")
        if self.status is not None:
            return self.status, _error("unavailable", "not now")
        if headers.get("Authorization") != f"Bearer {KEY}":
            return 401, _error("api_key_invalid", "Invalid API Key provided")
        if (method, path) == ("POST", "/v1/checkout/sessions"):
            return self.create(dict(parse_qsl(body)), headers.get("Idempotency-Key", ""))
        if path == "/v1/checkout/sessions":
            wanted = query.get("payment_intent")
            return 200, _list([one for one in self.sessions.values() if wanted in (None, one["payment_intent"])])
        session = self.sessions.get(path.rpartition("/")[2])
        return (200, session) if session else (404, _error("resource_missing", "No such checkout.session"))


def signed(event: Mapping[str, Any], *, secret: str = SECRET, at: float | None = None) -> tuple[bytes, dict[str, str]]:
    """A webhook's body and headers, as Stripe signs them."""
    body = json.dumps(event)
    made: Callable[..., str] = stripe.WebhookSignature.generate_signature_header
    return body.encode(), {"Stripe-Signature": made(body, secret, int(at or machine_time())), "Content-Type": "application/json"}


def _error(code: str, message: str) -> dict[str, Any]:
    return {"error": {"type": "invalid_request_error", "code": code, "message": message}}


def _list(data: list[Any]) -> dict[str, Any]:
    return {"object": "list", "data": data, "has_more": False}


@contextmanager
def open_stripe() -> Iterator[StripeServer]:
    server = StripeServer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.startswith("/c/pay/"):
                session = server.sessions[self.path[7:]]
                self._send(200, PAGE.format(amount=f"{session['amount_total'] / 100:.2f}", **session).encode(), "text/html")
            else:
                self._answer()

        def do_POST(self) -> None:
            if self.path.startswith("/c/pay/"):
                session = server.sessions[self.path[7:]]
                server.pay(session)
                self.send_response(303)
                self.send_header("Location", session["success_url"])
                self.send_header("Content-Length", "0")
                self.end_headers()
            else:
                self._answer()

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
            status, data = server.answer(self.command, self.path, body, self.headers)  # type: ignore[arg-type]  # it has get
            self._send(status, json.dumps(data).encode(), "application/json")

        def _send(self, status: int, body: bytes, kind: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listener:
        server.url = f"http://127.0.0.1:{listener.server_address[1]}"
        thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        yield server
        listener.shutdown()
        thread.join()
