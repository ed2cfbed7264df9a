"""gen-audit: will this model hold up on data it has not seen, and why or why not?"""

__version__ = "0.1.0"
