"""test_frameworks.py: the versions of other packages are the same everywhere, and what is missing is said."""
import pathlib
import re
import unittest
import unittest.mock
import warnings

import fcpc
from fcpc import frameworks

ROOT = pathlib.Path(__file__).parents[2]


class Versions(unittest.TestCase):
    def test_pins(self):
        """Tests, pyproject.toml and the adapters name the same version of each framework."""
        pinned = dict(re.findall(r"^([\w-]+)==(\S+)$", (ROOT / "tests/python/requirements.txt").read_text(), re.M))
        self.assertEqual({name: pinned.get(name) for name in frameworks.TESTED}, frameworks.TESTED)
        offered = re.findall(r'"([\w-]+)==([\d.]+)"', (ROOT / "pyproject.toml").read_text())
        self.assertLessEqual({"torchtitan", "trl", "megatron-core"}, {name for name, _ in offered})
        for name, version in offered:
            self.assertEqual(version, frameworks.TESTED.get(name), name)

    def test_a_package_that_is_not_there(self):
        with unittest.mock.patch.dict(frameworks.TESTED, {"no-such-package": "1.2"}):
            with self.assertRaisesRegex(fcpc.Error, "no-such-package is not installed: pip install no-such-package==1.2"):
                frameworks.require("no-such-package")

    def test_another_version(self):
        """What an adapter replaces is no longer there: an error. All is there: a warning."""
        with unittest.mock.patch("importlib.metadata.version", return_value="99.0"):
            with self.assertRaisesRegex(fcpc.Error, "trl 99.0 has no json:JSONDecoder.parse, .* tested with trl 1.16.0"):
                frameworks.require("trl", "json:JSONDecoder.decode", "json:JSONDecoder.parse")
            with self.assertRaisesRegex(fcpc.Error, "trl 99.0 has no no_such_module:x"):
                frameworks.require("trl", "no_such_module:x")
            with self.assertWarnsRegex(fcpc.Warning, "trl 99.0 is here, and fcpc's adapter was tested with 1.16.0"):
                frameworks.require("trl", "json:JSONDecoder.decode")
        with unittest.mock.patch("importlib.metadata.version", return_value="1.16.0"), warnings.catch_warnings():
            warnings.simplefilter("error")
            frameworks.require("trl", "json:JSONDecoder.decode")
