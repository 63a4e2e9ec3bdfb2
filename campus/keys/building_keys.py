"""The key desk: what one building may do with keys; looking them up is for all, selling only where campus.toml grants it."""

from datetime import datetime

from campus.caller import Credential, Key
from campus.errors import KeyRefused
from campus.keys.keyring import KeyRing
from campus.keys.sales import KeySold


class BuildingKeys:
    """A building's own view of the keys; `building` is its name, and `may_sell` whether its table says `grants = ["keys"]`."""

    def __init__(self, ring: KeyRing, *, building: str, may_sell: bool) -> None:
        self._ring = ring
        self._building = building
        self._may_sell = may_sell

    async def find(self, token: str) -> Credential:
        """Whether a token is valid, unknown, expired or revoked, and its key; a change elsewhere shows within 5 s."""
        return await self._ring.find(token)

    async def get(self, key_id: str) -> Key | None:
        """The key of this id, whatever its state; None when there is none."""
        return await self._ring.get(key_id)

    async def end_of(self, lineage: str) -> datetime | None:
        """When the last key of a lineage ends or ended; None when none is left that was not revoked."""
        return await self._ring.end_of(lineage)

    async def sell(self, product: str, *, payment: str, renew: str | None = None) -> KeySold:
        """What a paid call buys: a new key of the product, or a term of it for the key of the id `renew`.

        `payment` is `Caller.payment`. Nothing counts before that payment has settled: until then the token is unknown, and a
        renewed key ends as before. A payment that is released takes the sale with it. KeyRefused, with a sentence: not granted,
        no such product, or a key that cannot be renewed, as revoked and rotated ones, those of another scope, and those that
        are not there.
        """
        if not self._may_sell:
            table = f"[buildings.{self._building}]"
            raise KeyRefused(f'{self._building} may not sell keys; write grants = ["keys"] into {table} of campus.toml')
        return await self._ring.sell(product, payment=payment, renew=renew, by=self._building)
