#!/bin/sh
# Runs the systemd of this machine as the first process of namespaces of its own. It starts one
# unit of Leasehold and nothing else, and ends when this script gets SIGTERM.
#
#   unshare --mount systemd.sh WORK UNIT PROGRAM USER...
#
# WORK is an empty directory. WORK/data becomes /var/lib/leasehold, PROGRAM becomes
# /usr/local/bin/leasehold, and each USER (name:uid) a user of the system. What is written to
# /etc, /run, /tmp, /var/tmp and /var/cache there is gone with it.
set -eu

work=$1 unit=$2 program=$3
shift 3
mkdir "$work/bin" "$work/units"
cp "$program" "$work/bin/leasehold"
cp "$unit" "$work/units/leasehold.service"
cd "$work"
mkdir data groups units/leasehold.service.d
# No other unit is there to wait for, and no journal.
cat >units/leasehold.service.d/test.conf <<'UNIT'
[Unit]
DefaultDependencies=no
[Service]
StandardOutput=append:/run/leasehold.log
StandardError=append:/run/leasehold.log
UNIT

mount --make-rprivate /
mkdir -p /var/lib/leasehold
mount --bind data /var/lib/leasehold
mount --bind bin /usr/local/bin
# systemd keeps the control groups of its units below its own.
mount -t cgroup2 none groups
group=groups/leasehold-test-$$
mkdir "$group"
(
	sh -c 'echo $PPID' >"$group/cgroup.procs"
	# shellcheck disable=SC2016
	exec unshare --cgroup --pid --fork --kill-child=KILL --mount --mount-proc --uts sh -euc '
		mount -t tmpfs -o mode=755 none /run
		mkdir -p /run/systemd /run/etc/upper /run/etc/work
		cp -r units /run/systemd/system
		mount -t overlay -o lowerdir=/etc,upperdir=/run/etc/upper,workdir=/run/etc/work none /etc
		for user; do
			name=${user%:*} id=${user#*:}
			echo "$name:x:$id:$id::/var/lib/leasehold:/usr/sbin/nologin" >>/etc/passwd
			echo "$name:x:$id:" >>/etc/group
		done
		chown "${1%:*}" /var/lib/leasehold
		chmod 700 /var/lib/leasehold
		mount -t tmpfs -o mode=1777 none /tmp
		mount -t tmpfs -o mode=1777 none /var/tmp
		mount -t tmpfs -o mode=755 none /var/cache
		umount --recursive /sys/fs/cgroup 2>/dev/null || true
		mount -t cgroup2 none /sys/fs/cgroup
		cd /
		exec env -i container=other PATH=/usr/sbin:/usr/bin:/sbin:/bin \
			/lib/systemd/systemd --log-target=null --show-status=no
	' sh "$@"
) &
pid=$!
# With the first process of their namespace all others end.
trap 'kill -KILL $(cat "/proc/$pid/task/$pid/children")' TERM
wait $pid || wait $pid || true
find "$group" -depth -type d -exec rmdir {} +
