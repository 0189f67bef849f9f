# The front door. Every target does its own set-up; a fresh clone needs Rust, Python 3.11 or newer and a C compiler.
.DEFAULT_GOAL := help
.PHONY: help demo demo-messages smoke test fuzz lint features dependencies advisories bench bench-load bench-proxy bench-instructions bench-messages bench-models bench-relay calibrate pictures recording studies site build dist packages release committed reproduce clean

PYTHON ?= python3
VENV := .venv
READY := $(VENV)/.ready
FUZZ_SECONDS ?= 60
STUDIES ?= c18 b16 a16 d15
WAYSTAGE := target/release/waystage
BENCH_WORKLOADS ?= get pipeline multi-get-10 multi-get-50 set clients-1 clients-1000 get-4k get-128k get-512k
BENCH_FEATURES ?= slow-requests rate-limit allowed-commands replicas-3 per-backend-32 shared-32
DIST := target/dist
# The packages' own build: without debug information, which packages do not have, and without this machine's paths,
# which would make the binary another one in each folder.
PACKAGE_BUILD = CARGO_PROFILE_RELEASE_DEBUG=none RUSTFLAGS='--remap-path-prefix=$(CURDIR)=/waystage --remap-path-prefix=$(or $(CARGO_HOME),$(HOME)/.cargo)=/cargo' \
  cargo build --release --locked --target-dir target/package --package waystage
PACKAGED := target/package/release/waystage
# Rust programs that only lint needs, built without optimisation: building is what takes time, not running.
TOOLS := .tools
CARGO_DENY := $(TOOLS)/cargo-deny-0.20.2/bin/cargo-deny
LINE := $(TOOLS)/line-solver-3.0.8.0/bin/python
CARGO_MACHETE := $(TOOLS)/cargo-machete-0.9.2/bin/cargo-machete

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

demo: build $(READY) ## Measure a real proxy in front of three servers and write a report (about two minutes after the build)
	$(VENV)/bin/waylab run experiments/demo.toml

demo-messages: build $(READY) ## Start a private PostgreSQL and the message service, send and pop, and show where the time went
	$(VENV)/bin/python -m waylab.messages.demo $(WAYSTAGE)

smoke: build $(READY) ## The same path in half a minute, on embedded servers
	$(VENV)/bin/waylab run experiments/smoke.toml

test: build $(READY) ## Every test of both halves
	cargo test --workspace --locked
	$(VENV)/bin/python -m pytest

fuzz: ## Fuzz the parsers, configuration files, the control socket and whole sessions, FUZZ_SECONDS=60 each (0: only the kept inputs)
	fuzz/run $(FUZZ_SECONDS)

lint: $(READY) features dependencies site ## Formatting, lints, types, dependencies and the site; every warning is an error
	cargo fmt --check
	cargo fmt --check --manifest-path fuzz/Cargo.toml
	cargo clippy --workspace --all-targets --locked -- -D warnings
	$(VENV)/bin/ruff format --check
	$(VENV)/bin/ruff check
	$(VENV)/bin/mypy
	$(VENV)/bin/deptry .
	$(VENV)/bin/python docs/site/check_words.py

# Only the binary is checked, and only its own lints can fail: its libraries are the same in every combination.
features: ## Check that each program builds without the others
	for feature in proxy load cache messages simulate link top; do \
	  cargo clippy --quiet --package waystage --locked --no-default-features --features $$feature -- -D warnings || exit 1; \
	done
	cargo clippy --quiet --package proxy --locked -- -D warnings
	cargo clippy --quiet --package waystage --locked --no-default-features --features proxy,otlp -- -D warnings

dependencies: $(CARGO_DENY) $(CARGO_MACHETE) ## Check the Rust packages: licences, sources, bans, duplicates (deny.toml), and none that is unused
	$(CARGO_DENY) --locked check licenses bans sources
	$(CARGO_MACHETE) crates

advisories: $(READY) $(CARGO_DENY) ## Check the pinned packages for known vulnerabilities; needs their databases, so lint does not include it
	$(CARGO_DENY) --locked check advisories
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -c requirements.lock -e '.[audit]'
	$(VENV)/bin/pip-audit --strict --requirement requirements.lock --no-deps --disable-pip

bench: bench-models bench-load ## What the proxy and its stamps cost, what the load generator costs, and how fast the models are, side by side, interleaved (several minutes)
	$(VENV)/bin/waylab run experiments/overhead.toml

bench-models: build $(READY) $(LINE) ## How fast and how exact the models are, beside GNU Octave's queueing (if it is there), Ciw and LINE 3 (half an hour)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -c requirements.lock -e '.[bench]'
	$(VENV)/bin/python tests/speed/models.py
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(VENV)/bin/python tests/speed/layered_models.py --line $(LINE)

bench-load: build $(READY) ## What the load generator costs beside memcached, and how late it is (seven minutes, on an idle machine)
	$(VENV)/bin/python tests/speed/load.py

bench-proxy: build $(READY) ## What a request costs the proxy beside twemproxy, and with each feature; BASELINE=path/to/waystage compares with another build (half an hour, on an idle machine)
	$(VENV)/bin/python tests/speed/proxy.py --proxy this=target/release/waystage $(if $(BASELINE),--proxy baseline=$(BASELINE)) --twemproxy $(BENCH_WORKLOADS:%=--workload %)
	$(VENV)/bin/python tests/speed/proxy.py --proxy this=target/release/waystage $(BENCH_FEATURES:%=--feature %) --workload get --workload pipeline --workload set

bench-instructions: build $(READY) ## Instructions and system calls of the proxy for each request, and of the message service, which a busy machine hardly changes; needs valgrind and strace (ten minutes)
	RUSTFLAGS='--cfg rustix_use_libc' cargo build --release --target-dir target/callgrind -p waystage --no-default-features --features proxy,load
	$(VENV)/bin/python tests/speed/instructions.py --proxy target/callgrind/release/waystage --top 25
	$(VENV)/bin/python tests/speed/instructions.py --proxy $(WAYSTAGE) --calls --top 6
	$(VENV)/bin/python tests/speed/instructions.py --proxy $(WAYSTAGE) --messages --top 25

bench-relay: build $(READY) ## What io_uring would save the proxy: a bare relay with epoll and with io_uring (half an hour)
	cargo build --release --locked --manifest-path tests/speed/relay/Cargo.toml --target-dir target/relay
	$(VENV)/bin/python tests/speed/relay.py --proxy $(WAYSTAGE) --relay target/relay/release/relay

bench-messages: build $(READY) ## The message service beside pgmq, beanstalkd and a plain INSERT, and with a million dead rows (ten minutes, on an idle machine)
	$(VENV)/bin/python tests/speed/messages.py
	$(VENV)/bin/python tests/speed/dead_rows.py

calibrate: build $(READY) ## The lab against a server whose truth is known (several minutes)
	$(VENV)/bin/waylab run experiments/calibrate.toml

pictures: $(READY) ## Draw the pictures of the pages, light and dark; RUN=results/TIME-demo and PREDICT=results/TIME-predict take the data of these runs
	$(VENV)/bin/python docs/images/draw.py $(if $(RUN),--demo $(RUN)) $(if $(PREDICT),--predict $(PREDICT))

recording: build $(READY) ## Record the README's terminal (half a minute, on an idle machine)
	$(VENV)/bin/python docs/images/terminal/record.py

# The specifications need root for emulated hosts, and an idle machine: their gates reject trials beside other programs.
studies: build $(READY) ## Measure the published studies and write docs/field-results again, STUDIES="c18 d15" (2.5 hours, as root)
	$(VENV)/bin/waylab study --quick --document docs/field-results $(STUDIES:%=experiments/studies/%.toml)

site: $(READY) ## Build the documentation site, target/site/index.html, which works without a server; a dead link is an error
	$(VENV)/bin/python docs/site/build_site.py

build: ## The program waystage, optimised
	cargo build --release --locked

dist: packages ## Build the packages into target/dist: a wheel, two Debian packages, a bill of materials and the source archive
	$(PYTHON) packaging/source.py $(DIST)

# The binary with the proxy alone is built first, because both have the same name.
packages:
	rm -rf $(DIST)
	mkdir -p $(DIST)
	$(PACKAGE_BUILD) --no-default-features --features proxy,otlp
	cp $(PACKAGED) $(DIST)/waystage-proxy-only
	$(PACKAGE_BUILD)
	$(PYTHON) packaging/wheel.py $(PACKAGED) $(DIST)
	$(PYTHON) packaging/debian.py $(PACKAGED) $(DIST)/waystage-proxy-only $(DIST)
	$(PYTHON) packaging/sbom.py $(DIST)/waystage-sbom.cdx.json
	rm $(DIST)/waystage-proxy-only

release: committed dist $(READY) ## The packages with their checksums, after every test of them; publishes nothing
	cd $(DIST) && sha256sum *.whl *.deb *.tar.gz *.json > SHA256SUMS && sha256sum --check --quiet SHA256SUMS
	WAYSTAGE_DIST=$(abspath $(DIST)) WAYSTAGE_BIN=$(abspath $(PACKAGED)) $(VENV)/bin/python -m pytest tests/test_packages.py tests/test_debian_packages.py

# The archive has only what is committed; packages with other content would not be those of any commit.
committed:
	@test -z "$$(git status --porcelain)" || { echo "make release: commit or remove these changes first:"; git status --short; exit 1; }

# From another folder, and so with other paths. What differs would be a path, a time or a random number in a package.
reproduce: ## Build the packages of `make release` again from the source archive, and compare the checksums
	rm -rf target/again && mkdir -p target/again
	tar -xzf $(DIST)/waystage-*.tar.gz -C target/again --strip-components=1
	$(MAKE) -C target/again packages PYTHON=$(abspath $(shell command -v $(PYTHON)))
	cd target/again/$(DIST) && grep -v '\.tar\.gz$$' $(abspath $(DIST))/SHA256SUMS | sha256sum --check
	rm -rf target/again

# A peer of bench-models only. LINE pins other versions of our packages, so it has an environment of its own.
$(LINE):
	$(PYTHON) -m venv $(TOOLS)/line-solver-3.0.8.0
	$@ -m pip install --quiet --disable-pip-version-check line-solver==3.0.8.0 || { rm -rf $(TOOLS)/line-solver-3.0.8.0; exit 1; }

$(CARGO_DENY):
	cargo install --quiet --locked --debug --root $(TOOLS)/cargo-deny-0.20.2 cargo-deny --version 0.20.2

$(CARGO_MACHETE):
	cargo install --quiet --locked --debug --root $(TOOLS)/cargo-machete-0.9.2 cargo-machete --version 0.9.2

$(READY): pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "waylab needs Python 3.11 or newer; this is " + sys.version.split()[0] + " (set PYTHON=)")'
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -c requirements.lock -e '.[dev,site]'
	touch $@

clean: ## Remove what was built (results stay)
	rm -rf target $(VENV) $(TOOLS)
