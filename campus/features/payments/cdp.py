"""`auth = "cdp"`: Coinbase's Developer Platform wants a JWT of its own for each request, signed by an API key of ES256 or Ed25519."""

import binascii
import secrets
import time
from base64 import b64decode
from collections.abc import Callable
from typing import Any

import httpx
import jwt
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from campus.errors import ConfigError
from campus.features.payments.authentication import Bearer
from campus.features.payments.feature import FacilitatorTable

VALID_SECONDS = 120
"""How long a token is valid: as long as those of Coinbase's own SDK."""
SEED_BYTES, KEY_BYTES = 32, 64
"""Of an Ed25519 key as the platform shows it, which ends with the public key."""


def cdp(facilitator: FacilitatorTable, secret: Callable[[str], str]) -> httpx.Auth:
    """Made from the id and the secret of an API key, as the platform shows them."""
    key_id, (key, algorithm) = secret("KEY_ID"), private_key(secret("KEY_SECRET"), facilitator)

    def token_for(request: httpx.Request) -> str:
        now = int(time.time())
        called = f"{request.method} {request.url.netloc.decode()}{request.url.path}"
        claims = {"sub": key_id, "iss": "cdp", "nbf": now, "exp": now + VALID_SECONDS, "uris": [called]}
        return jwt.encode(claims, key, algorithm, headers={"kid": key_id, "nonce": secrets.token_hex(8)})

    return Bearer(token_for)


def private_key(text: str, facilitator: FacilitatorTable) -> tuple[Any, str]:
    """The key and its algorithm, of PEM, whose ends of lines may be written as \\n, or of base64. ConfigError for anything else."""
    try:
        if text.lstrip().startswith("-----BEGIN"):
            key = load_pem_private_key(text.replace("\\n", "\n").encode(), password=None)
            if isinstance(key, EllipticCurvePrivateKey) and isinstance(key.curve, SECP256R1):
                return key, "ES256"
            if isinstance(key, Ed25519PrivateKey):
                return key, "EdDSA"
        elif len(raw := b64decode(text, validate=True)) == KEY_BYTES:
            return Ed25519PrivateKey.from_private_bytes(raw[:SEED_BYTES]), "EdDSA"
    except (ValueError, TypeError, binascii.Error):  # none of their words: they may repeat a part of the secret
        pass
    raise ConfigError(
        f"payments.facilitators: the KEY_SECRET of {facilitator.name} is neither a key of P-256 in PEM nor one of Ed25519 in base64"
    )
