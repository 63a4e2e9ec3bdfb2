"""E-mail through a real SMTP server: what arrives, how it travels, and what is said when it does not."""

import socket
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from patience import patience

from campus import Mail, MailRefused, MailUnavailable
from campus.core import utc_now
from campus.errors import one_line
from campus.outbound.mail import check_address

pytestmark = pytest.mark.anyio
Posting = Callable[..., AbstractAsyncContextManager[Any]]
Mailing = Callable[..., Mail]
TO = "joe@mail.example"


async def test_a_message_arrives_as_it_was_written(posting: Posting, mailing: Mailing) -> None:
    text = "Größe: 3 µs\n\n.\nFrom here on: a line of 2,000 letters\n" + "ä" * 2000 + "\n"
    async with posting() as box:
        message_id = await mailing(box).send(TO, "☠ nightly is dead", text, headers={"List-Unsubscribe": "<https://campus.example/u/1>"})
    letter = box.letter()
    read = letter.read
    assert (letter.sender, letter.recipients) == ("alerts@campus.example", [TO])
    assert (read["From"], read["To"], read["Subject"]) == ("Cämpus <alerts@campus.example>", TO, "☠ nightly is dead")
    assert read["Date"] == "Fri, 20 Nov 2026 12:00:00 +0000"
    assert read["Message-ID"] == message_id
    assert message_id.endswith("@campus.example>")
    assert read["Auto-Submitted"] == "auto-generated"
    assert read["List-Unsubscribe"] == "<https://campus.example/u/1>"
    assert read.get_content_type() == "text/plain"
    assert read.get_content().replace("\r\n", "\n").rstrip("\n") == text.rstrip("\n")


async def test_a_message_is_seven_bits_wide_and_its_lines_are_short(posting: Posting, mailing: Mailing) -> None:
    async with posting() as box:
        await mailing(box).send(TO, "ü" * 500, "ü" * 5000, headers={"X-Words": "wörter " * 100})
    assert box.letter().raw.isascii()
    assert max(map(len, box.letter().raw.split(b"\r\n"))) <= 78
    assert box.letter().read["Subject"] == "ü" * 200


async def test_a_long_address_in_a_header_stays_whole(posting: Posting, mailing: Mailing) -> None:
    link = f"<https://campus.example/v1/recorder/unsubscribe/{'a1B2' * 40}>"
    async with posting() as box:
        await mailing(box).send(TO, "s", "t", headers={"List-Unsubscribe": link, "List-Unsubscribe-Post": "List-Unsubscribe=One-Click"})
    assert f"List-Unsubscribe: {link}\r\n".encode() in box.letter().raw


async def test_each_message_has_an_id_of_its_own_and_an_attempt_may_repeat_one(posting: Posting, mailing: Mailing) -> None:
    async with posting() as box:
        mail = mailing(box)
        own = {await mail.send(TO, "s", "t") for _ in range(3)}
        same = {await mail.send(TO, "s", "t", message_name="msg_1") for _ in range(3)}
    assert len(own) == 3
    assert same == {"<msg_1@campus.example>"}
    with pytest.raises(ValueError, match="a message's name"):
        await mail.send(TO, "s", "t", message_name="a>\r\nBcc: x")


BREAKS = ["\r\n", "\n", "\r", "\n\n", "\r\n\r\n", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029", "\0", "\r\n\t", "\u202e"]


@pytest.mark.parametrize("ends", BREAKS, ids=ascii)
async def test_no_header_can_be_smuggled_in(ends: str, posting: Posting, mailing: Mailing) -> None:
    evil = f"news{ends}Bcc: eve@evil.example{ends}{ends}<html>"
    async with posting() as box:
        await mailing(box).send(TO, evil, f"{evil}\r\n.\r\nRSET\r\n", headers={"X-Monitor": evil})
    read = box.letter().read
    assert box.letter().recipients == [TO]
    assert read["Bcc"] is None
    assert read["Subject"] == read["X-Monitor"] == "news Bcc: eve@evil.example <html>"
    ours = {"From", "To", "Date", "Auto-Submitted", "Subject", "Message-ID", "MIME-Version", "Content-Type", "Content-Transfer-Encoding"}
    assert sorted(read.keys()) == sorted({*ours, "X-Monitor"})


@given(st.text())
def test_one_line_is_one_line_that_can_be_encoded(text: str) -> None:
    line = one_line(text, longest=None)
    assert len(line.splitlines()) <= 1
    assert line.isprintable()
    assert line.encode().decode() == line
    assert one_line(line, longest=None) == line


async def test_what_no_encoding_can_hold_is_replaced(posting: Posting, mailing: Mailing) -> None:
    async with posting() as box:
        await mailing(box).send(TO, "a\ud800b", "a\ud800b\0c")
    assert box.letter().read["Subject"] == "a b"
    assert box.letter().read.get_content().strip() == "a?b�c"


@pytest.mark.parametrize(
    "name", ["Bcc", "to", "From", "Subject", "Message-ID", "Content-Type", "MIME-Version", "X Y", "X:Y", "X\r\nBcc", "", "Ü"]
)
async def test_a_header_that_is_not_for_buildings_to_set_is_a_mistake(name: str, mailing: Mailing, posting: Posting) -> None:
    async with posting() as box:
        with pytest.raises(ValueError, match="is not a header that can be added"):
            await mailing(box).send(TO, "s", "t", headers={name: "x"})
    assert box.letters == []


ADDRESSES = ["joe@mail.example", "j.o-e+tag_1@a.b.example", "root@localhost", "!#$%&'*+/=?^_`{|}~-@x.example", f"{'a' * 64}@x.example"]
NO_ADDRESSES = [
    *(
        "",
        "joe",
        "@x.example",
        "joe@",
        "joe@@x.example",
        "a@b@c.example",
        "joe@x..example",
        "joe@.x.example",
        "joe@x.example.",
        "joe@-x.example",
    ),
    *(
        "Joe <joe@x.example>",
        "<joe@x.example>",
        "joe@x.example, eve@x.example",
        "joe@x.example;eve@x.example",
        "joe@x.example eve@x.example",
    ),
    *(
        "joe@x.example\r\nRCPT TO:<eve@x.example>",
        "joe@x.example\n",
        " joe@x.example",
        "joe\0@x.example",
        '"joe eve"@x.example',
        "joe@[127.0.0.1]",
    ),
    *(
        "jöe@x.example",
        "joe@xé.example",
        "joe@x.example>",
        "joe(eve)@x.example",
        f"{'a' * 65}@x.example",
        f"a@{'b.' * 130}example",
        "joe@x_y.example",
    ),
]


@pytest.mark.parametrize("address", ADDRESSES)
async def test_one_plain_address_is_taken(address: str, posting: Posting, mailing: Mailing) -> None:
    check_address(address)
    async with posting() as box:
        await mailing(box).send(address, "s", "t")
    assert box.letter().recipients == [address]


@pytest.mark.parametrize("address", NO_ADDRESSES, ids=ascii)
async def test_anything_else_is_refused_before_the_server_hears_of_it(address: str, posting: Posting, mailing: Mailing) -> None:
    async with posting() as box:
        with pytest.raises(MailRefused, match=r"write one as name@host\.example"):
            await mailing(box).send(address, "s", "t")
    assert box.letters == []


async def test_starttls_is_used_where_it_is_offered(posting: Posting, mailing: Mailing) -> None:
    async with posting(tls="starttls") as box:
        await mailing(box).send(TO, "s", "t")
    assert box.letter().over_tls


async def test_tls_may_begin_with_the_first_byte(posting: Posting, mailing: Mailing) -> None:
    async with posting(tls="implicit", password=True) as box:
        await mailing(box, tls="implicit", password="hush").send(TO, "s", "t")
    assert box.letter().over_tls
    assert box.logins == [(b"alerts@campus.example", b"hush")]


async def test_a_password_is_sent_once_tls_is_there(posting: Posting, mailing: Mailing) -> None:
    async with posting(tls="starttls", password=True) as box:
        await mailing(box, tls="starttls", password="hush", username="me").send(TO, "s", "t")
    assert box.letter().over_tls
    assert box.logins == [(b"me", b"hush")]


async def test_a_password_is_kept_from_a_server_without_tls(posting: Posting, mailing: Mailing) -> None:
    async with posting(password=True) as box:
        with pytest.raises(MailUnavailable):
            await mailing(box, tls="starttls", password="hush").send(TO, "s", "t")
    assert box.logins == []
    assert box.letters == []


@pytest.mark.parametrize("tls", ["starttls", "implicit", "offered"])
async def test_a_certificate_that_is_not_believed_stops_everything(tls: str, posting: Posting, mailing: Mailing) -> None:
    async with posting(tls="implicit" if tls == "implicit" else "starttls", password=True) as box:
        with pytest.raises(MailUnavailable, match="certificate verify failed"):
            await mailing(box, tls=tls, password="hush", trust=None).send(TO, "s", "t")
    assert box.logins == []


async def test_a_wrong_password_is_told_without_it(posting: Posting, mailing: Mailing) -> None:
    async with posting(tls="starttls", password=True) as box:
        mail = mailing(box, tls="starttls", password="wrong-password")
        with pytest.raises(MailUnavailable) as caught:
            await mail.send(TO, "s", "t")
    assert "535" in str(caught.value)
    assert "wrong-password" not in str(caught.value) + repr(mail)


@pytest.mark.parametrize(("reply", "kind"), [
    ("550 5.1.1 no such user", MailRefused),
    ("553 5.1.3 bad address", MailRefused),
    ("450 4.2.1 try later", MailUnavailable),
    ("552 5.2.2 mailbox full", MailUnavailable),
    ("554 5.7.1 relay access denied", MailUnavailable),
    ("530 5.7.0 log in first", MailUnavailable),
])  # fmt: skip
async def test_a_refused_recipient_is_told_from_one_refused_for_now(
    reply: str, kind: type[Exception], posting: Posting, mailing: Mailing
) -> None:
    async with posting(refusal=reply) as box:
        with pytest.raises(MailUnavailable, match=f"refused the recipient: {reply}") as caught:
            await mailing(box).send(TO, "s", "t")
    assert type(caught.value) is kind


async def test_a_server_that_is_not_there_is_unavailable(mailing: Mailing, posting: Posting) -> None:
    async with posting() as box:
        pass
    mail = mailing(box)
    with pytest.raises(MailUnavailable, match=f"the SMTP server localhost:{box.port} did not accept the e-mail"):
        await mail.send(TO, "s", "t")
    assert len(await mail.check()) == 1


async def test_a_server_that_says_nothing_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        mail = Mail(host="127.0.0.1", port=silent.getsockname()[1], sender="a@x.example", now=utc_now, seconds=0.2)
        with anyio.fail_after(patience(20)), pytest.raises(MailUnavailable):
            await mail.send(TO, "s", "t")


async def test_a_check_says_whether_the_server_would_take_a_message(posting: Posting, mailing: Mailing) -> None:
    async with posting(tls="starttls", password=True) as box:
        assert list(await mailing(box, tls="starttls", password="hush").check()) == []
        (sentence,) = await mailing(box, tls="starttls", password="wrong").check()
        assert "535" in sentence
    assert box.letters == []


async def test_many_messages_may_be_sent_at_once(posting: Posting, mailing: Mailing) -> None:
    async with posting() as box:
        mail = mailing(box)
        async with anyio.create_task_group() as tasks:
            for number in range(30):
                tasks.start_soon(mail.send, TO, f"number {number}", "t")
    assert {letter.read["Subject"] for letter in box.letters} == {f"number {number}" for number in range(30)}
