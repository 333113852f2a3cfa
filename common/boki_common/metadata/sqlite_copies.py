"""Copies of a SQLite metadata file: their content, and an end of the sessions that they were copied with.

A copy has the sessions of the processes that ran when it was made, and their ephemeral nodes: who is up, and where. To processes
that are started on the copy these are wrong, and dangerous, for they lead to the roles of the original. A session is judged by its
process and its age, so those of an original that is alive would hold for a session time-out.

Opening the file rolls back a transaction that was copied half-done, as every opening does. These functions block.
"""

from __future__ import annotations

from pathlib import Path

from boki_common.errors import CorruptData
from boki_common.metadata import paths
from boki_common.metadata.memory import MemoryTree
from boki_common.metadata.sqlite_tree import SqliteTree, open_database

NO_SESSION = 0


def load_copy(path: str | Path) -> tuple[MemoryTree, int]:
    """Read all nodes but the ephemeral ones into memory; also return the number of sessions.

    Raises:
        SettingsError: there is no such file. CorruptData: it is damaged. As `open_database`.
    """
    connection = open_database(str(path), create=False)
    try:
        tree = SqliteTree(connection, str(path))
        fault = tree.read(lambda: connection.execute("PRAGMA integrity_check(1)").fetchone()[0])
        if fault != "ok":
            raise CorruptData(f"{path} is damaged: {fault}; copy it again", path=str(path))
        rows = tree.read(
            lambda: connection.execute("SELECT path, value FROM nodes WHERE session IS NULL ORDER BY path").fetchall()
        )
        sessions = len(tree.read(tree.sessions))
    finally:
        connection.close()
    found = MemoryTree()
    for node, value in sorted(rows, key=lambda row: (row[0].count("/"), row[0])):
        if node != paths.ROOT:
            found.create(node, bytes(value), NO_SESSION)
    return found, sessions


def end_sessions(path: str | Path) -> int:
    """End all sessions, with their ephemeral nodes; return how many there were. No process may use the file.

    Raises:
        MetadataUnavailable: another process uses it. As `load_copy`.
    """
    connection = open_database(str(path), create=False)
    try:
        tree = SqliteTree(connection, str(path))

        def end() -> int:
            rows = tree.sessions()
            for row in rows:
                tree.end_session(row.session)
            return len(rows)

        return tree.write(end)
    finally:
        connection.close()
