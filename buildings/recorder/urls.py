"""Where a monitor is reached, and the command that beats for it. Pure."""

from dataclasses import dataclass


@dataclass(frozen=True)
class MonitorUrls:
    """The addresses of one monitor at the service's public `url`."""

    url: str
    monitor_id: str

    def beat(self, secret: str) -> str:
        """Asked by GET or POST."""
        return f"{self.url}/v1/recorder/beat/{self.monitor_id}/{secret}"

    def cron(self, secret: str) -> str:
        """A line that goes on trying for two minutes: refused connections too, which --retry alone gives up on."""
        return f"curl -fsS -m 10 --retry 7 --retry-all-errors -o /dev/null {self.beat(secret)}"

    @property
    def capsule(self) -> str:
        """The resume link: of use only with the key."""
        return f"{self.url}/v1/recorder/capsule/{self.monitor_id}"

    @property
    def takeover(self) -> str:
        """Asked by POST."""
        return f"{self.url}/v1/recorder/monitors/{self.monitor_id}/takeover"


def badge_url(url: str, badge_id: str) -> str:
    """The public picture of a monitor."""
    return f"{url}/v1/recorder/badge/{badge_id}.svg"


def mail_url(url: str, purpose: str, target_id: str, token: str) -> str:
    """The page behind a link in an e-mail: `purpose` is confirm or unsubscribe."""
    return f"{url}/v1/recorder/email/{purpose}/{target_id}/{token}"
