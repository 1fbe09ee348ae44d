#!/bin/sh
# Reports as many bytes as its parameters say.
bytes=$(grep -o '"bytes": *[0-9]*' "$1/input/input.json" | grep -o '[0-9]*')
mkdir -p "$1/output"
{
  printf '{"success": true, "full": {"text": "'
  head -c "$bytes" /dev/zero | tr '\0' x
  printf '"}, "operations": []}'
} >"$1/output/output.json"
