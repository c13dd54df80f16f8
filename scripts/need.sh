#!/bin/sh
# Makes sure that programs are installed: need.sh PROGRAM... Says what it installs and with what.
set -eu

for program in "$@"; do
	if command -v "$program" >/dev/null 2>&1; then
		continue
	fi
	case "$program" in
	redis-server) apt=redis-server brew=redis ;;
	node) apt=nodejs brew=node ;;
	npm) apt=npm brew=node ;;
	*) apt=$program brew=$program ;;
	esac
	if command -v apt-get >/dev/null 2>&1; then
		sudo=
		if [ "$(id -u)" -ne 0 ]; then
			sudo=sudo
		fi
		echo "$program is missing: installing the package $apt with apt-get"
		if ! $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -q "$apt"; then
			$sudo apt-get update -q
			$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -q "$apt"
		fi
	elif command -v brew >/dev/null 2>&1; then
		echo "$program is missing: installing $brew with brew"
		brew install "$brew"
	else
		echo "$program is missing and neither apt-get nor brew is here: please install it" >&2
		exit 1
	fi
	command -v "$program" >/dev/null 2>&1 || {
		echo "$program is still not in PATH" >&2
		exit 1
	}
done
