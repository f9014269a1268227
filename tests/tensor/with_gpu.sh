#!/bin/bash
# sotto, program...: runs the program where sotto finds a GPU that it can use.
"$1" info | grep -q '^GPU 0: ' || { echo "no GPU"; exit 77; }
shift
exec "$@"
