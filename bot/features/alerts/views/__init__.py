"""Cards of alerts, replies in their threads, and alerts in full. Pure."""
