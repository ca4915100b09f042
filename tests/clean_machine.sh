#!/bin/bash
# Tries Wren's two commands as a stranger would, in a bare Debian 12 root: make demo twice, as a user with sudo.
# Needs root that may mount, mmdebstrap, and some 2 GB in $TMPDIR. Slow (minutes): it fetches everything anew.
#   tests/clean_machine.sh [SUITE]       (default: bookworm)
# Exit codes: 0 passed, 1 failed, 77 this machine cannot make and enter such a root (it says why).
set -euo pipefail
repository=$(cd "$(dirname "$0")/.." && pwd)
suite=${1:-bookworm}

fail() { echo "clean_machine: FAILED: $*" >&2; exit 1; }
cannot() { echo "clean_machine: NOT RUN: $*" >&2; exit 77; }
install_mmdebstrap() { apt-get install -y --no-install-recommends mmdebstrap >/dev/null; }

[ "$(id -u)" = 0 ] || cannot "needs root to make and enter the bare root"
if ! command -v mmdebstrap >/dev/null; then
    install_mmdebstrap || { apt-get update >/dev/null && install_mmdebstrap; } || cannot "mmdebstrap cannot be installed"
fi

work=$(mktemp -d "${TMPDIR:-/tmp}/wren-clean.XXXXXX")
root=$work/root
cleanup() {
    for mount in "$root/proc" "$root/dev/shm" "$root/dev"; do
        if mountpoint -q "$mount"; then umount -l "$mount"; fi
    done
    rm -rf "$work"
}
trap cleanup EXIT
# told_by RUN PATTERN: that run has printed it
told_by() { grep -q "$2" "$work/$1.txt" || fail "the $1 run does not say “$2”"; }
step() { printf '\n== %s\n' "$*"; }

mkdir "$root"
mount -t tmpfs -o size=64k none "$root" 2>/dev/null || { rmdir "$root"; cannot "this root may not mount file systems"; }
umount "$root" && rmdir "$root"

step "a bare $suite root"
for attempt in 1 2 3; do
    # The machine's own package sources, so that mirrors and proxies are the ones set up here.
    if mmdebstrap --quiet --variant=minbase --include=ca-certificates,make,sudo "$suite" "$root" \
        < <(cat /etc/apt/sources.list.d/*.sources 2>/dev/null || cat /etc/apt/sources.list); then
        break
    fi
    [ "$attempt" != 3 ] || cannot "no bare root could be made from this machine's package sources (output above)"
    rm -rf "$root"
done
mount -t proc proc "$root/proc"
mount --bind /dev "$root/dev"
# A /dev/shm of its own, which JACK's library (PortAudio asks it) wants to write to; private, or the host would get it too.
mount --make-private "$root/dev"
mkdir -p "$root/dev/shm"
mount -t tmpfs -o mode=1777 none "$root/dev/shm"
# Name resolution, certificates and pip settings are the host's: a stranger's machine has its own.
cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
mkdir -p "$root/etc/ssl/certs"
cp -L /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
for place in /etc/pip.conf /etc/xdg/pip; do
    if [ -e "$place" ]; then mkdir -p "$root$(dirname "$place")" && cp -rL "$place" "$root$place"; fi
done

chroot "$root" useradd --create-home --shell /bin/bash stranger
echo 'stranger ALL=(ALL) NOPASSWD: ALL' > "$root/etc/sudoers.d/stranger"
git -c safe.directory='*' clone --quiet "$repository" "$root/home/stranger/wren"
chroot "$root" chown -R stranger: /home/stranger/wren

as_stranger() {
    # pip's own settings from the environment count too (certificates of a mirror, time-outs).
    chroot "$root" sudo -u stranger -H env -C /home/stranger/wren PATH=/usr/local/bin:/usr/bin:/bin \
        ${PIP_CERT:+PIP_CERT=/etc/ssl/certs/ca-certificates.crt} ${PIP_DEFAULT_TIMEOUT:+PIP_DEFAULT_TIMEOUT=$PIP_DEFAULT_TIMEOUT} \
        LANG=C.UTF-8 "$@"
}

step "make demo, the first time"
first=$SECONDS
as_stranger make demo 2>&1 | tee "$work/first.txt"
first=$((SECONDS - first))
told_by first 'wake     okay_nabu'
told_by first 'HassTurnOn'
told_by first 'Reply written'
told_by first 'needed: espeak-ng'

step "make demo, the second time"
second=$SECONDS
as_stranger make demo >"$work/second.txt" 2>&1 || { cat "$work/second.txt"; exit 1; }
second=$((SECONDS - second))
told_by second 'Reply written'
if grep -q 'needed:\|installing' "$work/second.txt"; then
    cat "$work/second.txt"
    fail "the second run installed something again"
fi

step "wren doctor"
as_stranger .venv/bin/wren doctor

step "make run: the page without a sound card"
# Longer than both waits below: who has ended says nothing more.
as_stranger timeout -s INT 90 make run >"$work/run.txt" 2>&1 &
runner=$!
served=
for _ in $(seq 1 50); do
    if as_stranger .venv/bin/python -c \
        'import urllib.request, urllib.error
try: urllib.request.urlopen("http://127.0.0.1:10380/", timeout=2)
except urllib.error.HTTPError: pass' 2>/dev/null; then
        served=yes
        break
    fi
    sleep 1
done
# The page comes first; what there is to hear with is told once it has been looked for.
told=
for _ in $(seq 1 30); do
    if grep -qi 'no microphone\|no sound' "$work/run.txt"; then
        told=yes
        break
    fi
    sleep 1
done
cat "$work/run.txt"
[ -n "$served" ] || fail "the page was not served"
[ -n "$told" ] || fail "make run does not say that there is no sound card"
pkill -INT -f '/home/stranger/wren/.venv/bin/wren run' || true
wait "$runner" || true

printf '\nclean_machine: passed on %s; first run %d s, second run %d s\n' "$suite" "$first" "$second"
