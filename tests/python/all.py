"""all.py: runs the tests of this folder, or those that are named, and prints the closing line.

Without CHECK_LONG it leaves out the slow tests, which LONG lists and `make check-long` runs. Loading PyTorch again in
other processes, its compiler or transformers takes longer than what they test.
"""
import glob
import os
import shutil
import sys
import unittest
import warnings

import fcpc

HERE = os.path.dirname(os.path.abspath(__file__))
# Whole files first, so that transformers is not even loaded.
LONG = ("test_agent", "test_cuda", "test_hf", "test_loops", "test_trainer", "test_triton", "test_types",
        "test_audit.Right.test_many_programs",
        "test_audit_batch.Groups.test_torchtitan",
        "test_audit_batch.Groups.test_transformers",
        "test_audit_batch.Right.test_many_batches",
        "test_audit_others.Command.test_torchrun_and_a_program",  # it loads PyTorch in three processes
        "test_audit_others.Others.test_deepspeed",
        "test_audit_others.Others.test_many_of_torch",
        "test_audit_others.Others.test_torch_flex",
        "test_binding.Binding.test_the_page",  # it has the functions of fcpc.hf
        "test_group.Groups.test_two_processes",
        "test_grpo.Alike.test_four_processes",
        "test_grpo.Alike.test_generates",
        "test_grpo.Alike.test_settings",
        "test_interrupt.Interrupted.test_a_group",
        *(f"test_megatron.Ranks.test_{name}" for name in ("batches_refused_by_all", "layouts", "other_models",
                                                          "the_example", "windows_and_learnable_sinks")),
        *(f"test_package.{name}" for name in ("Wheel.test_a_clean_environment", "Wheel.test_it_computes_anywhere",
                                              "Wheel.test_its_files", "Wheel.test_its_tag", "Sources.test_editable")),
        "test_plan.Memory.test_many_plans_keep_it",
        "test_program.Pickles.test_another_process",  # these two load PyTorch in other processes
        "test_program.Pickles.test_workers",
        "test_recurrent.Example.test_the_same_losses",
        "test_recurrent.Operators.test_compiled",
        "test_restore.Restore.test_on_four_processes",
        "test_sft.Trained.test_families",
        "test_sft.Trained.test_other_tokens",
        "test_sft.Trained.test_settings_that_are_kept",
        "test_sft.Tuned.test_example",
        "test_sft.Tuned.test_tuned",
        "test_session.OnTheStandIn.test_with_torch",
        *(f"test_titan.Jobs.test_{name}" for name in ("compiled", "compositions", "layouts", "other_models",
                                                      "other_tokens", "the_example", "the_own_context_parallelism")),
        "test_torch.Autocast.test_compiled",  # these five load PyTorch's compiler
        "test_torch.Operators.test_compiled_whole_and_once",
        "test_torch.Operators.test_compiled_with_lse",
        "test_torch.Operators.test_opcheck",
        "test_torch.Operators.test_seen_from_outside",
        "test_trace.Masks.test_gallery",
        "test_verl_batch.Alike.test_divided_by_micro_batches",
        "test_verl_batch.Alike.test_four_processes")


def each(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from each(test)
        else:
            yield test


def all_tests(loader):
    """Those of the folder. An unknown name in LONG is an error, because it would leave out nothing."""
    everything = bool(os.environ.get("CHECK_LONG"))
    files = sorted(os.path.basename(path)[:-3] for path in glob.glob(os.path.join(HERE, "test_*.py")))
    tests = [test for name in files if everything or name not in LONG
             for test in each(loader.discover(HERE, pattern=name + ".py"))]
    unknown = set(LONG) - set(files) - {test.id() for test in tests}
    if unknown:
        sys.exit(f"python: 0 passed, 1 failed: there is no {', '.join(sorted(unknown))}")
    return unittest.TestSuite(test for test in tests if everything or test.id() not in LONG)


def main():
    os.chdir(HERE)
    loader = unittest.TestLoader()
    names = sys.argv[1:]
    suite = loader.loadTestsFromNames(names) if names else all_tests(loader)
    # Small batches leave ranks without tokens, and small masks are what they are. Tests of warnings ask for them.
    warnings.filterwarnings("ignore", category=fcpc.Warning)
    more = {"durations": 8} if sys.version_info >= (3, 12) else {}
    result = unittest.TextTestRunner(verbosity=2, warnings=False, **more).run(suite)
    for test, why in result.skipped:
        print(f"skipped: {test}: {why}")
    failed = len(result.failures) + len(result.errors) + len(result.unexpectedSuccesses)
    shutil.rmtree(os.environ.get("TORCHINDUCTOR_CACHE_DIR", ""), ignore_errors=True)
    sys.stderr.flush()
    print(f"python: {result.testsRun - failed - len(result.skipped)} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":  # processes of multiprocessing that are not forked load this file too
    sys.exit(main())
