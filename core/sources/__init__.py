"""Alerts from what people own: each source sends its own bodies, a map makes alerts of them (core/docs/sources.md)."""
