# fcpc: see README.md.
#   make          build/fcpc and the libraries          make demo     set up, build, compile and run an example
#   make check    set up, build, every test             make bench    measure, each figure beside its goal
#   make install  PREFIX=/usr/local DESTDIR=
# Variables: B (build folder), CC, SAN (address,undefined | thread), OPT.
B ?= build
CC = gcc
OPT ?= -O3 -g
SAN ?=
PREFIX ?= /usr/local
WARN = -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wno-missing-field-initializers
ARCH ?= $(if $(filter x86_64,$(shell uname -m)),-march=x86-64-v2 -mtune=generic,)
CFLAGS = -std=gnu11 $(OPT) $(ARCH) -ffp-contract=off -fno-math-errno $(WARN) -fPIC -pthread -MMD -MP \
         -I$(B)/gen $(if $(SAN),-fsanitize=$(SAN) -fno-sanitize-recover=all -fno-omit-frame-pointer)
LDFLAGS = -pthread $(if $(SAN),-fsanitize=$(SAN))
RT_LIBS = -lopenblas -lisal -lm
FCP_SRC = $(wildcard codegen/*.c runtime/*.c)
FCPC_SRC = $(filter-out compiler/main.c compiler/cmd_%.c,$(wildcard compiler/*.c))
CMD_SRC = $(wildcard compiler/main.c compiler/cmd_*.c)
GEN_OBJ = $(if $(wildcard grammar/fcp.y),$(B)/gen/fcp.tab.o $(B)/gen/fcp.lex.o $(B)/gen/prelude.o)
FCP_OBJ = $(FCP_SRC:%.c=$(B)/%.o)
FCPC_OBJ = $(FCPC_SRC:%.c=$(B)/%.o) $(GEN_OBJ)

all: $(B)/libfcp.a $(B)/libfcpc.a $(B)/fcpc

$(B)/fcpc: $(CMD_SRC:%.c=$(B)/%.o) $(B)/libfcpc.a $(B)/libfcp.a
	$(CC) $(LDFLAGS) -o $@ $^ $(RT_LIBS)

$(B)/libfcp.a: $(FCP_OBJ)
	@rm -f $@; $(AR) rcs $@ $^
$(B)/libfcpc.a: $(FCPC_OBJ)
	@rm -f $@; $(AR) rcs $@ $^

$(B)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -c -o $@ $<

# grammar: flex and bison into build/gen
$(B)/gen/fcp.tab.c $(B)/gen/fcp.tab.h &: grammar/fcp.y
	@mkdir -p $(B)/gen
	bison -Wall -Werror -d -o $(B)/gen/fcp.tab.c $<
$(B)/gen/fcp.lex.c $(B)/gen/fcp.lex.h &: grammar/fcp.l $(B)/gen/fcp.tab.h
	flex --header-file=$(B)/gen/fcp.lex.h -o $(B)/gen/fcp.lex.c $<
$(B)/gen/prelude.c: grammar/prelude.fcp
	@mkdir -p $(B)/gen
	(echo 'extern const char fcpc_prelude[]; extern const unsigned fcpc_prelude_size;'; \
	 echo 'const char fcpc_prelude[] = {'; od -An -v -tu1 $< | sed 's/ *\([0-9][0-9]*\)/\1,/g'; echo '0};'; \
	 echo "const unsigned fcpc_prelude_size = sizeof fcpc_prelude - 1;") > $@
$(B)/gen/%.o: $(B)/gen/%.c $(B)/gen/fcp.lex.h $(B)/gen/fcp.tab.h
	$(CC) $(CFLAGS) -Wno-unused-function -Wno-sign-compare -Wno-missing-prototypes -Icompiler -c -o $@ $<
$(FCPC_SRC:%.c=$(B)/%.o): $(if $(GEN_OBJ),| $(B)/gen/fcp.lex.h $(B)/gen/fcp.tab.h)

# tests: one Criterion program per file of tests/unit and tests/oracle
TESTS = $(patsubst %.c,$(B)/%,$(wildcard tests/unit/*.c tests/oracle/*.c))
$(B)/tests/%: $(B)/tests/%.o $(B)/libfcpc.a $(B)/libfcp.a
	$(CC) $(LDFLAGS) -o $@ $^ -lcriterion $(RT_LIBS)
tests: $(TESTS)

clean:
	rm -rf $(B)
.PHONY: all tests clean
.SECONDARY:
-include $(shell find $(B) -name '*.d' 2>/dev/null)
