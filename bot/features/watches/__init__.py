"""Direct messages about runs that somebody wants to hear of."""
