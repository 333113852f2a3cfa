"""Stops a child process as a whole.

SIGSTOP is sent, not done, when `kill` returns: a thread that runs on another core goes on until the kernel comes by, and a server of many
threads, such as a JVM on a busy machine, may answer one more question. What a test says of a server that is stopped begins when it is.
"""

import os
import signal


def stop_child(pid: int) -> None:
    """SIGSTOP to a child of this process. Returns when all its threads have stopped, or when it has ended."""
    os.kill(pid, signal.SIGSTOP)
    os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
