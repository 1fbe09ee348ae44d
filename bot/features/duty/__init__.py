"""Who is asked to decide or to work on an alert, and who is when they don't answer."""
