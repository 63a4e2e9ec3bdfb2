"""On whose behalf something is done: a key's lineage, or without a key the network that the call came from. Pure."""


def sender_of(lineage: str | None, network: str) -> str:
    """Under what name limits count a caller; `network` is Caller.network."""
    return f"key:{lineage}" if lineage is not None else f"net:{network}"
