"""What belongs to one monitor and nobody else: its secret, the hash under which it is stored, and the URLs that contain it. Pure."""

import hmac
from dataclasses import dataclass

from campus import Caller
from campus.secrets import Entropy, random_base62

SECRET_LENGTH = 32
NO_DIGEST = bytes(32)
"""Replaces the digest of a monitor that does not exist, so that the comparison takes the same time."""


def new_secret(entropy: Entropy) -> str:
    """A new secret: 190 random bits, as letters and digits because it is part of URLs and crontabs."""
    return random_base62(SECRET_LENGTH, entropy)


def digest_matches(digest: bytes | None, given: bytes) -> bool:
    """Whether two digests are equal, in constant time; False for None, the digest of a monitor that does not exist."""
    same = hmac.compare_digest(NO_DIGEST if digest is None else digest, given)
    return same and digest is not None


@dataclass(frozen=True)
class Credentials:
    """What authorizes a caller for a monitor: the monitor's secret, the lineage of the caller's key, or both."""

    monitor_id: str
    lineage: str | None
    secret: str | None


def lineage_of(caller: Caller) -> str | None:
    """The lineage under which a caller's monitors are stored; None without a key."""
    return caller.key.lineage if caller.key else None


@dataclass(frozen=True)
class MonitorUrls:
    url: str
    monitor_id: str

    def beat(self, secret: str) -> str:
        return f"{self.url}/v1/recorder/beat/{self.monitor_id}/{secret}"

    def hook(self, secret: str) -> str:
        return f"{self.url}/v1/recorder/hook/{self.monitor_id}/{secret}"

    def cron(self, secret: str) -> str:
        """A shell command that sends a beat and retries for two minutes, also after a refused connection."""
        return f"curl -fsS -m 10 --retry 7 --retry-all-errors -o /dev/null {self.beat(secret)}"

    @property
    def capsule(self) -> str:
        return f"{self.url}/v1/recorder/capsule/{self.monitor_id}"

    @property
    def takeover(self) -> str:
        return f"{self.url}/v1/recorder/monitors/{self.monitor_id}/takeover"

    @property
    def resume(self) -> str:
        return f"{self.url}/v1/recorder/monitors/{self.monitor_id}/resume"


def badge_url(url: str, badge_id: str) -> str:
    return f"{url}/v1/recorder/badge/{badge_id}.svg"
