"""Speed, as ratios in one run: `python -m tests.bench [NAME ...]`."""
