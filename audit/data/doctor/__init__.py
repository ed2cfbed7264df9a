"""The doctor: what goes wrong most often is how a model is fed. Rules on numbers; `audit.run.doctor` runs the network.

`feedings.py` lists other ways to feed the samples, `trials.py` judges how the model does with each, `class_order.py`
whether the labels mean its outputs in another order.
"""
