# The project's commands; `make help` lists them. Each sets up what it needs:
# a Go toolchain, gcc, git and make are enough.

GO        ?= go
FUZZTIME  ?= 20s
BENCHTIME ?= 200ms
SOAKTIME  ?= 2m
BIN       := bin/popefgen
# What builds or checks collects garbage less often, compilers and tests alike: a fifth less processor time. What measures does not.
build test unit race lint vet staticcheck golden hostile poplar check-generated clients-test cross mutants: export GOGC ?= 400
# Packages tested at a time: many tests wait for clocks and other processes.
PARALLEL  ?= $(shell echo $$((2 * $$(getconf _NPROCESSORS_ONLN || echo 2))))

# What is not of the main module, so that users do not download what it needs.
# Those of the benchmarks and of Kubernetes' own reader of manifests, for which other projects are compiled for minutes,
# are among them with POPEFGEN_TESTS=all alone; make bench-test tests the first.
MODULES   := serve/grpc serve/nats serve/otel ipu/cpu/internal/kernel/internal/asm $(if $(filter all,$(POPEFGEN_TESTS)),bench serve/grpc/internal/manifests/strict)

.DEFAULT_GOAL := help
.PHONY: vet staticcheck tests staticcheck-beside unit-main unit-modules poplar poplar-all poplar-none poplar-folder poplar-safety poplar-suite poplar-bench poplar-check release serve-clients clients-test bench-serve bench-train help run build test unit race lint hostile golden generate check-generated fuzz-short bench mechanisms calibrate bench-peers performance bench-test soak cross cross-test wasm-test mutants figures picture

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: build ## compile a digits model, generate its package, classify scanned digits
	@sh generated_examples/digits/demo.sh $(BIN)

build: ## build the popefgen command into bin/
	@$(GO) build -o $(BIN) ./cmd/popefgen

test: vet ## everything that must pass: lint, tests (goldens among them), race tests, make poplar where g++ is, generated code
	@$(GO) list -export -test ./... >/dev/null # compiled once, for both of the next
	@$(MAKE) --no-print-directory -j2 tests staticcheck-beside
	@$(MAKE) --no-print-directory -j3 unit-modules $(if $(shell command -v g++),poplar-all,poplar-none)
	@$(MAKE) --no-print-directory check-generated

# What make test runs at the same time: tests, which often wait, and beside them, with less of the processor, what only reads.
tests:
	@$(MAKE) --no-print-directory unit-main && $(MAKE) --no-print-directory race

staticcheck-beside:
	@nice -n 5 $(MAKE) --no-print-directory staticcheck

unit: unit-main unit-modules ## all tests of every module (POPEFGEN_TESTS=all: also what they sample otherwise); make lint vets

unit-main:
	$(GO) test -vet=off -p $(PARALLEL) -timeout 20m ./...

unit-modules:
	@for m in $(MODULES); do echo "$(GO) -C $$m test -vet=off ./..."; $(GO) -C $$m test -vet=off -p $(PARALLEL) -timeout 20m ./... || exit 1; done

# What make unit runs too, and where nothing happens at the same time: which
# passes apply, what errors and documents say, damaged files.
ALONE     := ^(TestPasses.*|TestNearMisses.*|TestErrorsSay.*|TestDecode.*|TestDeepGraphs|TestEveryPattern|TestCancelLongKernel|Test.*Doc)$$

# Families of kernels, whose tests compare numbers: what their threads share is tested above them, by TestPartsTouchNothingInCommon.
FAMILIES  := $(if $(filter all,$(POPEFGEN_TESTS)),^$$,/ipu/cpu/internal/kernel/[a-z]+$$)

race: ## the concurrent packages under the race detector (POPEFGEN_TESTS=all: every family of kernels too)
	@packages="$$(GO="$(GO)" sh .ci/race.sh ./rt/... ./ipu/... ./serve/... ./generated_examples/...)" && \
	echo "$(GO) test -race -short of $$(echo "$$packages" | wc -l) packages" && $(GO) test -vet=off -p $(PARALLEL) -race -short -skip '$(ALONE)' $$(echo "$$packages" | grep -vE '$(FAMILIES)') ./ipu/cpu/internal/kernel/tensor

POPLAR_TAGS := -tags poplar,poplarfake

poplar: ## the back end for IPUs on a fake of Poplar: shim and fake under sanitizers without Go, the tests for Poplar 3.2 with the race detector and cgocheck2 and for 3.3, feature rows, soak, every golden and example package, the report for owners of IPUs (needs g++; part of make test where it is)
	@$(MAKE) --no-print-directory -j2 poplar-all

poplar-all: poplar-safety poplar-suite
	@echo "ran: shim and fake under sanitizers and the tests, for Poplar 3.2 (-race, cgocheck2) and 3.3; golden and example packages but for $$(wc -l <ipu/poplar/testdata/elsewhere.txt) tests (ipu/poplar/testdata/elsewhere.txt);"; \
	echo "the report on the fake as libpoplar.so, of which $$(grep -c '^fits' build/poplar/adder.popef.log) parts fit and a planted one differs"

poplar-none:
	@echo "skipped the Poplar back end: no g++"

poplar-folder:
	@rm -rf build/poplar && mkdir -p build/poplar/sdk/lib && ln -s $(CURDIR)/ipu/poplar/internal/fakesdk build/poplar/sdk/include

# What make poplar runs at the same time.
poplar-safety: poplar-folder
	@for c in "303 address,undefined" "302 thread"; do sh ipu/poplar/check.sh build/poplar $$c || exit 1; done
	GOEXPERIMENT=cgocheck2 CGO_CXXFLAGS="-O1 -g -DFAKE_POPLAR_API=302" $(GO) test -vet=off -count=1 -race $(POPLAR_TAGS) ./ipu/poplar/...

poplar-suite: poplar-folder
	POPLAR_MODEL_DIR=$(CURDIR)/build/poplar $(GO) test -vet=off -count=1 $(POPLAR_TAGS) ./ipu/poplar/...
	POPEFGEN_POPLAR_ROWS=1 $(GO) test -vet=off -count=1 -run '^TestRows$$' $(POPLAR_TAGS) ./ipu/poplar
	POPEFGEN_SOAK=5s $(GO) test -vet=off -count=1 -run '^TestSoak$$' $(POPLAR_TAGS) ./rt
	g++ -std=c++17 -O1 -fPIC -shared -Ibuild/poplar/sdk/include ipu/poplar/internal/fakesdk/poplar/*.cpp -o build/poplar/sdk/lib/libpoplar.so
	@export POPLAR_SDK_ENABLED=$(CURDIR)/build/poplar/sdk GO="$(GO)"; report() { POPLAR_MODEL=build/poplar/$$1 sh ipu/poplar/report.sh build/poplar/sdk >build/poplar/$$1.log; }; \
	(export FAKE_POPLAR_IPUS=0; report adder.popef; grep '^0 parts differ' build/poplar/adder.popef.log && [ "$$(grep -c '^not tried' build/poplar/adder.popef.log)" -ge 12 ]) || { cat build/poplar/adder.popef.log; exit 1; }; \
	report adder.popef; grep -B9 DIFFERS build/poplar/adder.popef.log; grep '^0 parts differ' build/poplar/adder.popef.log || exit 1; \
	report other.popef; grep '^[1-9][0-9]* parts differ' build/poplar/other.popef.log || { cat build/poplar/other.popef.log; exit 1; }
	FAKE_POPLAR_IPUS=16 POPEFGEN_BACKEND=poplar $(GO) test -vet=off -count=1 -skip "^($$(cut -f1 ipu/poplar/testdata/elsewhere.txt | paste -sd '|'))$$" $(POPLAR_TAGS) ./golden/... ./generated_examples/...

poplar-bench: ## requests through the rings beside a C++ program that drives the fake with the same, in turns (needs g++)
	@mkdir -p build/poplar/bench
	@for f in shim.cpp shim_engine.cpp testdata/bench.cpp; do g++ -std=c++17 -g -O2 -Iipu/poplar/internal/fakesdk -c ipu/poplar/$$f -o build/poplar/bench/$$(basename $$f .cpp).o || exit 1; done
	@for f in ipu/poplar/internal/fakesdk/poplar/*.cpp; do g++ -std=c++17 -g -O1 -Iipu/poplar/internal/fakesdk -c $$f -o build/poplar/bench/fake_$$(basename $$f .cpp).o || exit 1; done
	@g++ build/poplar/bench/*.o -o build/poplar/bench/bench -pthread
	@$(GO) test -vet=off -count=1 -v -run '^TestAgainstCpp$$' $(POPLAR_TAGS) ./ipu/poplar -against $(CURDIR)/build/poplar/bench/bench

poplar-check: ## on a machine with Poplar's SDK: does the back end fit it? Writes build/poplar/report.txt, to be sent back
	@mkdir -p build/poplar; GO="$(GO)" sh ipu/poplar/report.sh build/poplar

lint: vet staticcheck ## gofmt, go vet and staticcheck of every module (POPEFGEN_TESTS=all: also functions that nothing reaches)

vet:
	@out="$$(gofmt -l $$(git ls-files -co --exclude-standard '*.go'))"; \
	if [ -n "$$out" ]; then echo "gofmt would change:"; echo "$$out"; exit 1; fi
	$(GO) vet ./...

staticcheck:
	$(GO) tool staticcheck ./...
	@if command -v g++ >/dev/null; then set -x; $(GO) vet $(POPLAR_TAGS) ./ipu/poplar/... ./rt/genrt && $(GO) tool staticcheck $(POPLAR_TAGS) ./ipu/poplar/...; fi
	@if [ "$(POPEFGEN_TESTS)" = all ]; then GO="$(GO)" sh .ci/deadcode.sh serve/grpc serve/nats serve/otel; fi
	@tool="$$($(GO) tool -n staticcheck)"; for m in $(MODULES); do \
	  echo "vet and staticcheck $$m"; $(GO) -C $$m vet ./... && (cd $$m && "$$tool" ./...) || exit 1; done

hostile: ## every command on files made to exhaust memory or time, in a process that is short of both (make test runs most of it too; with POPEFGEN_HOSTILE=all, all)
	POPEFGEN_HOSTILE=all $(GO) test -count=1 -run 'TestHostileCases|TestBlowUps|TestTablesAre|TestCancelLongKernel' ./cmd/popefgen ./onnx/internal/op ./ipu/cpu/...

golden: ## compare what the generator writes with golden/ (go test ./gen -update rewrites it)
	$(GO) test -count=1 -run Golden ./gen/...

generate: build ## write every committed generated file anew: the examples' packages, the kernels' assembly and the Builder's methods
	$(GO) generate ./ipu/cpu/internal/kernel ./onnx/build
	PATH="$(CURDIR)/bin:$$PATH" $(GO) generate ./generated_examples/...

check-generated: build ## fail if a committed generated file (package of an example, assembly, methods of the Builder) is not what its generator writes now
	@GO="$(GO)" sh .ci/check-generated.sh $(BIN)

fuzz-short: ## run every fuzz target for FUZZTIME (default 20s) each
	@GO="$(GO)" FUZZTIME="$(FUZZTIME)" sh .ci/fuzz.sh

bench: ## kernels by the machine's peak, rings, the path of a request, whole models
	$(GO) test -run '^$$' -bench . -benchmem -benchtime $(BENCHTIME) -timeout 20m ./ipu/... ./rt/... ./popef/... ./onnx/verify ./generated_examples/...

mechanisms: ## what NCHWc, NHWC, depth-first tiling and threads are worth for every public model; fails if one costs more than 3 %
	POPEFGEN_MECHANISMS=1 $(GO) test -count=1 -timeout 30m -v -run TestMechanisms ./cmd/popefgen/internal/bench

calibrate: build ## measure the costs that are built in (ipu/cpu/internal/costs), on a machine with AVX-512 and VNNI that does nothing else
	$(BIN) calibrate -o ipu/cpu/internal/costs/avx512-vnni.json
	GODEBUG=cpu.avx512vnni=off $(BIN) calibrate -o ipu/cpu/internal/costs/avx512.json
	POPEFGEN_CPU=avx2 $(BIN) calibrate -o ipu/cpu/internal/costs/avx2.json

bench-peers: ## popefgen beside ONNX Runtime and GoMLX, see docs/performance.md
	@$(MAKE) -C bench run GO="$(GO)" ARGS="$(ARGS)"

performance: ## the same, and rewrite the tables of docs/performance.md
	@$(MAKE) -C bench write GO="$(GO)" ARGS="$(ARGS)"

bench-serve: ## servers beside bare ones: processor time, allocations, requests/s (ARGS='-only REST', '-write ../docs')
	@$(GO) -C bench run ./serve $(ARGS)

bench-train: ## steps of training beside PyTorch, and what is inside a step (ARGS='-only mlp', '-processor-time', '-write ../docs')
	@$(MAKE) -C bench train GO="$(GO)" ARGS="$(ARGS)"

serve-clients: ## install the clients of others that tests of servers ask (grpcurl, grpc-js) into build/.clients; Debian has the rest
	@mkdir -p build/.clients
	@$(GO) version -m build/.clients/grpcurl 2>/dev/null | grep -q 'grpcurl[[:space:]]v1\.9\.4' || { set -x; GOBIN=$(CURDIR)/build/.clients $(GO) install github.com/fullstorydev/grpcurl/cmd/grpcurl@v1.9.4; }
	@if ! command -v npm >/dev/null; then echo "skipped grpc-js: no npm here (apt-get install nodejs npm)"; \
	else set -x; cd build/.clients && npm install --prefix . --ignore-scripts --no-save --no-audit --no-fund @grpc/grpc-js@1.14.3 @grpc/proto-loader@0.8.0; fi

clients-test: ## have the clients of others that are installed ask popefgen-serve, and name those that are not (POPEFGEN_CLIENTS=all: fail without one)
	@mkdir -p build; $(GO) -C serve/grpc test -v ./internal/clients >build/clients.log 2>&1 || { cat build/clients.log; exit 1; }
	@grep -E '^(--- |ok|    [a-z_]*_test.go)' build/clients.log

release: ## tag the modules below the main one for VERSION, which is tagged; without VERSION: try that on what is committed
	@GO="$(GO)" sh .ci/release.sh $(VERSION)

bench-test: ## the tests of bench/ with ONNX Runtime, without which make test skips some; random operators must give its answers
	@$(MAKE) -C bench test GO="$(GO)"

picture: ## draw which package imports which, as docs/architecture.md shows it
	$(GO) run ./internal/picture

figures: ## measure what README.md says, over the public data, and rewrite its table
	$(GO) run ./internal/figures $(ARGS)

mutants: ## apply deliberate mistakes: tests must notice each (ARGS='-sample 8', '-run REGEXP')
	$(GO) run ./internal/mutants $(ARGS)

soak: ## requests of every kind for SOAKTIME (default 2m), to runners and to servers, while devices fail (SOAKFLAGS=-race as well)
	POPEFGEN_SOAK=$(SOAKTIME) $(GO) test $(SOAKFLAGS) -count=1 -timeout 30m -v -run TestSoak ./rt ./serve/internal/soak
	POPEFGEN_SOAK=$(SOAKTIME) $(GO) -C serve/grpc test $(SOAKFLAGS) -count=1 -timeout 30m -v -run TestSoak ./internal/soak ./cmd/popefgen-serve

cross: ## build for the other platforms without cgo
	@for t in linux/arm64 darwin/arm64 windows/amd64 js/wasm; do \
	  echo "build $$t"; CGO_ENABLED=0 GOOS=$${t%/*} GOARCH=$${t#*/} $(GO) build ./... || exit 1; done

CROSS_TESTED ?= ./ipu/num ./ipu/graph ./ipu/cpu/internal/kernel/... ./generated_examples/words
CROSS_RUN    ?= .

# Runs wasip1/wasm: a command that is installed beside the repository's modules, so that none of them requires it.
WAZERO       := build/.clients/wazero
WAZERO_MODULE := github.com/tetratelabs/wazero/cmd/wazero@v1.12.0

wasm-test: ## the examples' models under node (js/wasm) and wazero (wasip1/wasm): same answers, bit for bit, as in plain Go here
	@$(GO) version -m $(WAZERO) 2>/dev/null | grep -q "$$(echo $(WAZERO_MODULE) | sed 's/.*@//')" || { set -x; GOBIN=$(CURDIR)/$(dir $(WAZERO)) $(GO) install $(WAZERO_MODULE); } || echo "skipped wazero: it can't be installed"
	@mkdir -p build; POPEFGEN_CROSS=1 POPEFGEN_WAZERO="$$(test -x $(WAZERO) && echo $(CURDIR)/$(WAZERO))" \
	  $(GO) test -count=1 -timeout 30m -v -run TestSameAnswers ./generated_examples/internal/answers >build/wasm.log 2>&1 || { cat build/wasm.log; exit 1; }
	@grep -E '^( *--- |ok|    [a-z_]*_test.go)' build/wasm.log

cross-test: $(if $(filter .,$(CROSS_RUN)),wasm-test) ## make wasm-test, and tests of the plain Go path on arm64 (needs qemu-user) and js/wasm (needs node), as far as they are there; CROSS_RUN chooses some
	POPEFGEN_CROSS=1 $(GO) test -count=1 -run TestProductsAreRounded ./ipu/cpu
	@if command -v qemu-aarch64-static >/dev/null; then \
	  CGO_ENABLED=0 GOARCH=arm64 $(GO) test -exec qemu-aarch64-static -short -run '$(CROSS_RUN)' $(CROSS_TESTED); else echo "skipped: no qemu-aarch64-static"; fi
	@if command -v node >/dev/null; then \
	  GOOS=js GOARCH=wasm $(GO) test -exec "$$($(GO) env GOROOT)/lib/wasm/go_js_wasm_exec" -short -run '$(CROSS_RUN)' $(CROSS_TESTED); else echo "skipped: no node"; fi
