"""`penstock doctor SCRIPT`: why a PyTorch script waits for data, and what to change.

watch.py     the script's DataLoaders while it runs, from outside
machine.py   processor time and waiting for disks, of the script and its workers
alarm.py     ends a script, or a trial, that does not end
trial.py     the same dataset with either loader, without training
patch.py     the change, as a diff
diagnosis.py all of it in words
"""
