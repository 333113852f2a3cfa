"""Retwis, the small social network that benchmarks of stores run, on BokiStore; and a trial that kills whatever it can while it checks it.

    python -m examples.retwis                     # a cluster of processes, workers, kill -9, a report: about half a minute

- `app` the operations · `mix` who does what how often · `worker` a process of clients that notes its answers
- `checks` what has to be true in the end · `trial` the cluster, the workers and what happens to them
"""
