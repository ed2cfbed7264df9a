"""The terms and sums behind the flatness measures."""
