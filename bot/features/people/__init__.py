"""Org-admins manage people and groups from the App Home."""
