"""What the store in a file wants to know of its machine: who this process is, and on what file system the file lies."""

from __future__ import annotations

import os
from typing import Final

from boki_common.errors import (
    WrongDirectory,
)
from boki_common.metadata.liveness import UNKNOWN_START, process_started

NETWORK_FILE_SYSTEMS: Final = frozenset(
    ("afs", "beegfs", "ceph", "cifs", "fuse.ceph", "fuse.glusterfs", "fuse.s3fs", "fuse.sshfs", "glusterfs", "gpfs")
    + ("lustre", "ncpfs", "nfs", "nfs4", "ocfs2", "smb3", "smbfs")
)


def process_identity() -> tuple[str, int, int, str]:
    """Boot id, pid, when the process started (in clock ticks since boot), pid namespace; empty where there is no /proc."""
    pid = os.getpid()
    started = process_started(pid) or UNKNOWN_START
    return _read_text("/proc/sys/kernel/random/boot_id").strip(), pid, started, _pid_namespace()


def _pid_namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _read_text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def refuse_network_file_system(path: str) -> None:
    kind = file_system_of(os.path.realpath(os.path.dirname(path)), _read_text("/proc/self/mounts"))
    if kind in NETWORK_FILE_SYSTEMS:
        raise WrongDirectory(
            f"{path} is on a network file system ({kind}), where SQLite's locks do not hold: expected a local disk. "
            "Use a local path, or ZooKeeper for several machines (zk://host:port)",
            path=path,
            found=kind,
        )


def file_system_of(folder: str, mounts: str) -> str:
    """The type of the file system that holds `folder`, by the longest mount point of a /proc/self/mounts; else empty."""
    best, kind = "", ""
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = fields[1].replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")
        inside = point == "/" or folder == point or folder.startswith(point + "/")
        if inside and len(point) >= len(best):
            best, kind = point, fields[2]
    return kind
