"""Definition cards: what each number is, where it comes from, what it can and cannot tell."""
