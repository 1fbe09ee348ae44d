"""Undo what a run did, or let it stand longer."""
