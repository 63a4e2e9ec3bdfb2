"""The URLs of a monitor, and the shell command that sends its beats. Pure."""

from dataclasses import dataclass


@dataclass(frozen=True)
class MonitorUrls:
    """The URLs of one monitor; `url` is the public URL of the service."""

    url: str
    monitor_id: str

    def beat(self, secret: str) -> str:
        """Records a beat on GET or POST."""
        return f"{self.url}/v1/recorder/beat/{self.monitor_id}/{secret}"

    def cron(self, secret: str) -> str:
        """A shell command that retries for two minutes, refused connections too, at which --retry alone gives up."""
        return f"curl -fsS -m 10 --retry 7 --retry-all-errors -o /dev/null {self.beat(secret)}"

    @property
    def capsule(self) -> str:
        """The last capsule; needs the owning key."""
        return f"{self.url}/v1/recorder/capsule/{self.monitor_id}"

    @property
    def takeover(self) -> str:
        """Takes the monitor over on POST."""
        return f"{self.url}/v1/recorder/monitors/{self.monitor_id}/takeover"


def badge_url(url: str, badge_id: str) -> str:
    """The public image of a monitor's state."""
    return f"{url}/v1/recorder/badge/{badge_id}.svg"
