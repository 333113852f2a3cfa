"""The queue loads of Boki's evaluation, checked under kill -9: no message is lost, none is handled twice.

    python -m examples.queues                    # three loads, 20 seconds each
    python -m examples.queues --load 1:4         # one of them; --help lists the options

Each load starts a cluster of processes, producers that push at a fixed rate, and consumers, and kills a process every second. The command
prints messages and latencies by load, the kills, and whether the promise holds. Exit code 1 if it does not.

Read `worker` (producers and consumers), then `trial` (cluster, kills, checks).
"""
