"""A shop on all three libraries: each order is handled exactly once while processes are killed and some orders run into bad code.

    python -m examples.orders

Runs for about a minute: it starts a cluster of processes and workers, pushes orders to a queue, and kills a process every second. It
prints how many orders were handled and how long good ones took, how each order ended that went wrong and which `boki` command shows
more of it, and whether each of four promises holds. Exit code 1 if one does not. `--help` lists the options.

Read `app` (the queue handler and the workflow), then `wrong` (bad code that some orders meet), `worker`, `checks` (the promises) and
`trial`.
"""
