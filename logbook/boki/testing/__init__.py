"""A Boki cluster in memory, for tests of what is built on LogBooks.

    async with boki.testing.MemoryCluster() as cluster:
        client = await cluster.connect()
        seqnum = await client.book("orders").append(b"...", tags=["user/1"])

No process, socket, thread or file; nothing survives the cluster. The SDK is the real one, down to the bytes it sends: only
the engine behind it is a model, written apart from the real engine and held to the same conformance suite.

`virtual_time` runs a test on such a model in virtual time, with hosts that are killed and begun again.
`simulated` is for what a model cannot show: a real cluster on virtual time, with partitions, crashes and broken disks.
"""

from boki._arguments import tag_number
from boki.testing._cluster import MemoryCluster
from boki.testing._simulated import simulated, virtual_time

__all__ = ["MemoryCluster", "simulated", "tag_number", "virtual_time"]
