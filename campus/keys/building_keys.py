"""What one building may do with keys: look them up, and sell them where campus.toml grants it."""

from datetime import datetime

from campus.caller import Credential, Key
from campus.errors import KeyRefused
from campus.keys.keyring import KeyRing
from campus.keys.sales import KeySold


class BuildingKeys:
    """The keys as one building sees them; `may_sell`: its table in campus.toml has `grants = ["keys"]`."""

    def __init__(self, ring: KeyRing, *, building: str, may_sell: bool) -> None:
        self._ring = ring
        self._building = building
        self._may_sell = may_sell

    async def find(self, token: str) -> Credential:
        """Whether a token is valid, unknown, expired or revoked, and its key; a change by another process shows within 5 s."""
        return await self._ring.find(token)

    async def get(self, key_id: str) -> Key | None:
        """The key with this id, in any state; None when there is none."""
        return await self._ring.get(key_id)

    async def end_of(self, lineage: str) -> datetime | None:
        """When the last key of a lineage ends or ended; None when all of them were revoked."""
        return await self._ring.end_of(lineage)

    async def sell(self, product: str, *, payment: str, renew: str | None = None) -> KeySold:
        """Sell what a paid call buys: a new key of the product, or its term for the key with the id `renew`.

        `payment` is `Caller.payment`. The sale takes effect when that payment settles: until then the token is unknown, and a
        renewed key ends as before. When the payment is released, the sale is dropped. KeyRefused says why nothing can be sold: no
        grant, no such product, or a key that cannot be renewed because it was revoked or rotated, has another scope or is unknown.
        """
        if not self._may_sell:
            table = f"[buildings.{self._building}]"
            raise KeyRefused(f'{self._building} may not sell keys; write grants = ["keys"] into {table} of campus.toml')
        return await self._ring.sell(product, payment=payment, renew=renew, by=self._building)
