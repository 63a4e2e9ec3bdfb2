"""A caller of a paid tool who hangs up while it runs: the call goes on, and its payment fetches the answer."""

import json
from base64 import b64decode
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import pytest
from features.payments.kills import CONFIG
from features.payments.seller import PAY_TO
from patience import patience
from serving import serving

from campus.features.chain import Chain, Facilitator, Payer, Wallet, headers_of
from tests import patient

pytestmark = pytest.mark.anyio


async def test_a_paid_call_goes_on_when_its_caller_hangs_up_and_the_same_payment_fetches_its_answer(
    chain: Chain, facilitator: Facilitator, wallet: Wallet, tmp_path: Path
) -> None:
    held, hold = tmp_path / "held", tmp_path / "hold"
    hold.touch()
    text = CONFIG.format(storage="sqlite:data", **facilitator.table(PAY_TO))
    environ = {"SLOW_TOOL_FOLDER": str(tmp_path), "PYTHONPATH": str(Path(__file__).parents[2])}
    path = "/v1/slow/count?number=1"
    with serving(tmp_path, text, environ=environ) as campus:
        async with patient.AsyncClient(base_url=campus.url, timeout=patience(60)) as http:
            terms = json.loads(b64decode((await http.get(path)).headers["PAYMENT-REQUIRED"]))
            headers = headers_of(Payer(wallet).payload(terms))
            head = "".join(f"{name}: {value}\r\n" for name, value in {"Host": "localhost", **headers}.items())
            async with await anyio.connect_tcp("127.0.0.1", urlsplit(campus.url).port or 0) as connection:
                await connection.send(f"GET {path} HTTP/1.1\r\n{head}\r\n".encode())
                with anyio.fail_after(patience(30)):
                    while not held.exists():  # noqa: ASYNC110  # another process makes it
                        await anyio.sleep(0.02)
                await anyio.sleep(0.5)  # from now on a call that is not paid for would be watched
            await anyio.sleep(1)
            hold.unlink()
            answer = await http.get(path, headers=headers)
    assert (answer.status_code, answer.json()) == (200, {"number": 1})
    assert (tmp_path / "runs").read_text() == "1\n"
