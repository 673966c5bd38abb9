"""The ground floor: types, maths on parameter dicts, random numbers, statistics, losses, errors."""
