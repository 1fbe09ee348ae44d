"""Create case templates."""
