# What the scripts beside it share. To be sourced at the top of the repository.
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
target=x86_64-unknown-linux-gnu
# The oldest glibc that the program runs with: Debian 10, Ubuntu 20.04, RHEL 8 and all later ones.
glibc=2.28
dist=$PWD/dist
work=${CARGO_TARGET_DIR:-$PWD/target}/packaging
# Times in the artefacts: that of the commit.
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

# Installs Debian packages of which a command is missing: need COMMAND PACKAGE…
need() {
  command -v "$1" >/dev/null && return
  shift
  echo "installing $*"
  as_root apt-get update -qq
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

# A Python environment with what requirements.txt names.
venv() {
  if [ ! "$work/venv/installed" -nt packaging/requirements.txt ]; then
    rm -rf "$work/venv"
    python3 -m venv "$work/venv"
    "$work/venv/bin/pip" install --quiet --disable-pip-version-check -r packaging/requirements.txt
    touch "$work/venv/installed"
  fi
}
