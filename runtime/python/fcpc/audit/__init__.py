"""audit: is this context parallelism right?

`check` runs attention of any kind on tensors that show which query weighs which key, and compares all weights,
outputs and gradients with a program. What differs is said in a Report, with the likely cause.
"""
from .batch import BatchReport, batch
from .check import check
from .programs import Trial as Trial
from .report import Finding, Report

__all__ = ["BatchReport", "Finding", "Report", "batch", "check"]
