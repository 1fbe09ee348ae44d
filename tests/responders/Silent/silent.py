"""Prints something and ends without an output file."""

import sys

sys.stdout.write("reading the mail\n")
sys.stdout.flush()
sys.stderr.write("no such mailbox\n")
sys.exit(3)
