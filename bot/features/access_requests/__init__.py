"""Ask for access, and decide who gets it."""
