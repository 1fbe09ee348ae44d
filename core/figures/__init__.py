"""How long people took, counted where it happens (core/docs/stats.md)."""
