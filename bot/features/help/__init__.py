"""What somebody can do, and why something doesn't work."""
