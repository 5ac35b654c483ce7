"""test_binding.py: what fcpc._c says of the headers, compared with them by a C compiler."""
import ctypes
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

import fcpc
from fcpc import _c

ROOT = Path(__file__).resolve().parents[2]


def compile_c(text):
    """The output of a C program that sees the headers."""
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder) / "a.c", Path(folder) / "a"
        source.write_text(text)
        made = subprocess.run(["cc", "-std=gnu11", "-Werror", f"-I{ROOT}", "-o", program, source],
                              stderr=subprocess.PIPE, text=True)
        if made.returncode:
            raise AssertionError(made.stderr)
        return subprocess.run([program], check=True, stdout=subprocess.PIPE, text=True).stdout


def offsets_program(structures):
    lines = ['#include <stdio.h>', '#include "compiler/fcpc.h"', _c.FUNCTIONS, "int main(void) {"]
    for s in structures:
        lines.append(f'printf("{s.__name__} %zu\\n", sizeof({s.__name__}));')
        lines += [f'printf("{s.__name__}.{f[0]} %zu %zu\\n", offsetof({s.__name__}, {f[0]}), '
                  f'sizeof((({s.__name__} *)0)->{f[0]}));' for f in s._fields_]
    return "\n".join(lines + ["}"])


class Binding(unittest.TestCase):
    def test_structures_and_functions(self):
        """The compiler accepts our declarations behind the header's, and finds our sizes and offsets."""
        said = compile_c(offsets_program(_c.STRUCTURES)).split("\n")
        for s in _c.STRUCTURES:
            self.assertIn(f"{s.__name__} {ctypes.sizeof(s)}", said)
            for name, *_ in s._fields_:
                field = getattr(s, name)
                self.assertIn(f"{s.__name__}.{name} {field.offset} {field.size}", said)

    def test_what_the_comparison_finds(self):
        """A function with another type, and a structure without a member, are found."""
        with self.assertRaises(AssertionError):
            compile_c('#include "compiler/fcpc.h"\nvoid fcp_plan_free(int plan);\nint main(void) { return 0; }')

        class fcp_start(ctypes.Structure):
            _fields_ = _c.fcp_start._fields_[:-1]
        self.assertNotIn(f"fcp_start {ctypes.sizeof(fcp_start)}", compile_c(offsets_program([fcp_start])).split("\n"))

    def test_the_page(self):
        """API.md is what the docstrings say (make python-pages), and everything public has one."""
        import pages
        self.assertEqual(pages.PAGE.read_text(), pages.page())
        listed = {thing.__name__ for _, things in pages.CHAPTERS for thing in things}
        self.assertLessEqual(set(fcpc.__all__), listed)

    def test_all_functions_are_typed(self):
        for name, function in _c.C.items():
            self.assertIsNotNone(function.argtypes, name)

    def test_version(self):
        self.assertEqual(fcpc.__version__, _c.C["fcp_version"]().decode())

    def test_no_library(self):
        made = subprocess.run([os.sys.executable, "-c", "import fcpc"], stderr=subprocess.PIPE, text=True,
                              env={**os.environ, "FCPC_LIBRARIES": "/nowhere"})
        self.assertIn("FCPC_LIBRARIES names the folder", made.stderr)
