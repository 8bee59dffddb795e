# The two commands of the README, and a few for those who work on Tidegate.
CARGO ?= cargo

.PHONY: run test test-long check fuzz

run: ## Builds everything and starts a server with a live feed.
	$(CARGO) build --release --package tidegate
	./target/release/tidegate demo

test: ## Installs what the tests need and runs all of them.
	$(CARGO) test --workspace --profile ci
	$(CARGO) build --profile ci --package tidegate
	./tests/e2e/run
	./tests/conformance/autobahn
	./sdk/typescript/test
	./sdk/python/test
	$(CARGO) test --profile ci --package tidegate-client --test conformance

test-long: ## Each SDK against the real server at random, ten minutes each, each prints its seed; ten thousand simulated nodes.
	$(CARGO) build --profile ci --package tidegate
	$(CARGO) test --profile ci --package tidegate-client --test long
	cd sdk/python && ./test --collect-only > /dev/null && .venv/bin/python tests/long/blackbox.py
	cd sdk/typescript && npm ci --no-audit --no-fund --silent && npx vitest run --config vitest.long.config.ts
	$(CARGO) xtask sim --seeds 10000

check: ## What a machine can check: format, lints, floors, licences, links.
	$(CARGO) xtask check

fuzz: ## Every parser against the fuzzer, some seconds each, with the same inputs every time.
	SEED=1 ./fuzz/run.sh 5
