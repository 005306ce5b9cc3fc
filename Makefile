# make help lists the targets.

GO     ?= go
PKGS   ?= ./...
ARGS   ?=

# Clients with dependencies that cannot be in the project's own module.
CLIENT_MODULES := internal/test/clients/chromedp014 internal/test/clients/gorod

# Reads the files of deploy/ with the libraries of the tools that they are for.
DEPLOY_MODULE := internal/test/deploy

# The S3 server of the tests.
S3_MODULE := internal/test/s3test/gateway

# Built from source by the go command and kept in its cache.
GOLANGCI_LINT := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

.DEFAULT_GOAL := help
.PHONY: help deps chromium driver clients clients-all host-tools modules build man run test tested-e2e tested-outside tested-longest tested-launcher tested-others linted unraced vetted quick soak still suites differ check fmt-check lint fmt demo demo-travel chaos corpus real bench bench-lease fuzz mutants sbom release arm64 test-package reproducible vulncheck clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

deps: driver clients host-tools modules ## Install what is missing: Chromium, the CDP clients and host tools of the tests, Go modules

chromium:
	@scripts/install-chromium.sh

driver:
	@scripts/install-chromium.sh --driver

clients:
	@scripts/install-clients.sh

host-tools:
	@scripts/install-host-tools.sh

modules:
	@$(GO) mod download
	@for m in $(CLIENT_MODULES) $(S3_MODULE); do (cd $$m && $(GO) mod download) || exit 1; done
	@cd $(DEPLOY_MODULE) && $(GO) list -deps -test ./... >/dev/null

# Where git refuses (a checkout of another user), the go command would fail too.
VCS = $(shell git rev-parse --verify -q HEAD >/dev/null 2>&1 && echo auto || echo false)

build: ## Build bin/leasehold
	@$(GO) build -trimpath -buildvcs=$(VCS) -ldflags="-s -w" -o bin/leasehold ./cmd/leasehold

man: build ## Write the manual pages to build/man: man -l build/man/leasehold.1
	@bin/leasehold man build/man

run: chromium build ## Run the sidecar: make run ARGS='--listen 127.0.0.1:9444'
	@exec bin/leasehold run $(ARGS)

# Tests that drive the programs from outside: the race detector would look at nothing but the
# tests themselves, and at the wiring. (The sidecar of `make chaos` has it.)
OUTSIDE := ./internal/test/e2e ./internal/test/chaos ./internal/test/docs ./internal/test/differ ./internal/test/incidents \
	./internal/test/supply ./cmd/leasehold

# In the bubble the real code plays, which the other tests play with the race detector. It makes
# each step ten times slower here, so that a few seeds are played with it, and many without.
UNRACED := ./internal/test/bubble

# With the race detector: those that take longest, and the others.
LONGEST  := ./launcher/browser ./launcher/session ./cdpproxy ./lease/natskv ./launcher/chrome
LAUNCHER = $$($(GO) list ./launcher/... | grep -vxF "$$($(GO) list $(LONGEST))")
OTHERS   = $$($(GO) list $(PKGS) | grep -vxF "$$($(GO) list $(OUTSIDE) $(LONGEST) ./launcher/...)")

# The commands that four at a time run through, the long ones first: then none is alone for
# long at the end.
COMMANDS := tested-e2e tested-longest tested-launcher tested-outside tested-others linted unraced

# The compiler, the linter and the tests make much garbage and end soon. Collecting it less often
# halves the linter's time; the limit bounds the memory that each program may take for that.
test check $(COMMANDS) vetted quick: export GOGC ?= 400
test check $(COMMANDS) vetted quick: export GOMEMLIMIT ?= 2GiB

# What the tests link has no data for debuggers, which takes a third of the time and space, and no
# paths of this tree, so that what was compiled in another clone of it serves here.
LEAN := -ldflags=-w -trimpath
test check quick $(filter-out linted,$(COMMANDS)) vetted: export GOFLAGS := $(filter-out $(LEAN),$(GOFLAGS)) $(LEAN)

# Everything is compiled first, with all processors: two commands that need the same package at
# the same time would both compile it. Then four commands run at a time: one that waits leaves its
# processor to the others, and a third of what two of them take they wait. Those with many short
# packages link one while they test another: at the end one of them is alone.
BEGAN := $(shell date +%s)
after  = @echo "$(1) after $$(( $$(date +%s) - $(BEGAN) )) s"

GO_TEST = scripts/in-memory.sh $(GO) test -vet=off -count=1 -timeout 20m

ONLY ?=

ifneq ($(ONLY),)
test: deps ## Check and test everything, with the race detector; of some packages only: make test ONLY='lease launcher/readers'
	@$(GO) vet -race $(addprefix ./,$(ONLY))
	@rm -rf build/failed
	@failed=; for p in $(addprefix ./,$(ONLY)); do \
		case " $(OUTSIDE) $(UNRACED) " in *" $$p "*) race= ;; *) race=-race ;; esac; \
		$(GO_TEST) $$race $$p || failed=1; \
	done; [ -z "$$failed" ]
else
test: deps
	@rm -rf build/failed
	$(call after,installed)
	@$(GO) tool -n leasehold/cmd/leasehold >/dev/null
	@cd $(S3_MODULE) && $(GO) tool -n gateway >/dev/null
	@$(MAKE) --no-print-directory vetted
	$(call after,compiled and vetted)
	@scripts/say-what-failed.sh $(MAKE) --no-print-directory -k -j 4 $(COMMANDS)
	$(call after,tested)
endif

# Two thirds of what these tests take they wait: for leases to run out, for launchers to be missed.
tested-e2e:
	@$(GO_TEST) -parallel 4 ./internal/test/e2e

tested-outside:
	@$(GO_TEST) -p 1 $(filter-out ./internal/test/e2e,$(OUTSIDE))

tested-longest:
	@$(GO_TEST) -race -p 1 $(LONGEST)

tested-launcher:
	@$(GO_TEST) -race -p 2 $(LAUNCHER)

tested-others:
	@$(GO_TEST) -race -p 2 $(OTHERS)

unraced:
	$(GO) test -vet=off -count=1 $(UNRACED)
	cd $(DEPLOY_MODULE) && $(GO) test -count=1 ./...

# The packages with their tests are read as the tests compile them, with the race detector.
vetted: fmt-check
	$(GO) vet -race $(PKGS)
	@for m in $(CLIENT_MODULES) $(S3_MODULE); do (cd $$m && $(GO) vet ./...) || exit 1; done

# The packages whose tests start no sidecar and no cluster and, with -short, no browser.
QUICK := ./checkpoint ./evidence ./evidence/redact ./internal/cgroup ./internal/durable ./internal/procfs \
	./internal/test/layers ./launcher/accounts ./launcher/api ./launcher/bundles ./launcher/grant \
	./launcher/monitor ./launcher/profiledir ./launcher/profiles ./launcher/travel \
	./launcher/recovery/findings ./launcher/recovery/table ./launcher/sessionfile ./launcher/slots ./lease

quick: fmt-check ## Check, and run the unit tests: for the person at the keyboard
	@$(GO) vet $(PKGS)
	@$(GO) test -vet=off -short $(QUICK)

ROUNDS ?= 100
LOSSES ?= 1000
CUTS   ?= 100

soak: deps ## Leave a profile ROUNDS times in every way and find all it stored: make soak ROUNDS=100
	LEASEHOLD_ROUNDS=$(ROUNDS) $(GO) test ./internal/test/e2e -run '^TestNothingIsLost$$' -v -count=1 -timeout 1h

powercuts: deps ## Cut the power CUTS times after a release, and find what it stored: make powercuts CUTS=100
	LEASEHOLD_POWERCUTS=$(CUTS) $(GO) test ./internal/test/e2e -run '^TestAReleaseOutlivesAPowerCut$$' -v -count=1 -timeout 1h

still: deps ## Lose LOSSES workers at random moments, and count what their pages send afterwards: make still LOSSES=1000
	LEASEHOLD_LOSSES=$(LOSSES) $(GO) test ./internal/test/e2e -run '^TestTheAccountStandsStill$$' -v -count=1 -timeout 4h

SUITES     ?=
MATCH      ?=
SUITES_DIR ?=

suites: deps build ## Run the test suites of others on a port and through the sidecar, and compare: make suites SUITES='rod cri' MATCH=pattern SUITES_DIR=checkouts
	@$(GO) build -o bin/run-suites ./internal/test/suites
	@bin/run-suites -launcher bin/leasehold -suites '$(SUITES)' -match '$(MATCH)' -dir '$(SUITES_DIR)'

clients-all: deps ## Drive every client of docs/clients.md through a whole task, the large ones too (installs 600 MB)
	@scripts/install-clients.sh more
	LEASEHOLD_CLIENTS=all $(GO) test ./internal/test/e2e -run '^TestAgents$$|^TestEveryClient$$' -v -count=1 -timeout 30m

DIFFER ?= all

differ: deps ## Play scripts of CDP on a port of Chrome and through the sidecar, and compare: make differ DIFFER='popup-*'
	LEASEHOLD_DIFFER='$(DIFFER)' $(GO) test ./internal/test/differ -run '^TestClientsSeeWhatChromeSends$$' -v -count=1 -timeout 40m

check: vetted linted unraced

linted:
	staticcheck=$$($(GO) tool -n staticcheck) && GOFLAGS="$$($(GO) env GOFLAGS) -race" $$staticcheck $(PKGS)

fmt-check:
	@files=$$(gofmt -l .); if [ -n "$$files" ]; then echo "not formatted, run make fmt:"; echo "$$files"; exit 1; fi

lint: check ## Check, and run golangci-lint (the first time builds it)
	$(GO) run $(GOLANGCI_LINT) run $(PKGS)

fmt: ## Format the Go files
	@$(GO) fmt $(PKGS)

demo: chromium clients ## Show a lost worker and its recovery, step by step
	@$(GO) test ./internal/test/e2e -run '^TestDemo$$' -v -count=1

demo-travel: chromium ## Show a host that dies, and its accounts on another one, step by step
	@$(GO) test ./internal/test/e2e -run '^TestTravelDemo$$' -v -count=1

DURATION ?= 5m
SEED     ?=
NODES    ?= 1
WITHOUT  ?=
TTL      ?= 3s

chaos: deps ## Long chaos run: make chaos DURATION=10m SEED=7 NODES=3
	@CHAOS_DURATION=$(DURATION) CHAOS_SEED=$(SEED) CHAOS_NODES=$(NODES) CHAOS_TTL=$(TTL) CHAOS_WITHOUT='$(WITHOUT)' \
		$(GO) test -race ./internal/test/chaos -run '^TestChaos$$' -v -count=1 -timeout 24h

bench: deps build ## Measure the data path beside Chrome's port: make bench SAVE=file, or COMPARE=file
	@$(GO) build -o bin/bench ./internal/test/bench
	@bin/bench -launcher bin/leasehold $(if $(SAVE),-save $(SAVE)) $(if $(COMPARE),-compare $(COMPARE)) $(ARGS)

CORPUS ?= all

corpus: chromium driver clients modules ## Play the incidents of testdata/incidents: make corpus CORPUS=unmet for those put away
	@LEASEHOLD_CORPUS=$(CORPUS) $(GO) test ./internal/test/incidents -run '^TestCorpus$$' -v -count=1 -timeout 30m

REAL ?= real

real: chromium driver clients modules ## Play incidents on real applications, which it installs in build/real: make real REAL=real-away
	@scripts/install-real.sh
	@LEASEHOLD_CORPUS=$(REAL) $(GO) test ./internal/test/incidents -run '^TestCorpus$$' -v -count=1 -timeout 60m

bench-lease: modules ## Measure grants, renewals and ten thousand leases, on one server and on three
	@$(GO) test ./lease/natskv -run '^$$' -bench 'HeldLeases' -benchtime 1x -timeout 30m
	@$(GO) test ./lease/natskv -run '^$$' -bench 'Grant|Renew|Transition|Presence' -timeout 30m

FUZZTIME ?= 20s
FUZZ     ?= .*

fuzz: modules ## Run every fuzz target, one after the other: make fuzz FUZZTIME=1m FUZZ='FuzzScan|FuzzFrames'
	@GO='$(GO)' scripts/fuzz.sh '$(FUZZTIME)' '$(FUZZ)'

MUTANTS ?=

mutants: modules ## Take rules out of the code, one at a time, and see which test notices: make mutants MUTANTS=lease/fence
	@GO='$(GO)' scripts/in-memory.sh $(GO) run ./internal/test/mutants '$(MUTANTS)'

sbom: build ## Write what bin/leasehold is made of, in CycloneDX's JSON, to bin/leasehold.cdx.json
	@$(GO) run ./internal/test/supply/sbom bin/leasehold >bin/leasehold.cdx.json.new
	@mv bin/leasehold.cdx.json.new bin/leasehold.cdx.json

release: modules ## Make archives and packages of the commit in dist/, for amd64 and arm64; for Macs, the commands that talk to a sidecar
	@GO='$(GO)' scripts/release.sh

# Packages without effects: what they find on arm64 under an emulator they find on the machine.
PURE := ./checkpoint/shape ./checkpoint/ledger ./lease ./launcher/recovery/table ./launcher/recovery/findings ./launcher/principal ./evidence/redact ./evidence/crypt ./internal/chromever ./cdpproxy/methods

arm64: modules ## Vet for arm64, and run the tests of pure packages under qemu-user (installs it, as root)
	@command -v qemu-aarch64 >/dev/null || scripts/apt-install.sh qemu-user
	GOARCH=arm64 $(GO) vet $(PKGS)
	GOARCH=arm64 $(GO) test -vet=off -count=1 -exec qemu-aarch64 $(PURE)

test-package: modules ## Install, upgrade, downgrade and remove the .deb and the .rpm in a Debian of its own, with a page open (as root; installs debootstrap and lintian)
	@GO='$(GO)' scripts/test-package.sh

reproducible: modules ## Make the release of the commit twice, apart from each other, and compare
	@GO='$(GO)' scripts/reproducible.sh

vulncheck: modules ## Look for known vulnerabilities (needs the Go vulnerability database)
	@GO='$(GO)' scripts/vulncheck.sh

clean: ## Remove what was built
	@rm -rf bin dist
