"""Commands about the cluster: status, what is gone for good, and how they find its metadata."""
