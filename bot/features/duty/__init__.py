"""Who is asked to decide, and who is when they don't answer."""
