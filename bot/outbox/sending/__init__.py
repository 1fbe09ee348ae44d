"""Make Slack show the desired messages and files: in which order, how fast, and nothing twice."""
