"""What Kubernetes puts into the environment of every container, for each service of its namespace (`enableServiceLinks`)."""

from __future__ import annotations


def service_variables(service: str, *, port: int, name: str, address: str = "10.96.0.7") -> dict[str, str]:
    """The variables of one service with one TCP port.

    Args:
        service: its name, as `boki-engine`.
        port: of the service; name: what the port is called.
        address: of the service in the cluster.
    """
    prefix = service.upper().replace("-", "_")
    url = f"tcp://{address}:{port}"
    return {
        f"{prefix}_SERVICE_HOST": address,
        f"{prefix}_SERVICE_PORT": str(port),
        f"{prefix}_SERVICE_PORT_{name.upper().replace('-', '_')}": str(port),
        f"{prefix}_PORT": url,
        f"{prefix}_PORT_{port}_TCP": url,
        f"{prefix}_PORT_{port}_TCP_PROTO": "tcp",
        f"{prefix}_PORT_{port}_TCP_PORT": str(port),
        f"{prefix}_PORT_{port}_TCP_ADDR": address,
    }
