# "make help" lists the targets. "make run" and "make test" install the Debian packages that they need (hack/setup.sh).
# No target builds again what is up to date.

GO      ?= go
BIN     := bin/berth
IMAGE   := example.com/workload:1
SRC     := $(shell find cmd internal -name '*.go' -o -name '*.c' 2>/dev/null)
# Every build has the same flags: one with others would compile all dependencies again. "make lint" runs go vet, so "go
# test" does not run it too. Without debug information a compilation takes a seventh less CPU time, and a link a quarter.
FLAGS   = -trimpath -vet=off -ldflags=-w -gcflags=all=-dwarf=false
export GOFLAGS := $(filter-out $(FLAGS),$(GOFLAGS)) $(FLAGS)
# Packages that link the runtime, and those with tests that do not: the second build quickly with -race. "go test" would
# also build a package without tests.
EMBEDDED = ./internal/runtime/... ./internal/cri/critest/... ./internal/agent/engine/kind ./internal/cli
TESTED   = {{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}
RACE     = $(filter-out $(shell $(GO) list $(EMBEDDED)),$(shell $(GO) list -f '$(TESTED)' ./internal/...))

.PHONY: help setup assets build image cluster run test check lint vuln unit race embedded fuzz hostile soak engine docker docker-latest browser script e2e chaos powercut vmtest vmtest-arm64 before leftovers bench hogs packages pages release clean

help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

setup: ## install the Debian packages that building and testing needs
	@sh hack/setup.sh

assets: setup ## build what the binary carries: runc, CNI plugins, the holder, the shim, the web page
	@sh hack/assets.sh
	@sh hack/webui.sh

# The script writes the stamp only if a program has changed.
internal/runtime/assets/stamp internal/ui/assets/stamp: assets
	@:

$(BIN): $(SRC) go.mod go.sum internal/runtime/assets/stamp internal/ui/assets/stamp
	@mkdir -p bin
	$(GO) build -ldflags '-s -w' -o $@ ./cmd/berth

build: assets $(BIN) ## build bin/berth

# The command writes bin/guestbook.tar before bin/workload.tar.
bin/workload.tar: $(wildcard test/workload/*.go test/guestbook/*.go test/image/*.go test/mkimage/*.go)
	@$(GO) run ./test/mkimage bin $(IMAGE) >/dev/null

image: bin/workload.tar ## build the images of the examples and of the tests, bin/workload.tar and bin/guestbook.tar

cluster: ## build bin/cluster, the Kubernetes control plane for tests (kept for later builds)
	@sh hack/cluster.sh

engine: assets ## build bin/engine, the current Docker Engine for tests, with our runc (kept for later builds)
	@sh hack/dockerd.sh

run: build image ## run the example pod until it is Ready; show its timeline, logs and clean end
	@sh hack/run.sh

# The scripts wait for a part of their time, so the fuzz targets run beside them.
test: ## everything that CI runs, with the seconds of each stage at the end (as root)
	@MAKE='$(MAKE)' FUZZJOBS=3 FUZZTIME=10s sh hack/test.sh setup before assets cluster check race,embedded build \
		beside:fuzz browser script e2e vmtest leftovers

# Tests that only read the code and the documentation.
RULES = Test(Imports|EveryPackage|Decisions|NoInit|Budgets|Docs|ScriptsStay|Outside|PathsOf|Goroutines)

check: lint vuln ## formatting, linters (also go vet), vulnerabilities, rules of test/arch_test.go, links, alert rules
	$(GO) test ./test/ -run '$(RULES)'
	$(GO) test ./test/leftovers ./test/kubelet
	$(GO) test -C tools/monitoring ./...

# With half as many garbage collections the linters take a quarter less time.
lint:
	@sh hack/lint.sh
	GOGC=200 bin/golangci-lint run --allow-parallel-runners ./...
	@sh hack/actionlint.sh
	$(GO) mod tidy -diff

vuln: ## look for known vulnerabilities in what the code reaches; says so if there is no database
	@sh hack/vuln.sh

# Only what root does needs the programs that the binary carries: without root, tests of it are skipped and say so.
ROOT = $(filter 0,$(shell id -u))

unit: $(if $(ROOT),assets) cluster ## tests of the packages; as an ordinary user, tests that need root are skipped
	$(GO) test -timeout 15m -p 4 ./internal/... ./cmd/...

race: $(if $(ROOT),assets) cluster ## the same with the race detector, without the packages that link the runtime
	CGO_ENABLED=1 $(GO) test -race -timeout 15m -p 4 $(RACE)

embedded: $(if $(ROOT),assets) ## tests of the packages that link the runtime, and one conformance suite on every runtime
	$(GO) test -timeout 15m -p 4 $(EMBEDDED) ./cmd/...

# FUZZTIME=10m runs each target for ten minutes. FUZZ=Decode selects targets. See hack/fuzz.sh.
fuzz: $(if $(ROOT),assets) ## run each fuzz target for 30 s, or for FUZZTIME, FUZZJOBS (20) at a time
	@sh hack/fuzz.sh

# HOSTILE=fork selects pods by name. HOSTILEFLAGS="-hostile.seed 7 -hostile.full" repeats an order, with full sizes.
hostile: build image ## measure other pods and the agent beside pods that do harm; writes bin/hostile/report.md
	$(GO) test -count=1 -timeout 90m -v -run 'TestHostile/$(HOSTILE)' ./test/ -hostile $(HOSTILEFLAGS)

# SOAKFLAGS="-soak.pods 10000 -soak.time 12h -soak.seed 7" chooses how many pods, and repeats a sequence.
soak: build image ## run hundreds of pods through one agent; writes bin/soak/soak.html with plots of what they use
	$(GO) test -count=1 -timeout 12h -v -run TestSoak ./test/ -soak $(SOAKFLAGS)

docker: build image cluster ## scripts, the upstream kubelet and faults on the machine's own Docker Engine (as root)
	$(GO) test -count=1 -timeout 15m ./test/docker
	$(GO) test -count=1 -timeout 15m -parallel 6 -run TestScriptOnDocker ./test/

docker-latest: export BERTH_TEST_DOCKERD = $(CURDIR)/bin/engine/dockerd
docker-latest: build image cluster engine ## the same and the tests of the shim on the current Docker Engine (as root)
	$(GO) test -count=1 -p 1 -timeout 15m ./internal/docker/...
	$(GO) test -count=1 -timeout 15m -run '^TestDocker$$' ./internal/cri/critest
	$(MAKE) docker

# Nothing beside it may start pods: Chromium drops its requests when the machine's network changes.
browser: assets ## the web page of berth ui in Chromium
	$(GO) test -count=1 -timeout 3m ./test/browser

script: build image ## end to end: run the scripts in test/script on the real runtimes, with a minute of chaos beside them
	$(GO) test -count=1 -timeout 40m -parallel 8 -skip '$(RULES)|TestE2E|TestScriptOnDocker' ./test/ -chaos.time=60s

e2e: build image cluster ## end to end: run the scripts in test/e2e on a node of a real cluster
	$(GO) test -count=1 -timeout 40m -parallel 6 -run TestE2E ./test/

# test/vm lists what runs in the machine. VMFLAGS="-machine v2 -run pinning" selects a part of it, and VMFLAGS=-long runs
# the scripts that take minutes each instead, which are not a part of make test.
vmtest: build image cluster ## end to end on emulated machines (slow): NUMA, cgroup v2 and v1, systemd, a new Debian
	@mkdir -p bin/vm
	$(GO) test ./test/vm
	$(GO) test -c -o bin/vm/ ./test ./internal/base/quota ./internal/node/eviction/alarm \
		./internal/pod/steps/cgroup ./internal/pod/steps/volume/nfs
	CGO_ENABLED=0 $(GO) build -o bin/vm/vm ./test/vm
	$(GO) build -C tools -o ../bin/vm/cni/ $(addprefix github.com/containernetworking/plugins/plugins/,\
		main/bridge main/loopback ipam/host-local meta/portmap)
	sh test/packages/build.sh bin/vm/packages
	bin/vm/vm -kernel "$$(sh hack/unpack.sh kernel)" -systemd "$$(sh hack/unpack.sh systemd)" \
		-tools "$$(sh hack/unpack.sh tools)" -debian "$$(sh hack/debian.sh)" $(VMFLAGS)

vmtest-arm64: ## run example pods on an emulated machine with 64-bit Arm processors (slow)
	@sh hack/setup.sh arm64
	@sh hack/webui.sh
	@mkdir -p bin/arm64 bin/vm
	@sh hack/program.sh arm64 bin/arm64/berth >/dev/null
	CGO_ENABLED=0 GOARCH=arm64 $(GO) build -o bin/arm64/vm ./test/vm
	$(GO) build -o bin/arm64/mkimage ./test/mkimage
	GOARCH=arm64 bin/arm64/mkimage bin/arm64 $(IMAGE) >/dev/null
	CGO_ENABLED=0 $(GO) build -o bin/vm/vm ./test/vm
	bin/vm/vm arm64 -kernel "$$(sh hack/unpack.sh kernel-arm64)"

# POWERCUTFLAGS="-cuts 50 -time 5h -seed 7" chooses how many cuts, and repeats their order.
powercut: build image ## cut the power of an emulated machine six times (slow), also with a disk that fails
	@mkdir -p bin/vm
	$(GO) test ./test/powercut/...
	CGO_ENABLED=0 $(GO) build -o bin/vm/ ./test/vm ./test/powercut/churn
	bin/vm/vm powercut -kernel "$$(sh hack/unpack.sh kernel)" $(POWERCUTFLAGS)

before: ## record what is on the machine, for make leftovers
	@mkdir -p bin
	$(GO) run ./test/leftovers record bin/before.json

leftovers: ## fail if the tests since make before have left anything on the machine, and name it
	$(GO) run ./test/leftovers check bin/before.json

# CHAOS sets more, such as CHAOS="-chaos.time=2h -chaos.kills=500 -chaos.seed=7".
chaos: build image ## disturb an agent on each runtime for a minute: kill and stop it, its shims and its runtime
	$(GO) test -count=1 -timeout 5h -run TestChaos -v ./test/ -chaos.time=60s $(CHAOS)

bench: build image cluster ## measure; write RESULTS.md, results.json, EVICTION.md and DOCKER.md in bench
	$(GO) run ./bench
	$(GO) run ./bench/pressure -kubelet 50 -out bench
	$(GO) run ./bench/docker -out bench/DOCKER.md

# HOGS="-hogs 200" runs more pods.
hogs: build image ## evict 50 pods that take 200 MB of memory a second (5 min); fail if the kernel's OOM killer is first
	$(GO) run ./bench/pressure -files 0 -never-oom $(HOGS)

packages: image ## build this machine's .deb and .rpm, twice; install, upgrade, remove and purge the .deb (as root)
	@sh hack/release-check.sh $$($(GO) env GOARCH)
	@sh test/packages/lifecycle.sh

pages: build image ## run the commands of the pages that take minutes: a release and a measurement (as root)
	$(GO) test -count=1 -timeout 4h -v -run TestSlowBlocks ./test/ -pages

# VERSION=1.2.3 chooses the version; otherwise it is the commit's tag.
release: ## build a release of the last commit for amd64 and arm64 in bin/release, twice, and compare the bytes
	@sh hack/release-check.sh

clean: ## remove what was built
	rm -rf bin internal/runtime/assets/*.zst internal/ui/assets/*.gz internal/ui/assets/stamp
