# Everything here needs Python 3.11 or newer, make and git, and a network for the set-up only.
#
#   make demo     the whole job on sample dead letters and an embedded broker
#   make test     every test that needs nothing else; what it leaves to other targets is in pyproject.toml
#   make setup    the environment of tests and checks, in .venv; the demo needs less of it
#   make check    format, lint and types
#   make crash    kill -9 under load, ROUNDS times, and count every effect (SEED=N repeats a run),
#                 also what consumers that go on failing get in rounds of put and processing, and what
#                 becomes of a dead-letter topic that is deleted and recreated 30 times;
#                 operators' commands are killed too, as in crash-cluster, soak, late-end, cluster, restarts
#   make crash-cluster  the same on three brokers, which are killed, paused and restarted too; tables change
#   make soak     the job for HOURS at 70 % of what it can do, while something dies now and then;
#                 memory, open files and threads have to stay flat
#   make instances  instances that share the partitions out, killed, added, frozen and renewed for MINUTES
#   make late-end  commits that arrive a second time, in the next transaction, TIMES times
#   make cluster  the scripts for a standalone cluster, and the job on a Spark master and two workers that are killed: RECORDS dead letters
#   make resilience  a real broker that is stopped, killed and paused under the job, topics that change, a full disk, a Java that dies, calls that hang
#   make security  the least rights on a broker with passwords, TLS and an authorizer, each left out once
#   make test-console  the console in a real Chromium beside a real job; SCREENSHOTS=docs/console keeps pictures
#   make transcripts  write down anew what every command and page answers; git shows what changed
#   make fuzz     each property of the tests with 1,000 examples and not 40; damaged records, RECORDS of
#                 them, and damaged texts for SECONDS each
#   make mutations  plant mistakes in the protocol, and let the simulation find each of them
#   make restarts  RESTARTS restarts under load, some with broken tables; each message has one whole table
#   make bench    the benchmarks; an error if a ratio is below the one that was kept
#   make bench-peers  Redrive beside what one would use instead, ROUNDS rounds of RECORDS records each
#   make libraries  the dead letters in tests/libraries again, written by the real libraries on an embedded
#                 broker: needs Maven and a JDK; LIBRARIES="streams spring" makes some of them
#   make docs     the site of the documentation, in build/site; a broken link or anchor is an error
#   make dist     the source distribution, the wheel and a bill of materials, in dist
#   make release-test  what make dist builds, and the demo from the wheel in an environment of its own
#   make images   the image of a container, with podman or buildah; it says why where that can't be
#   make kubernetes  the chart, rendered by helm and taken by an API server; Go builds both, and the server's
#                 store, which takes ten minutes of processor time once; needs kubectl
#   make test-deployment  the units as systemd judges them, the alerts as promtool does, and the dashboard on
#                 a real Prometheus beside a real job
#   make lock     resolve the Python dependencies again
#   make clean    remove what was built, not what was downloaded

VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check install --quiet
ROUNDS ?= 20
TIMES ?= 1000
RESTARTS ?= 50
HOURS ?= 2
RECORDS ?=
SECONDS ?= 60
SEED   ?=
UV     := uv==0.13.8
KUBERNETES := 34.4
HELM   := helm.sh/helm/v3/cmd/helm@v3.22.0
# Runs files that `make test` leaves out, as pyproject.toml says.
PYTEST := $(BIN)/python -m pytest --override-ini=addopts=--import-mode=importlib
needs = @for program in $(1); do \
    command -v $$program >/dev/null || { echo "this needs $$program, of Debian's $(2)"; exit 1; }; done
# A worker uses some 0.7 cores, as tests wait, so three use two cores. Each takes 1.4 GB with its
# broker and its Spark, and up to twice as much while it runs a job in a process of its own.
WORKERS := --numprocesses 3 --dist loadfile --no-loadscope-reorder

.PHONY: demo test transcripts setup check crash crash-cluster soak late-end cluster resilience fuzz security mutations restarts instances test-console test-deployment bench bench-peers docs dist images kubernetes libraries release-test lock clean
.DELETE_ON_ERROR:

# Archives of classes come last: they take longer to make than they save the first time.
demo: $(VENV)/.project
	$(BIN)/redrive demo
	@$(BIN)/redrive setup

test: setup
	$(BIN)/python -m pytest $(WORKERS) $(ARGUMENTS)

transcripts: setup
	$(BIN)/python -m pytest -n0 tests/transcripts --write-transcripts

setup: $(VENV)/.development
	@$(BIN)/redrive setup

check: $(VENV)/.development
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy

crash: setup
	$(BIN)/python -m benchmarks.crash --rounds $(ROUNDS) $(if $(SEED),--seed $(SEED))
	$(BIN)/python -m benchmarks.crash_channels --rounds $(ROUNDS) $(if $(SEED),--seed $(SEED))
	$(BIN)/python -m benchmarks.crash_dialect --rounds $(ROUNDS) $(if $(SEED),--seed $(SEED))
	$(BIN)/python -m benchmarks.rounds --rounds $(ROUNDS) $(if $(SEED),--seed $(SEED))
	$(BIN)/python -m benchmarks.rounds --rounds $(ROUNDS) $(if $(SEED),--seed $(SEED)) --ordered
	$(BIN)/python -m benchmarks.breaker --rounds 5 $(if $(SEED),--seed $(SEED))
	$(BIN)/python -m benchmarks.recreated --rounds 30 $(if $(SEED),--seed $(SEED))

crash-cluster: setup
	$(BIN)/python -m benchmarks.crash_cluster --rounds $(ROUNDS) $(if $(SEED),--seed $(SEED)) \
	    --report build/crash-cluster.json
	$(BIN)/python -m benchmarks.instances_cluster $(if $(MINUTES),--minutes $(MINUTES)) \
	    $(if $(SEED),--seed $(SEED))

soak: setup
	$(BIN)/python -m benchmarks.soak --hours $(HOURS) $(if $(SEED),--seed $(SEED))

instances: setup
	$(BIN)/python -m benchmarks.instances $(if $(MINUTES),--minutes $(MINUTES)) $(if $(SEED),--seed $(SEED))

late-end: setup
	$(BIN)/python -m benchmarks.late_end --times $(TIMES) $(if $(SEED),--seed $(SEED))

cluster: setup
	$(PYTEST) tests/deploy/test_standalone.py
	$(BIN)/python -m benchmarks.cluster $(if $(RECORDS),--records $(RECORDS)) $(if $(SEED),--seed $(SEED))

resilience: setup
	$(PYTEST) tests/streaming/test_resilience.py \
	    tests/streaming/test_old_plans.py \
	    tests/streaming/test_end.py \
	    tests/streaming/test_stopped_handlers.py tests/streaming/test_wait.py \
	    tests/streaming/test_remote_ledger.py tests/outcomes/test_two_writers.py \
	    tests/streaming/test_full_disk.py tests/runtime/test_several_brokers.py

security: setup
	$(PYTEST) tests/security

test-console: setup
	$(call needs,chromium chromedriver,chromium and chromium-driver)
	$(if $(SCREENSHOTS),SCREENSHOTS=$(SCREENSHOTS)) $(PYTEST) tests/console/test_browser.py

test-deployment: setup
	$(call needs,systemd-analyze prometheus promtool,systemd and prometheus)
	$(PYTEST) tests/deploy/test_programs.py tests/observe/test_alerts.py tests/streaming/test_dashboard.py

fuzz: setup
	$(PYTEST) $(WORKERS) -m hypothesis --hypothesis-profile=fuzz tests
	$(BIN)/python -m tests.fuzz.random_inputs records --count $(or $(RECORDS),100000) --seconds inf $(if $(SEED),--seed $(SEED))
	$(BIN)/python -m tests.fuzz.random_inputs rules --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))
	$(BIN)/python -m tests.fuzz.random_inputs mqsc --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))

mutations: $(VENV)/.development
	$(BIN)/python -m pytest tests/simulation --schedules 1000 -k whatever_fails
	$(BIN)/python -m tests.simulation.mutations

restarts: setup
	$(BIN)/python -m benchmarks.restarts --restarts $(RESTARTS) $(if $(SEED),--seed $(SEED))

libraries: setup
	$(BIN)/python -m tests.libraries.make $(LIBRARIES)

bench: setup
	$(BIN)/python -m benchmarks

bench-peers: ROUNDS = 3
bench-peers: setup
	$(BIN)/python -m benchmarks.peers --rounds $(ROUNDS) $(if $(RECORDS),--records $(RECORDS))
	$(BIN)/python -m benchmarks.peers --latency
	$(BIN)/python -m benchmarks.peers.matchers
	$(BIN)/python -m benchmarks.peers --table

docs: .docs/.packages
	NO_MKDOCS_2_WARNING=1 .docs/bin/python -m mkdocs build --strict

# The time of the commit stands for that of the build, so that two builds give the same bytes.
dist: export SOURCE_DATE_EPOCH := $(shell git log -1 --format=%ct 2>/dev/null || echo 0)
dist: $(VENV)/.project
	rm -rf dist
	$(BIN)/python -m hatchling build --directory $(CURDIR)/dist
	$(BIN)/python deploy/release/sbom.py dist/redrive-$$($(BIN)/python -m hatchling version).cdx.json
	cd dist && sha256sum redrive-* > SHA256SUMS

images:
	python3 deploy/container/build_image.py

# Kubernetes replaces some of its modules by folders beside it, so it can't be installed by its name
# alone: here their published versions stand for them. Go compares all with its checksum database.
kubernetes: export PATH := $(CURDIR)/.kubernetes:$(PATH)
kubernetes: setup .kubernetes/kube-apiserver .kubernetes/helm
	$(call needs,kubectl,kubernetes-client)
	$(PYTEST) tests/deploy/test_chart.py tests/deploy/test_api_server.py

.kubernetes/helm: .kubernetes/kube-apiserver
	GOBIN=$(CURDIR)/.kubernetes CGO_ENABLED=0 go install $(HELM)

.kubernetes/kube-apiserver:
	rm -rf .kubernetes && mkdir .kubernetes
	cd .kubernetes && go mod init kubernetes && go mod download k8s.io/kubernetes@v1.$(KUBERNETES)
	cd .kubernetes && sed -nE 's#^\s(k8s.io/\S+) => \./staging/.*#-replace=\1=\1@v0.$(KUBERNETES)#p' \
	    $$(go env GOMODCACHE)/cache/download/k8s.io/kubernetes/@v/v1.$(KUBERNETES).mod \
	    | xargs go mod edit -require=k8s.io/kubernetes@v1.$(KUBERNETES)
	cd .kubernetes && go build -mod=mod -o etcd go.etcd.io/etcd/server/v3
	cd .kubernetes && go build -mod=mod -o kube-apiserver \
	    -ldflags "-X k8s.io/component-base/version.gitVersion=v1.$(KUBERNETES)" k8s.io/kubernetes/cmd/kube-apiserver

release-test: setup dist
	$(PYTEST) tests/release

# Each step leaves a stamp in the environment, so that a step that was interrupted runs again.

$(VENV)/.created:
	@set -e; \
	for python in $(PYTHON) python3 python3.14 python3.13 python3.12 python3.11; do \
	    if $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	        break; \
	    fi; \
	    python=; \
	done; \
	if [ -z "$$python" ]; then \
	    echo "error: no Python 3.11 or newer on the PATH" >&2; \
	    echo "hint: install one, or name it: make PYTHON=/path/to/python3" >&2; \
	    exit 1; \
	fi; \
	if ! $$python -c 'import ensurepip, venv' 2>/dev/null; then \
	    echo "error: $$python cannot make virtual environments" >&2; \
	    echo "hint: on Debian and Ubuntu they are a package of their own: apt-get install python3-venv" >&2; \
	    exit 1; \
	fi; \
	echo "Making $(VENV) with $$($$python --version)"; \
	$$python -m venv --clear $(VENV)
	@touch $@

# Whatever has to be built is built with locked tools: nothing that is not locked is fetched. The jars
# of pyspark are compressed already, so its wheel stores them.
$(VENV)/.packages: export DIST_EXTRA_CONFIG := $(CURDIR)/$(VENV)/stored.cfg
$(VENV)/.packages: build.lock requirements.lock $(VENV)/.created
	@echo "Installing the locked Python packages, which takes a minute or two"
	@printf '[bdist_wheel]\ncompression = stored\n' > $(VENV)/stored.cfg
	$(PIP) --require-hashes --only-binary :all: -r build.lock
	$(PIP) --require-hashes --no-build-isolation -r requirements.lock
	@touch $@

$(VENV)/.project: pyproject.toml $(VENV)/.packages
	$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.development: development.lock $(VENV)/.project
	$(PIP) --require-hashes --only-binary :all: -r development.lock
	@touch $@

# An environment of its own: what makes the site is no part of the project's.
.docs/.packages: docs.lock $(VENV)/.created
	$(BIN)/python -m venv --clear .docs
	.docs/bin/python -m pip --disable-pip-version-check install --quiet --require-hashes --only-binary :all: -r docs.lock
	@touch $@

# Four locks: what builds a package has to be there before it, and a demo needs no tools for tests.
COMPILE := .lock/bin/uv pip compile --universal --generate-hashes --no-emit-index-url --no-header \
           --python-version 3.11 --upgrade

lock: $(VENV)/.created
	$(BIN)/python -m venv --clear .lock
	.lock/bin/python -m pip --disable-pip-version-check install --quiet $(UV)
	$(COMPILE) --extra console --extra registry pyproject.toml --output-file requirements.lock >/dev/null
	$(COMPILE) --group pyproject.toml:build --constraints requirements.lock --output-file build.lock >/dev/null
	$(COMPILE) --group pyproject.toml:development --constraints requirements.lock --constraints build.lock \
	    --output-file development.lock >/dev/null
	$(COMPILE) --group pyproject.toml:docs --constraints requirements.lock --output-file docs.lock >/dev/null
	rm -rf .lock

clean:
	rm -rf build dist .lock .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
