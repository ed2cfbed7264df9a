"""Can the model's confidence, or the size of its errors, be believed on data it has not seen?"""

from audit.measures.workload import Demand, resampling

DEMAND = Demand(resampling, runs_network=False)
