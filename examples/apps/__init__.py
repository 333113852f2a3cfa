"""What the applications of the evaluation (`examples.hotel`, `examples.movie`) share: data behind a port, a service, load, a trial.

- `data` rows of a store, as applications see them · `application` what an application is to the rest of this folder
- `service` a process that answers requests over HTTP · `calls` one request that ends with a definite result · `load` many of them
- `trial` a cluster, services and load while they are killed · `page` how it stands, for people · `command` the command line
"""
