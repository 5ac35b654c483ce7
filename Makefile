# fcpc: see README.md.
#   make          build/fcpc and the libraries          make demo     set up, build, compile and run an example
#   make check    set up, build, every test             make bench    measure, each figure beside its goal [ROWS=plan]
#   make install  [PREFIX=/usr/local] [DESTDIR=]        make setup    install what is missing (apt)
#   make fuzz     fuzz every target [SECONDS=60]        make golden-update   rewrite the golden files; read the diff
#   make gpu-check       test and measure on the GPUs of this machine      make gpu-check-build   build it, to be carried
#   make pictures draw the prelude's masks again (grammar/pictures)
# Variables: B (build folder), CC, SAN (address,undefined | thread), OPT, JOBS, V (1: show commands).
B ?= build
CC = gcc
OPT ?= -O3 -g
SAN ?=
JOBS ?= 2
SECONDS ?= 60
ROWS ?=
V ?=
Q = $(if $(V),,@)
PREFIX ?= /usr/local
DESTDIR ?=
LIBDIR ?= $(PREFIX)/lib
VERSION := $(shell sed -n 's/.*FCPC_VERSION "\(.*\)"/\1/p' compiler/fcpc.h)
SOVERSION = 0
.DEFAULT_GOAL := all

WARN = -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wno-missing-field-initializers
ARCH ?= $(if $(filter x86_64,$(shell uname -m)),-march=x86-64-v2 -mtune=generic,)
CFLAGS = -std=gnu11 $(OPT) $(ARCH) -ffp-contract=off -fno-math-errno $(WARN) -fPIC -fno-semantic-interposition \
         -pthread -MMD -MP -I. -I$(B)/gen $(if $(SAN),-fsanitize=$(SAN) -fno-sanitize-recover=all -fno-omit-frame-pointer)
LDFLAGS = -pthread $(if $(SAN),-fsanitize=$(SAN))
RT_LIBS = -lopenblas -lisal -lcrypto -lm

FCP_SRC = $(sort $(shell find codegen runtime -name '*.c'))
FCPC_SRC = $(filter-out compiler/cli/%,$(sort $(shell find compiler -name '*.c')))
CMD_SRC = $(wildcard compiler/cli/*.c)
# Kernels run in tests on fibers: head_dim-bf16-score, as the list in tests/machines/fibers/fibers.c.
FIBER_KERNELS = 16-1-0 16-0-0 32-1-0 32-0-0 64-1-0 64-0-0 128-1-0 128-0-0 256-1-0 256-0-0 16-1-1 16-0-1 32-1-1 32-0-1 64-1-1 128-0-1
FIBER_SRC = $(addprefix tests/machines/fibers/,machine.c machine_order.c machine_turns.c machine_memory.c machine_prims.c machine_async.c \
  machine_products.c fibers.c)
FIBER_SM90 = $(filter 64-% 128-% 256-%,$(FIBER_KERNELS))
FIBER_OBJ = $(FIBER_SRC:%.c=$(B)/%.o) $(FIBER_KERNELS:%=$(B)/tests/machines/fibers/kernel-%.o) \
  $(FIBER_SM90:%=$(B)/tests/machines/fibers/kernel_sm90-%.o)
# What executes PTX in tests.
PTX_SRC = $(filter-out tests/machines/ptx/test_%,$(wildcard tests/machines/ptx/*.c))
TEST_SRC = $(sort $(wildcard tests/unit/*/*.c tests/oracle/*.c tests/machines/*/test_*.c))
BENCH_SRC = $(wildcard tests/bench/*.c)
FUZZ_SRC = $(wildcard fuzz/fuzz_*.c)
EXAMPLE_SRC = $(wildcard examples/*.c)
C_SRC = $(FCP_SRC) $(FCPC_SRC) $(CMD_SRC) $(TEST_SRC) $(FIBER_SRC) $(PTX_SRC) $(STANDIN_SRC) $(NCCL_SRC) tests/machines/standin/nvrtc.c tests/machines/standin/mpi.c $(BENCH_SRC) $(wildcard fuzz/*.c) $(EXAMPLE_SRC) $(wildcard tests/gpu/*.c)
GEN_OBJ = $(B)/gen/fcp.tab.o $(B)/gen/fcp.lex.o $(B)/gen/prelude.o $(B)/gen/profiles.o
FCP_OBJ = $(FCP_SRC:%.c=$(B)/%.o) $(B)/gen/kernels.o
# what a kernel's source is made of
KERNEL_TEXT = abi prim_ptx prim_sm90_ptx common tiles_sm90 forward_rows forward_mma forward_sm90 backward_steps backward_mma backward_ordered_mma backward_sm90 support
FCPC_OBJ = $(FCPC_SRC:%.c=$(B)/%.o) $(GEN_OBJ)
TESTS = $(TEST_SRC:%.c=$(B)/%)
EXAMPLES = $(EXAMPLE_SRC:%.c=$(B)/%)
REPLAYS = $(FUZZ_SRC:%.c=$(B)/%-replay)

all: $(B)/libfcp.a $(B)/libfcpc.a $(B)/fcpc

# --- program and libraries --------------------------------------------------------------------------------------------
$(B)/fcpc: $(CMD_SRC:%.c=$(B)/%.o) $(B)/libfcpc.a $(B)/libfcp.a
	@echo '  link  $@'
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(RT_LIBS) -ldl
$(B)/libfcp.a: $(FCP_OBJ)
	@rm -f $@; $(AR) qcs $@ $^
$(B)/libfcpc.a: $(FCPC_OBJ)
	@rm -f $@; $(AR) qcs $@ $^
# The shared libraries, and the static ones as installed, show fcp_* and mc_*, fcpc_* only.
$(B)/libfcp.so: $(FCP_OBJ)
	@printf '{ global: fcp_*; mc_*; local: *; };\n' > $(B)/fcp.map
	@echo '  link  $@'
	$(Q)$(CC) $(LDFLAGS) -shared -Wl,-soname,libfcp.so.$(SOVERSION) -Wl,--version-script=$(B)/fcp.map -o $@ $^ $(RT_LIBS)
$(B)/libfcpc.so: $(FCPC_OBJ) $(B)/libfcp.so
	@printf '{ global: fcpc_*; local: *; };\n' > $(B)/fcpc.map
	@echo '  link  $@'
	$(Q)$(CC) $(LDFLAGS) -shared -Wl,-soname,libfcpc.so.$(SOVERSION) -Wl,--version-script=$(B)/fcpc.map -o $@ $^ -lcrypto -lm
$(B)/install/libfcp.a: $(FCP_OBJ)
$(B)/install/libfcpc.a: $(FCPC_OBJ)
$(B)/install/%.a:
	@mkdir -p $(@D); rm -f $@
	@echo '  ar    $@'
	$(Q)$(LD) -r -o $(@:.a=.o) $^
	$(Q)objcopy -w $(foreach s,$(if $(filter libfcp,$*),fcp_ mc_,fcpc_),--keep-global-symbol='$s*') $(@:.a=.o)
	$(Q)$(AR) rcs $@ $(@:.a=.o)

$(B)/%.o: %.c
	@mkdir -p $(@D)
	@echo '  cc    $<'
	$(Q)$(CC) $(CFLAGS) -c -o $@ $<

# --- grammar: flex and bison, and the prelude as an array ---------------------------------------------------------------
$(B)/gen/fcp.tab.c $(B)/gen/fcp.tab.h &: grammar/fcp.y
	@mkdir -p $(B)/gen
	@echo '  bison $<'
	$(Q)bison -Wall -Werror -d -o $(B)/gen/fcp.tab.c $<
$(B)/gen/fcp.lex.c $(B)/gen/fcp.lex.h &: grammar/fcp.l $(B)/gen/fcp.tab.h
	@echo '  flex  $<'
	$(Q)flex --header-file=$(B)/gen/fcp.lex.h -o $(B)/gen/fcp.lex.c $<
$(B)/gen/prelude.c: grammar/prelude.fcp
	@mkdir -p $(B)/gen
	@echo '  array $<'
	$(Q)(echo 'extern const char fcpc_prelude[]; extern const unsigned fcpc_prelude_size;'; \
	 echo 'const char fcpc_prelude[] = {'; od -An -v -tu1 $< | sed 's/ *\([0-9][0-9]*\)/\1,/g'; echo '0};'; \
	 echo "const unsigned fcpc_prelude_size = sizeof fcpc_prelude - 1;") > $@
# The simulator's profiles, as strings, with their names.
PROFILES = $(sort $(wildcard compiler/simulate/profiles/*.profile))
$(B)/gen/profiles.c: $(PROFILES)
	@mkdir -p $(B)/gen
	@echo '  array $^'
	$(Q)(echo 'extern const char *const sim_profile_names[], *const sim_profile_texts[]; extern const unsigned sim_profile_count;'; \
	 echo 'const char *const sim_profile_names[] = {'; for f in $^; do echo "\"$$(basename $$f .profile)\","; done; echo '};'; \
	 echo 'const char *const sim_profile_texts[] = {'; for f in $^; do sed 's/\\/\\\\/g; s/"/\\"/g; s/.*/"&\\n"/' $$f; echo ','; done; echo '};'; \
	 echo 'const unsigned sim_profile_count = $(words $(PROFILES));') > $@
$(B)/gen/kernels.c: $(KERNEL_TEXT:%=codegen/kernels/%.h)
	@mkdir -p $(B)/gen
	@echo '  array $^'
	$(Q)(for part in $(KERNEL_TEXT); do echo "extern const char emit_text_$$part[]; const char emit_text_$$part[] = {"; \
	 od -An -v -tu1 codegen/kernels/$$part.h | sed 's/ *\([0-9][0-9]*\)/\1,/g'; echo '0};'; done) > $@
$(B)/gen/%.o: $(B)/gen/%.c $(B)/gen/fcp.lex.h $(B)/gen/fcp.tab.h
	@echo '  cc    $<'
	$(Q)$(CC) $(CFLAGS) -Wno-unused-function -Wno-sign-compare -Wno-missing-prototypes -c -o $@ $<
$(FCPC_SRC:%.c=$(B)/%.o): | $(B)/gen/fcp.lex.h $(B)/gen/fcp.tab.h

# --- tests: one Criterion program per file of tests/unit and tests/oracle; shell runners in tests/*/run.sh --------------
$(B)/tests/%: $(B)/tests/%.o $(B)/libfcpc.a $(B)/libfcp.a
	@echo '  link  $@'
	$(Q)$(CC) $(LDFLAGS) -o $@ $(filter %.o,$^) $(filter %.a,$^) -lcriterion $(RT_LIBS)
fiber_defines = -DFK_HEAD_DIM=$(word 1,$(subst -, ,$1)) -DFK_BF16=$(word 2,$(subst -, ,$1)) \
  -DFK_HAS_SCORE=$(word 3,$(subst -, ,$1)) -DFK_TABLE=fibers_kernels_$(subst -,_,$1)
$(FIBER_KERNELS:%=$(B)/tests/machines/fibers/kernel-%.o): $(B)/tests/machines/fibers/kernel-%.o: tests/machines/fibers/kernel.c
	@mkdir -p $(@D)
	@echo '  cc    $< ($*)'
	$(Q)$(CC) $(CFLAGS) $(call fiber_defines,$*) -c -o $@ $<
$(FIBER_SM90:%=$(B)/tests/machines/fibers/kernel_sm90-%.o): $(B)/tests/machines/fibers/kernel_sm90-%.o: tests/machines/fibers/kernel_sm90.c
	@mkdir -p $(@D)
	@echo '  cc    $< ($*)'
	$(Q)$(CC) $(CFLAGS) -Wno-psabi $(call fiber_defines,$*) -c -o $@ $<
$(filter $(B)/tests/machines/fibers/test_%,$(TESTS)): $(FIBER_OBJ)
$(filter $(B)/tests/machines/ptx/test_%,$(TESTS)): $(PTX_SRC:%.c=$(B)/%.o)
# A driver, a compiler and an NCCL that stand in in tests: chosen by FCP_CUDA_DRIVER, FCP_NVRTC and FCP_NCCL.
STANDIN_SRC = tests/machines/standin/driver.c tests/machines/standin/streams.c tests/machines/standin/launches.c tests/machines/standin/graph.c tests/machines/standin/kernels.c tests/machines/standin/green.c
NCCL_SRC = tests/machines/standin/nccl.c tests/machines/standin/mailbox.c
STANDINS = $(B)/standin/libcuda.so $(B)/standin/libcuda-12.0.so $(B)/standin/libnvrtc.so $(B)/standin/libnccl.so $(B)/standin/libmpi-open.so $(B)/standin/libmpi-mpich.so
$(B)/standin/libcuda.so: $(STANDIN_SRC:%.c=$(B)/%.o) $(FIBER_OBJ) $(B)/libfcp.a
	@mkdir -p $(@D)
	@printf '{ global: cu*; standin_*; local: *; };\n' > $(B)/standin/cuda.map
	@echo '  link  $@'
	$(Q)$(CC) $(LDFLAGS) -shared -Wl,--version-script=$(B)/standin/cuda.map -o $@ $(filter %.o %.a,$^) $(RT_LIBS)
# the same, as drivers were before there were green contexts
$(B)/standin/libcuda-12.0.so: $(STANDIN_SRC:%.c=$(B)/%.o) $(FIBER_OBJ) $(B)/libfcp.a
	@mkdir -p $(@D)
	@printf '{ global: cu*; standin_*; local: cuGreenCtxCreate; *; };\n' > $(@:.so=.map)
	@echo '  link  $@'
	$(Q)$(CC) $(LDFLAGS) -shared -Wl,--version-script=$(@:.so=.map) -o $@ $(filter %.o %.a,$^) $(RT_LIBS)
$(B)/standin/libnvrtc.so: $(B)/tests/machines/standin/nvrtc.o
	@mkdir -p $(@D)
	@echo '  link  $@'
	$(Q)$(CC) $(LDFLAGS) -shared -o $@ $<
$(B)/standin/libmpi-%.so: tests/machines/standin/mpi.c
	@mkdir -p $(@D)
	@echo '  link  $@'
	$(Q)$(CC) $(CFLAGS) $(if $(filter open,$*),-DMPI_OPEN) $(LDFLAGS) -shared -o $@ $<
$(B)/standin/libnccl.so: $(NCCL_SRC:%.c=$(B)/%.o) $(B)/standin/libcuda.so
	@printf '{ global: nccl*; standin_nccl_control; local: *; };\n' > $(B)/standin/nccl.map
	@echo '  link  $@'
	$(Q)$(CC) $(LDFLAGS) -shared -Wl,--version-script=$(B)/standin/nccl.map -Wl,-rpath,'$$ORIGIN' -o $@ $(filter %.o,$^) -L$(B)/standin -l:libcuda.so
$(filter $(B)/tests/unit/cuda/% $(B)/tests/unit/nccl/% $(B)/tests/unit/rendezvous/%,$(TESTS)): | $(STANDINS)
tests: $(TESTS)

check: setup
	@$(MAKE) --no-print-directory -j$(JOBS) all tests examples fuzz-replay-build gpu-binaries
	@$(MAKE) --no-print-directory lint
	@B=$(B) JOBS=$(JOBS) SAN=$(SAN) .ci/check.sh $(TESTS)
check-sanitized:
	@$(MAKE) --no-print-directory -j$(JOBS) all tests examples fuzz-replay-build gpu-binaries
	@B=$(B) JOBS=$(JOBS) SAN=$(SAN) .ci/check.sh $(TESTS)
# One runner or several, built and run: make test T='test_parse test_cells'
test: $(if $(T),$(foreach t,$(T),$(filter %/$t,$(TESTS))),$(TESTS)) all
	@B=$(B) JOBS=$(JOBS) SAN=$(SAN) .ci/check.sh --only $(filter $(B)/tests/%,$^)
lint: check-includes
	@if command -v clang > /dev/null; then echo clang -fsyntax-only -Werror; \
	 clang -std=gnu11 $(WARN) -Werror -fsyntax-only -I. -I$(B)/gen -Icompiler -Iruntime $(C_SRC); fi
check-includes:
	@B=$(B) SAN=$(SAN) .ci/rules.sh
GOLDEN = $(patsubst %.c,$(B)/%,$(shell grep -l GOLDEN_UPDATE $(TEST_SRC))) $(wildcard tests/golden/run.sh)
golden-update: all tests
	@GOLDEN_UPDATE=1 B=$(B) JOBS=$(JOBS) .ci/check.sh --only $(GOLDEN)
	@git --no-pager diff --stat -- tests || true

# --- fuzzing: clang's libFuzzer where it is, and a replay of every corpus that needs no fuzzer --------------------------
$(B)/fuzz/%-replay: $(B)/fuzz/%.o $(B)/fuzz/replay.o $(B)/libfcpc.a $(B)/libfcp.a
	@echo '  link  $@'
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(RT_LIBS)
fuzz-replay-build: $(REPLAYS)
fuzz-replay: $(REPLAYS)
	@set -e; for r in $(REPLAYS); do t=$${r##*/fuzz_}; $$r fuzz/corpus/$${t%-replay}; done
$(B)/fuzz/fuzz_%: $(B)/fuzz/fuzz_%.o $(B)/libfcpc.a $(B)/libfcp.a
	@echo '  link  $@'
	$(Q)$(CC) $(LDFLAGS) -fsanitize=fuzzer -o $@ $^ $(RT_LIBS)
# The seeds of the plan loader's corpus, made anew: for a changed format.
$(B)/fuzz/make_seeds: $(B)/fuzz/make_seeds.o $(B)/libfcpc.a $(B)/libfcp.a
	@echo '  link  $@'
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ -lcriterion $(RT_LIBS)
fuzz-seeds: $(B)/fuzz/make_seeds
	@rm -f fuzz/corpus/plan/*; $(B)/fuzz/make_seeds fuzz/corpus/plan
fuzz-build: $(FUZZ_SRC:%.c=$(B)/%)
fuzz:
	@$(MAKE) --no-print-directory -j$(JOBS) B=$(B)-fuzz CC=clang OPT='-O1 -g' SAN=address,undefined,fuzzer-no-link fuzz-build
	@set -e; for f in $(FUZZ_SRC:fuzz/fuzz_%.c=%); do mkdir -p $(B)-fuzz/corpus/$$f; echo "fuzz $$f for $(SECONDS) s"; \
	 $(B)-fuzz/fuzz/fuzz_$$f -max_total_time=$(SECONDS) -artifact_prefix=$(B)-fuzz/ $(B)-fuzz/corpus/$$f fuzz/corpus/$$f \
	   > $(B)-fuzz/$$f.log 2>&1 || { tail -n 40 $(B)-fuzz/$$f.log; exit 1; }; tail -n 1 $(B)-fuzz/$$f.log; done

# --- demo, benchmarks, examples -----------------------------------------------------------------------------------------
demo: setup
	@$(MAKE) --no-print-directory -j$(JOBS) all
	$(B)/fcpc examples/lambda.fcp -o $(B)/lambda.plan
	$(B)/fcpc show $(B)/lambda.plan
	$(B)/fcpc run $(B)/lambda.plan
pictures: all
	@B=$(B) grammar/pictures/draw.sh
bench: $(B)/bench
	@$(B)/bench $(ROWS)
$(B)/bench: $(BENCH_SRC:%.c=$(B)/%.o) $(B)/libfcpc.a $(B)/libfcp.a
	@echo '  link  $@'
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(RT_LIBS)
examples: $(EXAMPLES)
$(B)/examples/%.o: CFLAGS += -Iruntime -Icompiler
$(B)/examples/%: $(B)/examples/%.o $(B)/libfcpc.a $(B)/libfcp.a
	@echo '  link  $@'
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(RT_LIBS)

# --- GPUs ----------------------------------------------------------------------------------------------------------------
# gpu-check runs what was built, perhaps elsewhere: it makes nothing anew and installs nothing, unless REBUILD is set or there
# is nothing yet. gpu-check-build makes it, and kernels for these devices, where there is NVRTC. No library beyond libc is
# needed to run it: what there is of Debian's is linked statically, and ISA-L, of which there is no such file, replaced.
GPU_CAPABILITIES ?= 8.0 9.0 10.0
GPU_ARGS ?=
GPU_SRC = $(wildcard tests/gpu/*.c)
$(B)/gpu-check: $(patsubst %.c,$(B)/%.o,$(filter-out %/carried.c,$(GPU_SRC))) $(B)/libfcpc.a $(B)/libfcp.a
	@echo '  link  $@'
	$(Q)$(CC) $(LDFLAGS) -o $@ $(filter %.o,$^) $(filter %.a,$^) -Wl,-S -Wl,-Bstatic -lopenblas -lcrypto -Wl,-Bdynamic -lm -ldl
$(B)/gpu/libnvrtc-carried.so: $(B)/tests/gpu/carried.o
	@mkdir -p $(@D)
	@echo '  link  $@'
	$(Q)$(CC) $(LDFLAGS) -shared -o $@ $< -ldl
gpu-check:
	@if [ ! -x $(B)/gpu-check ] || [ -n "$(REBUILD)" ]; then $(MAKE) --no-print-directory gpu-check-build; fi
	@$(B)/gpu-check --folder $(B)/gpu $(GPU_ARGS)
gpu-binaries: $(B)/gpu-check $(B)/gpu/libnvrtc-carried.so $(STANDINS)
gpu-check-build: gpu-binaries
	@git describe --always --dirty --abbrev=12 > $(B)/gpu/commit 2> /dev/null || echo 'not known' > $(B)/gpu/commit
	@mkdir -p $(B)/gpu/kernels
	@FCP_CUDA_DRIVER=$(B)/standin/libcuda.so FCP_NVRTC=$(abspath $(B))/gpu/libnvrtc-carried.so FCP_CACHE=/dev/null \
	 GPU_KERNELS=$(B)/gpu/kernels GPU_KERNELS_WRITE=1 $(B)/gpu-check --folder $(B)/gpu --prepare '$(GPU_CAPABILITIES)'
# The page of the last run, into the tree: of a GPU only.
gpu-report:
	@if [ ! -e $(B)/gpu/GPU.md ]; then echo "there is no $(B)/gpu/GPU.md: make gpu-check" >&2; exit 1; fi
	@if grep -qi 'stand-in' $(B)/gpu/GPU.md; then echo "$(B)/gpu/GPU.md is of a stand-in: it does not belong into the tree" >&2; exit 1; fi
	@cp $(B)/gpu/GPU.md tests/bench/GPU.md && echo "tests/bench/GPU.md: read the diff before you commit it"

# --- setting up and installing ------------------------------------------------------------------------------------------
setup:
	@.ci/setup.sh
D = $(DESTDIR)$(PREFIX)
L = $(DESTDIR)$(LIBDIR)
install: all $(B)/libfcp.so $(B)/libfcpc.so $(B)/install/libfcp.a $(B)/install/libfcpc.a
	install -d $(D)/bin $(D)/include/fcpc $(L)/pkgconfig
	install -m 755 $(B)/fcpc $(D)/bin/fcpc
	sed 's|"runtime/errors.def"|"errors.def"|' runtime/fcp.h > $(D)/include/fcpc/fcp.h
	install -m 644 runtime/errors.def $(D)/include/fcpc
	sed 's|"runtime/fcp.h"|"fcp.h"|' compiler/fcpc.h > $(D)/include/fcpc/fcpc.h
	for l in fcp fcpc; do \
	  install -m 644 $(B)/install/lib$$l.a $(L)/lib$$l.a; \
	  install -m 755 $(B)/lib$$l.so $(L)/lib$$l.so.$(VERSION); \
	  ln -sf lib$$l.so.$(VERSION) $(L)/lib$$l.so.$(SOVERSION); \
	  ln -sf lib$$l.so.$(SOVERSION) $(L)/lib$$l.so; done
	printf '%s\n' 'prefix=$(PREFIX)' 'libdir=$(LIBDIR)' 'includedir=$${prefix}/include/fcpc' '' 'Name: fcp' \
	  'Description: executes plans of context-parallel attention' 'Version: $(VERSION)' 'Cflags: -I$${includedir}' \
	  'Libs: -L$${libdir} -lfcp' 'Libs.private: -lopenblas -lisal -lcrypto -lm -pthread' > $(L)/pkgconfig/fcp.pc
	printf '%s\n' 'prefix=$(PREFIX)' 'libdir=$(LIBDIR)' 'includedir=$${prefix}/include/fcpc' '' 'Name: fcpc' \
	  'Description: compiles context-parallel attention to plans' 'Version: $(VERSION)' 'Requires: fcp' \
	  'Cflags: -I$${includedir}' 'Libs: -L$${libdir} -lfcpc' 'Libs.private: -lcrypto -lm' > $(L)/pkgconfig/fcpc.pc
clean:
	rm -rf $(B) $(B)-fuzz
.PHONY: gpu-check gpu-binaries gpu-check-build gpu-report all pictures tests test check check-sanitized lint check-includes golden-update fuzz fuzz-build fuzz-replay fuzz-replay-build fuzz-seeds demo bench \
        examples setup install clean
.SECONDARY:
-include $(shell find $(B) -name '*.d' 2>/dev/null)
