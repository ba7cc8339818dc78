"""Where lakes and spools are: in a folder of a file system, or under a prefix of an S3-compatible object store."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from protofly.errors import SettingsError

_SCHEME: Final = "s3://"
_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)
_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_PART: Final = re.compile(r"[A-Za-z0-9_=+-][A-Za-z0-9_.=+-]*")


@dataclass(frozen=True, slots=True, order=True)
class StorePath:
    """An object of a store, or all objects whose names begin with this and a slash.

    Attributes:
        bucket: The bucket.
        key: Name within the bucket, without a slash at either end; empty: the bucket itself.
    """

    bucket: str
    key: str = ""

    def __truediv__(self, inside: str) -> StorePath:
        """What has this name below it."""
        return StorePath(self.bucket, "/".join(part for part in (self.key, inside.strip("/")) if part))

    def __str__(self) -> str:
        """The URL."""
        return _SCHEME + self.inner

    @property
    def inner(self) -> str:
        """Bucket and key as `pyarrow.fs` names them."""
        return f"{self.bucket}/{self.key}" if self.key else self.bucket

    @property
    def name(self) -> str:
        """The last part."""
        return self.inner.rpartition("/")[2]

    def absolute(self) -> StorePath:
        """Itself: what is in a store has one name."""
        return self


Location: TypeAlias = Path | StorePath
"""A file or folder here, or an object or prefix there."""


def parsed(word: str) -> Location:
    """What an option or a setting names.

    Raises:
        SettingsError: A URL that is not understood. The message does not repeat it: some contain secrets.
    """
    url = _URL.fullmatch(word)
    if url is None:
        return Path(word)
    scheme, inner = url[1].lower(), url[2]
    if scheme != "s3":
        raise SettingsError(
            f"{scheme}:// URLs are not supported: name a folder of a file system that all machines see "
            "under one path, or s3://BUCKET/PREFIX on an S3-compatible store"
        )
    bucket, _, key = inner.partition("/")
    parts = key.rstrip("/").split("/") if key.rstrip("/") else []
    if not _BUCKET.fullmatch(bucket) or not all(map(_PART.fullmatch, parts)):
        raise SettingsError(
            "an s3:// URL is s3://BUCKET/PREFIX with letters, digits and _ . = + - in the prefix, and nothing else: "
            "credentials and endpoint are taken from the environment (AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL, …)"
        )
    return StorePath(bucket, "/".join(parts))


def location(text: str) -> Location:
    """What `str` has made a text of."""
    if not text.startswith(_SCHEME):
        return Path(text)
    bucket, _, key = text.removeprefix(_SCHEME).partition("/")
    return StorePath(bucket, key)
