"""What twins say of the model: from finished numbers and outcomes to the report's block. No torch."""
