# The two commands of the README, and a few for those who work on Tidegate.
CARGO ?= cargo

.PHONY: run test test-long dist check fuzz

run: ## Builds everything and starts a server with a live feed.
	$(CARGO) build --release --package tidegate
	./target/release/tidegate demo

# What each stage may take, in seconds, on two cores with what was fetched before: it is told, not enforced.
test: ## Installs what the tests need (Debian packages, Node and Python modules) and runs all of them.
	@./tests/stage --begin
	./tests/stage 360 "build and unit tests" sh -c '$(CARGO) test --workspace --profile ci && $(CARGO) build --profile ci --package tidegate'
	./tests/stage 120 "end to end" ./tests/e2e/run
	./tests/stage 30 "WebSocket conformance" ./tests/conformance/autobahn
	./tests/stage 120 "TypeScript and Python SDKs" ./tests/sdks
	./tests/stage 30 "Rust SDK" $(CARGO) test --profile ci --package tidegate-client --test conformance
	@./tests/stage --summary

test-long: dist ## Installs and runs what `make dist` made; each SDK against the real server at random, ten minutes each, each prints its seed; ten thousand simulated nodes.
	./packaging/test
	$(CARGO) build --profile ci --package tidegate
	$(CARGO) test --profile ci --package tidegate-client --test long
	cd sdk/python && ./test --collect-only > /dev/null && .venv/bin/python tests/long/blackbox.py
	cd sdk/typescript && npm ci --no-audit --no-fund --silent && npx vitest run --config vitest.long.config.ts
	$(CARGO) xtask sim --seeds 10000

dist: ## Makes everything that can be installed, in dist/ (docs/install.md).
	./packaging/dist

check: ## What a machine can check: format, lints, floors, licences, links.
	$(CARGO) xtask check

fuzz: ## Every parser against the fuzzer, some seconds each, with the same inputs every time.
	SEED=1 ./fuzz/run.sh 5
