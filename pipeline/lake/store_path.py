"""Where lakes and spools are: in a folder of a file system, or under a prefix of an object store."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from protofly.errors import SettingsError

S3: Final = "s3"
AZURE: Final = "az"
REPORT_NAME: Final = "report.html"
"""Where in a lake the page about it is, unless it is written elsewhere."""
_STORES: Final = {
    S3: "s3://BUCKET/PREFIX with letters, digits and _ . = + - in the prefix, and nothing else: credentials and "
    "endpoint are taken from the environment (AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL, …)",
    AZURE: "az://CONTAINER/PREFIX with letters, digits and _ . = + - in the prefix, and nothing else: account and "
    "credentials are taken from the environment (AZURE_STORAGE_ACCOUNT_NAME, AZURE_STORAGE_ACCOUNT_KEY, …)",
}
_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/(.*)", re.DOTALL)
"""With one slash too: `hdfs:/lake` is one to Hadoop. A folder with such a name is `./hdfs:/lake`."""
_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_PART: Final = re.compile(r"[A-Za-z0-9_=+-][A-Za-z0-9_.=+-]*")


@dataclass(frozen=True, slots=True, order=True)
class StorePath:
    """An object of a store, or all objects whose names begin with this and a slash.

    Attributes:
        bucket: The bucket, or the container of Azure.
        key: Name within the bucket, without a slash at either end; empty: the bucket itself.
        scheme: Of its URLs, which says by which protocol the store is reached.
    """

    bucket: str
    key: str = ""
    scheme: str = S3

    def __truediv__(self, inside: str) -> StorePath:
        """The path below this one that has this name."""
        return StorePath(self.bucket, "/".join(part for part in (self.key, inside.strip("/")) if part), self.scheme)

    def __str__(self) -> str:
        """The URL."""
        return f"{self.scheme}://{self.inner}"

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
    """Parse the path or URL of an option or a setting.

    Raises:
        SettingsError: A URL that is not understood. The message does not repeat it: some contain secrets.
    """
    url = _URL.fullmatch(word)
    if url is None:
        return Path(word)
    scheme, inner = url[1].lower(), url[2].removeprefix("/")
    if scheme not in _STORES:
        raise SettingsError(
            f"{scheme}:// URLs are not supported: name a folder of a file system that all machines see "
            "under one path, s3://BUCKET/PREFIX on an S3-compatible store, or az://CONTAINER/PREFIX on Azure"
        )
    bucket, _, key = inner.partition("/")
    parts = key.rstrip("/").split("/") if key.rstrip("/") else []
    is_whole = url[2].startswith("/")
    if not is_whole or not _BUCKET.fullmatch(bucket) or not all(map(_PART.fullmatch, parts)):
        raise SettingsError(f"an {scheme}:// URL is {_STORES[scheme]}")
    return StorePath(bucket, "/".join(parts), scheme)


def location(text: str) -> Location:
    """Read a location back from its text."""
    scheme, separator, inner = text.partition("://")
    if not separator or scheme not in _STORES:
        return Path(text)
    bucket, _, key = inner.partition("/")
    return StorePath(bucket, key, scheme)
