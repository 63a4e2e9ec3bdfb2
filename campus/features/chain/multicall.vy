# pragma version ^0.4.0
# pragma evm-version cancun

# As much of Multicall3 as x402's facilitator needs: it tries a transfer after the payer's wallet was made, both within one call.
#
# Compiled by (Vyper 0.4.3): vyper -f bytecode_runtime -o multicall.hex multicall.vy

struct Call:
    target: address
    data: Bytes[4096]

struct Result:
    success: bool
    data: Bytes[4096]


@external
@payable
def tryAggregate(all_succeed: bool, calls: DynArray[Call, 4]) -> DynArray[Result, 4]:
    results: DynArray[Result, 4] = []
    for call: Call in calls:
        success: bool = False
        data: Bytes[4096] = b""
        success, data = raw_call(call.target, call.data, max_outsize=4096, revert_on_failure=False)
        assert success or not all_succeed
        results.append(Result(success=success, data=data))
    return results
