"""`make cluster` and `make cluster-down`: the cluster of `compose.yaml`, through Docker's compose plugin or without it.

    python -m deploy.cluster up       # secrets, containers; returns when `boki status --check` finds nothing wrong
    python -m deploy.cluster down     # containers, network, volumes and secrets: nothing is left

Secrets are made once: `build/cluster/token` is the user's own, `build/cluster/secrets/` what containers read, which belongs to their
user. All that is made carries the label of the project, and `down` removes by that label, so what a killed `up` left goes too.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

import docker
from docker.errors import APIError, DockerException, NotFound

from deploy.compose_file import Project, Service, parse
from deploy.images import BASE, ROOT, ImageMissing, ensure_public, has

FILE: Final = ROOT / "compose.yaml"
FOLDER: Final = ROOT / "build/cluster"
TOKEN: Final = FOLDER / "token"
USER: Final = 10001
"""Of the image."""
PROMETHEUS_USER: Final = 65534
"""Of Prometheus' image."""
READY_S: Final = 60.0
PAUSE_S: Final = 0.5
PROJECT: Final = "com.docker.compose.project"
SERVICE: Final = "com.docker.compose.service"


def up(client: docker.DockerClient, project: Project) -> float:
    """Starts what is not there, and waits until the cluster is whole. Returns the seconds. Raises ImageMissing, TimeoutError."""
    for image in sorted({service.image for service in project.services.values()}):
        if image.startswith("boki:") and not has(client, image):
            raise ImageMissing(f"expected the image {image}, found none: make image")
        ensure_public(client, image)
    _make_secrets(client, project)
    began = time.monotonic()
    if _has_plugin():
        subprocess.run(["docker", "compose", "--file", str(FILE), "up", "--detach"], cwd=ROOT, check=True)
    else:
        _start(client, project)
    _wait(client, project)
    return time.monotonic() - began


def down(client: docker.DockerClient, project: Project) -> None:
    """Removes all that carries the project's label, and the secrets."""
    mine: dict[str, str | list[str] | bool] = {"label": f"{PROJECT}={project.name}"}
    for container in client.containers.list(all=True, filters=mine):
        container.remove(force=True, v=True)
    for network in client.networks.list(filters=mine):
        network.remove()
    for volume in client.volumes.list(filters=mine):
        volume.remove(force=True)
    if FOLDER.exists():
        _as_root(client, project, "rm -rf /cluster/secrets")
        shutil.rmtree(FOLDER)


def _start(client: docker.DockerClient, project: Project) -> None:
    labels = {PROJECT: project.name}
    networks = {name: f"{project.name}_{name}" for name in project.networks}
    for full in networks.values():
        if not client.networks.list(names=[full]):
            client.networks.create(full, labels=labels)
    for name in project.volumes:
        client.volumes.create(f"{project.name}_{name}", labels=labels)
    for service in project.services.values():
        _start_one(client, project, service, next(iter(networks.values())))


def _start_one(client: docker.DockerClient, project: Project, service: Service, network: str) -> None:
    name = f"{project.name}-{service.name}-1"
    try:
        client.containers.get(name).start()
        return
    except NotFound:
        pass
    mounts = {f"{project.name}_{volume}": {"bind": path, "mode": "rw"} for volume, path in service.volumes}
    for secret in service.secrets:
        mounts[str(ROOT / project.secrets[secret])] = {"bind": f"/run/secrets/{secret}", "mode": "ro"}
    for config, path in service.configs:
        mounts[str(ROOT / project.configs[config])] = {"bind": path, "mode": "ro"}
    policy: Any = {"Name": service.restart} if service.restart != "no" else None
    container = client.containers.create(
        service.image,
        list(service.command) or None,
        name=name,
        hostname=service.hostname,
        environment=dict(service.environment),
        volumes=mounts,
        ports={f"{inside}/tcp": (host, outside) for host, outside, inside in service.ports},
        labels={PROJECT: project.name, SERVICE: service.name},
        restart_policy=policy,
        network=network,
        networking_config={network: client.api.create_endpoint_config(aliases=[service.name])},
    )
    container.start()


def _wait(client: docker.DockerClient, project: Project) -> None:
    """Until `boki status --check`, asked where the gateway runs, finds the whole cluster up."""
    deadline = time.monotonic() + READY_S
    asking = _container(client, project, "gateway")
    wanted = [name.partition("-")[0] for name in project.services]
    said = ""
    while time.monotonic() < deadline:
        try:
            code, output = asking.exec_run(["boki", "status", "--check", "--json", "--timeout", "2"])
        except APIError as error:
            code, output = 1, str(error).encode()
        said = output.decode(errors="replace")
        if code == 0 and _all_there(said, wanted):
            return
        time.sleep(PAUSE_S)
    raise TimeoutError(f"expected the cluster up within {READY_S:g} s, found:\n{said[-2000:]}")


def _all_there(said: str, wanted: list[str]) -> bool:
    """Whether as many of each role are up as the file has."""
    try:
        status: dict[str, Any] = json.loads(said.splitlines()[0])
    except (ValueError, IndexError):
        return False
    return all(
        sum(1 for part in status.get(f"{kind}s", ()) if part.get("up")) == wanted.count(kind)
        for kind in ("bookie", "sequencer", "engine", "controller")
    )


def _container(client: docker.DockerClient, project: Project, service: str) -> Any:
    filters: dict[str, str | list[str] | bool] = {"label": [f"{PROJECT}={project.name}", f"{SERVICE}={service}"]}
    (found,) = client.containers.list(all=True, filters=filters)
    return found


def _make_secrets(client: docker.DockerClient, project: Project) -> None:
    """The user's token, and files that the containers' user alone reads."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    if not TOKEN.exists():
        TOKEN.touch(mode=0o600)
        TOKEN.write_text(secrets.token_hex(32) + "\n")
    made = " && ".join(
        (
            "mkdir -p /cluster/secrets",
            "cp /cluster/token /cluster/secrets/token",
            f"(test -e /cluster/secrets/zookeeper_digest || echo boki:{secrets.token_hex(16)} > /cluster/secrets/zookeeper_digest)",
            f"chown -R {USER}:{USER} /cluster/secrets",
            "cp /cluster/token /cluster/secrets/prometheus_token",
            f"chown {PROMETHEUS_USER}:{PROMETHEUS_USER} /cluster/secrets/prometheus_token",
            "chmod 0700 /cluster/secrets",
            "chmod 0400 /cluster/secrets/*",
        )
    )
    _as_root(client, project, made)


def _as_root(client: docker.DockerClient, project: Project, command: str) -> None:
    """Only root may give files to the containers' user, and take them away again; a container is, on most machines."""
    client.containers.run(
        BASE,
        ["sh", "-c", command],
        remove=True,
        user="0:0",
        labels={PROJECT: project.name},
        volumes={str(FOLDER): {"bind": "/cluster", "mode": "rw"}},
        network_mode="none",
    )


def _has_plugin() -> bool:
    if shutil.which("docker") is None:
        return False
    return subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode == 0


def main() -> int:
    """`up` or `down`."""
    project = parse(Path(FILE).read_text(), os.environ)
    try:
        client = docker.from_env()
        client.ping()
    except DockerException as error:
        print(
            f"expected a Docker engine, found none that answers: {error}; start one, or set DOCKER_HOST",
            file=sys.stderr,
        )
        return 3
    if sys.argv[1:] == ["down"]:
        down(client, project)
        print("the cluster is gone, its data and secrets too")
        return 0
    if sys.argv[1:] != ["up"]:
        print(f"expected up or down, found {sys.argv[1:]}", file=sys.stderr)
        return 2
    try:
        seconds = up(client, project)
    except (ImageMissing, TimeoutError, APIError) as error:
        print(f"{error}\n(what was started is left to look at; make cluster-down removes it)", file=sys.stderr)
        return 1
    sdks, pages = (project.services[name].ports[0] for name in ("engine-1", "gateway"))
    print(f"the cluster is up after {seconds:.1f} s: {len(project.services)} containers")
    print(f"  SDKs       boki://{sdks[0]}:{sdks[1]}?token_file={TOKEN}")
    print(f"  status     http://{pages[0]}:{pages[1]}/ (any user name; the password is the token in {TOKEN})")
    if "grafana" in project.services:
        host, port, _ = project.services["grafana"].ports[0]
        print(f"  dashboard  http://{host}:{port}/")
    print("  end it     make cluster-down")
    return 0


if __name__ == "__main__":
    sys.exit(main())
