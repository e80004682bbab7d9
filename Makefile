# The environment in .venv is made on first use, and again when pyproject.toml changes.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STORE := examples/store
PARALLEL := -n auto --dist loadscope --no-loadscope-reorder

# The tests start thousands of processes; without its bytecode each would compile the whole program first.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo quick test lint ruff pages site flips golden starts losses clients repairs tiers table rebuilds replays copies live randoms faults reads fuzz damages mutants trust cleaner settings everything matrix speed bench clean

define show
	@printf '\n$$ %s\n' '$(1)'
	@$(BIN)/$(1)
endef

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## /\1 /p' $(MAKEFILE_LIST) | \
	while read -r target text; do printf '  make %-8s %s\n' "$$target" "$$text"; done

# mypy takes a core for a minute: it runs beside the tests, and says what it found behind them.
define test_beside_mypy
	@said=$$(mktemp); $(BIN)/mypy >"$$said" 2>&1 & mypy=$$!; \
	echo '$(BIN)/python -m pytest $(1)'; $(BIN)/python -m pytest $(1); status=$$?; \
	wait $$mypy || status=1; echo '$(BIN)/mypy'; cat "$$said"; rm "$$said"; exit $$status
endef

demo: $(VENV)/.demo ## install into .venv, put every command to the example store, ask Spark SQL
	$(call show,rmqtool inspect $(STORE))
	$(call show,rmqtool inspect $(STORE)/commitlog --limit 2)
	$(call show,rmqtool verify $(STORE))
	$(call show,rmqtool query $(STORE) --key ORD-1010 --topic payments)
	$(call show,rmqtool clean $(STORE) --dry-run)
	$(call show,rmqtool rebuild-cq $(STORE) --dry-run)
	@examples/demo_export.sh $(BIN) $(STORE)

quick: ruff ## ruff and the fast tests of every room: 90 seconds, no Java
	$(BIN)/python -m pytest --quick -q $(PARALLEL)

test: $(VENV)/.test ## install everything that the tests need, then lint and run all tests
	@tests/setup-java.sh
	@$(MAKE) --no-print-directory ruff
	$(call test_beside_mypy,$(PARALLEL))

lint: ruff ## ruff and mypy
	$(BIN)/mypy

ruff: $(VENV)/.test ## ruff alone: style and form
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

pages: $(VENV)/.test ## write what is made from the program: findings, man pages, schemas, sentences, pictures
	$(BIN)/python -m tests.findings.findings_page
	$(BIN)/python -m tests.commands.man_pages
	$(BIN)/python -m tests.commands.schema_pages
	$(BIN)/python -m tests.words.sentences
	$(BIN)/python -m tests.rooms_picture
	$(BIN)/python -m tests.pictures
	$(BIN)/rmqtool completion bash > docs/completions/rmqtool
	$(BIN)/rmqtool completion zsh > docs/completions/_rmqtool
	$(BIN)/rmqtool completion fish > docs/completions/rmqtool.fish

site: $(VENV)/.test ## build the site of docs/ below build/site
	$(BIN)/mkdocs build --strict -f .mkdocs.yml -d build/site

flips: $(VENV)/.test ## change each byte of a small store and cut a log at each, and verify: an hour
	$(BIN)/python -m tests.verify.flips -j "$$(nproc)"
	$(BIN)/python -m tests.verify.cuts -j "$$(nproc)"

golden: $(VENV)/.test ## write the golden stores anew with RocketMQ itself
	@tests/setup-java.sh
	$(BIN)/python -m tests.real_broker.golden

starts: $(VENV)/.test ## compare predicted starts with those of RocketMQ itself, hundreds of them
	@tests/setup-java.sh
	$(BIN)/python -m tests.real_broker.starts

losses: $(VENV)/.test ## hold verdicts to what users of RocketMQ itself lose in 300 stores, and to 100 healthy ones
	@tests/setup-java.sh
	$(BIN)/python -m tests.real_broker.losses
	$(BIN)/python -m tests.real_broker.healthy

clients: $(VENV)/.test ## hold losses of clients that verify counts to RocketMQ itself in 300 stores; the table of docs/verify.md
	@tests/setup-java.sh
	$(BIN)/python -m tests.real_broker.clients --record
	$(BIN)/python -m tests.real_broker.clients --healthy --count 8

tiers: $(VENV)/.test ## damage 60 tiers and compacted queues, repair, and ask RocketMQ itself what consumers get
	@tests/setup-java.sh
	$(BIN)/python -m tests.real_broker.tiers

repairs: $(VENV)/.test ## damage 200 stores, make every fault and every loss, repair, and ask RocketMQ itself what its users have
	@tests/setup-java.sh
	$(BIN)/python -m tests.real_broker.repairs
	$(BIN)/python -m tests.real_broker.repairs --catalogue --record
	$(BIN)/python -m tests.real_broker.repairs --matrix

table: $(VENV)/.test ## ask RocketMQ itself what each kind of loss costs, and write the table of docs/verify.md
	@tests/setup-java.sh
	$(BIN)/python -m tests.real_broker.losses --matrix --record
	$(BIN)/python -m tests.verify.losses_page

rebuilds: $(VENV)/.test ## compare rebuilds of 200 random logs with RocketMQ's own
	@tests/setup-java.sh
	$(BIN)/python -m tests.real_broker.rebuilds

replays: $(VENV)/.test ## send a store to RocketMQ itself, kill rmqtool 210 times meanwhile, and count what a consumer gets
	@tests/setup-java.sh
	$(BIN)/python -m tests.real_broker.replays

live: $(VENV)/.test ## run commands in turns beside running brokers: an hour each; LIVE_MINUTES=5: five minutes
	@tests/setup-java.sh
	$(BIN)/python -m tests.real_broker.live_runs --minutes $(or $(LIVE_MINUTES),60) --record

copies: $(VENV)/.test ## copy stores of running brokers, and let RocketMQ say what is missing; the table of docs/copy.md
	@tests/setup-java.sh
	$(BIN)/python -m tests.real_broker.copies
	$(BIN)/python -m tests.real_broker.copies --rocksdb 5.5.0
	$(BIN)/python -m tests.real_broker.copies --cleaning --limit-rate 12MiB

randoms: $(VENV)/.test ## compare random stores, with and without RocksDB, with what RocketMQ itself answers about them
	@tests/setup-java.sh
	$(BIN)/python -m tests.real_broker.random_rocksdb --count 4
	$(BIN)/python -m tests.real_broker.random_rocksdb --count 2 --killed

faults: $(VENV)/.test ## let each call of all that writes fail, be killed or stop, and power fail; FAULTS_EVERY=20: one of 20
	$(BIN)/python -m tests.faults.writing --every $(or $(FAULTS_EVERY),1) --record

reads: $(VENV)/.test ## let every read of golden stores fail, end early, come in pieces or change; READS_EVERY=50: one of 50
	$(BIN)/python -m tests.faults.reading --every $(or $(READS_EVERY),1) --record

fuzz: $(VENV)/.test ## fuzz everything that reads bytes, each target for an hour; FUZZ_SECONDS=60: for a minute
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[fuzz]'
	$(BIN)/python -m tests.fuzz --seconds $(or $(FUZZ_SECONDS),3600) --record

damages: $(VENV)/.test ## damage stores, repair and undo, guided by what comes out: an hour for each; DAMAGES_SECONDS=60: a minute
	$(BIN)/python -m tests.fuzz.damages --seconds $(or $(DAMAGES_SECONDS),3600) --record

mutants: $(VENV)/.test ## change the modules that decide, one place at a time, and see which change no test sees
	$(BIN)/python -m tests.mutants --record

trust: $(VENV)/.test ## write docs/trust.md of what these targets have found
	$(BIN)/python -m tests.trust

cleaner: $(VENV)/.test ## compare 600 predictions of `clean` with the cleaners of RocketMQ itself
	@tests/setup-java.sh
	$(BIN)/python -m tests.real_broker.cleaning

settings: $(VENV)/.test ## write the table of the settings of broker.conf anew, from the classes of every release
	@tests/setup-java.sh
	$(BIN)/python -m tests.real_broker.settings

matrix: ## run the tests of Spark with older pyspark 4, each in an environment of its own (test: the newest)
	@tests/setup-java.sh
	@for version in 4.0 4.1 4.2; do \
	    tests/setup-venv.sh '$(PYTHON)' .venv-pyspark-$$version && \
	    .venv-pyspark-$$version/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[test]' \
	        "pyspark==$$version.*" && \
	    echo "pyspark $$version" && .venv-pyspark-$$version/bin/python -m pytest -q tests/spark || exit; \
	done

everything: $(VENV)/.test ## run every test, with each release of RocketMQ (test: two) and each case (test: samples)
	@tests/setup-java.sh
	RMQTOOL_TEST_ALL=1 $(BIN)/python -m pytest $(PARALLEL)

speed: $(VENV)/.test ## print the table of docs/speed.md: each job against reading with a CRC
	$(BIN)/python -m tests.benchmarks

bench: $(VENV)/.test ## measure speed, against RocketMQ itself and on Spark too: an hour
	$(BIN)/python -m tests.benchmarks
	$(BIN)/python -m tests.benchmarks.spark
	@tests/setup-java.sh
	$(BIN)/python -m tests.benchmarks.java

clean: ## remove what is built or cached; .venv stays
	rm -rf build dist *.egg-info .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -path ./$(VENV) -prune -o -type d -name __pycache__ -prune -exec rm -rf {} +

# Each stamp says: .venv holds what pyproject.toml asks for. pip would compile it with one core, tests of libraries too.
$(VENV)/.demo: pyproject.toml
	@tests/setup-venv.sh '$(PYTHON)' $(VENV)
	@echo 'Installing rmqtool into $(VENV) (once) ...'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(VENV)/.test: pyproject.toml
	@tests/setup-venv.sh '$(PYTHON)' $(VENV)
	@echo 'Installing rmqtool and what its tests need into $(VENV) (once) ...'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --editable '.[test]'
	@$(BIN)/python -m compileall -q -j 0 -x '/tests?/|/moto/' $(VENV)/lib >/dev/null || true
	@touch $(VENV)/.demo $@
