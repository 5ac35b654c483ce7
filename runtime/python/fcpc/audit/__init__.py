"""audit: is this context parallelism right?"""
from .report import Finding, Report

__all__ = ["Finding", "Report"]
