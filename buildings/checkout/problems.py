"""What each problem code of this building means; served at /errors/<code>."""

from collections.abc import Mapping

PROBLEMS: Mapping[str, str] = {
    "key_not_sold": "The key cannot be sold or renewed as asked; `detail` says why. Nothing was charged.",
}
