"""From a recipe to a trained network: building, training, judging, predicting, and the runs that keep it all."""
