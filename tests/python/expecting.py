"""expecting.py: what tests of errors share."""
import unittest

import fcpc


class Expecting(unittest.TestCase):
    def expect(self, code, call, *words):
        """The call raises fcpc.Error with this code and these words in its message. Returns the error."""
        with self.assertRaises(fcpc.Error) as raised:
            call()
        self.assertEqual(raised.exception.code, code, str(raised.exception))
        for word in words:
            self.assertIn(word, str(raised.exception))
        return raised.exception
