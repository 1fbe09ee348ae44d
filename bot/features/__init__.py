"""What people can do in Slack: a folder for each thing, with its handlers, and its views from models to Block Kit."""
