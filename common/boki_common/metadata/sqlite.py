"""The metadata store in a SQLite file that several processes of one machine share: no Java, no Docker.

All SQLite work happens in one thread of the store; the event loop only hands it jobs. `sqlite_tree` has the tables.

Sessions. Each store has a row in `sessions` and renews it every third of the session time-out. Who sees a dead session
removes it with its ephemeral nodes, at start and at each renewal. A session is dead when its boot id is not this boot's;
when its process, in the same pid namespace, is gone (proof at once, after kill -9; what cannot be seen is not gone, see
`liveness`); or when its row was not renewed for a session time-out (a paused process). A process that finds its own row
gone begins a new session and calls back.

Clocks. Renewals are written on CLOCK_MONOTONIC: every process of one boot sees the same one, it never jumps, and it
stands still while the machine sleeps, so neither a corrected wall clock nor a closed laptop lid kills a session. The boot
id says whether a row's clock is ours. Without a boot id (no Linux) the wall clock takes its place. In both cases the
age of others is judged only by who has itself renewed on time for a whole session time-out: after a pause of this
process, a jump of its clock or an outage of the file everybody gets one time-out to come back. Processes in different
*time* namespaces must not share a file.

Watches. A write to the file wakes the thread (`file_changes`), which a little later, when the transaction should have
ended, reads the counter of changes; if it moved, the stamps of watched paths. SQLite writes to the file only while nobody
can read it, so a look after a write finds either a lock, and is repeated, or what was committed. Each renewal looks as well.

A file on a network file system is refused where the mount table shows it: SQLite's locks do not hold there.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from boki_common import limits
from boki_common.errors import (
    BokiError,
    ClosedError,
    MetadataUnavailable,
    Overloaded,
    StorageError,
)
from boki_common.logs import get_logger
from boki_common.metadata import paths
from boki_common.metadata.file_changes import FileChanges
from boki_common.metadata.liveness import is_gone
from boki_common.metadata.machine_facts import process_identity, refuse_network_file_system
from boki_common.metadata.sqlite_tree import SessionRow, SqliteTree, Stamp, open_database
from boki_common.metadata.store import NOTHING, NotifiedWatch, Versioned

T = TypeVar("T")

WATCH_INTERVAL_S: Final = 0.05
"""The file is looked at so often, at most; where the system does not report writes, also at least."""
TRANSACTION_S: Final = 0.01
"""A look begins so long after a write was seen: most transactions of others have ended then."""
BUSY_TIMEOUT_S: Final = 2.0
"""How long a transaction is begun anew while another process's is in the way (these last some milliseconds)."""
START_TIMEOUT_S: Final = 30.0
"""The same within this time of the start of a store. All processes of a cluster may start at once, on a disk that is slow to flush;
SQLite's lock is not fair, and a process whose metadata store fails at its start ends."""
RENEWALS_PER_TIMEOUT: Final = 3

_NEVER_READ: Final = Stamp(-1, -1)

_log = get_logger("metadata")


class SqliteStore:
    """A session on a metadata file; see the module, and `MetadataStore` for the methods.

    Args:
        path: the file; its folder must exist.
        session_timeout_s: an ephemeral node outlives its paused process by at most this and a third.
        create: the file is made when absent; else `start` raises SettingsError then.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        session_timeout_s: float = limits.SESSION_TIMEOUT_S,
        create: bool = True,
    ) -> None:
        self.path = os.fspath(path)
        self._create = create
        self._session_timeout_s = session_timeout_s
        self._worker: _Worker | None = None
        self._watches: list[NotifiedWatch] = []
        self._callbacks: list[Callable[[], None]] = []

    async def start(self) -> None:
        if self._worker is not None:
            return
        worker = _Worker(
            self.path,
            self._session_timeout_s,
            asyncio.get_running_loop(),
            self._session_lost,
            self._notify,
            create=self._create,
        )
        await worker.start()
        self._worker = worker

    async def close(self) -> None:
        """Also when the file cannot be written any more: then the session dies of age."""
        worker, self._worker = self._worker, None
        for watch in list(self._watches):
            watch.close()
        if worker is not None:
            await worker.stop()

    async def get(self, path: str) -> Versioned:
        return await self._read(path, lambda tree: tree.get(path))

    async def exists(self, path: str) -> bool:
        return await self._read(path, lambda tree: tree.exists(path))

    async def created(self, path: str) -> int | None:
        """Its tables do not say: only Apache's bookies need it, and those know no SQLite."""
        await self.get(path)
        return None

    async def children(self, path: str) -> list[str]:
        return await self._read(path, lambda tree: tree.children(path))

    async def create(self, path: str, value: bytes = b"", *, ephemeral: bool = False) -> None:
        paths.check_node(path, value)
        await self._write(lambda tree, session: tree.create(path, value, session if ephemeral else None))

    async def create_sequential(self, prefix: str, value: bytes = b"", *, ephemeral: bool = False) -> str:
        paths.check_prefix(prefix, value)
        return await self._write(
            lambda tree, session: tree.create_sequential(prefix, value, session if ephemeral else None)
        )

    async def set(self, path: str, value: bytes, *, version: int, creating: Mapping[str, bytes] = NOTHING) -> int:
        paths.check_set(path, value, version, creating)
        return await self._write(lambda tree, _session: tree.set(path, value, version, creating))

    async def delete(self, path: str, *, version: int) -> None:
        paths.check_delete(path, version)
        await self._write(lambda tree, _session: tree.delete(path, version))

    def watch(self, path: str) -> NotifiedWatch:
        paths.check_path(path)
        worker = self._running()
        if len(self._watches) >= limits.METADATA_WATCHES:
            raise Overloaded(f"{limits.METADATA_WATCHES} watches are open: close those that are no longer waited for")
        watch = NotifiedWatch(path, self.forget_watch)
        self._watches.append(watch)
        worker.watch(path)
        return watch

    def forget_watch(self, watch: NotifiedWatch) -> None:
        """What a watch calls when it is closed."""
        self._watches.remove(watch)
        if self._worker is not None and all(other.path != watch.path for other in self._watches):
            self._worker.unwatch(watch.path)

    def on_session_lost(self, callback: Callable[[], None]) -> None:
        self._callbacks.append(callback)

    def _read(self, path: str, job: Callable[[SqliteTree], T]) -> Coroutine[Any, Any, T]:
        paths.check_path(path)
        worker = self._running()
        return worker.call(lambda: worker.read(job))

    def _write(self, job: Callable[[SqliteTree, str], T]) -> Coroutine[Any, Any, T]:
        worker = self._running()
        return worker.call(lambda: worker.write(job))

    def _running(self) -> _Worker:
        if self._worker is None:
            raise ClosedError(f"the metadata store {self.path} is not started or was closed")
        return self._worker

    def _notify(self, path: str) -> None:
        for watch in self._watches:
            if watch.path == path:
                watch.notify()

    def _session_lost(self) -> None:
        for callback in self._callbacks:
            callback()


class _Session:
    """The row of this process, and its judgement of others'. Of the thread."""

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self.id = ""
        self._process = ("", 0, 0, "")
        self._renewed = 0.0
        self._on_time_since = 0.0

    def begin_in_this_process(self) -> None:
        """Notes which one it is, and that it is on time."""
        self._process = process_identity()
        self._renewed = self._on_time_since = time.monotonic()

    def own(self, tree: SqliteTree) -> str:
        """The row of this session, made anew when somebody removed it. Inside a write."""
        if not self.id or not tree.has_session(self.id):
            self.id = os.urandom(16).hex()
            tree.begin_session(SessionRow(self.id, *self._process, self._expires_ms()))
        return self.id

    def judges_age(self) -> bool:
        """Whether this process renewed on time for a whole session time-out."""
        now = time.monotonic()
        if now - self._renewed >= self.timeout_s:
            self._on_time_since = now
        return now - self._on_time_since >= self.timeout_s

    def renew(self, tree: SqliteTree) -> None:
        """Renews the row, and removes sessions that are dead. Inside a write, which may have waited for its lock."""
        judge_age = self.judges_age()
        tree.renew_session(self.id, self._expires_ms())
        for row in tree.sessions():
            if row.session != self.id and self._dead(row, judge_age=judge_age):
                tree.end_session(row.session)

    def renewed(self) -> None:
        """That was committed."""
        self._renewed = time.monotonic()

    def _dead(self, row: SessionRow, *, judge_age: bool) -> bool:
        boot, _pid, _started, namespace = self._process
        if row.boot != boot:
            return True
        if namespace and row.pid_namespace == namespace and is_gone(row.pid, row.process_started):
            return True
        return judge_age and row.expires_ms < self._clock_ms()

    def _expires_ms(self) -> int:
        return self._clock_ms() + int(self.timeout_s * 1_000)

    def _clock_ms(self) -> int:
        has_boot_id = bool(self._process[0])
        return (time.monotonic_ns() if has_boot_id else time.time_ns()) // 1_000_000


class _Worker:
    """The thread: runs jobs in their order, renews the session, removes dead ones, polls watched paths.

    `start`, `call`, `watch`, `unwatch` and `stop` belong to the event loop, everything else to the thread.
    """

    def __init__(
        self,
        path: str,
        session_timeout_s: float,
        loop: asyncio.AbstractEventLoop,
        session_lost: Callable[[], None],
        notify: Callable[[str], None],
        *,
        create: bool,
    ) -> None:
        self._path = path
        self._create = create
        self._loop = loop
        self._session_lost = session_lost
        self._notify = notify
        self._jobs: deque[tuple[Future[Any], Callable[[], Any]] | None] = deque()
        """None: end."""
        self._changes = FileChanges()
        self._thread = threading.Thread(target=self._run, name="boki-metadata", daemon=True)
        self._opened: Future[None] = Future()
        self._ended: Future[None] = Future()
        for one in (self._opened, self._ended):
            one.set_running_or_notify_cancel()  # the thread's to set: a waiter that is cancelled cancels neither
        self._tree: SqliteTree
        self._session = _Session(session_timeout_s)
        self._reachable = True
        self._stamps: dict[str, Stamp | None] = {}
        self._seen_changes = -1
        """The counter when the stamps were read; -1: some were never read."""
        self._stale = False
        """Whether the file may have changed since."""
        self._written = False
        """Whether this process wrote since."""
        self._locked_since: float | None = None
        self._patient_until = 0.0
        """Until then a transaction waits for others': see `START_TIMEOUT_S`."""

    async def start(self) -> None:
        """Raises what `open_database` raises."""
        self._patient_until = time.monotonic() + START_TIMEOUT_S
        self._thread.start()
        try:
            await asyncio.wrap_future(self._opened)
        except asyncio.CancelledError:
            self._put(None)
            raise
        except Exception:
            self._changes.close()
            raise

    async def stop(self) -> None:
        """Ends the session and the thread."""
        self._put(None)
        await asyncio.wrap_future(self._ended)
        self._changes.close()

    async def call(self, job: Callable[[], T]) -> T:
        if self._ended.done():
            raise MetadataUnavailable(f"the thread of the metadata file {self._path} has failed", path=self._path)
        if len(self._jobs) >= limits.METADATA_CALLS:
            raise Overloaded(f"{limits.METADATA_CALLS} calls wait for the metadata file {self._path}")
        future: Future[T] = Future()
        self._put((future, job))
        return await asyncio.wrap_future(future)

    def _put(self, entry: tuple[Future[Any], Callable[[], Any]] | None) -> None:
        self._jobs.append(entry)
        self._changes.wake()

    def watch(self, path: str) -> None:
        """Tells `path` once, and whenever it changes."""
        self._put((Future(), lambda: self._watch(path)))

    def unwatch(self, path: str) -> None:
        self._put((Future(), lambda: self._stamps.pop(path, None)))

    def read(self, job: Callable[[SqliteTree], T]) -> T:
        return self._unless_locked(lambda: self._tree.read(lambda: job(self._tree)))

    def write(self, job: Callable[[SqliteTree, str], T]) -> T:
        return self._unless_locked(lambda: self._write_once(job))

    def _write_once(self, job: Callable[[SqliteTree, str], T]) -> T:
        session = self._session
        before = session.id
        self._written = True
        try:
            return self._tree.write(lambda: job(self._tree, session.own(self._tree)))
        except BaseException as error:
            if isinstance(error, (MetadataUnavailable, StorageError)) or not isinstance(error, BokiError):
                session.id = before  # nothing was committed, a new session neither
            raise
        finally:
            if before != session.id:
                _log.info("metadata session lost, a new one begun", path=self._path)
                self._on_loop(self._session_lost)

    def _run(self) -> None:
        try:
            refuse_network_file_system(self._path)
            database = self._unless_locked(lambda: open_database(self._path, create=self._create))
            self._tree = SqliteTree(database, self._path)
        except Exception as error:  # noqa: BLE001  # handed to whoever awaits `start`
            self._opened.set_exception(error)
            return
        try:
            self._changes.watch(self._path)
            self._begin_session()
            self._opened.set_result(None)
            self._serve()
        except Exception as error:  # noqa: BLE001  # a thread has no caller: handed over, or logged
            if not self._opened.done():
                self._opened.set_exception(error)
            else:
                _log.error("metadata thread failed", path=self._path, error=error, exc_info=True)
        finally:
            self._tree.close()
            self._ended.set_result(None)
            self._fail_waiting()

    def _begin_session(self) -> None:
        session, tree = self._session, self._tree
        session.begin_in_this_process()

        def begin() -> None:
            session.own(tree)
            session.renew(tree)

        self._unless_locked(lambda: tree.write(begin))
        session.renewed()

    def _fail_waiting(self) -> None:
        while self._jobs:
            entry = self._jobs.popleft()
            if entry is not None and entry[0].set_running_or_notify_cancel():
                entry[0].set_exception(MetadataUnavailable(f"the thread of {self._path} ended", path=self._path))

    def _serve(self) -> None:
        renew_at = look_at = time.monotonic()
        while True:
            now = time.monotonic()
            if now >= renew_at:
                renew_at = now + self._session.timeout_s / RENEWALS_PER_TIMEOUT
                self._in_background(self._renew)
            stale = self._stale and now >= look_at
            if self._stamps and (stale or self._written or self._seen_changes < 0):
                look_at = now + WATCH_INTERVAL_S
                self._in_background(self._poll)
            if self._jobs:
                if not self._do(self._jobs.popleft()):
                    return
                continue
            wake_at = min(renew_at, look_at) if self._stale and self._stamps else renew_at
            for_changes = not self._stale and bool(self._stamps)
            if self._changes.wait(wake_at - time.monotonic(), for_changes=for_changes) and for_changes:
                self._stale = True
                look_at = max(look_at, time.monotonic() + TRANSACTION_S)

    def _do(self, entry: tuple[Future[Any], Callable[[], Any]] | None) -> bool:
        """Runs a job; False when it was the last one."""
        if entry is None:
            self._in_background(self._end_session)
            return False
        future, job = entry
        if future.set_running_or_notify_cancel():
            try:
                result = job()
            except BaseException as error:  # noqa: BLE001  # handed to the caller
                future.set_exception(error)
            else:
                future.set_result(result)
        return True

    def _in_background(self, job: Callable[[], None]) -> None:
        """Runs what has no caller. It is retried many times a second, so only a change of its outcome is logged."""
        try:
            job()
        except (BokiError, sqlite3.Error) as error:
            if self._reachable:
                _log.warning("metadata file not reachable", path=self._path, error=error)
            self._reachable = False
        else:
            if not self._reachable:
                _log.info("metadata file reachable again", path=self._path)
            self._reachable = True

    def _renew(self) -> None:
        self.write(lambda tree, _: self._session.renew(tree))
        self._session.renewed()

    def _end_session(self) -> None:
        self._patient_until = 0.0
        self._unless_locked(lambda: self._tree.write(lambda: self._tree.end_session(self._session.id)))

    def _watch(self, path: str) -> None:
        # Read by the next poll, which is retried until it succeeds and reports then.
        self._stamps[path] = _NEVER_READ
        self._seen_changes = -1

    def _poll(self) -> None:
        """One that meets another process's transaction is left to the next, which comes soon; logged when none succeeds."""
        try:
            self._look()
        except MetadataUnavailable as error:
            if self._locked_since is None:
                self._locked_since = time.monotonic()
            if not error.facts.get("locked") or time.monotonic() - self._locked_since >= BUSY_TIMEOUT_S:
                raise
        else:
            self._locked_since = None

    def _look(self) -> None:
        self._changes.forget()
        self._stale = True  # until it was looked at
        changes, stamps = self._tree.read(self._stamps_if_changed)
        self._stale = not self._changes.notified
        self._written = False
        changed = [path for path, stamp in stamps.items() if stamp != self._stamps[path]]
        self._seen_changes = changes
        self._stamps.update(stamps)
        for path in changed:
            self._on_loop(self._notify, path)

    def _stamps_if_changed(self) -> tuple[int, dict[str, Stamp | None]]:
        """The counter of changes, and stamps if it moved since the last look."""
        tree, changes = self._tree, self._tree.changes()
        return changes, {} if changes == self._seen_changes else {path: tree.stamp(path) for path in self._stamps}

    def _unless_locked(self, transaction: Callable[[], T]) -> T:
        """Return the result of a transaction. One that met a lock was not done, and is retried for `BUSY_TIMEOUT_S`, at a start longer."""
        give_up_at = max(time.monotonic() + BUSY_TIMEOUT_S, self._patient_until)
        while True:
            try:
                return transaction()
            except MetadataUnavailable as error:
                if not error.facts.get("locked") or time.monotonic() >= give_up_at:
                    raise

    def _on_loop(self, callback: Callable[..., None], *arguments: str) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(callback, *arguments)
