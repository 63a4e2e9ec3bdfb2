"""Checks that x402's stock clients can pay every price of cve on a real chain, over HTTP and MCP, and that each charge is made once."""

import json
import shutil
from base64 import b64decode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import requests
from anyio.from_thread import start_blocking_portal
from contract.served_campus import ServedCampus, serve_campus
from eth_account import Account
from fastmcp import Client
from lab.conformance.node import Node
from x402 import x402Client, x402ClientSync
from x402.http.clients.requests import x402_requests
from x402.mcp import x402MCPClient
from x402.mechanisms.evm.exact import register_exact_evm_client

from campus.features.chain import Chain, Payer, Wallet, new_wallet, open_chain, open_facilitator

PACKAGES = (
    "x402-fetch@1.2.0",
    "x402-axios@0.7.2",
    "@x402/fetch@2.27.0",
    "@x402/axios@2.11.0",
    "@x402/evm@2.27.0",
    "@x402/core@2.27.0",
    "@x402/extensions@2.27.0",
    "@modelcontextprotocol/client@2.4.0",
    "agents@0.32.0",
    "axios@1.21.1",
    "viem@2.57.20",
    "zod@4.6.7",  # agents wants one, and names none
)
SCRIPT = Path(__file__).with_name("pay_with_typescript.mjs")
AGENTS = Path(__file__).with_name("pay_with_agents.mjs")
IDENTIFIED = "@x402/fetch, payment-identifier"
"""It asks for everything twice, with a new payment and the same identifier, and may be charged once."""
TYPESCRIPT = ("x402-fetch", "x402-axios", "@x402/fetch", "@x402/axios", IDENTIFIED)
PYTHON = ("httpx", "requests", "x402.mcp")
CLOUDFLARE = "agents"
PRICES = {"/v1/brief/today": 20_000, "/v1/kev/fresh": 10_000, "/v1/cve/CVE-2021-44228": 5_000, "/v1/archive/{day}": 50_000}
"""In millionths of a dollar, in the order in which the calls are made."""
SHOP, KEY_PRICE = "/v1/checkout/keys", 19_000_000
"""Where the clients in TypeScript buy a key at last, and what it costs."""
VAULT = "/v1/watches"
"""What only a key opens. Clients that have a hook for it are told the sentence of its 402."""
HOOKED = ("@x402/fetch", "@x402/axios")
TOOLS = {"top_cves_today": {}, "kev_fresh": {}, "cve_verdict": {"cve_id": "CVE-2021-44228"}, "archived_brief": {"date": "{day}"}}
"""The same calls over MCP, in the same order."""
DOLLAR = 1_000_000
RUN_SECONDS = 300
CALL_SECONDS = 90


@dataclass(frozen=True)
class Paid:
    """The outcome of one call for the client: the day of the answer or what was done to the key, and its receipt's transaction."""

    client: str
    path: str
    status: int | None
    says: str | None
    transaction: str | None
    thrown: str | None = None


def pay_by_stock_clients(node: Node, folder: Path) -> list[str]:
    wallets = {client: new_wallet() for client in (*TYPESCRIPT, *PYTHON, CLOUDFLARE)}
    payee = new_wallet().address
    folder.mkdir()
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(open_chain()) as chain,
        portal.wrap_async_context_manager(open_facilitator(chain)) as facilitator,
    ):
        for wallet in wallets.values():
            portal.call(chain.mint, wallet.address, 20 * DOLLAR)
        with serve_campus(folder, payments=facilitator.table(payee)) as campus:
            paid = [
                *by_typescript(node, campus, wallets),
                *by_httpx(portal, campus, wallets["httpx"]),
                *by_requests(campus, wallets["requests"]),
                *by_x402_mcp(portal, campus, wallets["x402.mcp"]),
                *by_agents(node, campus, wallets[CLOUDFLARE]),
            ]
            ledger = json.loads(campus.served.command("ledger", "list", "--last", "1000", "--json").stdout)
        return [
            fault for client, wallet in wallets.items() for fault in judged(client, paid, charges(portal, chain, wallet, payee), ledger)
        ]


def charges(portal: Any, chain: Chain, wallet: Wallet, payee: str) -> dict[str, int]:
    transfers = portal.call(lambda: chain.transfers(sender=wallet.address))
    return {one.transaction: one.amount for one in transfers if one.receiver == payee}


def judged(client: str, paid: list[Paid], charged: Mapping[str, int], ledger: list[Mapping[str, Any]]) -> Iterator[str]:
    settled = {entry["transaction"]: entry["amount"] for entry in ledger if entry["event"] == "settled"}
    calls = [one for one in paid if one.client == client and one.path != VAULT]
    for refusal in (one for one in paid if one.client == client and one.path == VAULT):
        print(f"  {client:32} {VAULT:26} told {refusal.says}  thrown {refusal.thrown}")
        if refusal.thrown is None or ("Keys that unlock it: " in (refusal.says or "")) != (client in HOOKED):
            yield f"{client} at {VAULT}: told {refusal.says}, {refusal.thrown}"
    prices = [*PRICES.values(), *([KEY_PRICE] if client in TYPESCRIPT else [])]
    for one, price in zip(calls, prices, strict=False):
        on_chain, in_ledger = charged.get(one.transaction or ""), settled.get(one.transaction)
        print(
            f"  {client:32} {one.path:26} ${price / DOLLAR:<6} status {one.status}  chain {on_chain}  ledger {in_ledger}  {one.transaction}"
        )
        if (one.status, on_chain, in_ledger) != (200, price, price) or one.says is None:
            why = one.thrown or "no error"
            yield f"{client} at {one.path}: status {one.status}, on the chain {on_chain}, in the ledger {in_ledger}; {why}"
    if len(calls) != len(prices) or sum(charged.values()) != sum(prices):
        yield f"{client} made {len(calls)} calls and was charged {sum(charged.values())} instead of {sum(prices)}"


def addresses(campus: ServedCampus) -> list[str]:
    return [campus.url + path.format(day=campus.day) for path in PRICES]


def by_typescript(node: Node, campus: ServedCampus, wallets: Mapping[str, Wallet]) -> list[Paid]:
    shutil.copy(SCRIPT, node.folder)
    given = {
        client: {"key": wallets[client].key, "urls": addresses(campus), "shop": campus.url + SHOP, "vault": campus.url + VAULT}
        for client in TYPESCRIPT
    }
    ran = node.run(node.folder / SCRIPT.name, json.dumps(given), seconds=RUN_SECONDS)
    if ran.returncode != 0:
        print(ran.stdout, ran.stderr)
        return []
    return [
        paid(one["client"], one["url"], campus, one.get("status"), one.get("says"), one.get("receipt"), one.get("thrown"))
        for one in json.loads(ran.stdout)
    ]


def by_httpx(portal: Any, campus: ServedCampus, wallet: Wallet) -> list[Paid]:
    async def pay() -> list[Paid]:
        async with Payer(wallet).http(timeout=CALL_SECONDS) as client:
            answers = [await client.get(url) for url in addresses(campus)]
        return [
            paid("httpx", str(one.url), campus, one.status_code, one.json().get("day"), one.headers.get("payment-response"))
            for one in answers
        ]

    found: list[Paid] = portal.call(pay)
    return found


def by_requests(campus: ServedCampus, wallet: Wallet) -> list[Paid]:
    session: requests.Session = x402_requests(register_exact_evm_client(x402ClientSync(), Account.from_key(wallet.key)))
    with session:
        answers = [session.get(url, timeout=CALL_SECONDS) for url in addresses(campus)]
    return [
        paid("requests", one.url, campus, one.status_code, one.json().get("day"), one.headers.get("payment-response")) for one in answers
    ]


class CallsTools:
    """A FastMCP client in the form that x402's MCP client wraps: one argument, the parameters of tools/call."""

    def __init__(self, client: Client[Any]) -> None:
        self._client = client

    async def call_tool(self, params: Mapping[str, Any], **_: Any) -> SimpleNamespace:
        result = await self._client.call_tool(params["name"], params["arguments"], meta=params.get("_meta"), raise_on_error=False)
        blocks = [block.model_dump(mode="json") for block in result.content]
        return SimpleNamespace(content=blocks, isError=result.is_error, structuredContent=result.structured_content, _meta=result.meta)


def by_x402_mcp(portal: Any, campus: ServedCampus, wallet: Wallet) -> list[Paid]:
    async def pay() -> list[Paid]:
        payer = register_exact_evm_client(x402Client(), Account.from_key(wallet.key))
        async with Client(f"{campus.url}/cve/mcp") as client:
            buyer = x402MCPClient(CallsTools(client), payer)
            found = []
            for tool, arguments in TOOLS.items():
                result = await buyer.call_tool(tool, {name: value.format(day=campus.day) for name, value in arguments.items()})
                day = json.loads(result.content[0]["text"]).get("day")
                receipt = result.payment_response
                found.append(Paid("x402.mcp", tool, None if result.is_error else 200, day, receipt and receipt.transaction))
            return found

    found: list[Paid] = portal.call(pay)
    return found


def by_agents(node: Node, campus: ServedCampus, wallet: Wallet) -> list[Paid]:
    shutil.copy(AGENTS, node.folder)
    tools = {tool: {name: value.format(day=campus.day) for name, value in arguments.items()} for tool, arguments in TOOLS.items()}
    given = {"key": wallet.key, "url": f"{campus.url}/cve/mcp", "tools": tools}
    ran = node.run(node.folder / AGENTS.name, json.dumps(given), seconds=RUN_SECONDS)
    if ran.returncode != 0:
        print(ran.stdout, ran.stderr)
        return []
    return [
        Paid(CLOUDFLARE, one["tool"], one.get("status"), one.get("says"), one.get("transaction"), one.get("thrown"))
        for one in json.loads(ran.stdout)
    ]


def paid(
    client: str, url: str, campus: ServedCampus, status: int | None, says: str | None, receipt: str | None, thrown: str | None = None
) -> Paid:
    transaction = json.loads(b64decode(receipt))["transaction"] if receipt else None
    return Paid(client, url.removeprefix(campus.url), status, says, transaction, thrown)
