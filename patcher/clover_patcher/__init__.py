"""From a failing check to a validated patch: git, checks, localisation, candidates, fix."""
