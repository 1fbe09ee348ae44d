"""What can run on an object, and why the rest can't."""
