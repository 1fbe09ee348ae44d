"""Slack's blocks, as all views use them: texts, elements, modals, ids, and how alerts and people are shown. Pure."""
