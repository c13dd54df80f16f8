#!/bin/sh
# Fails when a Go file is not formatted. Changes nothing.
set -eu

files=$(git ls-files -co --exclude-standard '*.go')
# shellcheck disable=SC2086
bad=$(gofmt -l $files)
if [ -n "$bad" ]; then
	echo "not formatted (run gofmt -w):" >&2
	echo "$bad" >&2
	exit 1
fi
