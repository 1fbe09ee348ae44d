"""Find, read and assign alerts; their cards, and the threads of these."""
