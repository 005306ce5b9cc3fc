#!/usr/bin/env bash
# Installs the real applications of the incidents in build/real, if they are missing: PocketBase by
# go build, Node-RED by npm, and phpMyAdmin with PHP and MariaDB out of Debian's packages, which are
# unpacked there and change nothing of the machine.
set -euo pipefail
cd "$(dirname "$0")/.."
go=${GO:-go}
mkdir -p build/real
cd build/real

# The newest version that the Go of this machine builds.
if [ ! -x pocketbase/pocketbase ]; then
	mkdir -p pocketbase
	cat >pocketbase/main.go <<-'EOF'
		package main

		import (
			"log"

			"github.com/pocketbase/pocketbase"
		)

		func main() {
			if err := pocketbase.New().Start(); err != nil {
				log.Fatal(err)
			}
		}
	EOF
	(
		cd pocketbase
		gofmt -w main.go # make fmt-check looks here, too
		export GOFLAGS=-mod=mod
		[ -e go.mod ] || "$go" mod init pocketbase.local
		"$go" get github.com/pocketbase/pocketbase@v0.39.0
		"$go" build -ldflags=-w -trimpath -o pocketbase .
	)
fi

if [ ! -e node-red/node_modules/.package-lock.json ]; then
	mkdir -p node-red
	echo '{"private":true}' >node-red/package.json
	npm install --prefix node-red --no-audit --no-fund --loglevel=error node-red@4.1.15
fi

if [ ! -d phpmyadmin/data ]; then
	rm -rf phpmyadmin
	mkdir -p phpmyadmin/packages phpmyadmin/root
	(
		cd phpmyadmin/packages
		# What phpMyAdmin and the two servers need beside what a Debian has.
		apt-get download -q phpmyadmin libjs-codemirror libjs-jquery libjs-jquery-metadata libjs-jquery-mousewheel \
			libjs-jquery-tablesorter libjs-jquery-timepicker libjs-jquery-ui \
			php8.2-cli php8.2-common php8.2-mbstring php8.2-mysql php8.2-xml php-composer-ca-bundle php-fig-http-message-util \
			php-getallheaders php-google-recaptcha php-mariadb-mysql-kbs php-nikic-fast-route php-phpmyadmin-motranslator \
			php-phpmyadmin-shapefile php-phpmyadmin-sql-parser php-psr-cache php-psr-container php-psr-http-factory \
			php-psr-http-message php-psr-log php-slim-psr7 php-symfony-cache php-symfony-cache-contracts php-symfony-config \
			php-symfony-dependency-injection php-symfony-deprecation-contracts php-symfony-expression-language \
			php-symfony-filesystem php-symfony-polyfill-php80 php-symfony-service-contracts php-symfony-var-exporter \
			php-twig php-twig-i18n-extension php-webmozart-assert \
			mariadb-server mariadb-server-core mariadb-client mariadb-client-core libmariadb3 libaio1 libpopt0 libwrap0
	)
	for package in phpmyadmin/packages/*.deb; do dpkg -x "$package" phpmyadmin/root; done
	# Debian's phpMyAdmin names the files of an installed one.
	sed -i "s#'/var/lib/phpmyadmin/tmp/'#sys_get_temp_dir() . '/'#; s#'/etc/phpmyadmin/config.inc.php'#getenv('PHPMYADMIN_CONFIG')#" \
		phpmyadmin/root/usr/share/phpmyadmin/libraries/vendor_config.php
	LD_LIBRARY_PATH=$PWD/phpmyadmin/root/usr/lib/x86_64-linux-gnu phpmyadmin/root/usr/bin/mariadb-install-db --no-defaults \
		--basedir="$PWD/phpmyadmin/root/usr" --datadir="$PWD/phpmyadmin/data.new" --auth-root-authentication-method=normal \
		--skip-test-db --innodb-log-file-size=4M --user=root >/dev/null
	mv phpmyadmin/data.new phpmyadmin/data
fi
