# pragma version ^0.4.0
# pragma evm-version cancun

# A dollar for tests: as much of USD Coin as a payment by EIP-3009 needs, with the words of its refusals, which facilitators read.
# No constructor and no immutables, so that its code can be put at any address; and anybody may mint.
#
# Compiled by (Vyper 0.4.3): vyper -f bytecode_runtime -o usdc.hex usdc.vy

event Transfer:
    sender: indexed(address)
    receiver: indexed(address)
    value: uint256

event AuthorizationUsed:
    authorizer: indexed(address)
    nonce: indexed(bytes32)

event AuthorizationCanceled:
    authorizer: indexed(address)
    nonce: indexed(bytes32)

NAME: constant(String[8]) = "USD Coin"
VERSION: constant(String[1]) = "2"
DOMAIN_TYPE: constant(bytes32) = keccak256("EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)")
TRANSFER_TYPE: constant(bytes32) = keccak256(
    "TransferWithAuthorization(address from,address to,uint256 value,uint256 validAfter,uint256 validBefore,bytes32 nonce)"
)
CANCEL_TYPE: constant(bytes32) = keccak256("CancelAuthorization(address authorizer,bytes32 nonce)")
YES: constant(bytes32) = 0x1626ba7e00000000000000000000000000000000000000000000000000000000
# half of the curve's order, rounded down: a signature with a greater s is the malleable twin of another
LARGEST_S: constant(uint256) = 57896044618658097711785492504343953926418782139537452191302581570759080747168

balanceOf: public(HashMap[address, uint256])
authorizationState: public(HashMap[address, HashMap[bytes32, bool]])
totalSupply: public(uint256)


@external
@pure
def name() -> String[8]:
    return NAME


@external
@pure
def symbol() -> String[4]:
    return "USDC"


@external
@pure
def version() -> String[1]:
    return VERSION


@external
@pure
def decimals() -> uint8:
    return 6


@external
@view
def DOMAIN_SEPARATOR() -> bytes32:
    return self._domain()


@external
def mint(receiver: address, amount: uint256):
    self.totalSupply += amount
    self.balanceOf[receiver] += amount
    log Transfer(sender=empty(address), receiver=receiver, value=amount)


@external
def transfer(receiver: address, amount: uint256) -> bool:
    self._move(msg.sender, receiver, amount)
    return True


@external
def transferWithAuthorization(
    sender: address, receiver: address, amount: uint256, valid_after: uint256, valid_before: uint256, nonce: bytes32,
    v: uint8, r: bytes32, s: bytes32,
):
    self._transfer_by_authorization(sender, receiver, amount, valid_after, valid_before, nonce, self._joined(v, r, s))


@external
def cancelAuthorization(authorizer: address, nonce: bytes32, v: uint8, r: bytes32, s: bytes32):
    self._require_unused(authorizer, nonce)
    self._require_signed(authorizer, keccak256(abi_encode(CANCEL_TYPE, authorizer, nonce)), self._joined(v, r, s))
    self.authorizationState[authorizer][nonce] = True
    log AuthorizationCanceled(authorizer=authorizer, nonce=nonce)


@external
def __default__():
    # Vyper has no two functions of one name, so the form that takes the signature in one piece is told by its selector
    assert len(msg.data) >= 260
    assert slice(msg.data, 0, 4) == method_id(
        "transferWithAuthorization(address,address,uint256,uint256,uint256,bytes32,bytes)"
    )
    # the precompiled contract 4 returns what it is sent: a copy, of which a part of any length can be taken
    data: Bytes[1284] = raw_call(0x0000000000000000000000000000000000000004, msg.data, max_outsize=1284, is_static_call=True)
    sender: address = empty(address)
    receiver: address = empty(address)
    amount: uint256 = 0
    valid_after: uint256 = 0
    valid_before: uint256 = 0
    nonce: bytes32 = empty(bytes32)
    signature: Bytes[1024] = b""
    sender, receiver, amount, valid_after, valid_before, nonce, signature = abi_decode(
        slice(data, 4, len(data) - 4), (address, address, uint256, uint256, uint256, bytes32, Bytes[1024])
    )
    self._transfer_by_authorization(sender, receiver, amount, valid_after, valid_before, nonce, signature)


@internal
def _transfer_by_authorization(
    sender: address, receiver: address, amount: uint256, valid_after: uint256, valid_before: uint256, nonce: bytes32,
    signature: Bytes[1024],
):
    assert block.timestamp > valid_after, "FiatTokenV2: authorization is not yet valid"
    assert block.timestamp < valid_before, "FiatTokenV2: authorization is expired"
    self._require_unused(sender, nonce)
    message: bytes32 = keccak256(abi_encode(TRANSFER_TYPE, sender, receiver, amount, valid_after, valid_before, nonce))
    self._require_signed(sender, message, signature)
    self.authorizationState[sender][nonce] = True
    log AuthorizationUsed(authorizer=sender, nonce=nonce)
    self._move(sender, receiver, amount)


@internal
@view
def _require_unused(authorizer: address, nonce: bytes32):
    assert not self.authorizationState[authorizer][nonce], "FiatTokenV2: authorization is used or canceled"


@internal
@view
def _require_signed(signer: address, message: bytes32, signature: Bytes[1024]):
    digest: bytes32 = keccak256(concat(b"\x19\x01", self._domain(), message))
    if signer.codesize > 0:
        # as SignatureChecker of USDC 2.2: what has code is asked (EIP-1271), and nothing else counts
        asked: Bytes[1124] = abi_encode(digest, signature, method_id=method_id("isValidSignature(bytes32,bytes)"))
        success: bool = False
        answer: Bytes[32] = b""
        success, answer = raw_call(signer, asked, max_outsize=32, is_static_call=True, revert_on_failure=False)
        assert success and len(answer) == 32, "FiatTokenV2: invalid signature"
        assert convert(answer, bytes32) == YES, "FiatTokenV2: invalid signature"
        return
    assert len(signature) == 65, "ECRecover: invalid signature length"
    v: uint8 = convert(slice(signature, 64, 1), uint8)
    r: bytes32 = extract32(signature, 0)
    s: bytes32 = extract32(signature, 32)
    assert convert(s, uint256) <= LARGEST_S, "ECRecover: invalid signature 's' value"
    assert v == 27 or v == 28, "ECRecover: invalid signature 'v' value"
    found: address = ecrecover(digest, v, r, s)
    assert found != empty(address) and found == signer, "FiatTokenV2: invalid signature"


@internal
@pure
def _joined(v: uint8, r: bytes32, s: bytes32) -> Bytes[65]:
    return concat(r, s, slice(convert(v, bytes32), 31, 1))


@internal
@view
def _domain() -> bytes32:
    return keccak256(abi_encode(DOMAIN_TYPE, keccak256(NAME), keccak256(VERSION), chain.id, self))


@internal
def _move(sender: address, receiver: address, amount: uint256):
    assert receiver != empty(address), "ERC20: transfer to the zero address"
    assert self.balanceOf[sender] >= amount, "ERC20: transfer amount exceeds balance"
    self.balanceOf[sender] -= amount
    self.balanceOf[receiver] += amount
    log Transfer(sender=sender, receiver=receiver, value=amount)
