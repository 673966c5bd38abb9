"""Many runs: of a grid or drawn from ranges, in one process or shared by many, with one table of them."""
