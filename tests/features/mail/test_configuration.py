"""[mail] of campus.toml: what it makes, every mistake in one sentence, and what `campus check` says of it."""

import os
from pathlib import Path
from typing import Any

import pytest
from features.mail.conftest import OpenMailServer
from pydantic import SecretStr

from campus.app import assemble
from campus.config import Config, config_model, read_config
from campus.core import utc_now
from campus.errors import ConfigError
from campus.features.mail.feature import MailTable
from campus.features.mail.smtp import Mail, open_mail

pytestmark = pytest.mark.anyio
MAIL = {"host": "smtp.example", "sender": "alerts@x.example"}
MISTAKES = {
    '[mail]\nhost = "x"\nsender = "a@b.example"\nuser = "me"\n': (
        "unknown key 'user' in [mail]; there are: host, port, sender, username, tls"
    ),
    '[mail]\nhost = "x"\n': "mail.sender is missing",
    '[mail]\nhost = "smtp example"\nsender = "a@b.example"\n': "mail.host",
    '[mail]\nhost = "x"\nsender = "a@b.example"\ntls = "yes"\n': "mail.tls: input should be 'implicit', 'starttls'",
}


def mail_of(password: str | None = None, **table: Any) -> Mail:
    secret = SecretStr(password) if password else None
    return open_mail(MailTable(**MAIL | table), secret, utc_now)


def test_a_mistake_is_reported_in_one_sentence(tmp_path: Path) -> None:
    for text, said in MISTAKES.items():
        (path := tmp_path / "campus.toml").write_text(text)
        with pytest.raises(ConfigError) as caught:
            read_config(path, {})
        assert said in str(caught.value)


def test_tls_is_as_strict_as_port_and_password_want_it() -> None:
    for table, password, tls in (
        ({}, None, "offered"),
        ({}, "hush", "starttls"),
        ({"port": 465}, None, "implicit"),
        ({"port": 465}, "hush", "implicit"),
        ({"port": 2465, "tls": "implicit"}, "hush", "implicit"),
        ({"port": 25, "tls": "starttls"}, None, "starttls"),
        ({"port": 25, "tls": "none"}, None, "none"),
    ):
        mail = mail_of(password, **table)
        assert mail.tls == tls, (table, password)
        assert "hush" not in repr(mail)


def test_what_cannot_work_is_refused_before_anything_is_sent() -> None:
    for table, password, said in (
        ({"tls": "none"}, "hush", "would send CAMPUS_MAIL_PASSWORD in the clear"),
        ({"username": "me"}, None, "set CAMPUS_MAIL_PASSWORD in the environment"),
        ({"sender": "Campus"}, None, "is not an address; write it as alerts@host.example"),
        ({"sender": "a@b.example\r\nBcc: c@d.example"}, None, "is not an address"),
    ):
        with pytest.raises(ConfigError) as caught:
            mail_of(password, **table)
        assert said in str(caught.value)
        assert "hush" not in str(caught.value)


def config_at(folder: Path, **tables: Any) -> Config:
    return config_model().model_validate({"buildings": {"gateway": {"path": "/"}}, "folder": folder, **tables})


async def test_a_site_has_the_mail_of_campus_toml(tmp_path: Path) -> None:
    async with assemble(config_at(tmp_path, mail=MAIL), exclusive=False) as campus:
        assert campus.sites["gateway"].feature("mail").sender == "alerts@x.example"


async def test_a_mistake_in_mail_is_found_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        async with assemble(config_at(tmp_path, mail=MAIL | {"username": "me"}), exclusive=False):
            pass
    assert os.listdir(tmp_path) == []


async def test_a_check_says_of_a_mail_server_that_it_takes_nothing(tmp_path: Path, open_mail_server: OpenMailServer) -> None:
    async with open_mail_server() as server:
        config = config_at(tmp_path, mail=MAIL | {"host": "localhost", "port": server.port})
        async with assemble(config, exclusive=False) as campus:
            assert list((await campus.ask("check"))["[mail]"]) == []
            assert (await campus.ask("ready")).keys() == {"gateway"}
    async with assemble(config, exclusive=False) as campus:
        (sentence,) = (await campus.ask("check"))["[mail]"]
        assert "did not accept the e-mail" in sentence
