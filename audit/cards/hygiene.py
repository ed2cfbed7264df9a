"""Definition cards of data hygiene."""
from audit.card import Card

CARDS: tuple[Card, ...] = ()
