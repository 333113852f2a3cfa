"""The tree of a SQLite metadata file: its tables, and every read and write as plain SQL. Synchronous.

    nodes      path, parent, value, version, session (owner of an ephemeral, else NULL), next_number (sequential children),
               changed, children_changed (numbers from `counter`, so that a watch can tell a change)
    sessions   session, boot, pid, process_started, pid_namespace (who it is), expires_ms (on the clock of that boot)
    counter    one row: the number of changes so far

Rules:
- A row in `sessions` *is* the session: it lives until somebody removes the row, with its ephemeral nodes, in one
  transaction. Nobody merely *treats* a session as dead, so two readers never disagree.
- `PRAGMA application_id` says that the file is ours, `PRAGMA user_version` which version of these tables it has.
- The journal is a rollback journal with synchronous=FULL: a committed compare-and-swap survives power loss. It stays as
  long as it is (PERSIST), up to a bound: a commit then changes no file's length, which takes 40 % off its flushes.
- Not WAL, which would take one flush instead of five: all SQLite releases from 3.7.0 on may lose a committed WAL transaction
  when several processes write and checkpoint at once (sqlite.org/wal.html, "WAL-reset bug"), but 3.51.3 and later, 3.50.7
  and 3.44.6. The library is whatever Python was built with, and each process that shares the file may have another one.

- Some pages are kept free inside the file, and the journal long enough to change them: on a full disk sessions begin and end,
  and what is there changes, for as long as these last.

It knows no thread, no clock and no process: the caller hands in what these say.
"""

from __future__ import annotations

import os
import sqlite3  # noqa: TID251  # one of the two modules of this port's implementation
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, TypeVar

from boki_common.errors import (
    BokiError,
    CorruptData,
    MetadataUnavailable,
    MetadataUnknown,
    NodeExists,
    NoNode,
    SettingsError,
    VersionMismatch,
    WrongDirectory,
)
from boki_common.metadata import paths
from boki_common.metadata.store import NOTHING, Versioned

T = TypeVar("T")

APPLICATION_ID: Final = 0x426F6B69
"""The letters Boki."""
SCHEMA_VERSION: Final = 1
LOCK_WAIT_MS: Final = 50
"""How long a statement waits for another process's transaction; then it fails, `locked`, and is begun anew by the caller.
SQLite asks less and less often: a process that waits long would hardly ever get a turn beside new ones."""
JOURNAL_BYTES: Final = 1 << 20
"""A journal that one transaction made longer is cut back to this."""

SPARE_PAGES: Final = 128
"""Kept free inside the file: half a megabyte."""

_LOCKED: Final = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_DAMAGED: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_NOT_COMMITTED: Final = (*_LOCKED, sqlite3.SQLITE_FULL)
"""Codes after which SQLite guarantees that the transaction was not committed."""

_SCHEMA: Final = (
    """CREATE TABLE nodes (
        path TEXT NOT NULL PRIMARY KEY, parent TEXT, value BLOB NOT NULL, version INTEGER NOT NULL, session TEXT,
        next_number INTEGER NOT NULL, changed INTEGER NOT NULL, children_changed INTEGER NOT NULL)""",
    "CREATE INDEX nodes_by_parent ON nodes (parent)",
    "CREATE INDEX nodes_by_session ON nodes (session) WHERE session IS NOT NULL",
    """CREATE TABLE sessions (
        session TEXT NOT NULL PRIMARY KEY, boot TEXT NOT NULL, pid INTEGER NOT NULL, process_started INTEGER NOT NULL,
        pid_namespace TEXT NOT NULL, expires_ms INTEGER NOT NULL)""",
    "CREATE TABLE counter (only_row INTEGER PRIMARY KEY CHECK (only_row = 0), changes INTEGER NOT NULL)",
    "INSERT INTO counter VALUES (0, 0)",
    "INSERT INTO nodes VALUES ('/', NULL, x'', 0, NULL, 0, 0, 0)",
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
)


class SessionRow(NamedTuple):
    """A row of `sessions`."""

    session: str
    boot: str
    pid: int
    process_started: int
    pid_namespace: str
    expires_ms: int


class Stamp(NamedTuple):
    """When a node and its list of children last changed; the watch of an absent node has None instead."""

    changed: int
    children_changed: int


def open_database(path: str, *, create: bool = True) -> sqlite3.Connection:
    """Opens the file and checks that it is whole, ours and of our version.

    Args:
        create: it is made when absent; without, that is refused: a misspelt path is not a new cluster.

    Raises:
        SettingsError: nothing is there and it is not to be made.
        WrongDirectory: the folder is missing or not writable, or the file is another program's database.
        CorruptData: not a SQLite file, or a damaged one.
        VersionMismatch: tables of another version.
        MetadataUnavailable: `locked` by another process.
    """
    if not create and not os.path.exists(path):
        raise _absent(path)
    try:
        connection = sqlite3.connect(path, timeout=LOCK_WAIT_MS / 1_000, isolation_level=None)
    except sqlite3.Error as error:
        raise _opening_failed(path, error) from error
    try:
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA fullfsync = ON")
        _check_file(connection, path)
        connection.execute(f"PRAGMA journal_size_limit = {JOURNAL_BYTES}")
        if connection.execute("PRAGMA journal_mode = PERSIST").fetchone()[0] != "persist":
            raise MetadataUnavailable(f"cannot set the journal mode of {path}: is another program using it?", path=path)
        _keep_space(connection)
    except sqlite3.Error as error:
        connection.close()
        raise _opening_failed(path, error) from error
    except BaseException:
        connection.close()
        raise
    return connection


def _keep_space(connection: sqlite3.Connection) -> None:
    """Free pages, and a journal as long as they are, while there is space for them; else another start makes them.

    Rows of a page each are written, changed, which takes the journal, and dropped.
    """
    if connection.execute("PRAGMA freelist_count").fetchone()[0] >= SPARE_PAGES // 2:
        return
    row_bytes = connection.execute("PRAGMA page_size").fetchone()[0] * 3 // 4
    rows = f"WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {SPARE_PAGES}) SELECT 0"
    try:
        for statements in (
            ("DROP TABLE IF EXISTS space", "CREATE TABLE space (changed INTEGER, filling BLOB)")
            + (f"INSERT INTO space {rows}, zeroblob({row_bytes}) FROM n",),
            ("UPDATE space SET changed = 1",),
            ("DROP TABLE space",),
        ):
            connection.execute("BEGIN IMMEDIATE")
            for statement in statements:
                connection.execute(statement)
            connection.execute("COMMIT")
    except sqlite3.Error as error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        if _primary_code(error) not in _NOT_COMMITTED:
            raise


def _absent(path: str) -> SettingsError:
    return SettingsError(
        f"expected the metadata file of a cluster, found none at {path}; is the path right? "
        "The first bookie, sequencer or engine of a cluster makes it",
        path=path,
    )


def _check_file(connection: sqlite3.Connection, path: str) -> None:
    # Reading with the write lock held, so that of two processes that find no tables one makes them.
    connection.execute("BEGIN IMMEDIATE")
    try:
        application = connection.execute("PRAGMA application_id").fetchone()[0]
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if tables == 0 and application == 0 and version == 0:
            for statement in _SCHEMA:
                connection.execute(statement)
        elif application != APPLICATION_ID:
            raise WrongDirectory(
                f"{path} is a SQLite database of another program (application id {application:#x}, expected "
                f"{APPLICATION_ID:#x}): name another file",
                path=path,
                expected=APPLICATION_ID,
                found=application,
            )
        elif version != SCHEMA_VERSION:
            raise VersionMismatch(
                f"{path} has metadata format {version}, this program reads {SCHEMA_VERSION}: use the version of Boki "
                "that wrote it",
                path=path,
                expected=SCHEMA_VERSION,
                found=version,
            )
        fault = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if fault != "ok":
            raise CorruptData(f"{path} is damaged ({fault}): restore it from a copy", path=path, found=fault)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _opening_failed(path: str, error: sqlite3.Error) -> Exception:
    code = _primary_code(error)
    if code in _LOCKED:
        return MetadataUnavailable(f"{path} is locked by another process for too long: {error}", path=path, locked=True)
    if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
        return WrongDirectory(
            f"cannot open {path} for writing ({error}): its folder must exist and both must be writable", path=path
        )
    if code in _DAMAGED:
        return CorruptData(f"{path} is no metadata file of Boki or is damaged: {error}", path=path)
    return MetadataUnavailable(f"cannot open {path}: {error}", path=path)


def _primary_code(error: sqlite3.Error) -> int:
    """SQLite's result code without its extension; 0 where Python itself raised."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


class SqliteTree:
    """Nodes and sessions on one connection. Methods ending in nothing special must run inside `read` or `write`."""

    def __init__(self, connection: sqlite3.Connection, path: str) -> None:
        self._connection = connection
        self._path = path

    def close(self) -> None:
        self._connection.close()

    def read(self, job: Callable[[], T]) -> T:
        """Runs `job` on one snapshot. Raises what it raises, MetadataUnavailable or CorruptData."""
        try:
            self._connection.execute("BEGIN")
            try:
                return job()
            finally:
                self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back()
            raise self._failed("read", error) from error

    def write(self, job: Callable[[], T]) -> T:
        """Runs `job` as one durable transaction.

        A refusal (NodeExists, BadVersion, …) of `job` comes before it changed anything: what was done before it stays.

        Raises:
            MetadataUnavailable: certainly not applied. MetadataUnknown: the commit failed half-way. CorruptData.
        """
        refused: BokiError | None = None
        result: T | None = None
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                result = job()
            except BokiError as error:
                refused = error
        except sqlite3.Error as error:
            self._roll_back()
            raise self._failed("write", error) from error
        except BaseException:
            self._roll_back()
            raise
        self._commit()
        if refused is not None:
            raise refused
        return result  # type: ignore[return-value]  # set, since nothing was raised

    def _commit(self) -> None:
        try:
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back()
            if _primary_code(error) in _NOT_COMMITTED:
                raise self._failed("write", error) from error
            raise MetadataUnknown(f"committing to {self._path} failed: {error}", path=self._path) from error

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def _failed(self, operation: str, error: sqlite3.Error) -> Exception:
        if _primary_code(error) in _DAMAGED:
            return CorruptData(f"{self._path} is damaged: {error}", path=self._path)
        return MetadataUnavailable(
            f"the {operation} of {self._path} was not done: {error}",
            path=self._path,
            locked=_primary_code(error) in _LOCKED,
        )

    def get(self, path: str) -> Versioned:
        row = self._connection.execute("SELECT value, version FROM nodes WHERE path = ?", (path,)).fetchone()
        if row is None:
            raise NoNode(f"there is no metadata node {path}", path=path)
        return Versioned(bytes(row[0]), row[1])

    def exists(self, path: str) -> bool:
        return self._connection.execute("SELECT 1 FROM nodes WHERE path = ?", (path,)).fetchone() is not None

    def children(self, path: str) -> list[str]:
        if not self.exists(path):
            raise NoNode(f"there is no metadata node {path}", path=path)
        rows = self._connection.execute("SELECT path FROM nodes WHERE parent = ?", (path,))
        return sorted(paths.name_of(row[0]) for row in rows)

    def changes(self) -> int:
        """A number that moves with each change of a node."""
        number: int = self._connection.execute("SELECT changes FROM counter").fetchone()[0]
        return number

    def stamp(self, path: str) -> Stamp | None:
        row = self._connection.execute("SELECT changed, children_changed FROM nodes WHERE path = ?", (path,)).fetchone()
        return None if row is None else Stamp(*row)

    def create(self, path: str, value: bytes, session: str | None) -> None:
        parent = self._require_absent(path)
        change = self._next_change()
        self._connection.execute(
            "INSERT INTO nodes VALUES (?, ?, ?, 0, ?, 0, ?, ?)", (path, parent, value, session, change, change)
        )
        self._children_changed(parent, change)

    def create_sequential(self, prefix: str, value: bytes, session: str | None) -> str:
        parent = paths.parent_of(prefix)
        number = self._require_parent(prefix, parent)
        while self.exists(path := paths.sequential_path(prefix, number)):
            number += 1
        self._connection.execute("UPDATE nodes SET next_number = ? WHERE path = ?", (number + 1, parent))
        self.create(path, value, session)
        return path

    def set(self, path: str, value: bytes, version: int, creating: Mapping[str, bytes] = NOTHING) -> int:
        self._require_version(path, version)
        for new in creating:
            self._require_absent(new)
        for new, new_value in creating.items():
            self.create(new, new_value, None)
        self._connection.execute(
            "UPDATE nodes SET value = ?, version = version + 1, changed = ? WHERE path = ?",
            (value, self._next_change(), path),
        )
        return version + 1

    def delete(self, path: str, version: int) -> None:
        self._require_version(path, version)
        if self._connection.execute("SELECT 1 FROM nodes WHERE parent = ? LIMIT 1", (path,)).fetchone():
            raise paths.not_empty(path)
        self._remove(path)

    def sessions(self) -> list[SessionRow]:
        rows = self._connection.execute(
            "SELECT session, boot, pid, process_started, pid_namespace, expires_ms FROM sessions ORDER BY session"
        )
        return [SessionRow(*row) for row in rows]

    def has_session(self, session: str) -> bool:
        return self._connection.execute("SELECT 1 FROM sessions WHERE session = ?", (session,)).fetchone() is not None

    def begin_session(self, row: SessionRow) -> None:
        self._connection.execute("INSERT INTO sessions VALUES (?, ?, ?, ?, ?, ?)", row)

    def renew_session(self, session: str, expires_ms: int) -> bool:
        """False when the session is gone."""
        cursor = self._connection.execute("UPDATE sessions SET expires_ms = ? WHERE session = ?", (expires_ms, session))
        return cursor.rowcount == 1

    def end_session(self, session: str) -> None:
        """Removes the session and its ephemeral nodes."""
        self._connection.execute("DELETE FROM sessions WHERE session = ?", (session,))
        owned = self._connection.execute("SELECT path FROM nodes WHERE session = ? ORDER BY path", (session,))
        for (path,) in owned.fetchall():
            self._remove(path)

    def _require_absent(self, path: str) -> str:
        """The parent of a node that may be made."""
        parent = paths.parent_of(path)
        self._require_parent(path, parent)
        if self.exists(path):
            raise NodeExists(f"{path} exists already", path=path)
        return parent

    def _require_parent(self, path: str, parent: str) -> int:
        row = self._connection.execute("SELECT session, next_number FROM nodes WHERE path = ?", (parent,)).fetchone()
        if row is None:
            raise NoNode(f"there is no metadata node {parent}: make it before {path}", path=parent)
        if row[0] is not None:
            raise paths.no_children_allowed(path)
        number: int = row[1]
        return number

    def _require_version(self, path: str, version: int) -> None:
        paths.check_at_version(path, version, self.get(path).version)

    def _remove(self, path: str) -> None:
        self._connection.execute("DELETE FROM nodes WHERE path = ?", (path,))
        self._children_changed(paths.parent_of(path), self._next_change())

    def _children_changed(self, parent: str, change: int) -> None:
        self._connection.execute("UPDATE nodes SET children_changed = ? WHERE path = ?", (change, parent))

    def _next_change(self) -> int:
        self._connection.execute("UPDATE counter SET changes = changes + 1")
        return self.changes()
