"""The metadata store in ZooKeeper, through kazoo (extra `boki[zookeeper]`, imported at `start`).

kazoo has threads of its own. No call of kazoo runs on the event loop: one more thread hands requests to kazoo's
asynchronous interface, and answers, watches and state changes come back by `call_soon_threadsafe`.

What a lost connection means:
- A read is repeated until the call time-out, then MetadataUnavailable.
- A write is handed to kazoo only while connected; waiting for a connection in vain is MetadataUnavailable, certainly not
  sent. Once handed over it is never repeated here: a lost connection, an expired session or the call time-out is
  MetadataUnknown, since the request may still be under way (see `settle`).
- With a digest file (`zookeeper_settings`) every connection is authenticated, and nodes are made for that user alone. What the
  server refuses is MetadataRefused at once: waiting mends no credential.
- With TLS (`zookeeper_tls`) a certificate that is refused, by us or by the server, is a connection that does not come about.
- kazoo begins a new session by itself when the server says that the old one expired. We see another session id on
  connecting and call the `on_session_lost` callbacks.
- Watches do not survive a disconnect: after each reconnect every watch is told one change and is set again by the next
  `changed()`. A watch is set *before* `changed()` returns, so what happens after the caller's next read is told.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from boki_common import limits
from boki_common.errors import (
    BadVersion,
    BokiError,
    ClosedError,
    MetadataRefused,
    MetadataUnavailable,
    MetadataUnknown,
    NodeExists,
    NoNode,
    Overloaded,
    SettingsError,
)
from boki_common.logs import get_logger
from boki_common.metadata import paths
from boki_common.metadata.store import NOTHING, Versioned
from boki_common.metadata.zookeeper_settings import ZookeeperSettings, parse_digest
from boki_common.metadata.zookeeper_tls import connector

RETRY_DELAY_S: Final = 0.05
RECONNECT_DELAY_MAX_S: Final = 1.0
CLOSE_TIMEOUT_S: Final = 5.0
SET_AND_CREATE: Final = "set and create"
"""In the place of a method of kazoo's: one request of several parts."""

_FAILURES: Final = ("Connection dropped", "Connection time-out", "Cannot resolve")
"""How kazoo's warnings of a connection that failed begin."""

_log = get_logger("metadata")


class _ZookeeperWatch:
    """See `store.Watch`. Told once for nothing at the start, when it is first set."""

    def __init__(self, store: ZookeeperStore, path: str) -> None:
        self.path = path
        self._store = store
        self._fired = 1
        self._seen = 0
        self._wake = asyncio.Event()
        self._wake.set()
        self._closed = False

    def tell(self) -> None:
        self._fired += 1
        self._wake.set()

    async def changed(self) -> None:
        while True:
            await self._wake.wait()
            if self._closed:
                raise ClosedError(f"the watch of {self.path} is closed")
            fired = self._fired
            try:
                await self._store.set_watch(self.path)
            except MetadataUnavailable:
                continue  # it waited for a connection as long as any call; the next round waits again
            # No await from here: a change that came while the watch was being set is kept for the next call.
            self._seen = fired
            if self._fired == self._seen:
                self._wake.clear()
            return

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._wake.set()
            self._store.forget_watch(self)


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
        self._link: _KazooLink | None = None
        self._session: int | None = None
        self._connected = asyncio.Event()
        self._calls = 0
        self._watches: dict[str, list[_ZookeeperWatch]] = {}
        self._watch_count = 0
        self._callbacks: list[Callable[[], None]] = []

    async def start(self) -> None:
        if self._link is not None:
            return
        link = _KazooLink(self.hosts, self._session_timeout_s, self._settings, self._state_changed, self._node_changed)
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
        paths.check_path(path)
        value, stat = await self._read("get", path, "get_async")
        return Versioned(value, stat.version)

    async def exists(self, path: str) -> bool:
        paths.check_path(path)
        return await self._read("exists", path, "exists_async") is not None

    async def created(self, path: str) -> int | None:
        """ZooKeeper's czxid."""
        paths.check_path(path)
        _, stat = await self._read("created", path, "get_async")
        found: int = stat.czxid
        return found

    async def children(self, path: str) -> list[str]:
        paths.check_path(path)
        return sorted(await self._read("children", path, "get_children_async"))

    async def create(self, path: str, value: bytes = b"", *, ephemeral: bool = False) -> None:
        paths.check_new_path(path)
        paths.check_value(value, path)
        await self._write("create", path, "create_async", value, ephemeral=ephemeral)

    async def create_sequential(self, prefix: str, value: bytes = b"", *, ephemeral: bool = False) -> str:
        paths.check_prefix(prefix)
        paths.check_value(value, prefix)
        made: str = await self._write(
            "create_sequential", prefix, "create_async", value, ephemeral=ephemeral, sequence=True
        )
        return made

    async def set(self, path: str, value: bytes, *, version: int, creating: Mapping[str, bytes] = NOTHING) -> int:
        paths.check_path(path)
        paths.check_value(value, path)
        paths.check_version(version, path)
        paths.check_created(creating)
        if creating:
            stat = await self._write("set", path, SET_AND_CREATE, value, version=version, creating=creating)
        else:
            stat = await self._write("set", path, "set_async", value, version=version)
        found: int = stat.version
        return found

    async def delete(self, path: str, *, version: int) -> None:
        paths.check_new_path(path)
        paths.check_version(version, path)
        await self._write("delete", path, "delete_async", version=version)

    def watch(self, path: str) -> _ZookeeperWatch:
        paths.check_path(path)
        self._open_link()
        if self._watch_count >= limits.METADATA_WATCHES:
            raise Overloaded(f"{limits.METADATA_WATCHES} watches are open: close those that are no longer waited for")
        watch = _ZookeeperWatch(self, path)
        self._watches.setdefault(path, []).append(watch)
        self._watch_count += 1
        return watch

    def forget_watch(self, watch: _ZookeeperWatch) -> None:
        """What a watch calls when it is closed."""
        watches = self._watches[watch.path]
        watches.remove(watch)
        self._watch_count -= 1
        if not watches:
            del self._watches[watch.path]

    async def set_watch(self, path: str) -> None:
        """Asks the server to tell the next change of a node and, where it exists, of its list of children."""
        callback = self._open_link().on_event
        if await self._read("watch", path, "exists_async", watch=callback) is not None:
            try:
                await self._read("watch", path, "get_children_async", watch=callback)
            except NoNode:
                return  # deleted in between: the first watch tells

    def on_session_lost(self, callback: Callable[[], None]) -> None:
        self._callbacks.append(callback)

    async def _read(self, operation: str, path: str, method: str, *args: Any, **options: Any) -> Any:
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
                    except _NotSent:
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
        self, link: _KazooLink, method: str, path: str, args: tuple[Any, ...], options: Mapping[str, Any]
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

    def _open_link(self) -> _KazooLink:
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
            watch.tell()

    def _node_changed(self, path: str) -> None:
        for watch in self._watches.get(path, ()):
            watch.tell()


class _NotSent(Exception):
    """The connection was gone before kazoo took the request."""


class _KazooLink:
    """The one place that touches kazoo. `on_event` and `_on_state` run in kazoo's threads, `_submit` in ours."""

    def __init__(
        self,
        hosts: str,
        session_timeout_s: float,
        settings: ZookeeperSettings,
        state_changed: Callable[[int | None], None],
        node_changed: Callable[[str], None],
    ) -> None:
        try:
            import kazoo.client
            import kazoo.exceptions
            import kazoo.handlers.threading
            import kazoo.retry
            import kazoo.security
        except ImportError as error:
            raise SettingsError(
                f"metadata in ZooKeeper (zk://{hosts}) needs the library kazoo: pip install 'boki[zookeeper]'"
            ) from error
        self._errors = kazoo.exceptions
        self._new_handler: Callable[[], Any] = kazoo.handlers.threading.SequentialThreadingHandler
        self._hosts = hosts
        servers, _separator, chroot = hosts.partition("/")
        # kazoo's own chroot cannot make a chroot of several levels, so paths are prefixed here.
        self._chroot = f"/{chroot}" if chroot else ""
        self._settings = settings
        self._log = _KazooLog()
        self._new_client: Callable[..., Any] = lambda digest, **tls: kazoo.client.KazooClient(
            hosts=servers,
            auth_data=[("digest", digest)] if digest else None,
            default_acl=kazoo.security.CREATOR_ALL_ACL if digest else None,
            logger=self._log,
            timeout=session_timeout_s,
            connection_retry=kazoo.retry.KazooRetry(
                max_tries=-1, delay=RETRY_DELAY_S, backoff=2, max_delay=RECONNECT_DELAY_MAX_S
            ),
            **tls,
        )
        self._state_changed = state_changed
        self._node_changed = node_changed
        self._loop = asyncio.get_running_loop()
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="boki-metadata")
        self._client: Any = None
        self._opened = False

    @property
    def failure(self) -> str:
        """Why the newest connection that failed did so, in kazoo's words; "" if none did."""
        return self._log.newest

    async def open(self) -> None:
        """Begins to connect. Raises SettingsError for a host list that kazoo does not understand, and for unusable files."""
        await self._loop.run_in_executor(self._executor, self._open)

    def _open(self) -> None:
        try:
            paths.check_path(self._chroot or paths.ROOT)
            self._client = self._new_client(self._digest(), **self._tls())
        except (ValueError, self._errors.ConfigurationError) as error:
            raise SettingsError(f"expected zk://host:port,host:port/chroot, found {self._hosts!r}: {error}") from error
        self._client.add_listener(self._on_state)
        self._client.start_async()
        self._opened = True

    def _tls(self) -> dict[str, Any]:
        """What makes a client of kazoo's speak TLS; nothing without. Raises SettingsError."""
        if not self._settings.tls:
            return {}
        handler = self._new_handler()
        handler.create_connection = connector(self._settings)
        return {"use_ssl": True, "handler": handler}

    def _digest(self) -> str:
        """The credential; "" without one. Raises SettingsError."""
        path = self._settings.digest_file
        if not path:
            return ""
        try:
            return parse_digest(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise SettingsError(f"zookeeper.digest_file {path} cannot be used: {error}") from error

    async def make_chroot(self) -> None:
        """Makes the folder of the chroot and those above it, unless they are there."""
        parts = self._chroot.split("/")[1:]
        for depth in range(len(parts)):
            path = "/" + "/".join(parts[: depth + 1])
            if await self._call("exists_async", (path,), {}) is not None:
                continue  # its parent may be another's, who lets us make nothing there
            try:
                await self._call("create_async", (path, b""), {})
            except self._errors.NodeExistsError:
                continue

    async def call(self, method: str, path: str, args: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
        """The result of one of kazoo's `…_async` methods, or what it raises. `_NotSent` is certain."""
        absolute = self._chroot + path if path != paths.ROOT else self._chroot or path
        result = await self._call(method, (absolute, *args), options)
        return result.removeprefix(self._chroot) if isinstance(result, str) else result

    async def _call(self, method: str, args: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
        answer: asyncio.Future[Any] = self._loop.create_future()
        await self._loop.run_in_executor(self._executor, self._submit, answer, method, args, options)
        return await answer

    def _submit(
        self, answer: asyncio.Future[Any], method: str, args: tuple[Any, ...], options: Mapping[str, Any]
    ) -> None:
        if not self._client.connected:
            raise _NotSent()
        if method == SET_AND_CREATE:
            result = self._set_and_create(*args, **options)
            result.rawlink(lambda done: self._on_loop(_resolve, answer, *self._outcome(done.exception, done.value)))
        else:
            result = getattr(self._client, method)(*args, **options)
            result.rawlink(lambda done: self._on_loop(_resolve, answer, done.exception, done.value))

    def _set_and_create(self, path: str, value: bytes, *, version: int, creating: Mapping[str, bytes]) -> Any:
        """One request, all or nothing; the first of its parts that is refused is the error, so the version comes first."""
        request = self._client.transaction()
        request.set_data(path, value, version=version)
        for new, new_value in creating.items():
            request.create(self._chroot + new, new_value)
        return request.commit_async()

    def _outcome(self, error: BaseException | None, results: Any) -> tuple[BaseException | None, Any]:
        """Of a request of several parts: what refused it, or the result of the first."""
        if error is not None:
            return error, None
        beside = (self._errors.RolledBackError, self._errors.RuntimeInconsistency)
        refusals = [result for result in results if isinstance(result, BaseException)]
        return next(
            (one for one in refusals if not isinstance(one, beside)), refusals[0] if refusals else None
        ), results[0]

    async def close(self, timeout_s: float) -> None:
        """Ends the session, or gives up after the time-out and lets kazoo's threads end by themselves."""
        closing = self._loop.run_in_executor(self._executor, self._close)
        self._executor.shutdown(wait=False)
        done, _pending = await asyncio.wait([closing], timeout=timeout_s)
        if not done:
            _log.warning("ZooKeeper session not closed in time, it will expire", hosts=self._hosts)
        for future in done:
            error = future.exception()
            if error is not None:
                _log.warning("ZooKeeper session not closed, it will expire", hosts=self._hosts, error=error)

    def _close(self) -> None:
        if self._opened:
            self._client.remove_listener(self._on_state)
            self._client.stop()
            self._client.close()

    def on_event(self, event: Any) -> None:
        """A watch has fired; an event without a path means that all were dropped, which the reconnect tells."""
        if event.path is not None:
            self._on_loop(self._node_changed, event.path.removeprefix(self._chroot) or paths.ROOT)

    def _on_state(self, state: str) -> None:
        identity = self._client.client_id if state == "CONNECTED" else None
        self._on_loop(self._state_changed, None if identity is None else identity[0])

    def _on_loop(self, callback: Callable[..., None], *args: Any) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(callback, *args)

    def translate(self, error: BaseException, operation: str, path: str, *, written: bool) -> BokiError | None:
        """Our error for one of kazoo's; None when it is none of kazoo's."""
        errors = self._errors
        facts = {"path": path}
        if isinstance(error, errors.NoNodeError):
            return NoNode(f"there is no metadata node {path}, or no parent for it", **facts)
        if isinstance(error, errors.NodeExistsError):
            return NodeExists(f"{path} exists already", **facts)
        if isinstance(error, errors.BadVersionError):
            return BadVersion(f"{path} has another version than expected: read it again", **facts)
        if isinstance(error, errors.NotEmptyError):
            return paths.not_empty(path)
        if isinstance(error, errors.NoChildrenForEphemeralsError):
            return paths.no_children_allowed(path)
        if isinstance(error, _NotSent):
            return MetadataUnavailable(f"{operation} of {path} was not sent: the connection is lost", **facts)
        if isinstance(error, (errors.NoAuthError, errors.AuthFailedError)):
            return MetadataRefused(
                f"ZooKeeper at {self._hosts} refuses {operation} of {path} ({type(error).__name__}): expected the credential of "
                f"whoever made it, found {'another one' if self._settings.digest_file else 'none'}; see the setting "
                "zookeeper.digest_file",
                **facts,
            )
        if isinstance(error, errors.KazooException):
            if written:
                return MetadataUnknown(f"the answer to {operation} of {path} was lost: {error!r}", **facts)
            return MetadataUnavailable(f"{operation} of {path} failed: {error!r}", **facts)
        return None


class _KazooLog(logging.Logger):
    """kazoo warns of every lost connection; the store says it once, and bugs of kazoo's stay visible."""

    def __init__(self) -> None:
        super().__init__("boki.kazoo", logging.WARNING)
        self.parent = logging.getLogger("boki")
        self.newest = ""
        """Why the newest connection that failed did so."""

    def handle(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.ERROR:
            super().handle(record)
        elif record.getMessage().startswith(_FAILURES):
            self.newest = record.getMessage()


def _resolve(answer: asyncio.Future[Any], error: BaseException | None, value: Any) -> None:
    if answer.done():
        return
    if error is not None:
        answer.set_exception(error)
    else:
        answer.set_result(value)
