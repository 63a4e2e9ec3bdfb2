"""A wallet in a test's browser: an EIP-1193 provider that announces itself by EIP-6963 and signs for a real wallet on a real chain."""

import json
from dataclasses import dataclass, field
from typing import Any

from anyio.from_thread import BlockingPortal
from playwright.sync_api import Page

from campus.features.chain import Chain, new_wallet

DOLLAR = 1_000_000
PROVIDER = """
const wallet = { request: async (asked) => {
  const answer = await window.askWallet(asked);
  if (answer.error) throw Object.assign(new Error(answer.error.message), answer.error);
  return answer.result;
} };
const info = { uuid: "1", name: "Test Wallet", icon: "data:,", rdns: "test.wallet" };
const announce = () => dispatchEvent(new CustomEvent("eip6963:announceProvider", { detail: Object.freeze({ info, provider: wallet }) }));
addEventListener("eip6963:requestProvider", announce);
"""


@dataclass
class BrowserWallet:
    """A wallet as a browser's extension: it asks the chain, and signs what the page shows it unless its owner refuses."""

    chain: Chain
    portal: BlockingPortal
    refuses: bool = False
    is_busy: bool = False
    network: int = 8453
    knows: set[int] = field(default_factory=lambda: {1, 8453})
    asked: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.wallet = new_wallet()

    def fund(self, dollars: int) -> None:
        self.portal.call(self.chain.mint, self.wallet.address, dollars * DOLLAR)

    @property
    def dollars(self) -> int:
        return self.portal.call(self.chain.balance, self.wallet.address) // DOLLAR

    def open_in(self, page: Page) -> None:
        page.expose_function("askWallet", self.answer)
        page.add_init_script(PROVIDER)

    def answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        method, params = asked["method"], asked["params"]
        self.asked.append(method)
        match method:
            case "eth_requestAccounts" if self.is_busy:
                return {"error": {"code": -32002, "message": "Request already pending."}}
            case "eth_requestAccounts":
                return {"result": [self.wallet.address]}
            case "eth_chainId":
                return {"result": hex(self.network)}
            case "wallet_switchEthereumChain":
                wanted = int(params[0]["chainId"], 16)
                if wanted not in self.knows:
                    return {"error": {"code": 4902, "message": "Unrecognized chain ID"}}
                self.network = wanted
                return {"result": None}
            case "eth_signTypedData_v4":
                if self.refuses:
                    return {"error": {"code": 4001, "message": "User rejected the request."}}
                typed = json.loads(params[1])
                assert typed["domain"]["chainId"] == self.network
                assert params[0] == typed["message"]["from"] == self.wallet.address
                return {"result": self.wallet.sign_transfer(typed["message"], **typed["domain"])}
        return {"result": self.portal.call(self.chain.rpc, method, *params)}
