"""Core's words as Slack shows them: pure, from models to Block Kit."""
