"""A prepared process under the user's interpreter that forks a child for each run."""
