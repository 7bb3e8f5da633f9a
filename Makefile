# The one way in. Each target sets up all that it needs by itself, in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.DEFAULT_GOAL := help
.PHONY: help demo test test-oldest-django services services-down lint bench fuzz format clean

help: ## what there is
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-13s %s\n", $$1, $$2}'

demo: $(VENV)/.test ## a LangGraph agent on SQLite, killed halfway and resumed
	@$(BIN)/python examples/demo.py

# Empty, as in `make test SERVICES=`, it leaves the servers as they are.
SERVICES ?= up --fast
# Many tests wait for servers, so one worker more than there are cores pays.
WORKERS ?= $(shell expr $$(nproc 2>/dev/null || echo 2) + 1)
test: $(VENV)/.test ## all tests, on real servers
	$(if $(SERVICES),$(BIN)/python -m services $(SERVICES))
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(ARGS)

OLDEST := .venv-oldest-django
test-oldest-django: ## the Django app's tests on SQLite, with the oldest Django that it is for
	$(MAKE) VENV=$(OLDEST) $(OLDEST)/.oldest-django
	$(OLDEST)/bin/python -m pytest -n $(WORKERS) --dist worksteal tests/django -k "not postgres and not mariadb and not mysql" $(ARGS)

services: ## install and start the servers that the tests need
	$(PYTHON) -m services $(SERVICES)

services-down: ## end them
	$(PYTHON) -m services down

lint: $(VENV)/.lint ## ruff, mypy and pyright
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pyright

bench: $(VENV)/.bench ## holdfast and the official saver side by side, as ratios
	$(BIN)/python bench/run.py $(ARGS)

SECONDS ?= 60
fuzz: $(VENV)/.fuzz ## search for stored data that breaks the reader, for SECONDS=60
	$(BIN)/python tests/fuzz/fuzz_loads.py $(VENV)/corpus -artifact_prefix=$(VENV)/corpus/found- -max_total_time=$(SECONDS) $(ARGS)

format: $(VENV)/.lint ## let ruff fix and format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove what make made
	-$(PYTHON) -m services down
	rm -rf $(VENV) $(OLDEST) .mypy_cache .ruff_cache .pytest_cache .hypothesis .services

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'

$(VENV)/.%: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable . --group $*
	@touch $@
