#!/bin/sh
# Installs the .deb of bin/release, runs a pod, upgrades the package while the pod runs, removes it, installs it again
# and purges it, with the real dpkg and the real agent. "make packages" runs it, as root.
#
# Nothing of this touches the machine: it runs in namespaces of its own, on an overlay of the machine's files. systemd
# cannot run there. test/packages/systemctl takes its place: it starts and stops what the unit says.
set -eu

cd "$(dirname "$0")/../.."
here=$PWD

if [ "${1-}" != inside ]; then
	[ "$(id -u)" = 0 ] || {
		echo "lifecycle: run as root" >&2
		exit 1
	}
	work=$(mktemp -d)
	export work
	clean() {
		# The namespaces are gone and with them all processes and mounts. Cgroups belong to the machine.
		find "/sys/fs/cgroup/$(basename "$work")" -depth -type d -exec rmdir {} + 2>/dev/null || true
		find /sys/fs/cgroup/*/"$(basename "$work")" -depth -type d -exec rmdir {} + 2>/dev/null || true
		rm -rf "$work"
	}
	trap clean EXIT
	trap 'exit 1' HUP INT TERM
	unshare --mount --pid --fork --kill-child --net --uts --ipc sh "$0" inside
	exit
fi

fail() {
	echo "lifecycle: $*" >&2
	cat "$new/var/log/berth.log" >&2 2>/dev/null || true
	exit 1
}
step() { echo "ok    $*"; }

# The machine's files, with changes in memory.
group=/$(basename "$work")
new=$work/root
mkdir -p "$work/memory" "$new"
mount -t tmpfs -o size=3G none "$work/memory"
mkdir "$work/memory/upper" "$work/memory/work"
mount -t overlay -o "lowerdir=/,upperdir=$work/memory/upper,workdir=$work/memory/work" none "$new"
mount -t proc proc "$new/proc"
for dir in dev sys; do
	mount --rbind /$dir "$new/$dir"
done
for dir in run tmp var/lib/berth; do
	mkdir -p "$new/$dir"
	mount -t tmpfs none "$new/$dir"
done
ip link set lo up 2>/dev/null || true

# Two versions of the package of this machine's architecture, with the program of bin/release.
arch=$(go env GOARCH)
name=$(basename "$(ls -d bin/release/*-"$arch".tar.gz)" .tar.gz)
tar -xzf "bin/release/$name.tar.gz" -C "$work"
for version in 1.0.0 1.1.0; do
	sh hack/package.sh "$arch" $version "$work/$name" "$new/tmp"
done
cp bin/workload.tar examples/hello.yaml "$new/tmp/"
rm -f "$new/etc/systemd/system/berth.service" "$new/usr/local/bin/berth"
mkdir -p "$new/run/systemd/system"
install -m 0755 test/packages/systemctl "$new/usr/bin/systemctl"
run() { chroot "$new" "$@"; }
old=/tmp/berth_1.0.0_$arch.deb
upgraded=/tmp/berth_1.1.0_$arch.deb

run dpkg -i $old >"$work/out" || fail "dpkg -i failed"
grep -q 'next: check the machine' "$work/out" || fail "the installation does not say what comes next: $(cat "$work/out")"
! run systemctl --quiet is-active berth.service || fail "the installation started the agent"
run berth version >"$work/out"
run berth init --print config | cmp - "$new/etc/berth/config.yaml"
step "install: the agent is there and not started"

# A user's change of the configuration. Pods get a cgroup of their own on this machine.
printf 'cgroupRoot: %s\n' "$group" >>"$new/etc/berth/config.yaml"
for dir in /sys/fs/cgroup /sys/fs/cgroup/*; do
	[ ! -e "$dir/cgroup.procs" ] || mkdir -p "$dir$group"
done
run systemctl enable --now berth.service
run berth image load /tmp/workload.tar >/dev/null || fail "image load failed"
run berth apply -f /tmp/hello.yaml >/dev/null || fail "apply failed"
ready() {
	for _ in $(seq 300); do
		! run berth get pods 2>/dev/null | grep -q '^hello .*Running' || return 0
		sleep 0.2
	done
	run berth describe pod hello >&2
	return 1
}
ready || fail "the pod is not ready"
processes() { pgrep -f '^/workload' | sort; }
processes >"$work/before"
[ -s "$work/before" ] || fail "no process of the pod is there"
agent=$(run systemctl pid)
step "start: a pod runs"

run dpkg -i $upgraded >"$work/out" || fail "the upgrade failed"
! grep -q 'next:' "$work/out" || fail "the upgrade says what only an installation says: $(cat "$work/out")"
[ "$(run systemctl pid)" != "$agent" ] || fail "the upgrade did not restart the agent"
ready || fail "the pod is not ready after the upgrade"
processes | cmp - "$work/before" || fail "processes of the pod changed in the upgrade"
grep -q "^cgroupRoot: $group" "$new/etc/berth/config.yaml" || fail "the upgrade changed the configuration"
step "upgrade: another agent, the same processes and configuration"

run dpkg -r berth >/dev/null || fail "dpkg -r failed"
! run systemctl --quiet is-active berth.service || fail "the agent runs after the removal"
! run systemctl --quiet is-enabled berth.service || fail "the unit is enabled after the removal"
[ ! -e "$new/usr/bin/berth" ] || fail "the program is there after the removal"
processes | cmp - "$work/before" || fail "processes of the pod changed in the removal"
step "remove: the agent is gone, its pod runs on"

run dpkg -i $upgraded >"$work/out" || fail "the second installation failed"
run systemctl enable --now berth.service
ready || fail "the pod is not ready after the second installation"
processes | cmp - "$work/before" || fail "processes of the pod changed in the second installation"
step "install again: the agent finds its pod"

run dpkg --purge berth >/dev/null || fail "dpkg --purge failed"
[ -z "$(processes)" ] || fail "processes of the pod run after the purge"
for path in /usr/bin/berth /etc/berth /var/lib/berth-purge /usr/lib/systemd/system/berth.service; do
	[ ! -e "$new$path" ] || fail "$path is there after the purge"
done
[ -z "$(ls -A "$new/var/lib/berth")" ] || fail "state is there after the purge: $(ls "$new/var/lib/berth")"
! grep -q "$new/var/lib/berth/" /proc/self/mountinfo || fail "mounts are there after the purge"
step "purge: pod, state and configuration are gone"

run dpkg -i $old >/dev/null
run dpkg --purge berth >/dev/null || fail "the purge of a package that never ran failed"
step "purge: also without a state"
