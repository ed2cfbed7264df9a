"""What the README says about speed, runnable: gen-audit and its peers side by side."""
