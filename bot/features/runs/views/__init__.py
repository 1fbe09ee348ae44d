"""Questions, forms and lines of runs. Pure."""
