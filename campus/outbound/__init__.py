"""What campus sends to others: HTTP to the URLs of callers and of the operator."""

from campus.outbound.http_clients import GuardedClient

__all__ = ["GuardedClient"]
