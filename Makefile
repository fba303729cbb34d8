# The words of the README. Each target sets up all that it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
SERVER := .cache/bin/livekit-server
SERVER_VERSION := v1.13.5
# What measures sound, starts whole workers or fills the machine has it to itself; the rest shares.
ALONE := tests/real tests/examples tests/benchmarks tests/crash

.PHONY: demo demo-half-said demo-remote demo-livekit test test-long bench lint types clean

demo: $(READY)
	$(BIN)/python examples/call_recovery.py

demo-half-said: $(READY)
	$(BIN)/python examples/half_said.py

demo-remote: $(READY)
	$(BIN)/python examples/remote_recovery.py

demo-livekit: $(READY) $(SERVER)
	$(BIN)/python examples/livekit_recovery.py

test: $(READY) $(SERVER) lint types
	$(BIN)/python -m pytest -m "not long" -n 2 $(addprefix --ignore=,$(ALONE))
	$(BIN)/python -m pytest -m "not long" $(ALONE)

test-long: $(READY) $(SERVER)
	$(BIN)/python -m pytest --timeout 3600

bench: $(READY) $(SERVER)
	$(BIN)/python -m tests.benchmarks

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

clean:
	rm -rf $(VENV) .cache .bench

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "pip>=25.1"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --group dev -e ".[openai,demo,server,testing]"
	touch $@

# The real server for the demo and the tests that need one. Without Go those tests are skipped, and
# say so; the demo says where else to get it.
$(SERVER):
	@mkdir -p $(dir $@)
	@if command -v go >/dev/null; then \
		echo "building livekit-server $(SERVER_VERSION) (once, about two minutes)"; \
		GOBIN=$(CURDIR)/.cache/bin go install github.com/livekit/livekit-server/cmd/server@$(SERVER_VERSION) \
			&& mv .cache/bin/server $@; \
	else echo "no Go here: the tests against a real livekit-server will be skipped"; fi
