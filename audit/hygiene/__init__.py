"""The parts of the data-hygiene measure: equal rows, neighbours, near twins, suspect labels, balance, leaks."""
