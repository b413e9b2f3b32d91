# baseload: `make help`
.DEFAULT_GOAL := help
.PHONY: help setup setup-tests demo demo-gcp demo-burst demo-data demo-edge demo-federated up down status test check style ladder compiled node-image faults faults-cloud faults-data faults-edge simulate bench mutants tctl
SHELL := /bin/sh

help:  ## Show this list
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup:  ## Install what the software needs: locked dependencies, the Temporal binary
	@python=$$(sh deploy/setup/python.sh) && "$$python" deploy/setup/environment.py
	@.venv/bin/python deploy/setup/guide.py
	@.venv/bin/python deploy/setup/temporal.py

demo: setup  ## Bring everything up and run a real training job on this machine
	@.venv/bin/python -m workers.runner demo

demo-gcp: setup-tests  ## Burst into a simulated Google Cloud, from the key to the bill (as root)
	@.venv/bin/python -m tests.demo_gcp

demo-burst: setup-tests  ## Rent machines at a simulated RunPod and Vast.ai, from the keys to the bill (as root)
	@.venv/bin/python -m tests.demo_burst

demo-data: setup-tests  ## Datasets, NFS and SMB shares, a storage node, a reservation, on lab machines (as root)
	@.venv/bin/python -m tests.demo_data

demo-edge: setup-tests  ## Devices at the edge: deploy, roll back, power cut, on lab machines (as root)
	@.venv/bin/python -m tests.demo_edge

demo-federated: setup-tests  ## A model at the data of another party: refusals, consent, statements, on a lab machine (as root)
	@.venv/bin/python -m tests.demo_federated

up: setup  ## Bring everything up: Temporal, API, workers, this machine as an active node
	@.venv/bin/python -m workers.runner up

down:  ## End everything that was started; jobs on nodes go on
	@if [ -x .venv/bin/python ]; then .venv/bin/python -m workers.runner down; fi

status:  ## Show what runs
	@.venv/bin/python -m workers.runner status || :

setup-tests: setup  ## Install what the tests need: Debian packages, the time-skipping server, tctl
	@.venv/bin/python deploy/setup/tests.py

# With ARGS that part alone, without the checks; else everything.
test: setup-tests  ## Run every check and every test; ARGS=tests/workflows: those tests alone
	@$(if $(ARGS),,$(MAKE) --no-print-directory --jobs=2 --output-sync style ladder compiled)
	.venv/bin/pytest -n 6 --no-loadscope-reorder $(or $(ARGS),--ignore tests/architecture)

check: setup  ## ruff, mypy --strict, the architecture tests
	@$(MAKE) --no-print-directory --jobs=2 --output-sync style ladder

style:
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy

ladder:
	.venv/bin/pytest -q tests/architecture

# pytest compiles tests anew in each of its processes, unless one has kept what it compiled.
compiled:
	@told=$$(PYTHONDONTWRITEBYTECODE= .venv/bin/pytest --collect-only -q -p no:xdist) || { echo "$$told"; exit 1; }

# As root: live-build makes a system in a folder. NVIDIA=no leaves the driver of NVIDIA's cards out.
node-image:  ## Build the live image of boot drives, as root
	@sh deploy/node/image/build.sh

faults: setup-tests  ## Inject faults into whole processes and machines, and print one table
	.venv/bin/python -m tests.chaos $(ARGS)

faults-data: setup-tests  ## Break off, spoil and repeat data on their way to nodes, and print one table
	.venv/bin/python -m tests.chaos.transfers $(ARGS)

faults-edge: setup-tests  ## Cut power, network and disk of devices during deployments, and print one table
	.venv/bin/python -m tests.chaos.edge $(ARGS)

faults-cloud: setup-tests  ## Kill our processes while machines are leased; ARGS=runpod (vastai, local, colab)
	.venv/bin/python -m tests.chaos.cloud $(ARGS)

simulate: setup-tests  ## Play lives in virtual time until stopped; ARGS="--lives N", "--seed N"
	.venv/bin/python -m tests.simulation $(ARGS)

bench: setup  ## Measure, and print one table
	.venv/bin/python -m tests.bench

mutants: setup-tests  ## Plant mistakes and count those that tests see; ARGS=rules/billing: one folder (all: hours)
	@.venv/bin/python deploy/setup/mutants.py
	.baseload/mutants/venv/bin/python -m tests.mutants $(ARGS)

tctl: setup  ## Build tctl against the running stack, on demand
	@.venv/bin/python deploy/setup/tctl.py
