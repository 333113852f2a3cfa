"""Files for systemd, Kubernetes, Prometheus and Grafana say what those understand, and name settings and metrics that exist."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import kubernetes_validate
import pytest
import yaml

from boki_cli.roles import process_settings
from boki_common.metrics import MetricDefinition
from boki_common.testing.kubernetes import service_variables
from deploy.compose_file import parse
from deploy.images import ROOT

ROLES: Final = ("bookie", "sequencer", "engine", "controller", "gateway")
UNITS: Final = ROOT / "deploy/systemd"
MANIFEST: Final = ROOT / "deploy/kubernetes/boki.yaml"
MONITORING: Final = ROOT / "deploy/monitoring"
METRICS_PORT: Final = "7079"
DEFINED_IN: Final = ("boki_bookie", "boki_common", "boki_gateway", "boki_ledger", "boki_logbook", "boki_metalog")
OF_HISTOGRAMS: Final = re.compile(r"_(bucket|sum|count)$")


def manifests() -> list[Any]:
    return list(yaml.safe_load_all(MANIFEST.read_text()))


def workloads() -> Mapping[str, Any]:
    """By role: what has pods."""
    return {
        one["metadata"]["name"].removeprefix("boki-"): one["spec"]
        for one in manifests()
        if one["kind"] in ("StatefulSet", "Deployment")
    }


def test_systemd_understands_the_units(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze on this machine")
    command = Path(sys.executable).with_name("boki")
    units = []
    for path in sorted(UNITS.glob("boki*.service")) + sorted(UNITS.glob("*.target")):
        units.append(tmp_path / path.name)
        units[-1].write_text(path.read_text().replace("/usr/local/bin/boki", str(command)))
    assert len(units) == len(ROLES) + 1
    done = subprocess.run(["systemd-analyze", "verify", *units], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and not done.stderr, done.stderr


@pytest.mark.parametrize("role", ROLES)
def test_a_unit_starts_its_role_with_settings_that_exist(role: str, monkeypatch: pytest.MonkeyPatch) -> None:
    unit = (UNITS / f"boki-{role}.service").read_text()
    assert f"ExecStart=/usr/local/bin/boki {role}\n" in unit
    lines = [*(UNITS / "boki.env").read_text().splitlines(), *re.findall(r"^Environment=(.+)$", unit, re.MULTILINE)]
    for line in lines:
        if not line.startswith("#"):
            name, _, value = line.partition("=")
            monkeypatch.setenv(name, value)
    assert process_settings(None, {}).token_file == "/etc/boki/token"


def test_every_manifest_is_of_its_schema() -> None:
    for one in manifests():
        kubernetes_validate.validate(one, kubernetes_validate.latest_version(), strict=True)
    assert set(workloads()) == set(ROLES)


def test_a_schema_finds_what_is_wrong() -> None:
    wrong = next(one for one in manifests() if one["kind"] == "StatefulSet")
    wrong["spec"]["replicas"] = "three"
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, kubernetes_validate.latest_version(), strict=True)


@pytest.mark.parametrize("role", ROLES)
def test_pods_have_settings_that_exist_and_none_of_services(role: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pod = workloads()[role]["template"]["spec"]
    assert pod["enableServiceLinks"] is False and pod["securityContext"]["runAsUser"] == 10001
    (container,) = pod["containers"]
    assert container["args"] == [role]
    (common,) = (one["data"] for one in manifests() if one["kind"] == "ConfigMap")
    own = {one["name"]: one.get("value", f"boki-{role}-0") for one in container["env"]}
    pod_name = own.pop("POD_NAME", "")
    # As if somebody had the variables of services switched on.
    everything = {**service_variables(f"boki-{role}", port=7040, name="main"), **common, **own}
    for name, value in everything.items():
        monkeypatch.setenv(name, value.replace("$(POD_NAME)", pod_name))
    settings = process_settings(None, {})
    mounts = {one["mountPath"] for one in container["volumeMounts"]}
    assert str(Path(settings.token_file).parent) in mounts and not settings.insecure
    advertised = {
        "bookie": settings.bookie.host,
        "sequencer": settings.sequencer.advertise,
        "controller": settings.controller.advertise,
        "engine": ",".join(settings.engine.advertise),
    }.get(role)
    assert advertised in (None, f"boki-{role}-0.boki-{role}")


def test_bookies_have_names_and_disks_that_stay() -> None:
    bookies = workloads()["bookie"]
    (claim,) = bookies["volumeClaimTemplates"]
    (container,) = bookies["template"]["spec"]["containers"]
    assert {"name": claim["metadata"]["name"], "mountPath": "/var/lib/boki"} in container["volumeMounts"]
    service = next(one for one in manifests() if one["metadata"]["name"] == bookies["serviceName"])
    assert service["spec"]["clusterIP"] == "None" and service["spec"]["publishNotReadyAddresses"]


def test_prometheus_asks_every_role_of_the_cluster_with_its_token() -> None:
    project = parse((ROOT / "compose.yaml").read_text(), {"COMPOSE_PROFILES": "monitoring"})
    (job,) = yaml.safe_load((MONITORING / "prometheus.yml").read_text())["scrape_configs"]
    asked = {target: one["labels"]["role"] for one in job["static_configs"] for target in one["targets"]}
    roles = {name: service for name, service in project.services.items() if service.image.startswith("boki:")}
    assert asked == {f"{name}:{METRICS_PORT}": service.command[0] for name, service in roles.items()}
    for service in roles.values():
        assert service.environment["BOKI_METRICS_LISTEN"].endswith(f":{METRICS_PORT}")
        assert service.hostname in service.environment["BOKI_ALLOWED_HOSTS"].split(",")
    (secret,) = project.services["prometheus"].secrets
    assert job["authorization"] == {"credentials_file": f"/run/secrets/{secret}"}


def test_grafana_finds_its_source_and_its_dashboard() -> None:
    project = parse((ROOT / "compose.yaml").read_text(), {"COMPOSE_PROFILES": "monitoring"})
    targets = {project.configs[name]: target for name, target in project.services["grafana"].configs}
    (source,) = yaml.safe_load((MONITORING / "datasource.yaml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"
    (provider,) = yaml.safe_load((MONITORING / "dashboards.yaml").read_text())["providers"]
    dashboard = targets["deploy/monitoring/dashboard.json"]
    assert os.path.dirname(dashboard) == provider["options"]["path"]
    assert project.services["grafana"].environment["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"] == dashboard
    for panel in json.loads((MONITORING / "dashboard.json").read_text())["panels"]:
        assert panel["datasource"]["uid"] == source["uid"] and panel["description"]


def test_dashboards_show_metrics_that_there_are() -> None:
    known = {one.name for one in definitions()}
    panels = json.loads((MONITORING / "dashboard.json").read_text())["panels"]
    asked = [
        name
        for panel in panels
        for target in panel["targets"]
        for name in re.findall(r"boki_[a-z0-9_]+", target["expr"].replace('job="boki"', ""))
    ]
    assert len(asked) > len(panels)
    assert {OF_HISTOGRAMS.sub("", name) for name in asked} <= known


def definitions() -> Iterator[MetricDefinition]:
    for package in DEFINED_IN:
        found = vars(importlib.import_module(f"{package}.metric_definitions")).values()
        yield from (one for one in found if isinstance(one, MetricDefinition))
