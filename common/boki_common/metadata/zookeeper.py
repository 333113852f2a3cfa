"""The metadata store in ZooKeeper, through kazoo (extra `boki[zookeeper]`, imported at `start`).

kazoo has threads of its own. No call of kazoo runs on the event loop: one more thread hands requests to kazoo's
asynchronous interface, and answers, watches and state changes come back by `call_soon_threadsafe`.

What a lost connection means:
- A read is repeated until the call time-out, then MetadataUnavailable.
- A write is handed to kazoo only while connected; no connection in time is MetadataUnavailable, certainly not
  sent. Once handed over it is never repeated here: a lost connection, an expired session or the call time-out is
  MetadataUnknown, since the request may still be under way (see `settle`).
- With a digest file (`zookeeper_settings`) every connection is authenticated, and nodes are made for that user alone. What the
  server refuses is MetadataRefused at once: waiting mends no credential.
- With TLS (`zookeeper_tls`) a certificate that is refused, by us or by the server, is a connection that does not come about.
- kazoo begins a new session by itself when the server says that the old one expired. We see another session id on
  connecting and call the `on_session_lost` callbacks.
- Watches do not survive a disconnect: after each reconnect every watch reports one change and is set again by the next
  `changed()`. A watch is set *before* `changed()` returns, so a change after the caller's next read is reported.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

from boki_common import limits
from boki_common.errors import (
    ClosedError,
    MetadataUnavailable,
    MetadataUnknown,
    NoNode,
    Overloaded,
)
from boki_common.logs import get_logger
from boki_common.metadata import paths
from boki_common.metadata.kazoo_link import RETRY_DELAY_S, SET_AND_CREATE, KazooLink, NotSent
from boki_common.metadata.store import NOTHING, NotifiedWatch, Versioned
from boki_common.metadata.zookeeper_settings import ZookeeperSettings

CLOSE_TIMEOUT_S: Final = 5.0


_log = get_logger("metadata")


class ZookeeperStore:
    """A session at ZooKeeper; see the module, and `MetadataStore` for the methods.

    Args:
        hosts: `host:port,host:port/chroot`; the chroot is made when absent.
        session_timeout_s: asked of the server, which may grant more or less.
        connect_timeout_s: bound of `start`.
        call_timeout_s: bound of every other call.
        settings: how this process shows who it is.
    """

    def __init__(
        self,
        hosts: str,
        *,
        session_timeout_s: float = limits.SESSION_TIMEOUT_S,
        connect_timeout_s: float = limits.CONNECT_TIMEOUT_S,
        call_timeout_s: float = limits.CALL_TIMEOUT_S,
        settings: ZookeeperSettings = ZookeeperSettings(),  # noqa: B008 - frozen
    ) -> None:
        self.hosts = hosts
        self._settings = settings
        self._session_timeout_s = session_timeout_s
        self._connect_timeout_s = connect_timeout_s
        self._call_timeout_s = call_timeout_s
        self._link: KazooLink | None = None
        self._session: int | None = None
        self._connected = asyncio.Event()
        self._calls = 0
        self._watches: dict[str, list[NotifiedWatch]] = {}
        self._watch_count = 0
        self._callbacks: list[Callable[[], None]] = []

    async def start(self) -> None:
        if self._link is not None:
            return
        link = KazooLink(self.hosts, self._session_timeout_s, self._settings, self._state_changed, self._node_changed)
        self._link = link
        try:
            await link.open()
            async with asyncio.timeout(self._connect_timeout_s):
                await self._connected.wait()
                await link.make_chroot()
        except TimeoutError as error:
            await self.close()
            reason = f" ({link.failure})" if link.failure else ""
            raise MetadataUnavailable(
                f"no ZooKeeper answered at {self.hosts} within {self._connect_timeout_s} s: is it running, and is the "
                f"address right?{reason}",
                hosts=self.hosts,
            ) from error
        except BaseException as error:
            await self.close()
            failure = link.translate(error, "start", paths.ROOT, written=False)
            if failure is None:
                raise
            raise failure from error

    async def close(self) -> None:
        """Also when ZooKeeper cannot be reached: then the session ends by its time-out."""
        link, self._link = self._link, None
        for watch in [watch for watches in self._watches.values() for watch in watches]:
            watch.close()
        if link is not None:
            await link.close(CLOSE_TIMEOUT_S)
        self._connected.set()  # wakes the calls that wait for a connection: they find the store closed
        self._connected = asyncio.Event()
        self._session = None

    async def get(self, path: str) -> Versioned:
        value, stat = await self._read("get", path, "get_async")
        return Versioned(value, stat.version)

    async def exists(self, path: str) -> bool:
        return await self._read("exists", path, "exists_async") is not None

    async def created(self, path: str) -> int | None:
        """ZooKeeper's czxid."""
        _, stat = await self._read("created", path, "get_async")
        found: int = stat.czxid
        return found

    async def children(self, path: str) -> list[str]:
        return sorted(await self._read("children", path, "get_children_async"))

    async def create(self, path: str, value: bytes = b"", *, ephemeral: bool = False) -> None:
        paths.check_node(path, value)
        await self._write("create", path, "create_async", value, ephemeral=ephemeral)

    async def create_sequential(self, prefix: str, value: bytes = b"", *, ephemeral: bool = False) -> str:
        paths.check_prefix(prefix, value)
        made: str = await self._write(
            "create_sequential", prefix, "create_async", value, ephemeral=ephemeral, sequence=True
        )
        return made

    async def set(self, path: str, value: bytes, *, version: int, creating: Mapping[str, bytes] = NOTHING) -> int:
        paths.check_set(path, value, version, creating)
        if creating:
            stat = await self._write("set", path, SET_AND_CREATE, value, version=version, creating=creating)
        else:
            stat = await self._write("set", path, "set_async", value, version=version)
        found: int = stat.version
        return found

    async def delete(self, path: str, *, version: int) -> None:
        paths.check_delete(path, version)
        await self._write("delete", path, "delete_async", version=version)

    def watch(self, path: str) -> NotifiedWatch:
        paths.check_path(path)
        self._open_link()
        if self._watch_count >= limits.METADATA_WATCHES:
            raise Overloaded(f"{limits.METADATA_WATCHES} watches are open: close those that are no longer waited for")
        watch = NotifiedWatch(path, self.forget_watch, self.set_watch)
        watch.notify()  # one change is reported when it is set for the first time
        self._watches.setdefault(path, []).append(watch)
        self._watch_count += 1
        return watch

    def forget_watch(self, watch: NotifiedWatch) -> None:
        """What a watch calls when it is closed."""
        watches = self._watches[watch.path]
        watches.remove(watch)
        self._watch_count -= 1
        if not watches:
            del self._watches[watch.path]

    async def set_watch(self, path: str) -> None:
        """Asks the server to notify of the next change of a node and, where it exists, of its list of children."""
        callback = self._open_link().on_event
        if await self._read("watch", path, "exists_async", watch=callback) is not None:
            try:
                await self._read("watch", path, "get_children_async", watch=callback)
            except NoNode:
                return  # deleted in between: the first watch fires

    def on_session_lost(self, callback: Callable[[], None]) -> None:
        self._callbacks.append(callback)

    async def _read(self, operation: str, path: str, method: str, *args: Any, **options: Any) -> Any:
        paths.check_path(path)
        deadline = asyncio.get_running_loop().time() + self._call_timeout_s
        while True:
            link = self._open_link()
            try:
                async with asyncio.timeout_at(deadline):
                    await self._connected.wait()
                    return await self._call(link, method, path, args, options)
            except TimeoutError as error:
                raise self._unavailable(operation, path) from error
            except Exception as error:
                failure = link.translate(error, operation, path, written=False)
                if failure is None:
                    raise
                if not isinstance(failure, MetadataUnavailable):
                    raise failure from error
            await asyncio.sleep(RETRY_DELAY_S)

    async def _write(self, operation: str, path: str, method: str, *args: Any, **options: Any) -> Any:
        link = self._open_link()
        sent = False
        try:
            async with asyncio.timeout(self._call_timeout_s):
                while True:
                    await self._connected.wait()
                    sent = True
                    try:
                        return await self._call(link, method, path, args, options)
                    except NotSent:
                        sent = False
                        await asyncio.sleep(RETRY_DELAY_S)
        except TimeoutError as error:
            if not sent:
                raise self._unavailable(operation, path) from error
            raise MetadataUnknown(
                f"ZooKeeper did not answer {operation} of {path} within {self._call_timeout_s} s", path=path
            ) from error
        except Exception as error:
            failure = link.translate(error, operation, path, written=True)
            if failure is None:
                raise
            raise failure from error

    async def _call(
        self, link: KazooLink, method: str, path: str, args: tuple[Any, ...], options: Mapping[str, Any]
    ) -> Any:
        if self._link is not link:
            raise ClosedError(f"the metadata store {self.hosts} was closed during the call")
        if self._calls >= limits.METADATA_CALLS:
            raise Overloaded(f"{limits.METADATA_CALLS} calls to ZooKeeper are under way")
        self._calls += 1
        try:
            return await link.call(method, path, args, options)
        finally:
            self._calls -= 1

    def _unavailable(self, operation: str, path: str) -> MetadataUnavailable:
        return MetadataUnavailable(
            f"{operation} of {path} was not done: ZooKeeper at {self.hosts} cannot be reached", path=path
        )

    def _open_link(self) -> KazooLink:
        if self._link is None:
            raise ClosedError(f"the metadata store {self.hosts} is not started or was closed")
        return self._link

    def _state_changed(self, session: int | None) -> None:
        """On the event loop: a session id when connected, None when not."""
        if self._link is None:
            return
        if session is None:
            if self._connected.is_set():
                _log.warning("ZooKeeper connection lost", hosts=self.hosts)
            self._connected.clear()
            return
        _log.info("ZooKeeper connected", hosts=self.hosts, session=f"{session:#x}")
        lost = self._session is not None and self._session != session
        self._session = session
        self._connected.set()
        if lost:
            _log.info("metadata session lost, a new one begun", hosts=self.hosts)
            for callback in self._callbacks:
                callback()
        for watch in [watch for watches in self._watches.values() for watch in watches]:
            watch.notify()

    def _node_changed(self, path: str) -> None:
        for watch in self._watches.get(path, ()):
            watch.notify()
