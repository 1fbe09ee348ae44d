#!/bin/sh
# Waits a second and reports success, at next to no processor time: an interpreter's start would count for the machine.
sleep 1
mkdir -p "$1/output"
echo '{"success": true, "full": {}, "operations": []}' >"$1/output/output.json"
