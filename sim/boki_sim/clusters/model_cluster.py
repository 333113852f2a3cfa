"""A cluster that is a model: one machine, whose engine is `boki.testing`'s, on the network of the simulation.

For programs of which the cluster itself is not the subject: a hundred times cheaper than real roles, and idle time costs next to
nothing. What meets programs is the same (`host_faults`); the model is never killed, for it has no disk.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from boki.testing._engine import ModelEngine
from boki.testing._model import Model
from boki_common.net.connection import Address
from boki_common.net.messages import serve_messages
from boki_common.net.strangers import BEFORE_FIRST_FRAME
from boki_sim.clusters.cluster import ENGINE_PORT, Cluster, SimClock
from boki_sim.clusters.shape import Shape
from boki_sim.world.process import SimProcess

NAME: Final = "model"


def without_roles(shape: Shape) -> Shape:
    """The same weather, and nobody there."""
    return replace(shape, bookies=0, sequencers=0, engines=0, controllers=0, clients=0, logs=1, clock_rate=1.0)


async def start_model(cluster: Cluster) -> tuple[SimProcess, str]:
    """Starts it, in a process of its own; returns that and the URL for `boki.connect`."""
    process = cluster.loop.process(NAME, cluster.machine())
    clock = SimClock(cluster.loop)

    async def serve() -> None:
        engine = ModelEngine(Model(), clock)
        await serve_messages(Address(process.host, ENGINE_PORT), lambda _: engine, strangers=BEFORE_FIRST_FRAME)

    await process.start(serve(), name=NAME)
    return process, f"boki://{process.host}:{ENGINE_PORT}"
