"""Whether what clients were told is what happened."""
