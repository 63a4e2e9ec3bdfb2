"""The keys of [buildings.recorder]: a value that cannot work is refused in one sentence."""

import pytest

from buildings.recorder.settings import RecorderSettings
from campus.catalog.loader import read_settings
from campus.errors import ConfigError


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("registrations_per_minute", True, "buildings.recorder.registrations_per_minute: true and false are not numbers"),
        ("deliveries", False, "buildings.recorder.deliveries: true and false are not numbers"),
        ("monitors_per_host", 0, "buildings.recorder.monitors_per_host: input should be greater than 0"),
        ("shared_hosts", ["https://hooks.example.com/"], "buildings.recorder.shared_hosts.0: 'https://hooks.example.com/' is not a host"),
        ("shared_hosts", ["Hooks.example.com"], "in lower case"),
        ("shared_hosts", "hooks.example.com", "buildings.recorder.shared_hosts: write a list, in [ and ]"),
        ("discord_hosts", [""], "buildings.recorder.discord_hosts.0: '' is not a host"),
    ],
)
def test_a_wrong_setting_is_reported_in_one_sentence(key: str, value: object, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_settings("recorder", RecorderSettings, {key: value}, {})
    assert said in str(caught.value)


def test_hosts_and_numbers_are_read() -> None:
    settings = read_settings("recorder", RecorderSettings, {"shared_hosts": ["hooks.example.com", "localhost"], "deliveries": 3}, {})
    assert isinstance(settings, RecorderSettings)
    assert settings.shared_hosts == ("hooks.example.com", "localhost")
    assert settings.deliveries == 3
