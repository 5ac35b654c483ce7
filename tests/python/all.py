"""all.py: runs the tests of this folder, or those that are named, and prints the closing line."""
import os
import shutil
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))


def main():
    os.chdir(HERE)
    loader = unittest.TestLoader()
    names = sys.argv[1:]
    suite = loader.loadTestsFromNames(names) if names else loader.discover(HERE)
    result = unittest.TextTestRunner(verbosity=2, durations=8).run(suite) if sys.version_info >= (3, 12) else \
        unittest.TextTestRunner(verbosity=2).run(suite)
    for test, why in result.skipped:
        print(f"skipped: {test}: {why}")
    failed = len(result.failures) + len(result.errors) + len(result.unexpectedSuccesses)
    shutil.rmtree(os.environ.get("TORCHINDUCTOR_CACHE_DIR", ""), ignore_errors=True)
    sys.stderr.flush()
    print(f"python: {result.testsRun - failed - len(result.skipped)} passed, {failed} failed")
    return 1 if failed else 0


sys.exit(main())
