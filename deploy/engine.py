"""A Docker engine for who has none: `python -m deploy.engine COMMAND…` runs a command that finds one.

Where an engine answers already, the command simply runs. Else, as root and with `dockerd` installed, an engine of our own is started
for as long as the command runs, on its own data root (`BOKI_DOCKER_ROOT`, /var/tmp/boki-docker), which keeps images for the next time.
It ends with this process, however that ends, and its containers with it: the kernel tells it. Otherwise the reason is said, and
the command runs without an engine: what needs one skips itself, or fails where `BOKI_REQUIRE` names `containers`.
"""

from __future__ import annotations

import ctypes
import gc
import os
import shutil
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Final

import docker
from docker.errors import DockerException

START_S: Final = 60.0
STOP_S: Final = 60.0
PAUSE_S: Final = 0.2
PR_SET_PDEATHSIG: Final = 1
TESTCONTAINERS: Final = {"TESTCONTAINERS_RYUK_DISABLED": "true"}


class EngineMissing(Exception):
    """No engine answers, and none can be started; the message says why."""


def answers(url: str | None = None) -> bool:
    """Whether an engine answers there, or where the environment says."""
    with warnings.catch_warnings():
        # Docker's client leaves the socket open that it could not connect.
        warnings.simplefilter("ignore", ResourceWarning)
        found = _ping(url)
        gc.collect()
    return found


def _ping(url: str | None) -> bool:
    try:
        client = docker.from_env() if url is None else docker.DockerClient(base_url=url)
    except DockerException:
        return False
    try:
        return bool(client.ping())
    except DockerException:
        return False
    finally:
        client.close()


def start(root: Path) -> tuple[subprocess.Popen[bytes], str]:
    """An engine of our own, and where it answers. Raises EngineMissing."""
    if os.geteuid() != 0:
        raise EngineMissing("no engine answers, and only root may start one")
    if shutil.which("dockerd") is None:
        raise EngineMissing(
            "no engine answers, and dockerd is not installed; on Debian: apt-get install docker.io iptables"
        )
    root.mkdir(parents=True, exist_ok=True)
    url = f"unix://{root}/docker.sock"
    log = root / "dockerd.log"
    with log.open("wb") as output:
        engine = subprocess.Popen(
            [
                *("dockerd", "--data-root", str(root / "data"), "--exec-root", str(root / "exec")),
                *("--pidfile", str(root / "dockerd.pid"), "--host", url),
            ],
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=_end_with_parent,
        )
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and engine.poll() is None:
        if answers(url):
            return engine, url
        time.sleep(PAUSE_S)
    stop(engine)
    raise EngineMissing(f"dockerd does not answer within {START_S:g} s; the end of its log:\n{log.read_text()[-2000:]}")


def stop(engine: subprocess.Popen[bytes]) -> None:
    """Ends an engine, and its containers with it."""
    engine.terminate()
    try:
        engine.wait(STOP_S)
    except subprocess.TimeoutExpired:
        engine.kill()
        engine.wait()


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def main() -> int:
    """Runs the command of the arguments."""
    command = sys.argv[1:]
    if not command:
        print("expected a command to run, found none", file=sys.stderr)
        return 2
    if answers():
        return subprocess.call(command, env={**os.environ, **TESTCONTAINERS})
    try:
        engine, url = start(Path(os.environ.get("BOKI_DOCKER_ROOT", "/var/tmp/boki-docker")))
    except EngineMissing as error:
        print(f"engine: {error}", file=sys.stderr)
        return subprocess.call(command)
    print(f"engine: one of our own answers at {url}", file=sys.stderr)
    try:
        return subprocess.call(command, env={**os.environ, **TESTCONTAINERS, "DOCKER_HOST": url})
    finally:
        stop(engine)


if __name__ == "__main__":
    sys.exit(main())
