"""The paper's queue loads on processes that are killed: no message is lost, none comes twice (`python -m examples.queues`)."""
