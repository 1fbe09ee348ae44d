"""Public clients of the same interface, unmodified (marker clients)."""
