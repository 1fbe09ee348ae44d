"""Approve and deny runs, and end them."""
