#!/bin/sh
# Neovim 0.12 from Debian unstable in a folder of its own, without a chroot and without root:
#
#     tests/editors/nvim12.sh FOLDER        # about 50 MB; needs apt-get and patchelf
#     CLOVER_TEST_NVIM=FOLDER/nvim .venv/bin/python -m pytest tests/editors/test_nvim*.py
#
# Unstable moves on, so this is no part of `make test`, whose Neovim comes from the wheel.
set -eu

folder=${1:?usage: nvim12.sh FOLDER}
command -v patchelf >/dev/null || { echo "install patchelf first: apt-get install patchelf" >&2; exit 2; }
mkdir -p "$folder"
cd "$folder"
folder=$PWD
mkdir -p lists/partial cache/archives/partial packages root

keys=/usr/share/keyrings/debian-archive-keyring.gpg
mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
echo "deb [signed-by=$keys] $mirror sid main" >sources.list
apt() {
    command=$1; shift
    apt-get -qq -o Dir::Etc::sourcelist="$folder/sources.list" -o Dir::Etc::sourceparts=/dev/null \
        -o Dir::State::lists="$folder/lists" -o Dir::Cache="$folder/cache" "$command" "$@"
}
apt update
cd packages
rm -f ./*.deb
# The newest name where the name carries a version of the library.
newest() { apt_cache="$1"; command -v apt-cache >/dev/null && apt-cache -o Dir::Etc::sourcelist="$folder/sources.list" \
    -o Dir::Etc::sourceparts=/dev/null -o Dir::State::lists="$folder/lists" -o Dir::Cache="$folder/cache" \
    depends --no-recommends --no-suggests neovim | sed -n "s/^ *Depends: \($apt_cache.*\)$/\1/p" | head -1; }
apt download neovim neovim-runtime libc6 libgcc-s1 "$(newest libluajit)" "$(newest libtree-sitter)" \
    "$(newest libunibilium)" "$(newest libutf8proc)" "$(newest libuv1)" lua-lpeg lua-luv
for package in *.deb; do dpkg-deb -x "$package" "$folder/root"; done

libraries=$folder/root/usr/lib/$(uname -m)-linux-gnu
loader=$(find "$libraries" -maxdepth 1 -name 'ld-linux-*' | head -1)
patchelf --set-interpreter "$loader" --force-rpath --set-rpath "$libraries" "$folder/root/usr/bin/nvim"
cat >"$folder/nvim" <<END
#!/bin/sh
VIM=$folder/root/usr/share/nvim VIMRUNTIME=$folder/root/usr/share/nvim/runtime \\
    exec $folder/root/usr/bin/nvim "\$@"
END
chmod +x "$folder/nvim"
"$folder/nvim" --version | head -1
