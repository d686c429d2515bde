# Every command a person runs. The first one sets up .venv by itself; later ones start at once.
.DEFAULT_GOAL := help
.PHONY: help demo test quick gpu check format bench bench-record nightly docs lock setup clean
BIN := .venv/bin
SOURCES := src tests bench scripts
ARGS ?=
RACES := tests/integration/local/test_hostile_user.py tests/integration/local/test_leftovers.py \
	tests/integration/local/test_image_build.py tests/integration/local/test_hostile_paths.py \
	tests/integration/local/test_datasets.py
NIGHT := tests/integration/kubernetes/test_nodes.py tests/integration/kubernetes/test_private_images.py \
	tests/integration/local/test_hostile_sizes.py tests/integration/service/test_last_byte.py
LONG := -o timeout=0 -o faulthandler_timeout=0
export PYTHON

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 16

demo: ## Run three teams' training jobs on this machine and show who gets what
	@scripts/setup runtime
	@$(BIN)/allot demo $(ARGS)

test: setup ## Run all tests (ARGS="-k barrier -x" goes to pytest)
	@scripts/test $(ARGS)

quick: setup ## As test, but start no Slurm and no Kubernetes
	@WITHOUT_ENGINES=1 scripts/test

check: setup ## Format, lint, types, architecture, dependencies
	@scripts/check

format: setup ## Rewrite the sources in the house format
	$(BIN)/ruff format $(SOURCES)
	$(BIN)/ruff check --fix $(SOURCES)

nightly: setup ## At length: histories, races, kills of the service, frameworks, mutants of the core
	@$(BIN)/python -m tests.property.cells_nightly --operations 500000
	@ALLOT_HISTORIES=1000 $(BIN)/python -m pytest $(LONG) tests/property
	@ALLOT_KILLS=300 $(BIN)/python -m pytest $(LONG) tests/e2e/test_chaos.py tests/e2e/test_chaos_images.py tests/e2e/test_chaos_uploads.py
	@ALLOT_FAULTS=200 $(BIN)/python -m pytest tests/e2e/test_chaos_slurm.py
	@ALLOT_FAULTS=200 $(BIN)/python -m pytest $(LONG) tests/e2e/test_chaos_kubernetes.py
	@ALLOT_FAULTS=200 ALLOT_TEST_KUBERNETES=1.36 $(BIN)/python -m pytest $(LONG) tests/e2e/test_chaos_devices.py
	@ALLOT_VECTORS=_ $(BIN)/python -m pytest $(LONG) tests/integration/kubernetes/test_hived_vectors.py
	@ALLOT_PILOTS=1 $(BIN)/python -m pytest tests/e2e/test_demo_slurm.py
	@ALLOT_NIGHT=1 $(BIN)/python -m pytest $(LONG) tests/e2e/test_demo_kubernetes.py $(NIGHT)
	@scripts/newer-slurm $(BIN)/python -m pytest tests/contract/backends -k slurm
	@PILOTS=1 scripts/newer-slurm $(BIN)/python -m pytest tests/contract/backends -k "pilot or gpus"
	@scripts/mlflow && $(BIN)/python -m pytest tests/integration/mlflow
	@ALLOT_FRAMEWORKS=1 $(BIN)/python -m pytest -s $(LONG) tests/integration/service/test_framework_versions.py
	@scripts/loops && $(BIN)/python -m pytest tests/integration/test_loops.py
	@ALLOT_NIGHT=1 ALLOT_TRIES=200 $(BIN)/python -m pytest $(RACES)
	@$(BIN)/python -m tests.mutants --count 100

gpu: setup ## Test what needs a GPU, on this machine's (as root, with PyTorch)
	@$(BIN)/python -m pytest tests/gpu $(ARGS)

bench: setup ## Measure, and compare with the recorded figures (ARGS="submit" for one)
	@$(BIN)/python -m bench.run $(ARGS)

bench-record: setup ## Measure, and make these the recorded figures
	@$(BIN)/python -m bench.run --record $(ARGS)

docs: setup ## Rewrite the generated pages of docs/
	@$(BIN)/python scripts/lifecycle_docs.py
	@$(BIN)/python scripts/exit_code_docs.py
	@$(BIN)/python scripts/openapi_docs.py

lock: setup ## Rewrite the locks in requirements/ (UPGRADE=1 for the newest versions)
	@scripts/lock

setup: ## Make .venv hold what requirements/dev.txt says
	@scripts/setup dev

clean: ## Remove .venv and every cache
	rm -rf .venv .venv.lock .pytest_cache .ruff_cache .hypothesis build dist
	find . -name __pycache__ -not -path './.git/*' -prune -exec rm -rf {} +
