# pragma version ^0.4.0
# pragma evm-version cancun

# A contract wallet for tests (EIP-1271), and the factory of its copies, each at an address that its owner alone decides (EIP-6492).
# Whoever tests says how it answers; no constructor and no immutables, so that its code can be put at any address.
#
# Compiled by (Vyper 0.4.3): vyper -f bytecode_runtime -o wallet.hex wallet.vy

interface Copy:
    def initialize(owner: address): nonpayable

YES: constant(bytes4) = 0x1626ba7e
NO: constant(bytes4) = 0xffffffff
ACCEPTS: constant(uint256) = 1
REFUSES: constant(uint256) = 2
REVERTS: constant(uint256) = 3
BURNS: constant(uint256) = 4

owner: public(address)
manner: public(uint256)


@external
def create(owner: address) -> address:
    copy: address = create_minimal_proxy_to(self, salt=convert(owner, bytes32))
    extcall Copy(copy).initialize(owner)
    return copy


@external
def initialize(owner: address):
    assert self.owner == empty(address)
    self.owner = owner


@external
def answer(manner: uint256):
    self.manner = manner


@external
@view
def isValidSignature(digest: bytes32, signature: Bytes[1024]) -> bytes4:
    # the owner's signature is the last of it: what comes before says which owner, in wallets that have several
    if self.manner == ACCEPTS:
        return YES
    if self.manner == REFUSES or len(signature) < 65:
        return NO
    if self.manner == REVERTS:
        raise "the wallet reverts"
    if self.manner == BURNS:
        raise UNREACHABLE  # takes all gas
    signed: Bytes[1024] = slice(signature, len(signature) - 65, 65)
    found: address = ecrecover(digest, convert(slice(signed, 64, 1), uint8), extract32(signed, 0), extract32(signed, 32))
    return YES if found != empty(address) and found == self.owner else NO
