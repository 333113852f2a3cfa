"""Shared parts of the applications of the evaluation, `examples.hotel` and `examples.movie`.

| module | has |
|---|---|
| `application` | the interface between an application and the rest of this folder |
| `row_store`, `table_row_store` | storage of rows: objects of a BokiStore, or tables of Cassandra |
| `service` | a process that answers requests over HTTP |
| `service_client`, `load` | a request until its result is definite; many of them |
| `trial`, `page` | a cluster, services and load while processes are killed; its status page |
| `command` | the command line |
"""
