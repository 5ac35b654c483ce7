"""_c.py: the two C libraries, as ctypes sees them.

The functions are declared below with the words of runtime/fcp.h and compiler/fcpc.h. A test compiles these lines
together with the headers, so that the C compiler compares both, and checks the size and the offsets of each structure.
So the test fails if a header changes and this file does not.

ctypes.CDLL releases the interpreter lock while a C function runs, so threads of Python plan and compute in parallel.
"""
from __future__ import annotations

import ctypes
import os
import re
from pathlib import Path
from typing import Any, TypeVar

_bool, _double, _size = ctypes.c_bool, ctypes.c_double, ctypes.c_size_t
_u32, _u64, _i64 = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_int64
_text, _pointer, _int = ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int


class fcp_where(ctypes.Structure):
    _fields_ = [(name, _u32) for name in ("rank", "pass", "stage", "queue", "instruction")]


class fcp_error(ctypes.Structure):
    _fields_ = [("code", _int), ("line", _u32), ("column", _u32), ("where", fcp_where),
                ("file", ctypes.c_char * 240), ("message", ctypes.c_char * 520)]


class fcp_shape(ctypes.Structure):
    _fields_ = [("ranks", _u32), ("heads", _u32), ("kv_heads", _u32), ("head_dim", _u32), ("value_dim", _u32),
                ("values_in_keys", _bool), ("lse_gradient", _bool), ("dtype", _int),
                ("layout", _int), ("has_pass", _bool * 2), ("tokens", _u64), ("key_tokens", _u64),
                ("sequences", _u64), ("documents", _u64), ("scale", _double)]


class fcp_tensors(ctypes.Structure):
    _fields_ = [(name, _pointer) for name in ("q", "k", "v", "o", "lse", "d_o", "dq", "dk", "dv", "sink", "d_sink",
                                              "table", "d_table", "lse_low", "d_lse", "max_logit")]


class fcp_table(ctypes.Structure):
    _fields_ = [("name", _text), ("rows", _u64), ("columns", _u64), ("first", _u64), ("values", _pointer)]


class fcp_stretch(ctypes.Structure):
    _fields_ = [("document", _u64), ("start", _u64), ("first", _u64), ("length", _u64), ("begins", _u32),
                ("ends", _u32)]


class fcp_layer_shape(ctypes.Structure):
    _fields_ = [("kind", _int), ("times", _u32), ("before", _u32), ("after", _u32), ("channels", _u32),
                ("heads", _u32), ("rows", _u32), ("columns", _u32), ("decay", _int), ("reverse", _bool)]


class fcp_halo_rank(ctypes.Structure):
    _fields_ = [("x", _pointer), ("halo", _pointer)]


class fcp_halo_gradient_rank(ctypes.Structure):
    _fields_ = [("d_halo", _pointer), ("dx", _pointer)]


class fcp_scan_rank(ctypes.Structure):
    _fields_ = [("decay", _pointer), ("state", _pointer), ("entering", _pointer)]


class fcp_pairs_proof(ctypes.Structure):
    _fields_ = [("pairs", _u64), ("boxes", _u64), ("elements", _u64)]


class fcp_start(ctypes.Structure):
    _fields_ = [("size", _size), ("ranks", _u32), ("rank", _u32), ("device", _u32), ("id", _pointer),
                ("id_file", _text)]


ALLOCATE = ctypes.CFUNCTYPE(_pointer, _pointer, _u32, _size)
RELEASE = ctypes.CFUNCTYPE(None, _pointer, _u32, _pointer)


TAKE_EXTRACT = ctypes.CFUNCTYPE(_bool, _pointer, _u32, _pointer, _size)  # fcp_take_extract


class fcp_allocator(ctypes.Structure):
    _fields_ = [("context", _pointer), ("allocate", ALLOCATE), ("release", RELEASE)]


INTERRUPTED = ctypes.CFUNCTYPE(_int, _pointer)


class fcp_session_options(ctypes.Structure):
    _fields_ = [("size", _size), ("backend", _text), ("transport", _text), ("start", _pointer),
                ("compute_threads", _u32), ("timeout_s", _u32), ("host_tensors", _bool), ("stage_bytes", _size),
                ("graph_from", _u32), ("partition", _int), ("mma_sync", _bool), ("timings", _bool),
                ("fuse", _int), ("allocator", fcp_allocator), ("interrupted", INTERRUPTED),
                ("interrupted_context", _pointer)]


class fcpc_diagnostic(ctypes.Structure):
    _fields_ = [("warning", _bool), ("code", _int), ("message", _text), ("file", _text), ("line", _u32),
                ("column", _u32)]


class fcpc_options(ctypes.Structure):
    _fields_ = [("size", _size), ("defines", _pointer), ("define_count", _size), ("lengths_file", _text),
                ("fields", _pointer), ("field_count", _size), ("need_lengths", _bool), ("stop", _pointer),
                ("profile", _text), ("see_file", _pointer), ("context", _pointer), ("regular_files", _bool)]


class fcpc_field(ctypes.Structure):
    _fields_ = [("name", _text), ("values", _pointer), ("count", _u64), ("reals", _pointer)]


class fcpc_batch(ctypes.Structure):
    _fields_ = [("size", _size), ("lengths", _pointer), ("queries", _pointer), ("count", _size),
                ("fields", _pointer), ("field_count", _size), ("progress", _pointer), ("bound", _bool),
                ("max_seconds", _double)]


class fcpc_split_options(ctypes.Structure):
    _fields_ = [("size", _size), ("tokens", _u32), ("least", _u32), ("keep_order", _bool)]


class fcpc_rollouts(ctypes.Structure):
    _fields_ = [("size", _size), ("count", _u32), ("lengths", _pointer), ("first", _pointer), ("tokens", _pointer),
                ("groups", _pointer), ("least", _u64)]


class fcpc_forest_view(ctypes.Structure):
    _fields_ = [("tokens", _u64), ("rollout_tokens", _u64), ("trees", _u32), ("rollouts", _u32), ("lengths", _pointer),
                ("token", _pointer), ("position", _pointer), ("last", _pointer), ("parent", _pointer),
                ("sharing", _pointer), ("rollout", _pointer), ("tree", _pointer), ("start", _pointer),
                ("rows", _pointer)]


class fcpc_times(ctypes.Structure):
    _fields_ = [("parse", _double), ("classify", _double), ("place", _double), ("colour", _double),
                ("schedule", _double), ("verify", _double), ("total", _double), ("bytes_lower_bound", _u64),
                ("choose", _double)]


class fcpc_phases(ctypes.Structure):
    _fields_ = [("count", _u32), ("heads", _u32), ("kv_heads", _u32), ("sharing", _u32)]


class fcpc_show_options(ctypes.Structure):
    _fields_ = [("size", _size), ("width", _u32), ("colour", _bool), ("unicode", _bool), ("part", _bool),
                ("choose_sequence", _bool), ("sequence", _u32), ("row", _u64), ("row_end", _u64), ("col", _u64),
                ("col_end", _u64), ("ranks", _text), ("choose_head", _bool), ("head", _u32), ("profile", _text)]


class fcpc_question(ctypes.Structure):
    _fields_ = [("size", _size), ("q", _i64), ("k", _i64), ("length", _u64), ("choose_sequence", _bool),
                ("sequence", _u32), ("head", _u32), ("logit", _double), ("plan", _pointer), ("width", _u32),
                ("colour", _bool)]


STRUCTURES = [fcp_where, fcp_error, fcp_shape, fcp_tensors, fcp_table, fcp_stretch, fcp_layer_shape, fcp_halo_rank,
              fcp_halo_gradient_rank, fcp_scan_rank, fcp_pairs_proof, fcp_start, fcp_allocator, fcp_session_options,
              fcpc_diagnostic, fcpc_options, fcpc_field, fcpc_batch, fcpc_times, fcpc_phases, fcpc_show_options,
              fcpc_question, fcpc_split_options, fcpc_rollouts, fcpc_forest_view]

FUNCTIONS = """
const char *fcp_version(void);
const char *fcp_code_name(fcp_code code);
const char *fcp_code_text(fcp_code code);
fcp_code fcp_plan_load(const char *path, fcp_plan **out_plan, fcp_error *err);
fcp_code fcp_plan_load_memory(const void *bytes, size_t size, fcp_plan **out_plan, fcp_error *err);
fcp_code fcp_plan_save(const fcp_plan *plan, const char *path, fcp_error *err);
void fcp_plan_free(fcp_plan *plan);
fcp_code fcp_plan_digest(const fcp_plan *plan, uint8_t *out_digest, fcp_error *err);
fcp_code fcp_plan_homes(const fcp_plan *plan, uint8_t *out_digest, fcp_error *err);
fcp_code fcp_extracts_save(const fcp_plan *plan, const char *path, const volatile int *stop, uint8_t *out_root,
                           fcp_error *err);
fcp_code fcp_extracts_cut(const fcp_plan *plan, uint32_t first, uint32_t count, const volatile int *stop,
                          fcp_take_extract take, void *context, uint8_t *out_root, fcp_error *err);
fcp_code fcp_extract_load(const void *bytes, size_t size, uint32_t rank, const uint8_t *root, fcp_plan **out_plan,
                          fcp_error *err);
fcp_code fcp_extracts_load(const char *path, uint32_t rank, const uint8_t *root, fcp_plan **out_plan, fcp_error *err);
fcp_code fcp_plan_verify_pairs(const fcp_plan *plan, double max_seconds, const volatile int *stop,
                               fcp_pairs_proof *out_proof, fcp_error *err);
void fcp_plan_shape(const fcp_plan *plan, fcp_shape *out_shape);
fcp_code fcp_start_id(void *out_id, fcp_error *err);
uint64_t fcp_plan_table_numbers(const fcp_plan *plan);
uint32_t fcp_plan_tables(const fcp_plan *plan, uint32_t number, fcp_table *out_table);
void fcp_plan_ranks_tokens(const fcp_plan *plan, uint32_t first, uint32_t count, uint64_t *out_queries,
                           uint64_t *out_keys);
void fcp_plan_rows(const fcp_plan *plan, uint32_t rank, bool keys, int64_t shift, int64_t *out_rows);
void fcp_plan_positions(const fcp_plan *plan, uint32_t rank, bool keys, int64_t *out_positions);
void fcp_plan_documents(const fcp_plan *plan, uint64_t *out_first);
uint32_t fcp_plan_stretches(const fcp_plan *plan, uint32_t rank, fcp_stretch *out);
uint32_t fcp_plan_recurrent(const fcp_plan *plan, uint32_t number, fcp_layer_shape *out_shape);
fcp_code fcp_session_create(const fcp_plan *plan, const fcp_session_options *options, fcp_session **out_session,
                            fcp_error *err);
void fcp_session_free(fcp_session *session);
fcp_code fcp_session_run(fcp_session *session, fcp_pass pass, const fcp_tensors *tensors, fcp_error *err);
fcp_code fcp_session_run_on(fcp_session *session, fcp_pass pass, const fcp_tensors *tensors, void *stream,
                            fcp_error *err);
fcp_code fcp_session_run_kept(fcp_session *session, fcp_pass pass, const fcp_tensors *tensors, void *stream,
                              fcp_error *err);
bool fcp_session_keys_stay(fcp_session *session);
fcp_code fcp_session_wait(fcp_session *session, fcp_error *err);
fcp_code fcp_session_rebind(fcp_session *session, const fcp_plan *plan, fcp_error *err);
fcp_code fcp_session_add(fcp_session *session, const fcp_plan *plan, uint32_t layer_of, uint32_t *out_number,
                         fcp_error *err);
fcp_code fcp_session_select(fcp_session *session, uint32_t number, fcp_error *err);
uint32_t fcp_session_processes(const fcp_session *session);
fcp_code fcp_session_gather(fcp_session *session, const void *mine, size_t bytes, void *out_all, fcp_error *err);
fcp_code fcp_session_halo(fcp_session *session, uint32_t layer, size_t row_bytes, const fcp_halo_rank *ranks,
                          void *stream, fcp_error *err);
fcp_code fcp_session_halo_gradient(fcp_session *session, uint32_t layer, fcp_dtype dtype, uint64_t numbers,
                                   const fcp_halo_gradient_rank *ranks, void *stream, fcp_error *err);
fcp_code fcp_session_scan(fcp_session *session, uint32_t layer, fcp_pass pass, const fcp_scan_rank *ranks,
                          void *stream, fcp_error *err);
fcpc_diagnostics *fcpc_diagnostics_new(void);
void fcpc_diagnostics_free(fcpc_diagnostics *d);
size_t fcpc_diagnostics_count(const fcpc_diagnostics *d);
void fcpc_diagnostics_get(const fcpc_diagnostics *d, size_t i, fcpc_diagnostic *out);
char *fcpc_diagnostics_render(const fcpc_diagnostics *d, bool colour);
fcp_code fcpc_parse_text(const char *name, const char *text, size_t size, const fcpc_options *options,
                         fcpc_diagnostics *d, fcpc_program **out_program);
fcp_code fcpc_program_phases(const fcpc_program *program, fcpc_phases *out_phases, uint32_t *out_heads,
                             uint32_t *out_kv_heads, fcp_error *err);
uint32_t fcpc_program_layers(const fcpc_program *program, uint32_t number, uint32_t *out_times);
void fcpc_program_free(fcpc_program *program);
char *fcpc_program_print(const fcpc_program *program);
const char *fcpc_program_file(const fcpc_program *program, size_t number);
fcp_code fcpc_plan_layers(const fcpc_program *program, const fcpc_batch *batch, const volatile int *stop,
                          fcpc_diagnostics *d, fcpc_times *out_times, fcp_plan **out_plans);
fcp_code fcpc_split_batch(const fcpc_program *program, const fcpc_batch *batch, const fcpc_split_options *options,
                          const volatile int *stop, fcpc_diagnostics *d, uint32_t *out_of, double *out_seconds,
                          uint32_t *out_count);
fcp_code fcpc_split_forest(const fcpc_program *program, const fcpc_forest *forest, const fcpc_split_options *options,
                           const volatile int *stop, fcpc_diagnostics *d, fcpc_forest **out_forest, uint32_t *out_of,
                           double *out_seconds, uint32_t *out_count);
fcp_code fcpc_forest_make(const fcpc_rollouts *rollouts, fcpc_forest **out_forest, fcp_error *err);
void fcpc_forest_free(fcpc_forest *forest);
void fcpc_forest_look(const fcpc_forest *forest, fcpc_forest_view *out_view);
fcp_code fcpc_forest_cut(const fcpc_forest *forest, uint64_t tokens, fcpc_forest **out_forest, fcp_error *err);
fcp_code fcpc_forest_pick(const fcpc_forest *forest, const uint32_t *trees, uint32_t count, fcpc_forest **out_forest,
                          fcp_error *err);
fcp_code fcpc_summary_text(const fcp_plan *plan, const fcpc_times *times, const char *name, const char *written,
                           char **out_text, fcp_error *err);
fcp_code fcpc_summary_json(const fcp_plan *plan, const fcpc_times *times, char **out_text, fcp_error *err);
fcp_code fcpc_simulate_json(const fcp_plan *plan, const char *profile, char **out_text, fcp_error *err);
fcp_code fcpc_show_text(const fcp_plan *plan, const fcpc_show_options *options, char **out_text, fcp_error *err);
fcp_code fcpc_show_svg(const fcp_plan *plan, const fcpc_show_options *options, char **out_text, fcp_error *err);
fcp_code fcpc_show_html(const fcp_plan *plan, const fcpc_show_options *options, char **out_text, fcp_error *err);
fcp_code fcpc_show_json(const fcp_plan *plan, const fcpc_show_options *options, char **out_text, fcp_error *err);
char *fcpc_foreign_word(const char *word, uint32_t places, const char *value);
fcp_code fcpc_explain_text(const char *name, const char *text, size_t size, const fcpc_options *options,
                           const fcpc_question *question, fcpc_diagnostics *d, char **out_text);
"""

_VALUES = {"fcp_code": _int, "fcp_pass": _int, "fcp_dtype": _int, "bool": _bool, "size_t": _size, "uint32_t": _u32,
           "uint64_t": _u64, "int64_t": _i64, "double": _double, "void": None, "fcp_take_extract": TAKE_EXTRACT}


def _type(declared: str, is_result: bool) -> Any:
    """The ctypes type of a declaration such as `const char *path`. Text that the caller must free stays a pointer."""
    if "**" in declared or "*" in declared and "char" not in declared:
        return _pointer
    if "*" in declared:
        return _pointer if is_result and "const" not in declared else _text
    return _VALUES[declared.split()[0]]


def _declare(libraries: dict[str, Any]) -> dict[str, Any]:
    """Gives the functions of FUNCTIONS their types, and returns them by name."""
    found: dict[str, Any] = {}
    for line in re.sub(r"\s+", " ", FUNCTIONS).split(";"):
        if not line.strip():
            continue
        result, name, parameters = re.findall(r"^\s*(.*?)(\w+)\((.*)\)\s*$", line)[0]
        library = libraries[name.split("_")[0]]
        try:
            function = getattr(library, name)
        except AttributeError:
            raise ImportError(f"{library._name} is not of this version of fcpc: it has no {name}. `pip install .` "
                              f"builds both; in a tree, `make shared` builds the libraries") from None
        function.restype = _type(result, True)
        function.argtypes = [_type(p.strip(), False) for p in parameters.split(",") if p.strip() != "void"]
        found[name] = function
    return found


def folder() -> Path:
    """The folder of the libraries and the program: FCPC_LIBRARIES, if it is set; the build folder of the repository
    (build, or FCPC_BUILD), if the package is in one; else the package's own folder."""
    named, here = os.environ.get("FCPC_LIBRARIES"), Path(__file__).resolve().parent
    tree = here.parent.parent.parent
    if named:
        return Path(named)
    return tree / os.environ.get("FCPC_BUILD", "build") if (tree / "runtime/fcp.h").exists() else here / "lib"


def _load() -> dict[str, Any]:
    where, loaded = folder(), {}
    for name in ("fcp", "fcpc"):  # in this order: the second needs the first
        try:
            loaded[name] = ctypes.CDLL(str(where / f"lib{name}.so"))
        except OSError as error:
            raise ImportError(f"fcpc cannot load its library: {error}. `pip install .` builds it; in a tree, so does "
                              f"`make shared`. FCPC_LIBRARIES names the folder of both, if it is another") from None
    return _declare(loaded)


C: dict[str, Any] = _load()
_free = ctypes.CDLL(None).free
_free.argtypes, _free.restype = [_pointer], None


Me = TypeVar("Me")


class Owner:
    """An object that owns an object of C, and frees it. A real copy would free it twice, so a copy is the object
    itself: a deep copy of a model shares the attention of the model. In another process the address means nothing, so
    these objects are not pickled, unless a class says from what the object can be made again."""

    def __copy__(self: Me) -> Me:
        return self

    def __deepcopy__(self: Me, memo: Any) -> Me:
        return self

    def __reduce_ex__(self, protocol: Any) -> Any:
        what = type(self).__name__
        raise TypeError(f"{'an' if what[0] in 'AEIOU' else 'a'} {what} belongs to its process and is not pickled: make "
                        "one there, of the program and the plans, which are")


class ReadOnly(Owner):
    """An Owner with read-only attributes: only its own class sets them, by `_put`."""

    def _put(self, **attributes: Any) -> None:
        """Sets attributes, which nobody else may."""
        vars(self).update(attributes)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__.lower()}.{name} is read-only")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__.lower()}.{name} is read-only")


def path_bytes(path: str | bytes | os.PathLike[Any]) -> bytes:
    """A path (str, bytes or os.PathLike) as C takes it."""
    name = os.fsencode(path)
    if b"\0" in name:
        raise ValueError("embedded null byte")  # as open() says it
    return name


def take_text(pointer: int | None) -> str:
    """The text at a char * that C has allocated for its caller; frees it."""
    if not pointer:
        raise MemoryError("fcpc is out of memory")
    try:
        return ctypes.string_at(pointer).decode()
    finally:
        _free(pointer)


def call_text(name: str, *arguments: Any) -> str:
    """Calls a function of C whose last parameters are out_text and err, and returns the text."""
    made, err = _pointer(), fcp_error()
    check(C[name](*arguments, ctypes.byref(made), ctypes.byref(err)), err)
    return take_text(made.value)


def check(code: int, err: fcp_error) -> None:
    """Raises the error that a C function has returned, unless it is none."""
    if code:
        from .errors import Error
        from .libraries import explained
        raise explained(Error.of_c(err))
