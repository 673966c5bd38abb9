"""Classifiers in the manner of scikit-learn, for people with pictures or features and a few labels."""
