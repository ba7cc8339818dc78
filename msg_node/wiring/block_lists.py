"""Makes the subscriptions to block lists that the settings name."""

from __future__ import annotations

from functools import partial

from msg_node.admin.administered import Administered
from msg_node.admin.block_subscriptions import BlockSubscriptions, Subscription
from msg_node.backends.backend_http import BackendHttp
from msg_node.backends.backend_tls import BackendTls
from msg_node.settings.model import Settings
from protofly.block_list import LIST_BYTES
from protofly.errors import Code, TransportError


def build_block_lists(administered: Administered) -> BlockSubscriptions:
    """Make what follows them; nothing is asked yet. Raises SettingsError when a file of a list cannot be used."""
    return BlockSubscriptions(administered, subscriptions_of(administered.settings()))


def subscriptions_of(settings: Settings) -> list[Subscription]:
    """Make the subscriptions. Blocks. Raises SettingsError when a file of a list cannot be used."""
    lists = []
    for one in settings.block_list:
        http = BackendHttp(one.url, BackendTls(f"block_list {one.author}", one), max_bytes=LIST_BYTES)
        lists.append(Subscription(one, partial(_fetch, http, one.attempt_seconds)))
    return lists


async def _fetch(http: BackendHttp, seconds: float) -> bytes:
    answer = await http.ask("GET", "", seconds=seconds)
    if answer.status != 200:
        raise TransportError(Code.HTTP_STATUS, f"{http.base_url} answered {answer.status}")
    return answer.body
