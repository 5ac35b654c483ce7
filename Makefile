# fcpc: compiles context-parallel attention to plans, and executes them. README.md says more.
#
#   make                  build/fcpc and the libraries
#   make demo             set up, build, compile and run an example
#   make install          [PREFIX=/usr/local] [DESTDIR=]
#   make setup            install with apt what the build and the tests need and this machine lacks; and PyTorch
#
#   make check            set up, build, run every test: three to four minutes on two cores
#   make test T='a b'     build and run these tests alone: test_parse, oracle, cli (tests/cli/run.sh), rules, ...
#   make check-ptx        compile the GPU kernels with NVRTC and execute their PTX on the CPU
#   make check-long       what make check has no time for: more draws of the random tests, what starts PyTorch again, ...
#   make golden-update    rewrite the golden files; then read the diff
#   make lint             clang's warnings and clang-tidy's, the rules between folders, and the layout of changed lines
#   make format           lay out the C lines that changed since the last commit [SINCE=COMMIT or all]
#   make fuzz             fuzz every target [SECONDS=60] [TARGETS='parse plan']
#
#   make bench            measure, each figure beside its goal [ROWS=sass,order]
#   make playground       the compiler as WebAssembly, and its page: build/site/play
#   make pictures         draw the prelude's masks again (grammar/pictures), and the picture of a page
#   make python-pages     write the page of the Python package's functions again (runtime/python/API.md)
#   make wheel            the wheel of the Python package, for other machines, in build/dist [PYTHON=build/python/bin/python]
#   make site             the documentation as build/site, with pictures, search and the playground; its links are checked
#   make dist             a release in build/release: source, wheel, packages of Debian, site, extension [CHECK=twice]
#   make editors          write the editors' syntax files again (grammar/editors)
#   make vscode           the extension of VS Code, in build/vscode
#   make gpu-check        test and measure on the GPUs of this machine
#   make gpu-check-build  build that, to be carried to a machine with GPUs
#   make gpu-pack         the same with kernels of sm_90a, as one archive
#
# Variables: B (build folder), CC, OPT, SAN (address,undefined | thread), JOBS, V=1 (show commands).
B ?= build
CC = gcc
OPT ?= -O3 -g1
SAN ?=
DEBUG = $(if $(SAN),-g1,-g)
TEST_OPT ?= -O1 $(DEBUG)
FIBER_OPT ?= -Og $(DEBUG)
UNIT_OPT ?= -O0 $(DEBUG)
JOBS ?= 2
SECONDS ?= 60
TARGETS ?= $(FUZZ_SRC:fuzz/fuzz_%.c=%)
ROWS ?=
V ?=
Q = $(if $(V),,@)
PREFIX ?= /usr/local
DESTDIR ?=
LIBDIR ?= $(PREFIX)/lib
VERSION := $(shell cat VERSION)
SOVERSION = 0
.DEFAULT_GOAL := all

WARN = -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wno-missing-field-initializers
ARCH ?= $(if $(filter x86_64,$(shell uname -m)),-march=x86-64-v2 -mtune=generic,)
CFLAGS = -std=gnu11 $(OPT) $(ARCH) -ffp-contract=off -fno-math-errno $(WARN) -fPIC -fno-semantic-interposition \
         -pthread -MMD -MP -I. -I$(B)/gen $(if $(SAN),-fsanitize=$(SAN) -fno-sanitize-recover=all -fno-omit-frame-pointer)
# gold, which Debian's binutils have, links in half the time; sanitizers and fuzzers keep the linker they are made for.
LINKER := $(if $(SAN),,$(if $(shell command -v ld.gold),-fuse-ld=gold))
LDFLAGS = -pthread $(LINKER) $(if $(SAN),-fsanitize=$(SAN))
RT_LIBS = -lisal -lnettle -lm

# --- what there is ------------------------------------------------------------------------------------------------------
FCP_SRC = $(sort $(shell find codegen runtime -name '*.c'))
FCPC_SRC = $(filter-out compiler/cli/% compiler/playground/%,$(sort $(shell find compiler -name '*.c')))
CMD_SRC = $(wildcard compiler/cli/*.c)
CMD_OBJ = $(CMD_SRC:%.c=$(B)/%.o) $(B)/gen/errors.o
# Kernels run in tests on fibers: head_dim-value_dim-bf16-score of each build. FIBER_SM90 are those that have skeletons for
# sm_90a, whose sizes are multiples of 64.
FIBER_KERNELS := $(shell sed -n 's/^X(\(.*\), \(.*\), \(.*\), \(.*\))$$/\1-\2-\3-\4/p' tests/machines/fibers/builds.def)
FIBER_SM90 = $(foreach d,64 128 192 256,$(foreach v,64 128 192 256,$(filter $d-$v-%,$(FIBER_KERNELS))))
FIBER_SRC = $(addprefix tests/machines/fibers/,machine.c machine_order.c machine_turns.c machine_memory.c machine_prims.c machine_async.c \
  machine_bulk.c machine_products.c fibers.c kernel_recurrent.c)
FIBER_OBJ = $(FIBER_SRC:%.c=$(B)/%.o) $(FIBER_KERNELS:%=$(B)/tests/machines/fibers/kernel-%.o) \
  $(FIBER_SM90:%=$(B)/tests/machines/fibers/kernel_sm90-%.o)
# Tests that need NVRTC (make check-ptx), and all others (make check).
PTX_SRC = $(filter-out tests/machines/ptx/test_% %/ptx_file.c,$(wildcard tests/machines/ptx/*.c))
PTX_TEST_SRC = $(wildcard tests/machines/ptx/test_*.c)
TEST_SRC = $(sort $(wildcard tests/unit/*/*.c tests/oracle/*.c tests/machines/fibers/test_*.c))
BENCH_SRC = $(wildcard tests/bench/*.c)
FUZZ_SRC = $(wildcard fuzz/fuzz_*.c)
EXAMPLE_SRC = $(wildcard examples/*.c)
C_SRC = $(FCP_SRC) $(FCPC_SRC) $(CMD_SRC) $(TEST_SRC) $(PTX_TEST_SRC) $(FIBER_SRC) $(PTX_SRC) tests/machines/ptx/ptx_file.c $(STANDIN_SRC) $(NCCL_SRC) tests/machines/standin/nvrtc.c tests/machines/standin/nvml.c tests/machines/standin/mpi.c tests/machines/standin/git2.c $(BENCH_SRC) $(wildcard fuzz/*.c) $(EXAMPLE_SRC) $(wildcard tests/gpu/*.c) grammar/editors/generate.c
GEN_OBJ = $(B)/gen/fcp.tab.o $(B)/gen/fcp.lex.o $(B)/gen/prelude.o $(B)/gen/meanings.o $(B)/gen/profiles.o $(B)/gen/page.o
FCP_OBJ = $(FCP_SRC:%.c=$(B)/%.o) $(B)/gen/kernels.o
# what a kernel's source is made of
KERNEL_TEXT = abi prim_ptx prim_sm90_ptx common tiles_sm90 forward_rows forward_mma forward_sm90 backward_steps backward_mma backward_ordered_mma backward_sm90 backward_tables support wire recurrent_kernels
FCPC_OBJ = $(FCPC_SRC:%.c=$(B)/%.o) $(GEN_OBJ)
TESTS = $(TEST_SRC:%.c=$(B)/%)
PTX_TESTS = $(PTX_TEST_SRC:%.c=$(B)/%)
EXAMPLES = $(EXAMPLE_SRC:%.c=$(B)/%)
REPLAYS = $(FUZZ_SRC:%.c=$(B)/%-replay)

all: $(B)/libfcp.a $(B)/libfcpc.a $(B)/fcpc
help:
	@sed -n '/^#/!q; s/^# \{0,1\}//p' Makefile

# --- program and libraries --------------------------------------------------------------------------------------------
$(B)/fcpc: $(CMD_OBJ) $(B)/libfcpc.a $(B)/libfcp.a
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
	$(Q)$(CC) $(LDFLAGS) -shared -Wl,-soname,libfcpc.so.$(SOVERSION) -Wl,--version-script=$(B)/fcpc.map -o $@ $^ -lm
# What the wheel of the Python package carries (runtime/python/build_hook.py). They find each other in their folder by the
# names of their files, and there also OpenBLAS, which is loaded late. auditwheel adds where what they need besides is.
WHEEL_LINK = $(LDFLAGS) -Wl,--disable-new-dtags,-rpath,'$$ORIGIN',--strip-debug
$(B)/wheel/libfcp.so: $(B)/libfcp.so
	@mkdir -p $(@D)
	@echo '  link  $@'
	$(Q)$(CC) $(WHEEL_LINK) -shared -Wl,-soname,libfcp.so -Wl,--version-script=$(B)/fcp.map -o $@ $(FCP_OBJ) $(RT_LIBS)
$(B)/wheel/libfcpc.so: $(B)/libfcpc.so $(B)/wheel/libfcp.so
	@echo '  link  $@'
	$(Q)$(CC) $(WHEEL_LINK) -shared -Wl,-soname,libfcpc.so -Wl,--version-script=$(B)/fcpc.map -o $@ $(FCPC_OBJ) $(B)/wheel/libfcp.so -lm
$(B)/wheel/fcpc: $(B)/fcpc
	@mkdir -p $(@D)
	@echo '  link  $@'
	$(Q)$(CC) $(WHEEL_LINK) -o $@ $(CMD_OBJ) $(B)/libfcpc.a $(B)/libfcp.a $(RT_LIBS) -ldl
shared: $(B)/libfcp.so $(B)/libfcpc.so
wheel-files: $(B)/wheel/libfcp.so $(B)/wheel/libfcpc.so $(B)/wheel/fcpc
$(B)/install/libfcp.a: $(FCP_OBJ)
$(B)/install/libfcpc.a: $(FCPC_OBJ)
$(B)/install/%.a:
	@mkdir -p $(@D); rm -f $@
	@echo '  ar    $@'
	$(Q)$(LD) -r -o $(@:.a=.o) $^
	$(Q)objcopy -w $(foreach s,$(if $(filter libfcp,$*),fcp_ mc_,fcpc_),--keep-global-symbol='$s*') $(@:.a=.o)
	$(Q)$(AR) rcs $@ $(@:.a=.o)

# There are 500 of these: without mkdir and echo each takes two processes less.
$(B)/%.o: %.c
	$(if $(wildcard $(@D)/.),,@mkdir -p $(@D))
	$(info $()  cc    $<)
	$(Q)$(CC) $(CFLAGS) -c -o $@ $<

# --- grammar: flex and bison, and the prelude as an array ---------------------------------------------------------------
$(B)/gen/fcp.tab.c $(B)/gen/fcp.tab.h &: grammar/fcp.y
	@mkdir -p $(B)/gen
	@echo '  bison $<'
	$(Q)bison -Wall -Werror -d -o $(B)/gen/fcp.tab.c $<
grammar-files: $(B)/gen/fcp.tab.c $(B)/gen/fcp.lex.c
$(B)/gen/fcp.lex.c $(B)/gen/fcp.lex.h &: grammar/fcp.l $(B)/gen/fcp.tab.h
	@echo '  flex  $<'
	$(Q)flex --header-file=$(B)/gen/fcp.lex.h -o $(B)/gen/fcp.lex.c $<
# Its text, and where each mask and score stands in it: from `mask` or `score` to the next line that is empty or a comment,
# or that begins one.
$(B)/gen/prelude.c: grammar/prelude.fcp grammar/prelude.h
	@mkdir -p $(B)/gen
	@echo '  array $<'
	$(Q)(echo '#include "grammar/prelude.h"'; \
	 echo 'const char fcpc_prelude[] = {'; od -An -v -tu1 $< | sed 's/ *\([0-9][0-9]*\)/\1,/g'; echo '0};'; \
	 echo "const unsigned fcpc_prelude_size = sizeof fcpc_prelude - 1;"; \
	 echo 'const prelude_item prelude_items[] = {'; \
	 LC_ALL=C awk '/^(mask|score) / {if (open) print at "},"; name = $$2; sub(/[^A-Za-z0-9_].*/, "", name); open = 1; \
	     printf "{\"%s\", %s, %d, ", name, $$1 == "score" ? "true" : "false", at} \
	   /^(#|$$)/ && open {print at "},"; open = 0} {at += length($$0) + 1} END {if (open) print at "},"}' $<; \
	 echo '};'; echo 'const unsigned prelude_item_count = sizeof prelude_items / sizeof *prelude_items;') > $@
# What words of the language mean, for editors: the rows of its tables.
$(B)/gen/meanings.c: grammar/LANGUAGE.md grammar/meanings.awk grammar/meanings.h
	@mkdir -p $(B)/gen
	@echo '  array $<'
	$(Q)LC_ALL=C awk -f grammar/meanings.awk $< > $@
# The simulator's profiles, as strings, with their names.
PROFILES = $(sort $(wildcard compiler/simulate/profiles/*.profile))
$(B)/gen/profiles.c: $(PROFILES)
	@mkdir -p $(B)/gen
	@echo '  array $^'
	$(Q)(echo 'extern const char *const sim_profile_names[], *const sim_profile_texts[]; extern const unsigned sim_profile_count;'; \
	 echo 'const char *const sim_profile_names[] = {'; for f in $^; do echo "\"$$(basename $$f .profile)\","; done; echo '};'; \
	 echo 'const char *const sim_profile_texts[] = {'; for f in $^; do sed 's/\\/\\\\/g; s/"/\\"/g; s/.*/"&\\n"/' $$f; echo ','; done; echo '};'; \
	 echo 'const unsigned sim_profile_count = $(words $(PROFILES));') > $@
# The style and the script of pages.
$(B)/gen/page.c: compiler/page/page.css compiler/page/page.js
	@mkdir -p $(B)/gen
	@echo '  array $^'
	$(Q)(for part in css js; do echo "extern const char page_$$part[]; const char page_$$part[] = {"; \
	 od -An -v -tu1 compiler/page/page.$$part | sed 's/ *\([0-9][0-9]*\)/(char)\1,/g'; echo '0};'; done) > $@
# The page of errors, of which `fcpc help E203` prints an entry.
$(B)/gen/errors.c: runtime/ERRORS.md
	@mkdir -p $(B)/gen
	@echo '  array $<'
	$(Q)(echo "extern const char cmd_errors_page[]; const char cmd_errors_page[] = {"; \
	 od -An -v -tu1 $< | sed 's/ *\([0-9][0-9]*\)/(char)\1,/g'; echo '0};') > $@
$(B)/gen/kernels.c: $(KERNEL_TEXT:%=codegen/kernels/%.h)
	@mkdir -p $(B)/gen
	@echo '  array $^'
	$(Q)(for part in $(KERNEL_TEXT); do echo "extern const char emit_text_$$part[]; const char emit_text_$$part[] = {"; \
	 od -An -v -tu1 codegen/kernels/$$part.h | sed 's/ *\([0-9][0-9]*\)/\1,/g'; echo '0};'; done) > $@
# The ladder's kernels (tests/gpu/rungs.c).
RUNG_TEXT = launch kernels rates
$(B)/gen/rungs.c: $(RUNG_TEXT:%=tests/gpu/rung_%.h)
	@mkdir -p $(B)/gen
	@echo '  array $^'
	$(Q)(for part in $(RUNG_TEXT); do echo "extern const char rung_text_$$part[]; const char rung_text_$$part[] = {"; \
	 od -An -v -tu1 tests/gpu/rung_$$part.h | sed 's/ *\([0-9][0-9]*\)/\1,/g'; echo '0};'; done) > $@
$(B)/gen/%.o: $(B)/gen/%.c $(B)/gen/fcp.lex.h $(B)/gen/fcp.tab.h
	@echo '  cc    $<'
	$(Q)$(CC) $(CFLAGS) -Wno-unused-function -Wno-sign-compare -Wno-missing-prototypes -c -o $@ $<
$(FCPC_SRC:%.c=$(B)/%.o): | $(B)/gen/fcp.lex.h $(B)/gen/fcp.tab.h
# What reads options and programs, and what writes texts and pictures, takes longer to optimise than it ever runs.
COLD = $(addprefix compiler/,cli explain page sema show syntax trace) codegen codegen/cost runtime/libraries runtime/rendezvous
$(foreach room,$(COLD),$(patsubst %.c,$(B)/%.o,$(wildcard $(room)/*.c))) $(B)/runtime/plan/dump.o $(B)/gen/%.o: OPT := $(OPT:-O3=-O1)
# What waits for a driver, and what lets other rooms work, runs as fast at -O2, which compiles in three quarters of the time.
WARM = runtime/cuda runtime/exec runtime/jit runtime/worklists compiler/auto
$(foreach room,$(WARM),$(patsubst %.c,$(B)/%.o,$(wildcard $(room)/*.c))): OPT := $(OPT:-O3=-O2)
# Its loops are compiled for three instruction sets. -O3 takes twice as long for that, and makes none of them faster.
# clang vectorises at -O2, and does not know the second flag.
VECTORISE = $(if $(findstring clang,$(CC)),,-ftree-vectorize -fvect-cost-model=dynamic)
$(B)/codegen/mask/row.o: OPT := $(OPT:-O3=-O2 $(VECTORISE))

# --- building tests: tests/README.md says what each folder is for --------------------------------------------------------
# Unit tests take longer to optimise than to run (UNIT_OPT); those that run long are optimised (TEST_OPT). The machine of
# fibers runs long, and keeps $(OPT). Its kernels have FIBER_OPT: they run as fast with it, since the machine takes the
# time, and 30 kernels are compiled in half the time. All are built for a debugger (DEBUG). With a sanitizer, lines for its
# stacks are enough. Criterion's header is found in tests/support first.
$(B)/tests/%.o: CFLAGS += -Itests/support
$(B)/tests/oracle/%.o $(B)/fuzz/%.o: CFLAGS += $(TEST_OPT)
$(B)/tests/gpu/%.o $(B)/tests/machines/standin/%.o: CFLAGS += $(FIBER_OPT)
RUN_LONG = $(addprefix $(B)/tests/unit/,cells/% pairs/% expr/% problem/% place/test_dcp.o compile/test_property.o sema/test_lengths.o)
$(B)/tests/unit/%.o: CFLAGS += $(if $(filter $(RUN_LONG),$@),$(TEST_OPT),$(UNIT_OPT))
$(B)/tests/machines/fibers/%.o $(B)/tests/machines/ptx/%.o: CFLAGS += $(DEBUG)
$(B)/tests/machines/fibers/test_%.o: CFLAGS += $(TEST_OPT)
# Tests share one library of all that they test, because linking the archives into each of them takes longer. Some tests
# replace functions of it; that works between its files, too.
$(B)/libtested.so: $(FCP_OBJ) $(FCPC_OBJ)
	@echo '  link  $@'
	$(Q)$(CC) $(LDFLAGS) -shared -Wl,-soname,$(@F) -o $@ $^ $(RT_LIBS)
# Criterion gets a stand-in for the libgit2 that it would load (tests/machines/standin/git2.c).
GIT2 := $(shell ldd `$(CC) -print-file-name=libcriterion.so 2> /dev/null` 2> /dev/null | sed -n 's/^[[:space:]]*\(libgit2[^ ]*\) .*/\1/p')
STANDIN_GIT2 = $(GIT2:%=$(B)/standin/git2/%)
$(STANDIN_GIT2): $(B)/tests/machines/standin/git2.o
	@mkdir -p $(@D)
	@echo '  link  $@'
	$(Q)$(CC) $(LDFLAGS) -shared -Wl,-soname,$(@F) -o $@ $<
# Libraries look in the folders of this RPATH for what they need themselves; in those of a RUNPATH they would not.
$(B)/tests/%: $(B)/tests/%.o $(B)/libtested.so | $(STANDIN_GIT2)
	@echo '  link  $@'
	$(Q)$(CC) $(LDFLAGS) -o $@ $(filter %.o,$^) $(filter %.so,$^) -lcriterion -Wl,--as-needed -lcrypto $(RT_LIBS) \
	  -Wl,--disable-new-dtags,-rpath,$(abspath $(B)):$(abspath $(B)/standin/git2)
fiber_flags = $(FIBER_OPT) -DFK_HEAD_DIM=$(word 1,$(subst -, ,$1)) -DFK_VALUE_DIM=$(word 2,$(subst -, ,$1)) \
  -DFK_BF16=$(word 3,$(subst -, ,$1)) -DFK_HAS_SCORE=$(word 4,$(subst -, ,$1)) -DFK_RANGES=1 -DFK_TABLE=fibers_kernels_$(subst -,_,$1)
$(FIBER_KERNELS:%=$(B)/tests/machines/fibers/kernel-%.o): $(B)/tests/machines/fibers/kernel-%.o: tests/machines/fibers/kernel.c
	@mkdir -p $(@D)
	@echo '  cc    $< ($*)'
	$(Q)$(CC) $(CFLAGS) $(call fiber_flags,$*) -c -o $@ $<
$(FIBER_SM90:%=$(B)/tests/machines/fibers/kernel_sm90-%.o): $(B)/tests/machines/fibers/kernel_sm90-%.o: tests/machines/fibers/kernel_sm90.c
	@mkdir -p $(@D)
	@echo '  cc    $< ($*)'
	$(Q)$(CC) $(CFLAGS) -Wno-psabi $(call fiber_flags,$*) -c -o $@ $<
$(filter $(B)/tests/machines/fibers/test_%,$(TESTS)): $(FIBER_OBJ)
$(PTX_TESTS): $(PTX_SRC:%.c=$(B)/%.o)
# Executes a file of PTX; for tests in Python.
$(B)/ptx-file: $(patsubst %,$(B)/tests/machines/ptx/%.o,ptx_file alu async bulk convert forms memory parse run warp wgmma)
	@echo '  link  $@'
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ -lm
# The ladder, which gpu-check climbs as well.
RUNG_OBJ = $(B)/tests/gpu/rungs.o $(B)/tests/gpu/rung_guess.o $(B)/tests/gpu/rates.o $(B)/gen/rungs.o
$(B)/tests/machines/ptx/test_ptx_ladder: $(RUNG_OBJ)
# Libraries that stand in for the CUDA driver, NVRTC, NCCL and MPI. Tests choose them by FCP_CUDA_DRIVER, FCP_NVRTC and FCP_NCCL.
STANDIN_SRC = tests/machines/standin/driver.c tests/machines/standin/streams.c tests/machines/standin/launches.c tests/machines/standin/graph.c tests/machines/standin/kernels.c tests/machines/standin/green.c tests/machines/standin/globals.c
NCCL_SRC = tests/machines/standin/nccl.c tests/machines/standin/mailbox.c
STANDINS = $(B)/standin/libcuda.so $(B)/standin/libcuda-12.0.so $(B)/standin/libnvrtc.so $(B)/standin/libnccl.so $(B)/standin/libnvml.so $(B)/standin/libmpi-open.so $(B)/standin/libmpi-mpich.so
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
$(B)/standin/libnvrtc.so $(B)/standin/libnvml.so: $(B)/standin/lib%.so: $(B)/tests/machines/standin/%.o
	@mkdir -p $(@D)
	@echo '  link  $@'
	$(Q)$(CC) $(LDFLAGS) -shared $(if $(filter %libnvrtc.so,$@),-Xlinker -soname -Xlinker libnvrtc.so.13) -o $@ $<
# The two have other types of handles. They are objects first, because only those have their headers written down.
MPI_OBJ = $(B)/tests/machines/standin/mpi-open.o $(B)/tests/machines/standin/mpi-mpich.o
$(MPI_OBJ): $(B)/tests/machines/standin/mpi-%.o: tests/machines/standin/mpi.c
	@mkdir -p $(@D)
	@echo '  cc    $< ($*)'
	$(Q)$(CC) $(CFLAGS) $(if $(filter open,$*),-DMPI_OPEN) -c -o $@ $<
$(B)/standin/libmpi-%.so: $(B)/tests/machines/standin/mpi-%.o $(B)/tests/machines/standin/mailbox.o
	@mkdir -p $(@D)
	@printf '{ global: MPI_*; ompi_*; local: *; };\n' > $(B)/standin/mpi-$*.map
	@echo '  link  $@'
	$(Q)$(CC) $(LDFLAGS) -shared -Wl,--version-script=$(B)/standin/mpi-$*.map -o $@ $(filter %.o,$^)
$(B)/standin/libnccl.so: $(NCCL_SRC:%.c=$(B)/%.o) $(B)/standin/libcuda.so
	@printf '{ global: nccl*; standin_nccl_control; local: *; };\n' > $(B)/standin/nccl.map
	@echo '  link  $@'
	$(Q)$(CC) $(LDFLAGS) -shared -Wl,--version-script=$(B)/standin/nccl.map -Wl,-soname,libnccl.so.2 -Wl,-rpath,'$$ORIGIN' -o $@ $(filter %.o,$^) -L$(B)/standin -l:libcuda.so
$(filter $(B)/tests/unit/exec/% $(B)/tests/unit/host/test_processes $(B)/tests/unit/cuda/% $(B)/tests/unit/nccl/% $(B)/tests/unit/rendezvous/%,$(TESTS)): | $(STANDINS)
tests: $(TESTS)
standins: $(STANDINS)

# --- running tests -------------------------------------------------------------------------------------------------------
# What make check runs, built: everything there is to build but the tests that need NVRTC.
CHECKED = all $(if $(SAN),,shared) tests examples fuzz-replay-build gpu-binaries
RUN = B=$(B) JOBS=$(JOBS) SAN=$(SAN) .ci/check.sh

# PyTorch is installed while the compiler runs, since it waits for disks and the network.
check:
	@.ci/setup.sh
	@$(MAKE) --no-print-directory -j$(JOBS) python-environment $(CHECKED)
	@$(RUN) $(TESTS)
python-environment:
	@.ci/python.sh
check-sanitized:
	@$(MAKE) --no-print-directory -j$(JOBS) $(CHECKED)
	@$(RUN) $(TESTS)
# The machine that executes PTX checks each access of a kernel itself. With a sanitizer the machine's own code is tested,
# for which the tests that take longest are not needed.
check-ptx: $(if $(SAN),$(filter-out %/test_ptx_fuse %/test_cubin,$(PTX_TESTS)),$(PTX_TESTS))
	@$(RUN) --only $^
LONG_TESTS = $(patsubst %.c,$(B)/%,$(shell grep -l 'support/amount.h\|fibers/programs.h' $(TEST_SRC)))
LONG_RUNNERS = $(addsuffix run.sh,$(sort $(dir $(shell grep -l CHECK_LONG tests/*/run.sh tests/*/all.py))))
check-long: $(LONG_TESTS) all gpu-binaries
	@CHECK_LONG=1 $(RUN) --only $(LONG_RUNNERS) $(LONG_TESTS)
# T names tests in C (test_parse), folders of tests/ with a run.sh (cli), and `rules`, in any mixture. Scripts may use the
# libraries, examples and stand-ins that make check builds.
T_SCRIPTS = $(foreach t,$(T),$(wildcard tests/$t/run.sh) $(if $(filter rules,$t),.ci/rules.sh))
T_IN_C = $(foreach t,$(T),$(filter %/$t,$(TESTS) $(PTX_TESTS)))
T_UNKNOWN = $(strip $(foreach t,$(T),$(if $(filter %/$t,$(TESTS) $(PTX_TESTS))$(wildcard tests/$t/run.sh)$(filter rules,$t),,$t)))
test: $(if $(T),$(if $(T_UNKNOWN),$(error there is no test $(T_UNKNOWN))) $(T_IN_C) $(if $(T_SCRIPTS),examples gpu-binaries shared),$(TESTS)) all
	@$(RUN) --only $(T_SCRIPTS) $(filter $(B)/tests/%,$^)
GOLDEN = $(patsubst %.c,$(B)/%,$(shell grep -l GOLDEN_UPDATE $(TEST_SRC))) $(shell grep -l GOLDEN_UPDATE tests/*/run.sh)
golden-update: all tests
	@GOLDEN_UPDATE=1 $(RUN) --only $(GOLDEN)
	@git --no-pager diff --stat -- tests || true

lint: all lint-clang lint-tidy lint-rules lint-format
# Changed lines alone, unless SINCE says more: a commit, or `all`.
SINCE ?=
format:
	@.ci/format.sh $(SINCE)
lint-format:
	@.ci/format.sh --check $(SINCE)
lint-rules:
	@B=$(B) SAN=$(SAN) .ci/rules.sh
# One process of the compiler proper reads all sources: clang would begin one for each, which takes longer than reading them.
lint-clang: $(B)/gen/fcp.lex.h $(B)/gen/fcp.tab.h
	@if command -v clang > /dev/null; then echo '  clang -fsyntax-only -Werror'; \
	 first=$$(clang -\#\#\# -std=gnu11 $(WARN) -Werror -fsyntax-only -I. -I$(B)/gen -Icompiler -Iruntime -x c /dev/null 2>&1 \
	     | tail -n 1); \
	 eval "$${first% *} $(C_SRC)"; fi
# Checks that have found something here. The first finds products of two 32-bit numbers that are only then made 64 bits
# wide: count * bytes is wrong from 4 GiB on. Tests are left out, whose products are of small constants.
TIDY_CHECKS = -*,bugprone-implicit-widening-of-multiplication-result,misc-misplaced-const,readability-redundant-declaration
lint-tidy: $(B)/gen/fcp.lex.h $(B)/gen/fcp.tab.h
	@command -v clang-tidy > /dev/null || { echo 'clang-tidy is not here: make setup installs it'; exit 1; }
	@echo '  clang-tidy'
	@printf '%s\n' $(FCP_SRC) $(FCPC_SRC) $(CMD_SRC) | xargs -P $(JOBS) -n 16 \
	   sh -c 'clang-tidy --quiet "--checks=$(TIDY_CHECKS)" "--warnings-as-errors=*" "$$@" -- -std=gnu11 -I. -I$(B)/gen 2> /dev/null' tidy

# --- fuzzing: clang's libFuzzer where it is, and a replay of every corpus that needs no fuzzer --------------------------
# fuzz/README.md says what each of these settings is worth.
FUZZ_OPT = -O2 -g -fno-sanitize-coverage=trace-cmp -fsanitize-address-use-after-return=never
FUZZ_ASAN = malloc_context_size=1:max_malloc_fill_size=64:quarantine_size_mb=1:thread_local_quarantine_size_kb=64
FUZZ_ARGS = -entropic=0 -reduce_inputs=0 -reload=0 -print_funcs=0
# The rooms whose coverage guides the fuzzer, which reads their counters after each run; of other rooms it reads none.
MEASURED_parse = compiler/front compiler/syntax compiler/sema compiler/expr compiler/explain
MEASURED_expr = compiler/box compiler/cells
MEASURED_program = compiler compiler/passes compiler/advice compiler/cells compiler/problem compiler/place $(addprefix compiler/place/,fcp cad heads dcp groups) compiler/schedule compiler/lower
MEASURED_file = compiler/syntax compiler/sema compiler/expr compiler/problem runtime/base
MEASURED_plan = runtime/base runtime/plan runtime/verify runtime/pairs runtime/jit runtime/worklists codegen codegen/mask
MEASURED_extract = runtime runtime/base runtime/plan runtime/exec
MEASURED_profile = compiler/simulate
MEASURED_rows = compiler/simulate
MEASURED_lsp = compiler/lsp
MEASURED_forest = compiler/forest
# Rooms that fuzz_program needs and other targets measure: the sanitizers look at them there. It has them, and its oracle, without.
PLAIN_program = compiler/syntax compiler/sema compiler/expr compiler/box compiler/simulate codegen/mask runtime/base runtime/plan runtime/verify runtime/pairs
plain = $(if $(PLAIN_$1),$(patsubst %.c,$(B)/fuzz/plain/%.o,gen/fcp.tab.c gen/fcp.lex.c $(foreach room,$(PLAIN_$1),$(wildcard $(room)/*.c))))
measured = $(patsubst %.c,$(B)/%.o,$(foreach room,$(MEASURED_$1),$(wildcard $(room)/*.c)))
ifneq ($(findstring fuzzer,$(SAN)),)
# A tenth of the time. AddressSanitizer finds what is read through NULL or past an object, and replays check all four.
CFLAGS += -fno-sanitize=null,alignment,pointer-overflow,object-size
UNCOUNTED = -fno-sanitize-coverage=inline-8bit-counters,indirect-calls,pc-table
$(B)/fuzz/%.o: TEST_OPT = $(FUZZ_OPT) $(UNCOUNTED)
# No target measures it, and arenas are asked hundreds of times.
$(B)/compiler/base/%.o: CFLAGS += $(UNCOUNTED)
$(B)/fuzz/plain/%.o $(B)/fuzz/fuzz_program.o: CFLAGS += -fno-sanitize=all
# The evaluator of masks takes a third of fuzz_expr's time: the sanitizers look at it in test_maskcode.
$(B)/codegen/mask/code.o: CFLAGS += -fno-sanitize=address,undefined
endif
$(B)/fuzz/%-replay: $(B)/fuzz/%.o $(B)/fuzz/replay.o $(B)/libfcpc.a $(B)/libfcp.a
	@echo '  link  $@'
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(RT_LIBS)
fuzz-replay-build: $(REPLAYS)
fuzz-replay: $(REPLAYS)
	@set -e; for r in $(REPLAYS); do t=$${r##*/fuzz_}; $$r fuzz/corpus/$${t%-replay}*; done
$(B)/fuzz/lib%.a: $(B)/lib%.a
	@echo '  copy  $@'
	$(Q)objcopy --rename-section __sancov_cntrs=unmeasured_cntrs --rename-section __sancov_pcs=unmeasured_pcs $< $@
$(B)/fuzz/plain/%.o: %.c
	@mkdir -p $(@D)
	@echo '  cc    $<'
	$(Q)$(CC) $(CFLAGS) -c -o $@ $<
$(B)/fuzz/plain/gen/%.o: $(B)/gen/%.c $(B)/gen/fcp.lex.h $(B)/gen/fcp.tab.h
	@mkdir -p $(@D)
	@echo '  cc    $<'
	$(Q)$(CC) $(CFLAGS) -Wno-unused-function -Wno-sign-compare -Wno-missing-prototypes -c -o $@ $<
$(foreach t,$(FUZZ_SRC:fuzz/fuzz_%.c=%),$(eval $(B)/fuzz/fuzz_$t: $(call measured,$t) $(call plain,$t)))
$(B)/fuzz/fuzz_%: $(B)/fuzz/fuzz_%.o $(B)/fuzz/libfcpc.a $(B)/fuzz/libfcp.a
	@echo '  link  $@'
	$(Q)$(CC) $(LDFLAGS) -fsanitize=fuzzer -o $@ $(filter %.o,$^) $(filter %.a,$^) $(RT_LIBS)
# The seeds of the corpora of plans and extracts, made anew: for a changed format.
$(B)/fuzz/make_seeds: $(B)/fuzz/make_seeds.o $(B)/libfcpc.a $(B)/libfcp.a
	@echo '  link  $@'
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ -lcriterion $(RT_LIBS)
fuzz-seeds: $(B)/fuzz/make_seeds
	@mkdir -p fuzz/corpus/extract; rm -f fuzz/corpus/plan/* fuzz/corpus/extract/*
	@$(B)/fuzz/make_seeds fuzz/corpus/plan fuzz/corpus/extract
fuzz-build: $(FUZZ_SRC:%.c=$(B)/%)
fuzz:
	@$(MAKE) --no-print-directory -j$(JOBS) B=$(B)-fuzz CC=clang OPT='$(FUZZ_OPT)' SAN=address,undefined,fuzzer-no-link fuzz-build
	@grep -ohE '[a-z_]{2,}|[<>=!]=' grammar/prelude.fcp examples/*.fcp examples/*/*.fcp | sort -u | sed 's/.*/"&"/' > $(B)-fuzz/fcp.dict.$$$$ && mv $(B)-fuzz/fcp.dict.$$$$ $(B)-fuzz/fcp.dict
	@set -e; if [ -w /dev/shm ]; then export TMPDIR=/dev/shm; fi; \
	 for f in $(TARGETS); do mkdir -p $(B)-fuzz/corpus/$$f; echo "fuzz $$f for $(SECONDS) s"; \
	 ASAN_OPTIONS=$(FUZZ_ASAN) $(B)-fuzz/fuzz/fuzz_$$f -max_total_time=$(SECONDS) $(FUZZ_ARGS) $$(cat fuzz/fuzz_$$f.options 2> /dev/null) \
	   -dict=$(B)-fuzz/fcp.dict -artifact_prefix=$(B)-fuzz/ \
	   $(B)-fuzz/corpus/$$f fuzz/corpus/$$f > $(B)-fuzz/$$f.log 2>&1 || { tail -n 40 $(B)-fuzz/$$f.log; exit 1; }; \
	 tail -n 1 $(B)-fuzz/$$f.log; done

# --- demo, benchmarks, examples -----------------------------------------------------------------------------------------
demo: SETUP = --no-browser
demo: setup
	@$(MAKE) --no-print-directory -j$(JOBS) all
	$(B)/fcpc examples/lambda.fcp -o $(B)/lambda.plan
	$(B)/fcpc show $(B)/lambda.plan
	$(B)/fcpc run $(B)/lambda.plan
pictures: all
	@B=$(B) grammar/pictures/draw.sh
	@B=$(B) compiler/page/picture.sh
python-pages: shared
	@FCPC_LIBRARIES=$(abspath $(B)) PYTHONPATH=runtime/python build/python/bin/python runtime/python/pages.py
# A wheel for other machines: auditwheel adds to that of this machine what its binaries need and not every Linux has, and
# finds out for which versions of the C library it is. The same tree and system give the same bytes.
PYTHON ?= $(or $(wildcard build/python/bin/python),python3)
wheel: wheel-files
	@rm -rf $(B)/dist
	$(Q)FCPC_BUILD=$(B) $(PYTHON) -m pip --disable-pip-version-check wheel -q --no-deps --no-build-isolation -w $(B)/dist/linux .
	$(Q)PATH="$(abspath $(dir $(PYTHON))):$$PATH" SOURCE_DATE_EPOCH=$${SOURCE_DATE_EPOCH:-1580601600} \
	  $(PYTHON) -m auditwheel repair -w $(B)/dist $(B)/dist/linux/*.whl
	@rm -r $(B)/dist/linux
# The site: .ci/site/pages.py gathers the pages, Sphinx builds them. The playground is made before, to be its front door.
site: all playground
	@.ci/python.sh .ci/site/requirements.txt $(B)/site-python Sphinx
	@B=$(B) .ci/site/build.sh $(B)/site
# Source archive, wheel and packages of Debian, each tried where there is nothing else, and their digests; of the commit.
# CHECK=twice also compares a second build, byte for byte.
dist:
	@B=$(B) JOBS=$(JOBS) CHECK=$(CHECK) .ci/dist.sh
editors: $(B)/generate-editors
	$(B)/generate-editors vim > grammar/editors/fcp.vim
	$(B)/generate-editors textmate > grammar/editors/fcp.tmLanguage.json
	$(B)/generate-editors codemirror > grammar/editors/fcp.codemirror.js
# NPM=no: without what npm would bring, as where npm reaches nothing.
NPM ?=
vscode:
	@python3 grammar/editors/vscode/pack.py $(VERSION) $(B)/vscode/fcpc-$(VERSION).vsix $(if $(filter no,$(NPM)),--without-client)
$(B)/generate-editors: $(B)/grammar/editors/generate.o $(B)/libfcpc.a $(B)/libfcp.a
	@echo '  link  $@'
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(RT_LIBS)
$(B)/grammar/editors/generate.o $(B)/tests/unit/syntax/test_editors.o: | $(B)/gen/fcp.tab.h
bench: $(B)/bench $(B)/fcpc shared $(STANDINS)
	@$(B)/bench '$(ROWS)'
$(B)/bench: $(BENCH_SRC:%.c=$(B)/%.o) $(B)/libfcpc.a $(B)/libfcp.a
	@echo '  link  $@'
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ -lopenblas $(RT_LIBS)
examples: $(EXAMPLES)
$(B)/examples/%.o: CFLAGS += -Iruntime -Icompiler
$(B)/examples/%: $(B)/examples/%.o $(B)/libfcpc.a $(B)/libfcp.a
	@echo '  link  $@'
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(RT_LIBS)

# --- the playground: the compiler as WebAssembly, and a page (compiler/playground/README.md) ------------------------------
# The objects are made by the rules above, in a build folder of their own. What a page does not have is left out, and
# replaced by files of compiler/playground; absent/ has headers in the place of those of libraries. Emscripten finds
# Debian's acorn by NODE_PATH, also where node is not Debian's.
PLAY = $(B)/site/play
WASM_VARIABLES = CC=emcc AR=emar ARCH= LINKER= GIT2= OPT=-O2 SAN= VECTORISE= \
  CFLAGS='-std=gnu11 $$(OPT) -ffp-contract=off -fno-math-errno $$(WARN) -MMD -MP -I. -I$$(B)/gen -Icompiler/playground/absent'
WASM_ABSENT = runtime/cuda/% runtime/host/% runtime/judge/% runtime/rendezvous/% runtime/base/stop.c runtime/libraries/cuda_driver.c \
  runtime/libraries/nccl.c $(patsubst %,compiler/cli/%.c,main progress cmd_run cmd_serve cmd_lsp cmd_doctor doctor_machine pool request) compiler/lsp/%
WASM_SRC = $(filter-out $(WASM_ABSENT),$(FCP_SRC) $(FCPC_SRC))
PLAY_FILES = $(addprefix compiler/playground/,index.html playground.css worker.js edit.js pairs.js playground.js) compiler/page/page.js \
  compiler/page/page.css grammar/editors/fcp.codemirror.js $(addprefix /usr/share/javascript/codemirror/,lib/codemirror.js lib/codemirror.css addon/mode/simple.js)
playground:
	@.ci/setup.sh --playground
	@$(MAKE) --no-print-directory -j$(JOBS) playground-page
playground-page: all
	@$(MAKE) --no-print-directory B=$(B)/wasm $(WASM_VARIABLES) playground-wasm
	@mkdir -p $(PLAY)
	$(Q)cp $(B)/wasm/fcpc.js $(B)/wasm/fcpc.wasm $(PLAY_FILES) $(PLAY)
	$(Q)node compiler/playground/gallery.mjs > $(PLAY)/gallery.json
	$(Q)cat LICENSE $(wildcard $(addprefix /usr/share/doc/,libjs-codemirror/copyright emscripten/copyright)) > $(PLAY)/licences.txt
playground-wasm: $(B)/fcpc.wasm ; @:
$(B)/libfcpc-wasm.a: $(WASM_SRC:%.c=$(B)/%.o) $(GEN_OBJ) $(B)/gen/kernels.o
	@rm -f $@; $(AR) qcs $@ $^
$(B)/fcpc.wasm: $(patsubst %.c,$(B)/%.o,$(wildcard compiler/playground/*.c) $(filter-out $(WASM_ABSENT),$(CMD_SRC))) $(B)/gen/errors.o $(B)/libfcpc-wasm.a
	@echo '  link  $@'
	$(Q)NODE_PATH=$${NODE_PATH:-/usr/share/nodejs} $(CC) $(OPT) -o $(@:.wasm=.js) $^ --no-entry -sMODULARIZE=1 -sEXPORT_NAME=fcpcModule \
	  -sENVIRONMENT=worker,node -sINVOKE_RUN=0 -sEXPORTED_RUNTIME_METHODS=FS,ccall -sALLOW_MEMORY_GROWTH=1 -sMAXIMUM_MEMORY=4GB -sTOTAL_STACK=8MB

# --- GPUs ----------------------------------------------------------------------------------------------------------------
# gpu-check runs what was built, perhaps elsewhere: it makes nothing anew and installs nothing, unless REBUILD is set or there
# is nothing yet. gpu-check-build makes it, and kernels for these devices, where there is NVRTC. No library beyond libc is
# needed to run it: what there is of Debian's is linked statically, and ISA-L, of which there is no such file, replaced.
GPU_CAPABILITIES ?= 8.0 9.0 10.0
GPU_ARGS ?=
GPU_SRC = $(wildcard tests/gpu/*.c)
# What runtime/host/blas.c uses of OpenBLAS, which it loads unless it is linked in, as here.
BLAS_USED = cblas_sgemm openblas_get_num_threads openblas_set_num_threads
$(B)/gpu-check: $(patsubst %.c,$(B)/%.o,$(filter-out %/carried.c,$(GPU_SRC))) $(B)/gen/rungs.o $(B)/libfcpc.a $(B)/libfcp.a
	@echo '  link  $@'
	$(Q)$(CC) $(LDFLAGS) -o $@ $(filter %.o,$^) $(filter %.a,$^) -Wl,-S $(BLAS_USED:%=-Wl,-u,%) -Wl,-Bstatic -lopenblas -lnettle -Wl,-Bdynamic -lm -ldl
$(B)/gpu/libnvrtc-carried.so: $(B)/tests/gpu/carried.o
	@mkdir -p $(@D)
	@echo '  link  $@'
	$(Q)$(CC) $(LDFLAGS) -shared -o $@ $< -ldl
gpu-check:
	@if [ ! -x $(B)/gpu-check ] || [ -n "$(REBUILD)" ]; then $(MAKE) --no-print-directory gpu-check-build; fi
	@$(B)/gpu-check --folder $(B)/gpu $(GPU_ARGS)
gpu-binaries: $(B)/gpu-check $(B)/gpu/libnvrtc-carried.so $(STANDINS)
gpu-check-build: gpu-binaries shared
	@git describe --always --dirty --abbrev=12 > $(B)/gpu/commit 2> /dev/null || echo 'not known' > $(B)/gpu/commit
	@mkdir -p $(B)/gpu/kernels
	@FCP_CUDA_DRIVER=$(B)/standin/libcuda.so FCP_NVRTC=$(abspath $(B))/gpu/libnvrtc-carried.so FCP_CACHE=/dev/null \
	 GPU_KERNELS=$(B)/gpu/kernels GPU_KERNELS_WRITE=1 $(B)/gpu-check --folder $(B)/gpu --prepare '$(GPU_CAPABILITIES)'
# What is carried to a GPU machine of capability 9.0, as one archive: tests/gpu/LEASE.md.
gpu-pack:
	@$(MAKE) --no-print-directory gpu-check-build GPU_CAPABILITIES=9.0
	@tests/gpu/pack.sh $(B) $(B)/gpu-pack.tar.gz
# The page of the last run, into the tree: of a GPU only.
gpu-report:
	@if [ ! -e $(B)/gpu/GPU.md ]; then echo "there is no $(B)/gpu/GPU.md: make gpu-check" >&2; exit 1; fi
	@if grep -qi 'stand-in' $(B)/gpu/GPU.md; then echo "$(B)/gpu/GPU.md is of a stand-in: it does not belong into the tree" >&2; exit 1; fi
	@cp $(B)/gpu/GPU.md tests/bench/GPU.md && echo "tests/bench/GPU.md: read the diff before you commit it"

# --- setting up and installing ------------------------------------------------------------------------------------------
setup:
	@.ci/setup.sh $(SETUP)
	@$(if $(SETUP),,.ci/python.sh)
D = $(DESTDIR)$(PREFIX)
L = $(DESTDIR)$(LIBDIR)
install: all $(B)/libfcp.so $(B)/libfcpc.so $(B)/install/libfcp.a $(B)/install/libfcpc.a
	install -d $(D)/bin $(D)/include/fcpc $(L)/pkgconfig
	install -m 755 $(B)/fcpc $(D)/bin/fcpc
	install -d $(D)/share/bash-completion/completions $(D)/share/zsh/site-functions $(D)/share/man/man1 $(D)/share/doc/fcpc
	install -m 644 LICENSE $(D)/share/doc/fcpc/LICENSE
	$(B)/fcpc help bash-completion > $(D)/share/bash-completion/completions/fcpc
	$(B)/fcpc help zsh-completion > $(D)/share/zsh/site-functions/_fcpc
	$(B)/fcpc help man > $(D)/share/man/man1/fcpc.1
	sed 's|"runtime/errors.def"|"errors.def"|' runtime/fcp.h > $(D)/include/fcpc/fcp.h
	install -m 644 runtime/errors.def $(D)/include/fcpc
	install -d $(D)/share/vim/vimfiles/syntax $(D)/share/vim/vimfiles/ftdetect $(D)/share/fcpc
	install -m 644 grammar/editors/fcp.vim $(D)/share/vim/vimfiles/syntax/fcp.vim
	echo 'autocmd BufRead,BufNewFile *.fcp set filetype=fcp' > $(D)/share/vim/vimfiles/ftdetect/fcp.vim
	install -m 644 grammar/editors/fcp.tmLanguage.json $(D)/share/fcpc
	sed 's|"runtime/fcp.h"|"fcp.h"|' compiler/fcpc.h > $(D)/include/fcpc/fcpc.h
	for l in fcp fcpc; do \
	  install -m 644 $(B)/install/lib$$l.a $(L)/lib$$l.a; \
	  install -m 755 $(B)/lib$$l.so $(L)/lib$$l.so.$(VERSION); \
	  ln -sf lib$$l.so.$(VERSION) $(L)/lib$$l.so.$(SOVERSION); \
	  ln -sf lib$$l.so.$(SOVERSION) $(L)/lib$$l.so; done
	printf '%s\n' 'prefix=$(PREFIX)' 'libdir=$(LIBDIR)' 'includedir=$${prefix}/include/fcpc' '' 'Name: fcp' \
	  'Description: executes plans of context-parallel attention' 'License: Apache-2.0' 'Version: $(VERSION)' 'Cflags: -I$${includedir}' \
	  'Libs: -L$${libdir} -lfcp' 'Libs.private: -lisal -lnettle -lm -pthread' > $(L)/pkgconfig/fcp.pc
	printf '%s\n' 'prefix=$(PREFIX)' 'libdir=$(LIBDIR)' 'includedir=$${prefix}/include/fcpc' '' 'Name: fcpc' \
	  'Description: compiles context-parallel attention to plans' 'License: Apache-2.0' 'Version: $(VERSION)' 'Requires: fcp' \
	  'Cflags: -I$${includedir}' 'Libs: -L$${libdir} -lfcpc' 'Libs.private: -lm' > $(L)/pkgconfig/fcpc.pc
clean:
	rm -rf $(B) $(B)-fuzz
.PHONY: all help playground playground-page playground-wasm tests standins check python-environment check-sanitized check-ptx check-long test golden-update lint lint-rules lint-clang lint-tidy lint-format format \
        fuzz fuzz-build fuzz-replay fuzz-replay-build fuzz-seeds demo pictures python-pages bench examples editors vscode site dist \
        gpu-check gpu-binaries gpu-check-build gpu-pack gpu-report setup install shared grammar-files wheel-files wheel clean
.SECONDARY:
-include $(shell find $(B) -name '*.d' 2>/dev/null)
