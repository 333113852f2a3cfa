"""One session with ZooKeeper through kazoo, whose threads it keeps apart from the event loop: each call ends in the loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from boki_common.errors import (
    BadVersion,
    BokiError,
    MetadataRefused,
    MetadataUnavailable,
    MetadataUnknown,
    NodeExists,
    NoNode,
    SettingsError,
)
from boki_common.logs import get_logger
from boki_common.metadata import paths
from boki_common.metadata.zookeeper_settings import ZookeeperSettings, parse_digest
from boki_common.metadata.zookeeper_tls import connector

RETRY_DELAY_S: Final = 0.05
RECONNECT_DELAY_MAX_S: Final = 1.0
SET_AND_CREATE: Final = "set and create"
"""In the place of a method of kazoo's: one request of several parts."""
_FAILURES: Final = ("Connection dropped", "Connection time-out", "Cannot resolve")
"""How kazoo's warnings of a connection that failed begin."""
_log = get_logger("metadata")


class NotSent(Exception):
    """The connection was gone before kazoo took the request."""


class KazooLink:
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
                f"metadata in ZooKeeper (zk://{hosts}) needs the library kazoo: pip install kazoo"
            ) from error
        self._errors = kazoo.exceptions
        self._new_handler: Callable[[], Any] = kazoo.handlers.threading.SequentialThreadingHandler
        self._hosts = hosts
        servers, _separator, chroot = hosts.partition("/")
        # kazoo's own chroot cannot make a chroot of several levels, so paths are prefixed here.
        self._chroot = f"/{chroot}" if chroot else ""
        self._settings = settings
        self._log = KazooLog()
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
        """The result of one of kazoo's `…_async` methods, or what it raises. `NotSent` is certain."""
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
            raise NotSent()
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
        """A watch has fired; an event without a path means that all were dropped, which the reconnect reports."""
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
        if isinstance(error, NotSent):
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


class KazooLog(logging.Logger):
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
