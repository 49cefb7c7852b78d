#!/bin/sh
# Installs the library into a folder of its own and builds the consumers against that folder alone,
# through CMake's package and through pkg-config.
# usage: install_test.sh BUILD_DIR CONSUMER_DIR
set -eu
build=$1
consumer=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cmake --install "$build" --prefix "$work/prefix" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
cmake -G Ninja -S "$consumer" -B "$work/build" -DCMAKE_PREFIX_PATH="$work/prefix" >"$work/log" 2>&1 &&
  cmake --build "$work/build" >>"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
"$work/build/consumer_c"
"$work/prefix/bin/engramctl" version
"$work/build/consumer_cpp"
libdir=$(dirname "$(find "$work/prefix" -name pkgconfig)")
flags=$(PKG_CONFIG_PATH="$libdir/pkgconfig" pkg-config --cflags --libs engram)
# shellcheck disable=SC2086
cc -std=c99 -Wall -Wextra -Werror -pedantic "$consumer/main.c" $flags -o "$work/by_pkg_config"
LD_LIBRARY_PATH=$libdir "$work/by_pkg_config"
