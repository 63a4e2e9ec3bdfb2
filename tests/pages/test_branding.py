"""An operator's own campus: his colour, logo and folder of templates, and what `campus check` says of a mistake in one."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorder.receivers import open_mailbox

from buildings.gateway import building as gateway
from buildings.recorder import building as recorder
from campus.colours import DARK, LIGHT, READABLE, contrast, read_accent
from campus.config import config_model
from campus.testing import TestCampus, open_campus

pytestmark = pytest.mark.anyio
HTML = {"Accept": "text/html"}
HOME = """{% extends "campus/layout.html" %}
{% from "campus/macros.html" import badge %}
{% set kind = "good" %}
{% block title %}Tides{% endblock %}
{% block main %}<h1>Of {{ products | length }} tides</h1>{{ badge("x", kind) }}{% endblock %}
"""
FOOTER = "<p>Tides Ltd, since 1951</p>\n"
DEAD = '{% extends "shipped/layout.html" %}\n{% block haed %}{% endblock %}'
MAIL = '{% extends "shipped/mail.html" %}\n{% block seller %}<p>Yours, the tide keepers</p>{{ super() }}{% endblock %}\n'


@asynccontextmanager
async def open_tides(folder: Path, files: dict[str, str], **tables: Any) -> AsyncIterator[TestCampus]:
    for name, text in files.items():
        path = folder / "templates" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (folder / "tides.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    server = {"public_url": "http://campus.test", "name": "Tides", "logo": "tides.svg", "colour": "#00aa55", "templates": "templates"}
    said = {"folder": folder, "server": {**server, "openapi": "gateway"}, "buildings": {"gateway": {"path": "/"}, "recorder": {}}, **tables}
    async with open_campus(gateway=gateway, recorder=recorder, tables=said) as campus:
        yield campus


async def test_a_folder_and_a_colour_replace_the_start_page_the_footer_a_mail_and_the_style_and_nothing_says_campus(tmp_path: Path) -> None:
    files = {"gateway/home.html": HOME, "footer.html": FOOTER, "mail.html": MAIL, "_part.html": ""}
    async with open_mailbox() as mailbox:
        mail = {"host": "127.0.0.1", "port": mailbox.port, "sender": "alerts@tides.example", "tls": "none"}
        async with open_tides(tmp_path, files, mail=mail) as campus:
            home = (await campus.http.get("/", headers=HTML)).text
            assert "<h1>Of 3 tides</h1>" in home
            assert FOOTER in home
            [address] = [part.partition('"')[0] for part in home.split('href="') if part.startswith("/static/accent.")]
            style = await campus.http.get(address)
            assert style.text == ":root { --accent: light-dark(#007e3f, #00aa55); }\n", "in shades that can be read"
            assert style.headers["content-type"].startswith("text/css")
            shown = home.replace("/static/campus.", "").replace("campus.test", "")
            assert "campus" not in shown.casefold(), "the product is not named"
            for path in ("/errors", "/keys", "/recorder"):
                assert FOOTER in (await campus.http.get(path, headers=HTML)).text
            await campus.call("register_monitor", building="recorder", key=await campus.key("all"), name="x", alert_email="a@b.example")
            await campus.service.sites["recorder"].state.dispatcher.deliver_due()
            (html,) = mailbox.htmls
            assert "Yours, the tide keepers" in html
            assert "Confirm this address" in html
            assert ">Tides</a>" in html
            card = (await campus.http.get("/.well-known/ai-catalog.json")).json()["host"]
            assert (card["displayName"], card["logoUrl"].rpartition("/")[2].partition(".")[0]) == ("Tides", "tides")
            found = [one for table in (await campus.service.ask("check")).values() for one in table if str(tmp_path / "templates") in one]
            assert found == []


def test_a_colour_that_cannot_be_read_is_refused_with_one_that_can() -> None:
    with pytest.raises(ValueError, match=r"#ffff00 cannot be read on light pages; take a darker one, such as #707000"):
        config_model().model_validate({"server": {"colour": "#ffff00"}})
    with pytest.raises(ValueError, match="six hexadecimal digits"):
        config_model().model_validate({"server": {"colour": "green"}})


@given(st.tuples(*[st.integers(0, 255)] * 3))
def test_each_accepted_colour_can_be_read_on_every_ground(channels: tuple[int, int, int]) -> None:
    try:
        accent = read_accent("#{:02X}{:02X}{:02X}".format(*channels))
    except ValueError:
        assert contrast("#{:02x}{:02x}{:02x}".format(*channels), LIGHT) < READABLE
        return
    assert contrast(accent.light, LIGHT) >= READABLE
    assert contrast(accent.dark, DARK) >= READABLE
    assert contrast(accent.light, "#ffffff") >= READABLE, "the words of a button"
    assert contrast(accent.dark, "#0c1a2b") >= READABLE


MISTAKES = [
    ("home.html", "{% block main %}\n{% if %}", "home.html, line 2: "),
    ("home.html", "<h1>\n{{ titel }}</h1>", "home.html, line 2: the page is not given titel; it is given "),
    ("home.html", '{% extends "campus/layuot.html" %}', "home.html needs the template campus/layuot.html, and there is none"),
    ("layout.html", DEAD, "line 2: shipped/layout.html has no block haed; it has "),
    ("recorder/fleet.html", "\n{{ own }}", "recorder/fleet.html, line 2: the page is not given own"),
    ("hoem.html", "", "hoem.html replaces no template"),
    ("gateway/fleet.html", "", "gateway/fleet.html replaces no template"),
]


async def test_check_names_the_file_and_the_line_of_a_mistake(tmp_path: Path) -> None:
    async with open_tides(tmp_path, {"_part.html": ""}) as campus:
        for name, text, said in MISTAKES:
            (path := tmp_path / "templates" / name).parent.mkdir(exist_ok=True)
            path.write_text(text)
            [found] = [one for one in (await campus.service.ask("check"))["[server]"] if "templates" in one]
            assert said in found
            path.unlink()


def test_a_folder_that_is_not_there_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="there is no folder"):
        config_model().model_validate({"server": {"templates": "nowhere"}})
