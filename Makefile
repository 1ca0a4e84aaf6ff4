# make help lists the targets. Both "make run" and "make test" install what they
# need from Debian's packages (hack/setup.sh) and do nothing twice.

GO      ?= go
BIN     := bin/berth
IMAGE   := example.com/workload:1
GOFLAGS += -trimpath
LINT    := bin/golangci-lint
SRC     := $(shell find cmd internal -name '*.go' -o -name '*.c' 2>/dev/null)
# Packages that have no part of the runtime linked in: quick to build with -race.
RACE     = $(shell $(GO) list ./internal/... | grep -v -e /internal/runtime -e '/critest$$')

.PHONY: help setup assets build image cluster run test check lint unit race script e2e vmtest bench clean

help: ## list the targets
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 10

setup: ## install what building and testing needs (Debian packages)
	@sh hack/setup.sh

assets: setup ## build what the binary carries: runc, CNI plugins, pause, the shim
	@sh hack/assets.sh

$(BIN): $(SRC) go.mod go.sum | assets
	@mkdir -p bin
	$(GO) build $(GOFLAGS) -ldflags '-s -w' -o $@ ./cmd/berth

build: assets $(BIN) ## build bin/berth

bin/workload.tar: $(wildcard test/workload/*.go test/image/*.go)
	@$(GO) run ./test/mkimage bin $(IMAGE) >/dev/null

image: bin/workload.tar ## build the example's image

cluster: ## build bin/cluster, the Kubernetes control plane that tests run against (once a machine)
	@sh hack/cluster.sh

run: build image ## run the example pod until it is Ready; show its timeline, logs and clean end
	@sh example/run.sh

test: setup assets check unit race script e2e vmtest ## everything that CI runs

check: lint ## formatting, vet, linters, the shape of the code
	$(GO) vet ./...
	$(GO) test ./test/ -run 'Test(Imports|EveryPackage|Decisions|NoInit|Budgets)'

$(LINT): tools/go.mod tools/go.sum
	@mkdir -p bin
	cd tools && $(GO) build -o ../$@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint

lint: assets $(LINT)
	$(LINT) run ./...

unit: assets cluster ## tests of the packages, and one conformance suite on every runtime
	$(GO) test -timeout 15m -p 2 ./internal/... ./cmd/...

race: assets cluster ## the same with the race detector, without the runtime's packages
	CGO_ENABLED=1 $(GO) test -race -timeout 15m -p 2 $(RACE)

script: build image ## end to end: the scripts in test/script on the real runtimes
	$(GO) test -count=1 -timeout 40m -skip TestE2E ./test/

e2e: build image cluster ## end to end on a node of a real cluster: the scripts in test/e2e
	$(GO) test -count=1 -timeout 40m -run TestE2E ./test/

# What runs in the machine is test/vm's to say. VMFLAGS="-cgroup v2 -run pinning" chooses of it.
vmtest: build image cluster ## end to end on a machine of 2 NUMA nodes and 8 CPUs, with cgroup v2, v1, and systemd (emulated: slow)
	@mkdir -p bin/vm
	$(GO) test ./test/vm
	$(GO) test -c -o bin/vm/ ./test ./internal/pod/steps/cgroup ./internal/pod/steps/volume/nfs
	CGO_ENABLED=0 $(GO) build -o bin/vm/vm ./test/vm
	bin/vm/vm -kernel "$$(sh hack/unpack.sh kernel)" -systemd "$$(sh hack/unpack.sh systemd)" $(VMFLAGS)

bench: build image ## measure; writes bench/RESULTS.md and bench/results.json
	$(GO) run ./bench

clean: ## remove what was built
	rm -rf bin internal/runtime/assets/*.zst
