#!/bin/sh
# Refreshes isbot.txt from the npm package isbot: refresh.sh VERSION. Needs npm and node. Run the tests afterwards: they hold the list to
# testdata/agents.txt, and fail on a pattern that the reader doesn't understand.
set -eu
version=$1
here=$(cd "$(dirname "$0")" && pwd)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

cd "$dir"
npm pack --silent "isbot@$version" >/dev/null
tar xzf isbot-*.tgz
node --input-type=module -e '
import { list } from "./package/index.mjs";
import { readFileSync } from "node:fs";
const { name, version, license, homepage } = JSON.parse(readFileSync("./package/package.json"));
console.log(`# The patterns of ${name} ${version} (${homepage}), licence: ${license}. Made by refresh.sh; not edited by hand.`);
console.log("# Regular expressions of JavaScript, one a line, matched without regard to case.");
for (const p of list) console.log(p);
' >"$here/isbot.txt"
