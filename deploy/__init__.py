"""Boki in containers: its image, a cluster from `compose.yaml`, and an engine of Docker's for who has none. Used by the Makefile."""
