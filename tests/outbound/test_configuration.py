"""[mail] and [web] of campus.toml: what they make, every mistake in one sentence, and what `campus check` says of them."""

import os
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from campus.app import assemble
from campus.config import Config, config_model, read_config
from campus.core import utc_now
from campus.errors import ConfigError, TargetRefused
from campus.outbound.http_clients import guarded_client
from campus.outbound.mail import Mail, open_mail

pytestmark = pytest.mark.anyio
MAIL = {"host": "smtp.example", "sender": "alerts@x.example"}
MISTAKES = {
    "an unknown key of mail": (
        '[mail]\nhost = "x"\nsender = "a@b.example"\nuser = "me"\n',
        "unknown key 'user' in [mail]; there are: host, port, sender, username, tls",
    ),
    "an unknown key of web": ("[web]\nhosts = []\n", "unknown key 'hosts' in [web]; there are: allowed_hosts"),
    "a mail without a sender": ('[mail]\nhost = "x"\n', "mail.sender is missing"),
    "a host that is none": ('[mail]\nhost = "smtp example"\nsender = "a@b.example"\n', "mail.host"),
    "a way of TLS that is none": (
        '[mail]\nhost = "x"\nsender = "a@b.example"\ntls = "yes"\n',
        "mail.tls: input should be 'implicit', 'starttls'",
    ),
    "an allowed host that is a URL": ('[web]\nallowed_hosts = ["http://localhost"]\n', "web.allowed_hosts"),
    "an allowed host in capitals": ('[web]\nallowed_hosts = ["LocalHost"]\n', "web.allowed_hosts"),
}


def mail_of(password: str | None = None, **table: Any) -> Mail | None:
    secret = SecretStr(password) if password else None
    return open_mail(config_model().model_validate({"mail": MAIL | table}).mail, secret, utc_now)


@pytest.mark.parametrize("mistake", MISTAKES, ids=str)
def test_a_mistake_is_reported_in_one_sentence(mistake: str, tmp_path: Path) -> None:
    text, said = MISTAKES[mistake]
    (path := tmp_path / "campus.toml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_config(path, {})
    assert said in str(caught.value)


def test_without_the_table_there_is_no_mail() -> None:
    assert open_mail(config_model()().mail, None, utc_now) is None


@pytest.mark.parametrize(("table", "password", "tls"), [
    ({}, None, "offered"),
    ({}, "hush", "starttls"),
    ({"port": 465}, None, "implicit"),
    ({"port": 465}, "hush", "implicit"),
    ({"port": 2465, "tls": "implicit"}, "hush", "implicit"),
    ({"port": 25, "tls": "starttls"}, None, "starttls"),
    ({"port": 25, "tls": "none"}, None, "none"),
])  # fmt: skip
def test_tls_is_as_strict_as_port_and_password_want_it(table: dict[str, Any], password: str | None, tls: str) -> None:
    mail = mail_of(password, **table)
    assert mail is not None
    assert mail.tls == tls
    assert "hush" not in repr(mail)


@pytest.mark.parametrize(("table", "password", "said"), [
    ({"tls": "none"}, "hush", "would send CAMPUS_MAIL_PASSWORD in the clear"),
    ({"username": "me"}, None, "set CAMPUS_MAIL_PASSWORD in the environment"),
    ({"sender": "Campus"}, None, "is not an address; write it as alerts@host.example"),
    ({"sender": "a@b.example\r\nBcc: c@d.example"}, None, "is not an address"),
])  # fmt: skip
def test_what_cannot_work_is_refused_before_anything_is_sent(table: dict[str, Any], password: str | None, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        mail_of(password, **table)
    assert said in str(caught.value)
    assert "hush" not in str(caught.value)


def config_at(folder: Path, **tables: Any) -> Config:
    return config_model().model_validate({"buildings": {"gateway": {"path": "/"}}, "folder": folder, **tables})


async def test_a_site_has_the_guarded_client_and_the_mail_of_campus_toml(tmp_path: Path) -> None:
    config = config_at(tmp_path, server={"public_url": "https://campus.dev"}, mail=MAIL, web={"allowed_hosts": ["localhost"]})
    async with assemble(config, exclusive=False) as campus:
        site = campus.sites["gateway"]
        assert site.mail is not None
        assert site.mail.sender == "alerts@x.example"
        site.web.check_url("http://localhost:9999/")
        with pytest.raises(TargetRefused) as caught:
            await site.web.post("https://campus.dev/")
        assert caught.value.rule == "own_host"


async def test_a_mistake_in_mail_is_found_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        async with assemble(config_at(tmp_path, mail=MAIL | {"username": "me"}), exclusive=False):
            pass
    assert os.listdir(tmp_path) == []


async def test_a_check_warns_of_allowed_hosts_and_of_a_mail_server_that_takes_nothing(
    tmp_path: Path, open_mail_server: Callable[..., AbstractAsyncContextManager[Any]]
) -> None:
    async with open_mail_server() as server:
        tables: dict[str, Any] = {
            "mail": MAIL | {"host": "localhost", "port": server.port},
            "web": {"allowed_hosts": ["localhost", "b.dev"]},
        }
        async with assemble(config_at(tmp_path, **tables), exclusive=False) as campus:
            found = await campus.ask("check")
            assert list(found["[mail]"]) == []
            assert found["[web]"] == [
                "allowed_hosts lets callers make campus send requests to b.dev, localhost; leave it empty except for tests and local use"
            ]
            assert (await campus.ask("ready")).keys() == {"gateway"}
    async with assemble(config_at(tmp_path, **tables), exclusive=False) as campus:
        (sentence,) = (await campus.ask("check"))["[mail]"]
        assert "did not accept the e-mail" in sentence
    async with assemble(config_at(tmp_path), exclusive=False) as campus:
        assert (await campus.ask("check")).keys() == {"gateway"}


async def test_a_client_of_ones_own_may_stand_in(tmp_path: Path) -> None:
    web = guarded_client("https://campus.dev", resolve=lambda host, port: ["10.0.0.1"])
    async with assemble(config_at(tmp_path), exclusive=False, web=web) as campus:
        assert campus.sites["gateway"].web is web
        with pytest.raises(TargetRefused):
            await web.post("https://hooks.good.dev/")
    with pytest.raises(RuntimeError, match="closed"):
        await web.post("https://hooks.good.dev/")
