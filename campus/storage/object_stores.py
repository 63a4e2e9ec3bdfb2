"""Backups at S3-compatible addresses, `s3://bucket/key`; the environment has the endpoint and the credentials, as for AWS's own tools.

An object is there under its name only when it is complete: S3 sees to that.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from campus.errors import StorageError, one_line

SCHEME = "s3://"


def is_object(place: str) -> bool:
    """Whether a place is an object's address, and no path."""
    return place.startswith(SCHEME)


def refuse_existing_object(url: str) -> None:
    """Raises StorageError if there is an object already, or if the store does not answer."""
    with _opened(url) as (obstore, store, key):
        try:
            obstore.head(store, key)
        except FileNotFoundError:
            return
    raise StorageError(f"{url} exists already; name a new file")


def upload(file: Path, url: str) -> None:
    """Store a file as an object, in parts if it is large."""
    with _opened(url) as (obstore, store, key):
        obstore.put(store, key, file)


def download(url: str, file: Path) -> None:
    with _opened(url) as (obstore, store, key), file.open("xb") as target:
        for chunk in obstore.get(store, key).stream():
            target.write(chunk)


@contextmanager
def _opened(url: str) -> Iterator[tuple[Any, Any, str]]:
    """The library, the bucket and the key; the library's errors become StorageErrors."""
    try:
        import obstore
        from obstore.exceptions import BaseError
        from obstore.store import S3Store
    except ImportError:
        raise StorageError(f"{url} needs a library: `pip install 'mcp-campus[s3]'`") from None
    bucket, _, key = url.removeprefix(SCHEME).partition("/")
    if not bucket or not key:
        raise StorageError(f"{url} names no object; write s3://BUCKET/KEY")
    plain = any(os.environ.get(name, "").startswith("http:") for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT"))
    try:
        yield obstore, S3Store(bucket, client_options={"allow_http": plain}), key
    except (BaseError, OSError) as error:
        raise StorageError(f"{url} cannot be read or written: {one_line(error)}") from error
