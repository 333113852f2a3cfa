"""Tests of stores: histories of transactions checked for cycles (`cycles`), and what `boki sim run --profile store` runs (`simulated`)."""
