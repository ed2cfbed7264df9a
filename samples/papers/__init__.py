"""What `samples/study.py` is made of: training, measuring, claims and their verdicts, figures and the page."""
