"""Where the fault may be: tracebacks, diagnostics and coverage, ranked."""
