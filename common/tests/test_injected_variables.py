"""What Kubernetes puts into the environment is distinguished from what a person sets."""

from __future__ import annotations

import pytest

from boki_common.injected_variables import injected
from boki_common.testing.kubernetes import service_variables


@pytest.mark.parametrize("service", ["boki", "boki-engine", "boki-gateway", "boki-bookie"])
def test_all_that_is_made_for_a_service_is_known(service: str) -> None:
    made = service_variables(service, port=7040, name="sdk")
    assert injected(made) == made.keys()


def test_what_a_person_sets_is_not() -> None:
    said = {
        "BOKI_GATEWAY_PORT": "7080",
        "BOKI_ENGINE_SERVICE_HOST": "10.0.0.1",
        "BOKI_ENGINE_SERVICE_PORT": "7040",
        "BOKI_METADATA": "zk://zk:2181",
        "BOKI_ENGINE_PORT": "tcp://",
    }
    assert injected(said) == frozenset()
