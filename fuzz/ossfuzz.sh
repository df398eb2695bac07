#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The build.sh of OSS-Fuzz and ClusterFuzzLite: builds every fuzz target with the compiler, flags and
# engine of the environment, and puts into $OUT what a machine needs that has nothing else:
#
#   NAME_fuzz                   one program per operation and per reader
#   NAME_fuzz_seed_corpus.zip   corpus/fuzz/NAME
#   NAME_fuzz.dict              fuzz/NAME.dict, where there is one
#   NAME_fuzz.options           of the operations: the longest input that the bytes of a case fill
#   lib/                        shared libraries, which the programs look for beside themselves
#
# scripts/check-ossfuzz runs it in the environment of OSS-Fuzz and looks at what came out.
#   --built DIR   package the targets of an existing build instead of making one
set -euo pipefail

fail() { echo "ossfuzz.sh: $*" >&2; exit 2; }

built=
case ${1:-} in
  '') ;;
  --built) built=${2:-}; [ -f "$built/build.ninja" ] || fail "--built: '$built' is no build, expected a folder with build.ninja" ;;
  *) fail "unknown option '$1', expected --built DIR" ;;
esac
for name in CC CXX CFLAGS CXXFLAGS LIB_FUZZING_ENGINE SANITIZER OUT WORK SRC; do
  [ -n "${!name+set}" ] || fail "$name is not set, expected the environment of OSS-Fuzz's base-builder"
done
for name in CC CXX LIB_FUZZING_ENGINE SANITIZER; do
  [ -n "${!name}" ] || fail "$name is empty, expected what OSS-Fuzz's base-builder sets"
done
for name in OUT WORK SRC; do
  [ -d "${!name}" ] || fail "$name: '${!name}' is no folder, expected one that exists"
done
cd "$(dirname "$0")/.."

readers=()
for source in fuzz/*_fuzz.cc; do
  name=$(basename "$source" _fuzz.cc)
  [ "$name" = op ] || readers+=("$name")
done

build() {
  # libfmt comes as a package that is built with libstdc++: our code has to use the same library.
  # Sums that wrap are meant wherever the type is unsigned; OSS-Fuzz counts them as coverage only.
  export CXXFLAGS="${CXXFLAGS//-stdlib=libc++/} -fno-sanitize=unsigned-integer-overflow"
  export CFLAGS="$CFLAGS -fno-sanitize=unsigned-integer-overflow"
  # What the build itself runs (op_replay --list-ops) may run where leaks cannot be looked for.
  export ASAN_OPTIONS=detect_leaks=0
  # Flags come from the environment alone, so the build has no type. Symbolizers elsewhere may not
  # read compressed debug information. With DT_RPATH instead of DT_RUNPATH the libraries find each
  # other as well. The archive of Highway lies in $SRC (.clusterfuzzlite/Dockerfile).
  cmake -S . -B "$built" -G Ninja -DCMAKE_BUILD_TYPE= -DQUALM_BUILD_TESTS=OFF \
    -DQUALM_COMPRESS_DEBUG=OFF -DQUALM_FUZZING_ENGINE="$LIB_FUZZING_ENGINE" \
    -DQUALM_CACHE_DIR="${QUALM_CACHE_DIR:-$SRC}" \
    "-DCMAKE_BUILD_RPATH=\$ORIGIN/lib" -DCMAKE_EXE_LINKER_FLAGS=-Wl,--disable-new-dtags
  cmake --build "$built" --target op_fuzz "${readers[@]/%/_fuzz}"
}

# Everything but what comes with glibc, which the machine has.
copy_libraries() {  # PROGRAM
  local name path
  mkdir -p "$OUT/lib"
  while read -r name _ path _; do
    case $name in
      linux-vdso.so.*|*/ld-linux*|libc.so.*|libm.so.*|libdl.so.*|libpthread.so.*|librt.so.*|libresolv.so.*) continue ;;
    esac
    [ -f "$path" ] || fail "$1: needs $name, which is not installed"
    cp -L "$path" "$OUT/lib/$name"
  done < <(ldd "$1")
}

package() {  # NAME PROGRAM
  local target=$OUT/$1_fuzz
  # op_fuzz takes its operation from its name. A link that does not survive an archive would be a
  # target that does nothing, hence no symbolic one.
  ln -f "$2" "$target" 2>/dev/null || cp -f "$2" "$target"
  python3 -m zipfile -c "${target}_seed_corpus.zip" corpus/fuzz/"$1"/*
  if [ -f "fuzz/$1.dict" ]; then cp "fuzz/$1.dict" "$target.dict"; fi
}

if [ -z "$built" ]; then
  built=$WORK/qualm
  build
fi
# One copy in $OUT, which the names of all operations link to.
rm -f "$OUT"/*_fuzz "$OUT/op"
cp "$built/bin/op_fuzz" "$OUT/op"
while read -r op; do
  package "$op" "$OUT/op"
  printf '[libfuzzer]\nmax_len = 4096\n' > "$OUT/${op}_fuzz.options"
done < "$built/fuzz/operations.txt"
rm "$OUT/op"
for reader in "${readers[@]}"; do package "$reader" "$built/bin/${reader}_fuzz"; done
for program in op "${readers[@]}"; do copy_libraries "$built/bin/${program}_fuzz"; done
