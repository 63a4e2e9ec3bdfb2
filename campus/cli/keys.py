"""campus key …: issue, list, renew, rotate and revoke keys, also while the server runs."""

import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Any, TypeVar

import anyio
from cyclopts import App, Parameter

from campus.caller import Key
from campus.cli.features import add_commands
from campus.cli.options import CAMPUS_TOML, AsJson, ConfigFile, optional_utc, show, show_pages
from campus.keys.tokens import SHOWN_LENGTH, START, pasted

T = TypeVar("T")
ProductName = Annotated[str, Parameter(help="A product of campus.toml: NAME of a table [products.NAME].")]
KeyName = Annotated[str, Parameter(help="Its id, or four or more characters of how it begins; `campus key list` shows both.")]
Note = Annotated[str, Parameter(help="Whom it is for, or why; shown by `campus key list`.")]
Like = Annotated[
    str,
    Parameter(
        help=f"Only keys whose id, product or note contain this; or the beginning of a key, such as {START}4fGh, of which the"
        f" {SHOWN_LENGTH} characters after {START} are compared."
    ),
]

KEYS_PER_PAGE = 500

app = App(name="key", version_flags=[])
add_commands(app, "key ")


def with_core(config: ConfigFile, work: Callable[[Any], Awaitable[T]], *, reading: bool = False) -> T:
    """Open campus.core's Core, do the work and close it; `reading` is for work that changes nothing."""
    from campus.cli.places import read_place  # with the configuration and the tables half a second, which `--help` needs not wait for
    from campus.core import open_core

    async def run() -> T:
        async with open_core(read_place(config), reading=reading) as core:
            return await work(core)

    return anyio.run(run)


@app.command
def issue(product: ProductName, /, *, note: Note = "", config: ConfigFile = CAMPUS_TOML, as_json: AsJson = False) -> None:
    """Issue a key of a product of campus.toml, valid from now; the key is shown once."""
    key, token = with_core(config, lambda core: core.keys.issue(product, note=note))
    row = {"id": key.id, "product": key.product, "scope": key.scope, "expires_at": optional_utc(key.expires_at), "key": token}
    _show_once(row, as_json=as_json)


def _show_once(row: Mapping[str, Any], *, as_json: bool) -> None:
    """Print a row with a new key; if its reader is gone, or the disk is full, tell which key nobody has seen."""
    try:
        show([row], as_json=as_json)
        sys.stdout.flush()
    except OSError:
        print(f"campus: the key {row['id']} was made, and could not be shown; end it by `campus key revoke {row['id']}`", file=sys.stderr)
        raise


@app.command(name="list")
def list_keys(like: Like = "", /, *, config: ConfigFile = CAMPUS_TOML, as_json: AsJson = False) -> None:
    """List every key: what it opens, its state, when it ends and was last used; of the key itself only how it begins."""
    with_core(config, lambda core: show_pages(_pages(core.keys, pasted(like)), as_json=as_json), reading=True)


async def _pages(keys: Any, like: str) -> AsyncIterator[Sequence[Mapping[str, Any]]]:
    last = None
    while page := await keys.list(after=last, limit=KEYS_PER_PAGE, like=like):
        yield [
            {
                "id": record.key.id,
                "begins_with": f"{START}{record.prefix}",
                "product": record.key.product,
                "scope": record.key.scope,
                "state": record.state,
                "expires_at": optional_utc(record.key.expires_at),
                "last_used_at": optional_utc(record.last_used_at),
                "note": record.note,
            }
            for record in page
        ]
        last = page[-1]


@app.command
def renew(key: KeyName, /, *, config: ConfigFile = CAMPUS_TOML, as_json: AsJson = False) -> None:
    """Extend a key by its product's term, from its end or from now, whichever is later."""
    renewed = with_core(config, lambda core: core.keys.renew(key))
    show(
        [{"id": renewed.id, "product": renewed.product, "scope": renewed.scope, "expires_at": optional_utc(renewed.expires_at)}],
        as_json=as_json,
    )


@app.command
def rotate(key: KeyName, /, *, config: ConfigFile = CAMPUS_TOML, as_json: AsJson = False) -> None:
    """Replace a key by a new one of the same scope and end; the old one works for 24 more hours."""
    new, token, old = with_core(config, lambda core: _rotated(core.keys, key))
    row = {"id": new.id, "scope": new.scope, "expires_at": optional_utc(new.expires_at), "key": token}
    _show_once({**row, "old_key": old.id, "old_key_expires_at": optional_utc(old.expires_at)}, as_json=as_json)


async def _rotated(keys: Any, name: str) -> tuple[Key, str, Key]:
    """The new key, its token, and the old key with its new end."""
    old = await keys.named(name)
    new, token = await keys.rotate(old.id)
    return new, token, await keys.named(old.id)


@app.command
def revoke(key: KeyName, /, *, config: ConfigFile = CAMPUS_TOML) -> None:
    """End a key for good; a running server follows within 5 seconds."""
    revoked = with_core(config, lambda core: core.keys.revoke(key))
    print(f"revoked {revoked.id} ({revoked.product})")
