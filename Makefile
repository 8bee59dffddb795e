# The two commands of the README, and a few for those who work on Tidegate.
CARGO ?= cargo

.PHONY: run test check fuzz

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

check: ## What a machine can check: format, lints, floors, licences, links.
	$(CARGO) xtask check

fuzz: ## Every parser against the fuzzer, some seconds each.
	./fuzz/run.sh 5
