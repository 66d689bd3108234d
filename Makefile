# What a person can do here; `make help` lists it. Everything needs Go, git and
# make. What else is missing (a C compiler for the race detector, redis-server,
# postgresql, and for the kubelet suite runc and the CNI plugins) is taken from apt.
# The tests of pages want curl, Chromium, Node and npm, and say so where they aren't
# there.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

# OUT is where test results go, BIN where binaries do.
OUT ?= dist
BIN := $(CURDIR)/bin
TOOLS := $(BIN)/tools
# DEMO is passed to the demo, for example DEMO="--kubernetes 1.36 --nodes 5".
DEMO ?=
# BENCH is passed to the bench, for example BENCH="--faults 50".
BENCH ?=
# SIM is passed to the simulation, for example SIM="--years 10".
SIM ?=
# CORPUS is the folder of the replay corpus that `make record` writes, which is the
# version's, and RECORDED the tests whose workflows it records.
CORPUS ?= unreleased
RECORDED ?= TestAFaultInPodStatus|TestACaseSurvives|TestAnEmptyTemporal|TestAMarkDeleted|TestACaseMarks|TestNoAcknowledged|TestObserving|TestADeviceThatVanishes|TestAMissingRight|TestTheShippedRights|TestAChangedMark|TestAClusterWithout|TestIncidentsLive|TestNoMoreDevices|TestAWholeNode
# PAGES are the tests that run the pages of the docs.
PAGES := TestTheDemoHandles|TestTheCommandsOfThePage|TestTheTrailTells|TestTheDoctorNames|TestAnOperatorWhoFollows|TestASecuredTemporal$$|TestWhateverRunsAsSickbay|TestOpenCasesGoOn
# VULNDB is where `make vuln` looks: latest, or a URL like https://vuln.go.dev;
# empty is the version that tests/checks/vuln pins.
VULNDB ?=
# IMAGE is what `make image` makes, by IMAGE_ENGINE with IMAGE_FLAGS, for example
# IMAGE_FLAGS="--build-arg BASE=gcr.io/distroless/static:nonroot".
IMAGE ?= ghcr.io/sickbay-dev/sickbay:dev
IMAGE_ENGINE ?= $(firstword $(foreach engine,docker podman buildah,$(shell command -v $(engine))))
IMAGE_FLAGS ?=
# RUN narrows tests to those whose names match.
RUN ?= .
# SEED, CHECKS, FUZZTIME and LIVES are for `make long`.
SEED ?= 0
FUZZTIME ?= 5m
LIVES ?= 10000
CHECKS ?= 1000

GOTESTSUM := $(TOOLS)/gotestsum --format pkgname --format-hide-empty-pkg
# The packages of the module under tests/ that need root and a real kubelet.
KUBELET := ./image/... ./kubelet/... ./realnode/...
# CALLS is where the stacks of a suite write what Sickbay asked of their API servers.
CALLS = $(abspath $(OUT))/calls

.PHONY: help
help: ## list what can be done
	@sed -nE 's/^([a-z0-9-]+):.* ## (.*)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 12

.PHONY: demo
demo: ## start everything, let faults happen, show the devices; Ctrl-C ends it. KUBECONFIG=… watches that cluster instead
	@go -C tests build -o $(BIN)/demo ./demo
	@exec $(BIN)/demo $(DEMO)

.PHONY: build
build: ## build bin/sickbay
	go build -o $(BIN)/sickbay .

.PHONY: image
image: ## build the container image, with docker, podman or buildah
	@if [ -z "$(IMAGE_ENGINE)" ]; then echo "make image wants docker, podman or buildah, and finds none"; exit 1; fi
	@changes=$$(git status --porcelain); \
	$(IMAGE_ENGINE) build \
		--build-arg VERSION="$$(git describe --tags --always --dirty)" \
		--build-arg COMMIT="$$(git rev-parse HEAD)" \
		--build-arg COMMIT_TIME="$$(git log -1 --format=%cI)" \
		--build-arg MODIFIED="$${changes:+true}" \
		$(IMAGE_FLAGS) --tag $(IMAGE) .

.PHONY: test
test: tools compiler parts ## run every test but the kubelet suite
	@mkdir -p $(OUT)
	$(GOTESTSUM) --jsonfile $(OUT)/unit.json -- -race -run '$(RUN)' ./...
	rm -rf $(CALLS)/test
	cd tests && SICKBAY_STACK_CALLS=$(CALLS)/test $(GOTESTSUM) --jsonfile $(abspath $(OUT))/stack.json -- -race -p 2 -timeout 30m -run '$(RUN)' \
		$$(go list ./... | grep -vE '/(image|kubelet|realnode)(/|$$)')

.PHONY: check
check: tools ## check form, vet, staticcheck, workflowcheck, the docs' tables, and the breaks that need no stack
	@unformatted=$$(gofmt -l $$(git ls-files --cached --others --exclude-standard '*.go')); \
		if [ -n "$$unformatted" ]; then echo "not formatted; run gofmt -w on:"; echo "$$unformatted"; exit 1; fi
	go mod tidy -diff
	go -C tests mod tidy -diff
	go vet ./...
	go -C tests vet ./...
	$(TOOLS)/staticcheck ./...
	cd tests && $(TOOLS)/staticcheck ./...
	$(TOOLS)/workflowcheck -config tests/tools/workflowcheck.yaml ./workflows/...
	go -C tests test ./checks/...
	go test ./pkg/config ./pkg/reason
	go -C tests run ./checks/breaks --no-stack

.PHONY: vuln
vuln: ## look for known vulnerabilities that the product reaches; VULNDB=latest or https://vuln.go.dev for the newest
	go -C tests run ./checks/vuln -db '$(VULNDB)'

.PHONY: e2e
e2e: tools compiler parts ## run the tests that need a whole stack, and only those
	@mkdir -p $(OUT)
	cd tests && $(GOTESTSUM) --jsonfile $(abspath $(OUT))/e2e.json -- -race -timeout 30m -run '$(RUN)' ./e2e/... ./demo/... ./pages/...

.PHONY: kubelet
kubelet: tools compiler ## run the suite on a real kubelet, 1.36 and 1.37 (root)
	@if [ "$$(id -u)" != 0 ]; then echo "the kubelet suite needs root: sudo make kubelet"; exit 1; fi
	@mkdir -p $(OUT)
	go -C tests run ./stack/cmd/stack --build-only --node
	rm -rf $(CALLS)/kubelet
	cd tests && SICKBAY_STACK_CALLS=$(CALLS)/kubelet $(GOTESTSUM) --jsonfile $(abspath $(OUT))/kubelet.json -- -race -p 1 -parallel 5 -timeout 30m -run '$(RUN)' $(KUBELET)

.PHONY: rights
rights: ## after `make test` and `make kubelet`: compare the rights in deploy/ with the calls that were made
	go -C tests run ./checks/rights $(if $(filter .,$(RUN)),,--partial) $(CALLS)/test $(CALLS)/kubelet

.PHONY: stack
stack: ## start the development stack and print its addresses; Ctrl-C ends it
	@go -C tests build -o $(BIN)/stack ./stack/cmd/stack
	@exec $(BIN)/stack

.PHONY: bench
bench: parts ## measure what docs/performance.md shows, on this machine
	go -C tests run ./bench $(BENCH)

.PHONY: sim
sim: ## carry the decisions through years of a simulated fleet and write what docs/policy.md and docs/policy-simulation.md say of it; SIM="--seed 2"
	go -C tests run ./sim --docs ../docs $(SIM)

.PHONY: record
record: parts ## record histories of all workflows for the replay corpus, as version CORPUS
	RECORD_HISTORIES=$(CURDIR)/workflows RECORD_CORPUS=$(CORPUS) \
		go -C tests test -count=1 -timeout 30m -run '$(RECORDED)' ./e2e

.PHONY: pages
pages: parts ## write what the commands in the docs say anew, from running them
	go -C tests test -count=1 -timeout 30m -run '$(PAGES)' ./demo ./directory ./e2e ./kubelet ./pages ./setup -update

.PHONY: screenshots
screenshots: parts ## write the pictures of docs/temporal-ui.md anew, from a stack and a real browser
	@mkdir -p docs/images
	go -C tests test -count=1 -timeout 10m ./ui -screenshots $(CURDIR)/docs/images

.PHONY: breaks
breaks: parts ## apply every break in a scratch worktree and want its test to fail
	go -C tests run ./checks/breaks

.PHONY: long
long: compiler ## run properties, fuzzing and 10,000 simulated lives of cases; the report carries commit and seed
	OUT=$(OUT) SEED=$(SEED) CHECKS=$(CHECKS) FUZZTIME=$(FUZZTIME) LIVES=$(LIVES) .ci/long

.PHONY: parts
parts: ## build what the stack is made of, once, into a cache outside the clone
	go -C tests run ./stack/cmd/stack --build-only

.PHONY: tools
tools: ## build the checkers at their pinned versions into bin/tools
	@GOBIN=$(TOOLS) go -C tests/tools install tool

# The race detector is C.
.PHONY: compiler
compiler:
	@command -v cc >/dev/null || { \
		echo "installing a C compiler with apt, for the race detector"; \
		apt-get update -qq && apt-get install -y -qq --no-install-recommends gcc libc6-dev >/dev/null; }

.PHONY: clean
clean: ## remove what was built in the clone; the cache stays
	rm -rf $(BIN) $(OUT)
