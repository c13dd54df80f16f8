.DEFAULT_GOAL := help
.PHONY: help run build need needtest needcc test race ci format vet staticcheck arch fuzz bench crash

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
ARGS ?=
TIME ?= 30s

help: ## what there is
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1|\2/p' Makefile | awk -F'|' '{printf "%-14s %s\n", $$1, $$2}'

run: need build ## install what is missing, build, and serve on 127.0.0.1:8080 (ARGS="--zone Asia/Shanghai")
	@exec bin/rollcall serve $(ARGS)

build: ## bin/rollcall
	go build -ldflags '-X main.version=$(VERSION)' -o bin/rollcall ./cmd/rollcall

needtest:
	@scripts/need.sh redis-server node npm chromium

needcc: needtest
	@scripts/need.sh gcc

need:
	@scripts/need.sh redis-server

test: needtest ## all tests
	go test -shuffle=on ./...

race: needcc ## all tests under the race detector
	go test -race -shuffle=on ./...

ci: needcc format vet staticcheck arch race build ## what .ci/run runs: every check, and all tests under the race detector

format:
	@scripts/format.sh

vet:
	go vet ./...

staticcheck:
	go tool staticcheck ./...

arch:
	go test ./internal/archtest

fuzz: ## every fuzz target for TIME each (30s)
	scripts/fuzz.sh $(TIME)

bench: need build ## compare with the naive design and with the floor, side by side
	go build -o bin/bench ./cmd/bench
	bin/bench $(ARGS)
	go test -run - -bench 'Sets|Write' -benchtime 1x -timeout 30m ./counters/users
	go test -run - -bench 'Month|Kept' ./counters/users

crash: need ## the crash tests in large: 2 M events through kills, failovers, cut and delayed commits, two projectors
	ROLLCALL_CRASH_EVENTS=2000000 ROLLCALL_CRASH_KILLS=40 go test -count=1 -timeout 60m -v -run Crash ./cmd/rollcall
	ROLLCALL_CRASH_EVENTS=2000000 go test -count=1 -timeout 60m -v ./internal/projection
