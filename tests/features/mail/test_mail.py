"""E-mail through a real SMTP server: what arrives, how it travels, and what is said when it does not."""

import socket

import anyio
import pytest
from features.mail.conftest import OpenMail, OpenMailServer
from hypothesis import given
from hypothesis import strategies as st
from patience import patience

from campus.core import utc_now
from campus.errors import one_line
from campus.features.mail.smtp import Mail, MailRefused, MailUnavailable, check_address

pytestmark = pytest.mark.anyio
TO = "joe@mail.example"


async def test_a_message_arrives_as_it_was_written(open_mail_server: OpenMailServer, open_mail: OpenMail) -> None:
    text = "Größe: 3 µs\n\n.\nFrom here on: a line of 2,000 letters\n" + "ä" * 2000 + "\n"
    async with open_mail_server() as server:
        message_id = await open_mail(server).send(
            TO, "☠ nightly is dead", text, headers={"List-Unsubscribe": "<https://campus.example/u/1>"}
        )
    mail = server.only_mail()
    read = mail.read
    assert (mail.sender, mail.recipients) == ("alerts@campus.example", [TO])
    assert (read["From"], read["To"], read["Subject"]) == ("Cämpus <alerts@campus.example>", TO, "☠ nightly is dead")
    assert read["Date"] == "Fri, 20 Nov 2026 12:00:00 +0000"
    assert read["Message-ID"] == message_id
    assert message_id.endswith("@campus.example>")
    assert read["Auto-Submitted"] == "auto-generated"
    assert read["List-Unsubscribe"] == "<https://campus.example/u/1>"
    assert read.get_content_type() == "text/plain"
    assert read.get_content().replace("\r\n", "\n").rstrip("\n") == text.rstrip("\n")


async def test_a_message_is_seven_bits_wide_and_its_lines_are_short(open_mail_server: OpenMailServer, open_mail: OpenMail) -> None:
    async with open_mail_server() as server:
        await open_mail(server).send(TO, "ü" * 500, "ü" * 5000, headers={"X-Words": "wörter " * 100})
    assert server.only_mail().raw.isascii()
    assert max(map(len, server.only_mail().raw.split(b"\r\n"))) <= 78
    assert server.only_mail().read["Subject"] == "ü" * 200


async def test_a_long_address_in_a_header_stays_whole(open_mail_server: OpenMailServer, open_mail: OpenMail) -> None:
    link = f"<https://campus.example/v1/recorder/unsubscribe/{'a1B2' * 40}>"
    async with open_mail_server() as server:
        await open_mail(server).send(
            TO, "s", "t", headers={"List-Unsubscribe": link, "List-Unsubscribe-Post": "List-Unsubscribe=One-Click"}
        )
    assert f"List-Unsubscribe: {link}\r\n".encode() in server.only_mail().raw


async def test_each_message_has_an_id_of_its_own_and_an_attempt_may_repeat_one(
    open_mail_server: OpenMailServer, open_mail: OpenMail
) -> None:
    async with open_mail_server() as server:
        mail = open_mail(server)
        own = {await mail.send(TO, "s", "t") for _ in range(3)}
        same = {await mail.send(TO, "s", "t", message_name="msg_1") for _ in range(3)}
    assert len(own) == 3
    assert same == {"<msg_1@campus.example>"}
    with pytest.raises(ValueError, match="a message's name"):
        await mail.send(TO, "s", "t", message_name="a>\r\nBcc: x")


BREAKS = ["\r\n", "\n", "\r", "\n\n", "\r\n\r\n", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029", "\0", "\r\n\t", "\u202e"]


async def test_no_header_can_be_smuggled_in(open_mail_server: OpenMailServer, open_mail: OpenMail) -> None:
    ours = {"From", "To", "Date", "Auto-Submitted", "Subject", "Message-ID", "MIME-Version", "Content-Type", "Content-Transfer-Encoding"}
    async with open_mail_server() as server:
        for ends in BREAKS:
            evil = f"news{ends}Bcc: eve@evil.example{ends}{ends}<html>"
            await open_mail(server).send(TO, evil, f"{evil}\r\n.\r\nRSET\r\n", headers={"X-Monitor": evil})
            mail = server.received.pop()
            assert (server.received, mail.recipients, mail.read["Bcc"]) == ([], [TO], None), repr(ends)
            assert mail.read["Subject"] == mail.read["X-Monitor"] == "news Bcc: eve@evil.example <html>", repr(ends)
            assert sorted(mail.read.keys()) == sorted({*ours, "X-Monitor"}), repr(ends)


@given(st.text())
def test_one_line_is_one_line_that_can_be_encoded(text: str) -> None:
    line = one_line(text, longest=None)
    assert len(line.splitlines()) <= 1
    assert line.isprintable()
    assert line.encode().decode() == line
    assert one_line(line, longest=None) == line


async def test_what_no_encoding_can_hold_is_replaced(open_mail_server: OpenMailServer, open_mail: OpenMail) -> None:
    async with open_mail_server() as server:
        await open_mail(server).send(TO, "a\ud800b", "a\ud800b\0c")
    assert server.only_mail().read["Subject"] == "a b"
    assert server.only_mail().read.get_content().strip() == "a?b�c"


async def test_a_header_that_is_not_for_buildings_to_set_is_a_mistake(open_mail: OpenMail, open_mail_server: OpenMailServer) -> None:
    async with open_mail_server() as server:
        for name in ("Bcc", "to", "From", "Subject", "Message-ID", "Content-Type", "MIME-Version", "X Y", "X:Y", "X\r\nBcc", "", "Ü"):
            with pytest.raises(ValueError, match="is not a header that can be added"):
                await open_mail(server).send(TO, "s", "t", headers={name: "x"})
    assert server.received == []


ADDRESSES = ["joe@mail.example", "j.o-e+tag_1@a.b.example", "root@localhost", "!#$%&'*+/=?^_`{|}~-@x.example", f"{'a' * 64}@x.example"]
NO_ADDRESSES = [
    *("", "joe", "@x.example", "joe@", "joe@@x.example", "a@b@c.example", "joe@x..example", "joe@.x.example", "joe@x.example."),
    *("joe@-x.example", "Joe <joe@x.example>", "<joe@x.example>", "joe@x.example, eve@x.example", "joe@x.example;eve@x.example"),
    *("joe@x.example eve@x.example", "joe@x.example\r\nRCPT TO:<eve@x.example>", "joe@x.example\n", " joe@x.example"),
    *("joe\0@x.example", '"joe eve"@x.example', "joe@[127.0.0.1]", "jöe@x.example", "joe@xé.example", "joe@x.example>"),
    *("joe(eve)@x.example", f"{'a' * 65}@x.example", f"a@{'b.' * 130}example", "joe@x_y.example"),
]


async def test_one_plain_address_is_taken_and_nothing_else(open_mail_server: OpenMailServer, open_mail: OpenMail) -> None:
    async with open_mail_server() as server:
        for address in ADDRESSES:
            check_address(address)
            await open_mail(server).send(address, "s", "t")
            assert server.received.pop().recipients == [address]
        for address in NO_ADDRESSES:
            with pytest.raises(MailRefused, match=r"write one as name@host\.example"):
                await open_mail(server).send(address, "s", "t")
    assert server.received == []


async def test_starttls_is_used_where_it_is_offered(open_mail_server: OpenMailServer, open_mail: OpenMail) -> None:
    async with open_mail_server(tls="starttls") as server:
        await open_mail(server).send(TO, "s", "t")
    assert server.only_mail().over_tls


async def test_tls_may_begin_with_the_first_byte(open_mail_server: OpenMailServer, open_mail: OpenMail) -> None:
    async with open_mail_server(tls="implicit", password=True) as server:
        await open_mail(server, tls="implicit", password="hush").send(TO, "s", "t")
    assert server.only_mail().over_tls
    assert server.logins == [(b"alerts@campus.example", b"hush")]


async def test_a_password_is_sent_once_tls_is_there(open_mail_server: OpenMailServer, open_mail: OpenMail) -> None:
    async with open_mail_server(tls="starttls", password=True) as server:
        await open_mail(server, tls="starttls", password="hush", username="me").send(TO, "s", "t")
    assert server.only_mail().over_tls
    assert server.logins == [(b"me", b"hush")]


async def test_a_password_is_kept_from_a_server_without_tls(open_mail_server: OpenMailServer, open_mail: OpenMail) -> None:
    async with open_mail_server(password=True) as server:
        with pytest.raises(MailUnavailable):
            await open_mail(server, tls="starttls", password="hush").send(TO, "s", "t")
    assert server.logins == []
    assert server.received == []


async def test_a_certificate_that_is_not_believed_stops_everything(open_mail_server: OpenMailServer, open_mail: OpenMail) -> None:
    for tls in ("starttls", "implicit", "offered"):
        async with open_mail_server(tls="implicit" if tls == "implicit" else "starttls", password=True) as server:
            with pytest.raises(MailUnavailable, match="certificate verify failed"):
                await open_mail(server, tls=tls, password="hush", trust=None).send(TO, "s", "t")
        assert server.logins == [], tls


async def test_a_wrong_password_is_reported_without_it(open_mail_server: OpenMailServer, open_mail: OpenMail) -> None:
    async with open_mail_server(tls="starttls", password=True) as server:
        mail = open_mail(server, tls="starttls", password="wrong-password")
        with pytest.raises(MailUnavailable) as caught:
            await mail.send(TO, "s", "t")
    assert "535" in str(caught.value)
    assert "wrong-password" not in str(caught.value) + repr(mail)


REFUSALS = {
    "550 5.1.1 no such user": MailRefused,
    "553 5.1.3 bad address": MailRefused,
    "450 4.2.1 try later": MailUnavailable,
    "552 5.2.2 mailbox full": MailUnavailable,
    "554 5.7.1 relay access denied": MailUnavailable,
    "530 5.7.0 log in first": MailUnavailable,
}


async def test_a_recipient_refused_for_good_differs_from_one_refused_for_now(open_mail_server: OpenMailServer, open_mail: OpenMail) -> None:
    async with open_mail_server() as server:
        for reply, kind in REFUSALS.items():
            server.refusal = reply
            with pytest.raises(MailUnavailable, match=f"refused the recipient: {reply}") as caught:
                await open_mail(server).send(TO, "s", "t")
            assert type(caught.value) is kind, reply


async def test_a_server_that_is_not_there_is_unavailable(open_mail: OpenMail, open_mail_server: OpenMailServer) -> None:
    async with open_mail_server() as server:
        pass
    mail = open_mail(server)
    with pytest.raises(MailUnavailable, match=f"the SMTP server localhost:{server.port} did not accept the e-mail"):
        await mail.send(TO, "s", "t")
    assert len(await mail.check()) == 1


async def test_a_server_that_says_nothing_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        mail = Mail(host="127.0.0.1", port=silent.getsockname()[1], sender="a@x.example", now=utc_now, seconds=0.2)
        with anyio.fail_after(patience(20)), pytest.raises(MailUnavailable):
            await mail.send(TO, "s", "t")


async def test_a_check_says_whether_the_server_would_take_a_message(open_mail_server: OpenMailServer, open_mail: OpenMail) -> None:
    async with open_mail_server(tls="starttls", password=True) as server:
        assert list(await open_mail(server, tls="starttls", password="hush").check()) == []
        (sentence,) = await open_mail(server, tls="starttls", password="wrong").check()
        assert "535" in sentence
    assert server.received == []


async def test_many_messages_may_be_sent_at_once(open_mail_server: OpenMailServer, open_mail: OpenMail) -> None:
    async with open_mail_server() as server:
        mail = open_mail(server)
        async with anyio.create_task_group() as tasks:
            for number in range(30):
                tasks.start_soon(mail.send, TO, f"number {number}", "t")
    assert {mail.read["Subject"] for mail in server.received} == {f"number {number}" for number in range(30)}
