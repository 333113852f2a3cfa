"""From an address to a metadata store: the one place that knows all implementations.

- `sqlite:///absolute/path.db`: a file shared by the processes of one machine.
- `zk://host:port,host:port/chroot`: ZooKeeper; the chroot may be left out.
- `memory://`: a tree of its own, gone with the object (to share one, build `MemoryStore`s yourself).

Only what is opened is imported: a process on ZooKeeper has no memory for SQLite.
"""

from __future__ import annotations

import asyncio

from boki_common import limits
from boki_common.backoff import Backoff
from boki_common.errors import MetadataUnavailable, SettingsError
from boki_common.logs import get_logger
from boki_common.metadata.store import MetadataStore
from boki_common.metadata.zookeeper_settings import ZookeeperSettings

_log = get_logger("metadata")


def open_store(
    uri: str,
    *,
    session_timeout_s: float = limits.SESSION_TIMEOUT_S,
    zookeeper: ZookeeperSettings = ZookeeperSettings(),  # noqa: B008 - frozen
    create: bool = True,
) -> MetadataStore:
    """The store of an address, not started yet. `zookeeper`: how this process shows who it is, if it is ZooKeeper.

    Without `create` a SQLite file that is not there is refused when it is started, not made.

    Raises:
        SettingsError: an unknown scheme, a relative path, no host.
    """
    scheme, separator, rest = uri.partition("://")
    if separator and scheme == "sqlite" and rest.startswith("/") and not rest.endswith("/"):
        from boki_common.metadata.sqlite import SqliteStore

        return SqliteStore(rest, session_timeout_s=session_timeout_s, create=create)
    if separator and scheme == "zk" and rest.partition("/")[0]:
        from boki_common.metadata.zookeeper import ZookeeperStore

        return ZookeeperStore(rest, session_timeout_s=session_timeout_s, settings=zookeeper)
    if uri == "memory://":
        from boki_common.metadata.memory import MemoryStore

        return MemoryStore()
    raise SettingsError(
        f"expected a metadata address sqlite:///absolute/path.db, zk://host:port,host:port/chroot or memory://, "
        f"found {uri!r}",
        found=uri,
    )


async def start_within(wait_s: float, store: MetadataStore, *, backoff: Backoff | None = None) -> None:
    """Starts a store that may not answer yet, as when a whole cluster comes up at once: tries again for `wait_s`, and says so.
    Raises MetadataUnavailable: it did not answer until then; SettingsError: as its `start`, at once."""
    now = asyncio.get_running_loop().time
    backoff, until = backoff or Backoff(0.1, 2.0), now() + wait_s
    while True:
        try:
            return await store.start()
        except MetadataUnavailable as error:
            left_s = until - now()
            if left_s <= 0:
                raise
            _log.warning("waits for the metadata store", error=str(error), left_s=round(left_s, 1))
            await asyncio.sleep(min(backoff.next(), left_s))
