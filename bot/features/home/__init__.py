"""The App Home, and the same lists as commands."""
