"""`python -m audit`: the command line."""

from audit.cli import main

main()
