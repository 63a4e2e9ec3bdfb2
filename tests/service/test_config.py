"""campus.toml: every mistake is one sentence that says how to write it."""

from pathlib import Path

import pytest

from campus.config import read_config
from campus.errors import ConfigError

MISTAKES = {
    "an unknown table": ("[servr]\n", "unknown key 'servr'; there are: server, storage, products, buildings"),
    "an unknown key": (
        "[server]\nprt = 1\n",
        "unknown key 'prt' in [server]; there are: name, title, tagline, logo, colour, templates, public_url, host, port, openapi",
    ),
    "an unknown key of a product": ('[products.x]\nscope = "x"\nprice = "1"\nterm = "30 days"\nscop = "x"\n', "'scop' in [products.x]"),
    "an unknown key of a tool": (
        "[buildings.a.tools]\nt = { prise = 1 }\n",
        "unknown key 'prise' in [buildings.a.tools.t]; there are: price,",
    ),
    "a port that is none": ("[server]\nport = 99999\n", "server.port: input should be less than or equal to 65535"),
    "a public address with a path": ('[server]\npublic_url = "https://a.example/x"\n', "without a path"),
    "a public address that no caller sends": ('[server]\npublic_url = "https://bücher.example"\n', "punycode"),
    "an operator's address without a port": ('[server]\nadmin = "127.0.0.1"\n', "server.admin: '127.0.0.1' is not an address to listen on"),
    "an operator's port that is none": ('[server]\nadmin = "[::1]:70000"\n', "write it as 127.0.0.1:9100 or [::1]:9100"),
    "a proxy by name": ('[server]\ntrusted_proxies = ["proxy"]\n', "'proxy' is neither an address nor a network such as 10.0.0.0/8"),
    "a network with host bits": ('[server]\ntrusted_proxies = ["10.0.0.5/8"]\n', "10.0.0.5/8 has host bits set"),
    "a price that is none": ('[products.x]\nscope = "x"\nprice = "much"\nterm = "30 days"\n', "'much' is not a price"),
    "a price of nothing": ('[buildings.a.tools]\nt = { price = "0" }\n', "not above zero"),
    "a price that rounds to nothing": ('[buildings.a.tools]\nt = { price = "0.0000001" }\n', "finer than 0.000001"),
    "a term that is none": ('[products.x]\nscope = "x"\nprice = "1"\nterm = "soon"\n', "30 days"),
    "a free tool with a price": ('[buildings.a.tools]\nt = { price = "1", free = true }\n', "neither price nor key"),
    "a building's name that is none": ("[buildings.river-levels]\n", "buildings.river-levels cannot be a name: use lower-case letters"),
    "a path that is none": ('[buildings.a]\npath = "x y"\n', "buildings.a.path"),
    "an address to listen on with a scheme": ('[server]\nhost = "http://x"\n', "without http:// and without a port"),
    "an address to listen on with a port": ('[server]\nhost = "[::1]:80"\n', "server.host: '[::1]:80' is neither an address nor a name"),
    "no address to listen on": ('[server]\nhost = ""\n', "write it as 127.0.0.1, ::1 or localhost"),
    "true for a number": ("[server]\nport = true\n", "server.port: true and false are not numbers"),
    "two listeners at one address": (
        '[server]\nadmin = "127.0.0.1:8000"\n',
        "admin and port are the same address",
    ),
    "a public address that cannot be read": ('[server]\npublic_url = "https://[::1/"\n', "server.public_url: write it as https://host"),
    "a public address with a port that is none": (
        '[server]\npublic_url = "https://a:99999"\n',
        "server.public_url: write it as https://host",
    ),
    "a public address with a password": ('[server]\npublic_url = "https://u:p@a"\n', "without a path or a user"),
    "a public address of any host": ('[server]\npublic_url = "https://*"\n', "server.public_url: write it as https://host"),
    "an empty public address": ('[server]\npublic_url = ""\n', "server.public_url: write it as https://host"),
    "one proxy without a list": ('[server]\ntrusted_proxies = "127.0.0.1"\n', "server.trusted_proxies: write a list, in [ and ]"),
    "one host without a list": ('[web]\nallowed_hosts = "x"\n', "web.allowed_hosts: write a list, in [ and ]"),
    "an exempt host with a scheme": (
        '[web]\nallowed_hosts = ["https://x"]\n',
        "'https://x' is not a host; write its name or address alone",
    ),
    "an exempt host in upper case": ('[web]\nallowed_hosts = ["LOCALHOST"]\n', "in lower case"),
    "a place to buy that is no page": (
        '[products.x]\nscope = "x"\nprice = "1"\nterm = "30 days"\nurl = "javascript:alert(1)"\n',
        "products.x.url: write it as https://host/path or mailto:name@host",
    ),
    "two recommended products": (
        "".join(f'[products.{name}]\nscope = "x"\nprice = "1"\nterm = "30 days"\nrecommended = true\n' for name in "xy"),
        "products: x and y are recommended; leave one of them so",
    ),
    "a facilitator at a port that is none": (
        f'[payments]\nnetwork = "eip155:8453"\npay_to = "0x{"1" * 40}"\nfacilitators = ["https://f:99999"]\nrpc_url = "https://n.example"\n',
        "payments.facilitators.0.url: write it as https://host/path",
    ),
    "no TOML": ("[server\n", "is not TOML"),
    "a number for a table": ("server = 5\n", "server: write a table, [server]"),
    "true for a building": ("[buildings]\ngateway = true\n", "buildings.gateway: write a table, [buildings.gateway]"),
    "a number for a text": ("[server]\nname = 5\n", "server.name: write a text, in quotes"),
    "a text for a number": ('[server]\nport = "eight"\n', "server.port: write a whole number"),
    "a number in quotes": ('[server]\nport = "8000"\n', "server.port: write a whole number, without quotes"),
    "a text for true": ('[discovery]\nai_training = "no"\n', "discovery.ai_training: write true or false, without quotes"),
    "a number for true": ("[buildings.a.tools]\nt = { free = 0 }\n", "buildings.a.tools.t.free: write true or false"),
    "a public address with a blank": ('[server]\npublic_url = " https://a.example"\n', "server.public_url: write it as https://host"),
    "a public address with a line end": ('[server]\npublic_url = "https://a.exam\\nple"\n', "server.public_url: write it as https://host"),
    "a server that is a list": (
        '[buildings.w]\nserver = ["x"]\n',
        'buildings.w.server: write "./file.py:server", "module:server", {command',
    ),
    "a host of mail that is none": ('[mail]\nhost = "https://x:y@z"\nsender = "a@b.example"\n', "mail.host: write it as in 'smtp.example'"),
    "a secret's own table": ("secrets = 1\n", "unknown key 'secrets'"),
}


@pytest.mark.parametrize("mistake", MISTAKES, ids=str)
def test_a_mistake_is_one_sentence(mistake: str, tmp_path: Path) -> None:
    text, said = MISTAKES[mistake]
    (path := tmp_path / "campus.toml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_config(path, {})
    assert said in str(caught.value)
    assert "\n" not in str(caught.value) or mistake == "no TOML"


def test_a_missing_file_is_named_with_the_option_for_another(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--config FILE"):
        read_config(tmp_path / "none.toml", {})


def test_the_public_address_is_that_of_host_and_port_unless_said(tmp_path: Path) -> None:
    (path := tmp_path / "campus.toml").write_text('[server]\nhost = "localhost"\nport = 8123\n')
    config = read_config(path, {})
    assert config.url == "http://localhost:8123"
    assert config.serving_at(None, 9000).url == "http://localhost:9000"


def test_a_public_address_is_kept_as_callers_send_it(tmp_path: Path) -> None:
    for number, written in enumerate(("https://A.example", "HTTPS://a.example:", "https://a.example/?", "https://a.example//")):
        (path := tmp_path / f"{number}.toml").write_text(f'[server]\npublic_url = "{written}"\n')
        assert read_config(path, {}).url == "https://a.example"


def test_a_price_may_be_written_as_a_number(tmp_path: Path) -> None:
    text = '[products.x]\nscope = "x"\nprice = 19.5\nterm = "30 days"\n[buildings.a.tools]\nt = { price = 0.005 }\nu = { price = 2 }\n'
    (path := tmp_path / "campus.toml").write_text(text)
    config = read_config(path, {})
    assert (config.products["x"].price, {name: tool.price for name, tool in config.buildings["a"].tools.items()}) == (
        "19.50",
        {"t": "0.005", "u": "2"},
    )


def test_secrets_are_taken_from_the_environment_and_never_shown(tmp_path: Path) -> None:
    (path := tmp_path / "campus.toml").write_text("")
    config = read_config(path, {"CAMPUS_DATABASE_PASSWORD": "hush\n", "HOME": "/"})
    assert config.secrets["CAMPUS_DATABASE_PASSWORD"].get_secret_value() == "hush"
    assert "hush" not in repr(config)


def test_the_shipped_configuration_sells_what_the_specification_lists() -> None:
    products = read_config(Path(__file__).parents[2] / "campus.toml", {}).products
    assert {(name, one.scope, one.price, one.term) for name, one in products.items()} == {
        ("cve", "cve", "19", "30 days"),
        ("recorder", "recorder", "19", "30 days"),
        ("campus-pass", "all", "29", "30 days"),
        ("campus-pass-year", "all", "149", "12 months"),
    }


def test_the_operators_listener_is_off_unless_it_is_named_and_the_shipped_configuration_names_a_private_one(tmp_path: Path) -> None:
    (path := tmp_path / "campus.toml").write_text("")
    assert read_config(path, {}).server.admin is None
    shipped = read_config(Path(__file__).parents[2] / "campus.toml", {}).server.admin
    assert str(shipped) == "127.0.0.1:9100"


def test_the_environment_goes_before_the_file(tmp_path: Path) -> None:
    table = f'[payments]\nnetwork = "eip155:8453"\npay_to = "0x{"1" * 40}"\nfacilitators = ["https://f.example"]\n'
    (path := tmp_path / "campus.toml").write_text(f'{table}rpc_url = "https://file.example"\n')
    for environ, expected in (
        ({}, "https://file.example"),
        ({"CAMPUS_PAYMENTS_RPC_URL": "https://env.example/key"}, "https://env.example/key"),
    ):
        payments = read_config(path, environ).payments
        assert payments is not None
        assert payments.rpc_url == expected


@pytest.mark.parametrize(
    ("text", "atomic"),
    [("", 1_000_000), ('prove_above = "0"', 0), ("prove_above = 0", 0), ("prove_above = 0.0", 0), ("prove_above = 2.5", 2_500_000)],
)
def test_the_amount_above_which_calls_wait_for_their_proof_is_read_in_dollars(tmp_path: Path, text: str, atomic: int) -> None:
    table = f'[payments]\nnetwork = "eip155:8453"\npay_to = "0x{"1" * 40}"\nfacilitators = ["https://f.example"]\nrpc_url = "https://n.example"\n'
    (path := tmp_path / "campus.toml").write_text(table + text)
    payments = read_config(path, {}).payments
    assert payments is not None
    assert payments.proved_above == atomic


@pytest.mark.parametrize("text", ["-1", "much", "0.0000001", "", "."])
def test_an_invalid_amount_is_refused(tmp_path: Path, text: str) -> None:
    table = f'[payments]\nnetwork = "eip155:8453"\npay_to = "0x{"1" * 40}"\nfacilitators = ["https://f.example"]\nrpc_url = "https://n.example"\n'
    (path := tmp_path / "campus.toml").write_text(f'{table}prove_above = "{text}"\n')
    with pytest.raises(ConfigError, match=r"payments\.prove_above") as refused:
        read_config(path, {})
    assert 'write US dollars, such as "0.50", or "0"' in str(refused.value)
    assert "free" not in str(refused.value)
