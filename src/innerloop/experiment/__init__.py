"""From a recipe to a trained network: building, training, judging, predicting, and runs that keep it all."""
