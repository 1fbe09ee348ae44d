"""The App Home and its lists. Pure."""
