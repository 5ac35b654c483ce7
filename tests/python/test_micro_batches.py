"""test_micro_batches.py: batches whose masks read fields, and forests of rollouts, are split into micro-batches. What is
summed over the micro-batches is what the whole batch gives: losses and gradients."""
import unittest

import fcpc

TREES = """model {{ heads = 4; kv_heads = 2; head_dim = 16 }}
cluster {{ gpus = 2; gpu = cpu }}
batch {{ field last = given; field at = given }}
mask tree = causal and q <= last[k]
mask near = tree and at[q] - at[k] < 6
plan {{ {masks}; block = 128; strategy = fcp }}"""


class Fields(unittest.TestCase):
    def test_equal_lengths_cost_what_their_fields_leave(self):
        """Eight chains, and eight sequences of 128 pieces that do not see each other: as long, but with less to do."""
        prog = fcpc.parse(TREES.format(masks="mask = tree"), fields=["last", "at"])
        length = 4096
        chain, pieces = [length - 1] * length, [t | 31 for t in range(length)]
        lengths, last = [length] * 16, [chain, pieces] * 8
        fields = {"last": last, "at": [list(range(length))] * 16}
        made = prog.micro_batches(lengths, tokens=4 * length, fields=fields, least=4)
        self.assertEqual(sorted(sum(made, [])), list(range(16)))
        self.assertEqual([sum(n % 2 == 0 for n in numbers) for numbers in made], [2] * 4)
        self.assertEqual(made, prog.micro_batches(lengths, None, 4 * length, 4, False, fields))

    def test_values_are_checked_as_by_plan(self):
        prog = fcpc.parse(TREES.format(masks="layers = [tree, near]"), fields=["last", "at"])
        right = {"last": [2, 2, 2], "at": [0, 1, 2]}
        self.assertEqual(prog.micro_batches([3], fields=right), [[0]])
        for fields, code in ((None, "E320"), ({"last": [2, 2, 2]}, "E320"), ({**right, "at": [1, 2]}, "E320"),
                             ({**right, "other": [1, 2, 3]}, "E320"), ([1, 2, 3], "E202")):
            for call in (prog.plan, prog.micro_batches):
                with self.assertRaises(fcpc.Error) as raised:
                    call([3], fields=fields)
                self.assertEqual(raised.exception.code, code, fields)
        for options, code in (({"tokens": -1}, "E206"), ({"least": 1 << 24}, "E206"), ({"tokens": 1}, "E206")):
            with self.assertRaises(fcpc.Error) as raised:
                prog.micro_batches([3], fields=right, **options)
            self.assertEqual(raised.exception.code, code, options)


if __name__ == "__main__":
    unittest.main()
