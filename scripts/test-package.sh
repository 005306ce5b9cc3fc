#!/usr/bin/env bash
# Installs the .deb of the commit in a Debian of its own, under the real systemd there: configures,
# uses, upgrades, downgrades, removes and purges it, and looks at what each of these leaves. A real
# Chromium has a page open meanwhile, and a worker goes on with it after each of them. Then the same
# with the .rpm, by the rpm of that Debian, and with services as Red Hat has them: none is enabled
# by itself. Needs root.
#
# The Debian is made once, in build/package/debian, from the mirror that apt uses here. Each run
# works on a layer above it, in namespaces of its own: its mounts, its network and its processes end
# with this script, however it ends.
set -euo pipefail
cd "$(dirname "$0")/.."
go=${GO:-go}
work=$PWD/build/package
version=$(cat VERSION)
arch=$(dpkg --print-architecture)
rpm_arch=$(uname -m)
before=0.0.1

prepare() {
	[ "$(id -u)" -eq 0 ] || { echo "scripts/test-package.sh: want root, to make a system of its own" >&2; exit 1; }
	missing=()
	command -v debootstrap >/dev/null || missing+=(debootstrap)
	command -v lintian >/dev/null || missing+=(lintian)
	command -v ip >/dev/null || missing+=(iproute2)
	[ ${#missing[@]} -eq 0 ] || scripts/apt-install.sh "${missing[@]}"

	# The version before is the same commit, but for what it says of its version.
	rm -rf "$work/before"
	git clone -q . "$work/before"
	echo "$before" >"$work/before/VERSION"
	git -C "$work/before" -c user.name=test -c user.email=test@localhost commit -qam "version $before"
	release . "$work/dist"
	release "$work/before" "$work/dist-before"
	rm -rf "$work/before"
	CGO_ENABLED=0 "$go" build -trimpath -o "$work/page" ./internal/test/page
	[ -x "$work/debian/usr/bin/rpm" ] || make_debian
}

# release makes the packages of a tree, in a directory.
release() { DIST=$2 ARCHES=$arch MAC_ARCHES= "$1/scripts/release.sh" >/dev/null; }

# make_debian installs Debian with systemd and Chromium, from where apt gets them here.
make_debian() {
	local made=$work/debian.new sources mirror codename
	rm -rf "$made"
	# shellcheck disable=SC2016 # these are for apt
	sources=$(apt-get indextargets --format '$(REPO_URI) $(CODENAME) $(COMPONENT) $(LABEL)' 'Created-By: Packages' |
		awk '$4 ~ /^Debian/ {print "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]", $1, $2, $3}' | sort -u)
	codename=$(. /etc/os-release && echo "$VERSION_CODENAME")
	mirror=$(awk -v suite="$codename" '$4 == suite {print $3; exit}' <<<"$sources")
	echo "making a Debian of $mirror"
	debootstrap --variant=minbase --cache-dir=/var/cache/apt/archives "$codename" "$made" "$mirror" >"$work/debian.log"
	echo "$sources" >"$made/etc/apt/sources.list"
	printf '#!/bin/sh\nexit 101\n' >"$made/usr/sbin/policy-rc.d" # nothing is started
	chmod 755 "$made/usr/sbin/policy-rc.d"
	export DEBIAN_FRONTEND=noninteractive
	chroot "$made" apt-get -qq update
	chroot "$made" apt-get -qq install --yes --no-install-recommends systemd dbus chromium curl procps rpm >>"$work/debian.log"
	rm "$made/usr/sbin/policy-rc.d"
	mv "$made" "$work/debian"
}

# boot starts the systemd of the layer as the first process of its namespace, and sets first.
boot() {
	ip link set lo up
	mount -t tmpfs -o mode=755 none "$work/layer"
	mkdir "$work"/layer/{upper,work,root,groups}
	mount -t overlay -o "lowerdir=$work/debian,upperdir=$work/layer/upper,workdir=$work/layer/work" none "$work/layer/root"
	cp "$work"/dist{,-before}/*.{deb,rpm} "$work/page" "$work/layer/root/opt/"
	# systemd keeps the control groups of its units below its own.
	mount -t cgroup2 none "$work/layer/groups"
	group=$(mktemp -d "$work/layer/groups/leasehold-package-XXXXXX")
	chmod 755 "$group"
	# shellcheck disable=SC2016
	(
		sh -c 'echo $PPID' >"$group/cgroup.procs"
		exec unshare --cgroup --pid --fork --kill-child=KILL --mount --uts sh -euc '
			cd "$1"
			mount -t proc proc proc
			mount -t sysfs -o ro sysfs sys
			mount -t cgroup2 none sys/fs/cgroup
			mount --rbind /dev dev
			mount -t tmpfs -o mode=755 none run
			mount -t tmpfs -o mode=1777 none tmp
			mkdir tmp/old
			pivot_root . tmp/old
			umount -l /tmp/old
			hostname package
			exec env -i container=other PATH=/usr/sbin:/usr/bin:/sbin:/bin \
				/lib/systemd/systemd --unit=multi-user.target --log-target=null --show-status=no
		' sh "$work/layer/root"
	) >"$work/boot.log" 2>&1 &
	namespace=$!
	trap end EXIT
	await "systemd to have started" booted
}

booted() {
	first=$(cat "/proc/$namespace/task/$namespace/children") && first=${first// /} && [ -n "$first" ] &&
		inside systemctl is-system-running 2>/dev/null | grep -E 'running|degraded' >/dev/null
}

# end ends the processes of the namespace, with the first of them.
end() {
	local status=$?
	if [ "$status" -ne 0 ]; then
		cat "$work/boot.log" >&2
		echo "the log of its units:" >&2
		inside journalctl --no-pager --quiet -u 'leasehold*' 2>/dev/null | tail -n 60 >&2 || true
	fi
	kill -KILL "${first:-$namespace}" 2>/dev/null || true
	wait "$namespace" 2>/dev/null || true
	find "$group" -depth -type d -exec rmdir {} + 2>/dev/null || true
	exit "$status"
}

# inside runs a command in the system.
inside() {
	nsenter --target "$first" --mount --pid --cgroup --uts --root --wd -- \
		env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive "$@"
}

await() { # what, command...
	local what=$1 end=$((SECONDS + 120))
	shift
	until "$@"; do
		if [ $SECONDS -gt $end ]; then
			echo "FAILED: waited two minutes for $what" >&2
			exit 1
		fi
		sleep 0.2
	done
}

section() { echo "== $*"; }

holds() { # what, command...
	local what=$1
	shift
	if ! "$@"; then
		echo "FAILED: $what" >&2
		exit 1
	fi
	echo "   $what"
}

is() { # what, got, want
	if [ "$2" != "$3" ]; then
		echo "FAILED: $1: got \"$2\", want \"$3\"" >&2
		exit 1
	fi
	echo "   $1: $2"
}

property() { inside systemctl show --property="$1" --value leasehold.service; }
ready() { inside curl -fsS -o /dev/null http://127.0.0.1:9333/readyz 2>/dev/null; }
deb() { inside dpkg --force-confold --install "/opt/leasehold_$1-1_$arch.deb"; }
# What the .rpm requires is there, as packages of Debian, of which rpm does not know.
rpm() { inside rpm --force-debian --nodeps --dbpath /var/lib/rpm "$@"; }
rpm_of() { echo "/opt/leasehold-$1-1.$rpm_arch.rpm"; }
page() { inside /opt/page "$cdp" "$1"; }
browsers() { inside pgrep -u leasehold -f -- --remote-debugging-pipe >/dev/null; }
mode() { inside stat -c '%U:%G %a' "$1"; }
set_to() { # variable, value
	inside sed -i "/^$1=/d" /etc/leasehold.env
	echo "$1=$2" | inside tee -a /etc/leasehold.env >/dev/null
}

# serves waits until the service is ready with another process than before, of a version.
serves() { # version
	await "the service of version $1" another_is_ready
	pid=$(property MainPID)
	is "the version that runs" "$(inside "/proc/$pid/exe" --version | cut -d' ' -f2)" "$1"
}
another_is_ready() { [ "$(property MainPID)" != 0 ] && [ "$(property MainPID)" != "${pid:-0}" ] && ready; }

# configure gives the sidecar times that a loaded host needs, and a worker that has a page open.
configure() {
	section "configured"
	# A loaded host may take minutes for what follows.
	set_to LEASEHOLD_LEASE_TTL 90s
	set_to LEASEHOLD_RECONNECT_GRACE 30m
	set_to LEASEHOLD_ORPHAN_TIMEOUT 30m
	inside systemctl restart leasehold.service
	serves "$before"
	has_page shop
}

# has_page gives the worker a page of a profile.
has_page() { # profile
	cdp=$(inside curl -fsS -H 'Content-Type: application/json' http://127.0.0.1:9333/v1/sessions -d \
		"{\"profile_id\": \"$1\", \"worker_id\": \"worker-7\", \"task_id\": \"task_101\", \"create\": true}" |
		sed -n 's/.*"cdp_url": *"\([^"]*\)".*/\1/p')
	page "(document.body.innerHTML = '<p>step 0</p>', window.kept = 0)" >/dev/null
	steps=0
}

# lives checks that the page of the session is as it was left, and has the worker go on with it.
lives() {
	is "the page" "$(page '[document.body.innerHTML, window.kept]')" "[\"<p>step $steps</p>\",$steps]"
	steps=$((steps + 1))
	is "the worker goes on" "$(page "(document.querySelector('p').textContent = 'step $steps', window.kept = $steps)")" "$steps"
}

# files lists what a package could leave behind.
files() {
	inside find /etc /usr /opt /root /srv /var -xdev \
		! -path '/var/log/*' ! -path '/var/cache/*' ! -path '/var/tmp/*' ! -path '/var/lib/dpkg/*' ! -path '/var/lib/rpm/*' ! -path '/var/lib/systemd/*' \
		! -path '/var/backups/*' ! -path '/etc/*-' | sort
}

play() {
	boot
	play_deb
	play_rpm
}

play_deb() {
	files >"$work/files.before"

	section "installed, $before"
	holds "dpkg installs it" deb "$before"
	serves "$before"
	is "the service" "$(inside systemctl is-enabled leasehold.service)" enabled
	is "the settings" "$(mode /etc/leasehold.env)" "root:root 640"
	is "the data" "$(mode /var/lib/leasehold)" "leasehold:leasehold 700"
	is "the program" "$(mode /usr/bin/leasehold)" "root:root 755"
	is "what the unit starts" "$(inside systemctl cat leasehold.service | sed -n 's/^ExecStart=\([^ ]*\).*/\1/p')" /usr/bin/leasehold
	is "what the unit of the examples starts" "$(inside sed -n 's/^ExecStart=\([^ ]*\).*/\1/p' /usr/share/doc/leasehold/examples/leasehold-browser-user.service)" /usr/bin/leasehold
	is "who it runs as" "$(inside ps -o user= -p "$pid")" leasehold
	holds "systemd finds nothing wrong with the unit" verified
	holds "dpkg finds the files as they were packed" unchanged
	holds "the doctor, asked as the runbook says, finds nothing wrong" doctor

	configure
	lives

	section "upgraded to $version, under the page"
	holds "dpkg upgrades it" deb "$version"
	serves "$version"
	lives
	holds "the settings are as they were made" inside grep -q '^LEASEHOLD_LEASE_TTL=90s$' /etc/leasehold.env

	section "downgraded to $before, under the page"
	holds "dpkg downgrades it" deb "$before"
	serves "$before"
	lives

	section "upgraded with a setting that this version does not take"
	set_to LEASEHOLD_GETS never
	holds "dpkg upgrades it" deb "$version"
	await "the log to name the setting" logged -- '--gets must be one of'
	holds "the browser waits" browsers
	set_to LEASEHOLD_GETS signs
	serves "$version"
	lives

	section "a package over a sidecar of another version that somebody runs by hand"
	inside systemctl stop leasehold.service
	inside cp /usr/bin/leasehold /usr/local/bin/leasehold
	inside sh -c 'set -a; . /etc/leasehold.env; export HOME=/var/lib/leasehold
		setsid setpriv --reuid leasehold --regid leasehold --clear-groups \
			/usr/local/bin/leasehold run --data-dir /var/lib/leasehold >/run/by-hand.log 2>&1 &'
	await "the sidecar by hand" ready
	holds "dpkg installs it" deb "$before"
	await "the log to say who has the data directory" logged 'is in use by another leasehold'
	lives
	inside pkill -TERM -f '^/usr/local/bin/leasehold run'
	await "the sidecar by hand to end" ended_by_hand
	inside rm /usr/local/bin/leasehold
	serves "$before"
	lives

	section "removed"
	set_to LEASEHOLD_ORPHAN_TIMEOUT 5s
	inside systemctl restart leasehold.service
	serves "$before"
	holds "dpkg removes it" inside dpkg --remove leasehold
	is "the service" "$(property ActiveState)" inactive
	holds "the program is gone" inside test ! -e /usr/bin/leasehold
	holds "the settings stay" inside test -e /etc/leasehold.env
	holds "the profile stays" inside test -d /var/lib/leasehold/profiles/shop
	await "the browser to be closed" closed
	echo "   the browser was closed"

	section "installed again"
	holds "dpkg installs it" deb "$version"
	serves "$version"
	is "the service" "$(inside systemctl is-enabled leasehold.service)" enabled
	holds "the profile is known" inside leasehold show shop

	section "purged, with a browser left"
	set_to LEASEHOLD_ORPHAN_TIMEOUT 30m
	inside systemctl restart leasehold.service
	serves "$version"
	has_page other
	holds "dpkg purges it" inside dpkg --purge leasehold
	holds "the settings are gone" inside test ! -e /etc/leasehold.env
	holds "the browser lives" browsers
	holds "it has its temporary files" inside sh -c 'ls -d /var/cache/leasehold/*'

	section "installed once more, under the page"
	holds "dpkg installs it" deb "$version"
	serves "$version"
	lives
	set_to LEASEHOLD_ON_EXIT close
	inside systemctl restart leasehold.service
	serves "$version"

	section "purged"
	holds "dpkg purges it" inside dpkg --purge leasehold
	await "everything that it started to end" idle
	holds "the profile stays, since nobody else has it" inside test -d /var/lib/leasehold/profiles/shop
	holds "its temporary files are gone" inside test ! -e /var/cache/leasehold
	inside rm -rf /var/lib/leasehold
	files >"$work/files.after"
	holds "nothing else is left" diff "$work/files.before" "$work/files.after"

	section "purged where it never ran"
	printf '#!/bin/sh\nexit 101\n' | inside sh -c 'cat >/usr/sbin/policy-rc.d; chmod 755 /usr/sbin/policy-rc.d'
	holds "dpkg installs it" deb "$version"
	is "the service, as the host's policy says" "$(property ActiveState)" inactive
	holds "dpkg purges it" inside dpkg --purge leasehold
	holds "an empty data directory is gone" inside test ! -e /var/lib/leasehold
}

play_rpm() {
	inside rm /usr/sbin/policy-rc.d
	inside userdel leasehold
	# As systemd of Red Hat has it.
	inside mkdir -p /etc/systemd/system-preset
	echo 'disable *' | inside tee /etc/systemd/system-preset/99-default-disable.preset >/dev/null
	files >"$work/files.before"

	section "the .rpm installed, $before"
	holds "rpm finds the packages whole" inside rpm --dbpath /var/lib/rpm --checksig "$(rpm_of "$before")" "$(rpm_of "$version")"
	holds "rpm installs it" rpm --install "$(rpm_of "$before")"
	is "the service" "$(inside systemctl is-enabled leasehold.service)" disabled
	is "the settings" "$(mode /etc/leasehold.env)" "root:root 640"
	is "the data" "$(mode /var/lib/leasehold)" "leasehold:leasehold 700"
	holds "rpm finds the files as they were packed" rpm --verify leasehold
	inside systemctl enable --quiet --now leasehold.service
	serves "$before"
	holds "systemd finds nothing wrong with the unit" verified
	configure
	lives

	section "upgraded to $version, under the page"
	holds "rpm upgrades it" rpm --upgrade "$(rpm_of "$version")"
	serves "$version"
	lives
	is "the service" "$(inside systemctl is-enabled leasehold.service)" enabled
	holds "the settings are as they were made" inside grep -q '^LEASEHOLD_LEASE_TTL=90s$' /etc/leasehold.env

	section "downgraded to $before, under the page"
	holds "rpm downgrades it" rpm --upgrade --oldpackage "$(rpm_of "$before")"
	serves "$before"
	lives

	section "removed"
	set_to LEASEHOLD_ORPHAN_TIMEOUT 5s
	inside systemctl restart leasehold.service
	serves "$before"
	holds "rpm removes it" rpm --erase leasehold
	is "the unit" "$(property LoadState)" not-found
	holds "the settings stay, under another name" inside test -e /etc/leasehold.env.rpmsave
	holds "the profile stays, since nobody else has it" inside test -d /var/lib/leasehold/profiles/shop
	await "everything that it started to end" idle
	inside rm -rf /var/lib/leasehold /etc/leasehold.env.rpmsave
	files >"$work/files.after"
	holds "nothing else is left" diff "$work/files.before" "$work/files.after"
}

verified() {
	local said
	# DelegateSubgroup is for a later systemd than some have, as the unit says.
	said=$(inside systemd-analyze verify leasehold.service 2>&1 | grep -v DelegateSubgroup) || true
	[ -z "$said" ] || { echo "$said" >&2; return 1; }
}
unchanged() { [ -z "$(inside dpkg --verify leasehold)" ]; }
# doctor does what the runbook says, as root.
doctor() {
	sed -n '/^systemctl cat leasehold/,/^```/{/^```/d; s/^\( *\)sudo /\1/; p}' docs/runbook.md | inside sh -eux
}
logged() { inside journalctl --no-pager --quiet -u leasehold.service | grep "$@" >/dev/null; }
ended_by_hand() { ! inside pgrep -f '^/usr/local/bin/leasehold run' >/dev/null; }
closed() { ! browsers; }
idle() { ! inside pgrep -u leasehold >/dev/null; }

if [ "${1-}" = play ]; then
	play
	exit
fi
mkdir -p "$work/layer"
prepare
section "lintian"
# Whoever publishes a package gives its MAINTAINER.
lintian --allow-root --fail-on error,warning --suppress-tags bogus-mail-host,bogus-mail-host-in-debian-changelog,root-in-contact --tag-display-limit 0 \
	"$work/dist/leasehold_$version-1_$arch.deb"
echo "   finds nothing"
exec unshare --mount --propagation private --net --pid --fork --kill-child=KILL --mount-proc "$0" play
