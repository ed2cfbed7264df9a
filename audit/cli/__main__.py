"""`python -m audit.cli`."""

from audit.cli import main

main()
