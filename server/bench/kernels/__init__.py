"""`paceline bench --kernels`: each operator alone, against what this machine can read and multiply at the most."""
