"""Follows core's event feed and decides which messages must change: see bot/docs/delivery.md."""
