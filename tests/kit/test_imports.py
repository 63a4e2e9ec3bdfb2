"""What an import loads: the chain only for who asks for money."""

import subprocess
import sys


def test_campus_testing_loads_no_chain() -> None:
    code = (
        "import sys, campus.testing;"
        "loaded = {'web3', 'eth_tester', 'eth_account', 'eth_abi', 'x402.mechanisms.evm'} & sys.modules.keys();"
        "assert not loaded, loaded"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
