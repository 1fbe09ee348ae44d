"""Runs of one responder on several objects, after their start."""
