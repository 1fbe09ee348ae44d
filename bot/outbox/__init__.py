"""The durable queue to Slack (desired messages), the inbox of interactions, and what replicas share."""
