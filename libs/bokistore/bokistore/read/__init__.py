"""Reading objects: snapshots, cached and followed views, watches."""
