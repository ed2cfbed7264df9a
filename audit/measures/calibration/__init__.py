"""Can the model's confidence, or the size of its errors, be believed on data it has not seen?"""
