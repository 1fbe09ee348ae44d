"""Alerts that say the same, and the digest of a storm: their card and what its buttons do."""
