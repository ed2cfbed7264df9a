"""How much worse is the model on data it has not seen?"""

from audit.measures.workload import Demand, resampling

DEMAND = Demand(resampling, runs_network=False)
