# pragma version ^0.4.0
# pragma evm-version cancun

# A dollar for tests: as much of USD Coin as a payment by EIP-3009 needs, with the words of its refusals, which facilitators read.
# No constructor and no immutables, so that its code can be put at any address; and anybody may mint.
#
# Compiled by (Vyper 0.4.3): vyper -f bytecode_runtime -o token.hex token.vy

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
    self._transfer_by_authorization(sender, receiver, amount, valid_after, valid_before, nonce, v, r, s)


@external
def cancelAuthorization(authorizer: address, nonce: bytes32, v: uint8, r: bytes32, s: bytes32):
    self._require_unused(authorizer, nonce)
    self._require_signed(authorizer, keccak256(abi_encode(CANCEL_TYPE, authorizer, nonce)), v, r, s)
    self.authorizationState[authorizer][nonce] = True
    log AuthorizationCanceled(authorizer=authorizer, nonce=nonce)


@external
def __default__():
    # Vyper has no two functions of one name, so the form that takes the signature in one piece is told by its selector
    assert len(msg.data) >= 324
    assert slice(msg.data, 0, 4) == method_id(
        "transferWithAuthorization(address,address,uint256,uint256,uint256,bytes32,bytes)"
    )
    sender: address = empty(address)
    receiver: address = empty(address)
    amount: uint256 = 0
    valid_after: uint256 = 0
    valid_before: uint256 = 0
    nonce: bytes32 = empty(bytes32)
    signature: Bytes[65] = b""
    sender, receiver, amount, valid_after, valid_before, nonce, signature = abi_decode(
        slice(msg.data, 4, 352), (address, address, uint256, uint256, uint256, bytes32, Bytes[65])
    )
    assert len(signature) == 65, "ECRecover: invalid signature length"
    v: uint8 = convert(slice(signature, 64, 1), uint8)
    r: bytes32 = extract32(signature, 0)
    s: bytes32 = extract32(signature, 32)
    self._transfer_by_authorization(sender, receiver, amount, valid_after, valid_before, nonce, v, r, s)


@internal
def _transfer_by_authorization(
    sender: address, receiver: address, amount: uint256, valid_after: uint256, valid_before: uint256, nonce: bytes32,
    v: uint8, r: bytes32, s: bytes32,
):
    assert block.timestamp > valid_after, "FiatTokenV2: authorization is not yet valid"
    assert block.timestamp < valid_before, "FiatTokenV2: authorization is expired"
    self._require_unused(sender, nonce)
    message: bytes32 = keccak256(abi_encode(TRANSFER_TYPE, sender, receiver, amount, valid_after, valid_before, nonce))
    self._require_signed(sender, message, v, r, s)
    self.authorizationState[sender][nonce] = True
    log AuthorizationUsed(authorizer=sender, nonce=nonce)
    self._move(sender, receiver, amount)


@internal
@view
def _require_unused(authorizer: address, nonce: bytes32):
    assert not self.authorizationState[authorizer][nonce], "FiatTokenV2: authorization is used or canceled"


@internal
@view
def _require_signed(signer: address, message: bytes32, v: uint8, r: bytes32, s: bytes32):
    assert convert(s, uint256) <= LARGEST_S, "ECRecover: invalid signature 's' value"
    assert v == 27 or v == 28, "ECRecover: invalid signature 'v' value"
    found: address = ecrecover(keccak256(concat(b"\x19\x01", self._domain(), message)), v, r, s)
    assert found != empty(address) and found == signer, "FiatTokenV2: invalid signature"


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
