#!/usr/bin/env bash
# Looks for known vulnerabilities in what the project calls, by govulncheck and the Go
# vulnerability database (GOVULNDB names a copy of it, file:///DIR for example).
# Exit codes: 0 none is known, 3 some are, 4 it could not be looked, so nothing is known.
set -uo pipefail
cd "$(dirname "$0")/.."
go=${GO:-go}

"$go" tool govulncheck -db "${GOVULNDB:-https://vuln.go.dev}" "${@:-./...}"
code=$?
case $code in
0 | 3) exit $code ;;
esac
echo "govulncheck could not look (exit code $code): this says nothing about vulnerabilities." >&2
echo "It needs the database at https://vuln.go.dev, or a copy of it: GOVULNDB=file:///DIR make vulncheck" >&2
exit 4
