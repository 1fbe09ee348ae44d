"""Schema-driven fuzzing of core (marker fuzz)."""
