"""`paceline bench`: the same work done by paceline and by its peers, in turn, in one run.

options   what is measured          work      prompts, and what one run gives
process   a contender's process     child     that process's inside
suite     the order of the runs     figures   runs -> numbers, pure
report    everything as JSON        targets, table, plot   what is shown of it
shape     random models of a given size, by the same passes as an import
"""
