"""Make a case from an alert."""
